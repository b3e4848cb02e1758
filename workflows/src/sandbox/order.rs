//! What the shop's own side hands in: an order with everything that belongs to it, and a buyer's payment.

use jiff::Timestamp;

use super::{Capture, PaymentTerms};

/// An order as a buyer places it, with what is held for it.
#[derive(Clone, Debug)]
pub struct NewOrder {
    /// The order's id, equal to the workflow's.
    pub order_id: String,
    /// Until when it waits.
    pub pay_deadline: Timestamp,
    /// What it costs, a decimal string.
    pub amount: String,
    /// ISO 4217.
    pub currency: String,
    /// Units to reserve; they are put on the shelf first if the SKU lacks them.
    pub reservation: Option<NewReservation>,
    /// A coupon to lock.
    pub coupon_id: Option<String>,
    /// A payment to open.
    pub payment: Option<NewPayment>,
    /// The order service refuses a payment past the deadline with `EXPIRED`.
    pub refuses_late_payment: bool,
    /// So many first cancels are answered `NOT_READY`.
    pub not_ready_asks: u32,
}

impl NewOrder {
    /// An order of 10 USD with nothing held for it.
    pub fn new(order_id: &str, pay_deadline: Timestamp) -> NewOrder {
        NewOrder {
            order_id: order_id.to_owned(),
            pay_deadline,
            amount: "10.00".to_owned(),
            currency: "USD".to_owned(),
            reservation: None,
            coupon_id: None,
            payment: None,
            refuses_late_payment: false,
            not_ready_asks: 0,
        }
    }

    /// The same order with a reservation `{id}-stock`, a coupon `{id}-coupon` and a payment `{id}-pay`.
    #[must_use]
    pub fn with_everything(mut self) -> NewOrder {
        let id = &self.order_id;
        self.reservation = Some(NewReservation { token: format!("{id}-stock"), sku: "sku-1".to_owned(), quantity: 1 });
        self.coupon_id = Some(format!("{id}-coupon"));
        self.payment = Some(NewPayment { payment_id: format!("{id}-pay"), terms: PaymentTerms::default() });
        self
    }
}

/// Units to reserve for an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReservation {
    /// The token that releases them.
    pub token: String,
    /// Which SKU.
    pub sku: String,
    /// How many units.
    pub quantity: u64,
}

/// A payment to open at the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPayment {
    /// The channel's id of it.
    pub payment_id: String,
    /// How the channel treats it.
    pub terms: PaymentTerms,
}

impl Capture {
    /// Money taken now, to the millisecond: that is what the channel tells.
    pub fn now(transaction_id: &str, amount: &str, currency: &str) -> Capture {
        let now = Timestamp::now();
        Capture {
            transaction_id: transaction_id.to_owned(),
            amount: amount.to_owned(),
            currency: currency.to_owned(),
            paid_at: Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now),
        }
    }
}
