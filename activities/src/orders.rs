//! The order service, which alone judges who won: `cancel-order` and `confirm-paid`.

use async_trait::async_trait;
use http::Method;
use overdue_runtime::Timestamp;
use overdue_runtime::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions};
use serde::{Deserialize, Serialize};

use crate::definition::{Definition, RETRY_AFTER, plain, text, with};
use crate::endpoint::Endpoint;
use crate::payments::Capture;

pub(crate) const CANCEL_ORDER: Definition = Definition {
    name: "cancel-order",
    method: Method::POST,
    path: "/orders/{orderId}/cancel",
    body: &["reason", "payDeadline"],
    others: &["orderId"],
    outcomes: &[
        plain("CANCELLED"),
        plain("ALREADY_CANCELLED"),
        with("ALREADY_PAID", &[text("transactionId")]),
        with("NOT_DUE", &[text("payDeadline")]),
        with("NOT_READY", RETRY_AFTER),
        plain("NOT_FOUND"),
    ],
};

pub(crate) const CONFIRM_PAID: Definition = Definition {
    name: "confirm-paid",
    method: Method::POST,
    path: "/orders/{orderId}/confirm-paid",
    body: &["transactionId", "amount", "currency", "paidAt"],
    others: &["orderId"],
    outcomes: &[
        plain("PAID"),
        with("ALREADY_PAID", &[text("transactionId")]),
        plain("ALREADY_CANCELLED"),
        plain("EXPIRED"),
        plain("NOT_FOUND"),
    ],
};

/// Why an order is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CancelReason {
    /// Nobody paid until the deadline.
    Timeout,
    /// The user asked for it.
    User,
    /// The payment failed for good.
    PaymentFailed,
}

/// What `cancel-order` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelOrderInput {
    /// The order.
    pub order_id: String,
    /// Why.
    pub reason: CancelReason,
    /// The deadline that has passed, as far as we know it.
    pub pay_deadline: Timestamp,
}

/// What `cancel-order` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum CancelOrderOutcome {
    /// We won.
    Cancelled,
    /// The user did it, or an earlier attempt.
    AlreadyCancelled,
    /// Paid, shipped or finished: nothing is given back.
    AlreadyPaid {
        /// The transaction that paid it, if the order service says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transaction_id: Option<String>,
    },
    /// The order service knows a later deadline.
    NotDue {
        /// That deadline.
        pay_deadline: Timestamp,
    },
    /// Still being created.
    NotReady {
        /// Seconds until it is to be asked again; at least 1.
        retry_after: u64,
    },
    /// No such order.
    NotFound,
}

/// What `confirm-paid` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmPaidInput {
    /// The order.
    pub order_id: String,
    /// The money that came in.
    #[serde(flatten)]
    pub payment: Capture,
}

/// What `confirm-paid` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum ConfirmPaidOutcome {
    /// The order is kept.
    Paid,
    /// It is kept already; with another transaction it was paid twice.
    AlreadyPaid {
        /// The transaction that paid it.
        transaction_id: String,
    },
    /// Given up before: the payment is late.
    AlreadyCancelled,
    /// The order service refuses a payment past the deadline.
    Expired,
    /// No such order.
    NotFound,
}

/// Cancels an order that is still unpaid.
pub struct CancelOrder(pub(crate) Endpoint);

#[async_trait]
impl Activity for CancelOrder {
    const NAME: &'static str = CANCEL_ORDER.name;
    type Input = CancelOrderInput;
    type Output = CancelOrderOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: CancelOrderInput) -> Result<CancelOrderOutcome, ActivityFailure> {
        self.0.call(ctx, &input, None).await
    }
}

/// Tells the order service that an order is paid, and asks it whether that counts.
pub struct ConfirmPaid(pub(crate) Endpoint);

#[async_trait]
impl Activity for ConfirmPaid {
    const NAME: &'static str = CONFIRM_PAID.name;
    type Input = ConfirmPaidInput;
    type Output = ConfirmPaidOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: ConfirmPaidInput) -> Result<ConfirmPaidOutcome, ActivityFailure> {
        self.0.call(ctx, &input, None).await
    }
}
