//! What the shop's books and ledgers say, for tests and audits to look at.

use std::collections::BTreeMap;

use super::desk::ledger_file;
use super::stock::Stock;
use super::{
    Capture, Counts, CouponStatus, Decided, EffectRecord, Error, Order, PaymentStatus, Record, RequestRecord, ReservationStatus,
    Service, Shop, StockLevel, ledger,
};

impl Shop {
    /// The order's row.
    pub fn order(&self, order_id: &str) -> Option<Order> {
        self.orders.read(|orders| orders.order(order_id).cloned())
    }

    /// How many orders are decided, and how.
    pub fn decided(&self) -> Decided {
        self.orders.read(|orders| orders.decided())
    }

    /// Where a reservation stands.
    pub fn reservation(&self, token: &str) -> Option<ReservationStatus> {
        self.stock.read(|stock| stock.reservation(token))
    }

    /// The units of a SKU.
    pub fn stock_level(&self, sku: &str) -> StockLevel {
        self.stock.read(|stock| stock.level(sku))
    }

    /// The units of every SKU.
    pub fn stock_levels(&self) -> BTreeMap<String, StockLevel> {
        self.stock.read(Stock::levels)
    }

    /// Where a coupon stands.
    pub fn coupon(&self, coupon_id: &str) -> Option<CouponStatus> {
        self.coupons.read(|coupons| coupons.coupon(coupon_id))
    }

    /// Where a payment stands, captures aside.
    pub fn payment(&self, payment_id: &str) -> Option<PaymentStatus> {
        self.payments.read(|payments| payments.payment(payment_id).map(|payment| payment.status))
    }

    /// The money that the channel took on a payment, in order.
    pub fn captures(&self, payment_id: &str) -> Vec<Capture> {
        self.payments.read(|payments| payments.payment(payment_id).map_or_else(Vec::new, |payment| payment.captures.clone()))
    }

    /// Whether a captured transaction has gone back to the buyer.
    pub fn refunded(&self, payment_id: &str, transaction_id: &str) -> bool {
        self.payments.read(|payments| payments.payment(payment_id).is_some_and(|payment| payment.refunds.settled(transaction_id)))
    }

    /// What all four services have counted together.
    pub fn counts(&self) -> Counts {
        let mut counts = self.orders.counts();
        for other in [self.stock.counts(), self.coupons.counts(), self.payments.counts()] {
            counts.add(&other);
        }
        counts
    }

    /// Every line of one service's ledger so far.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn ledger(&self, service: Service) -> Result<Vec<Record>, Error> {
        let in_memory = match service {
            Service::Orders => self.orders.records(),
            Service::Stock => self.stock.records(),
            Service::Coupons => self.coupons.records(),
            Service::Payments => self.payments.records(),
        };
        in_memory.map_or_else(|| ledger::read(&ledger_file(&self.folder, service)), Ok)
    }

    /// The requests that one service got so far, in order of arrival.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn requests(&self, service: Service) -> Result<Vec<RequestRecord>, Error> {
        let lines = self.ledger(service)?;
        Ok(lines.into_iter().filter_map(|line| if let Record::Request(it) = line { Some(it) } else { None }).collect())
    }

    /// The effects that one service applied so far, in order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn effects(&self, service: Service) -> Result<Vec<EffectRecord>, Error> {
        let lines = self.ledger(service)?;
        Ok(lines.into_iter().filter_map(|line| if let Record::Effect(it) = line { Some(it) } else { None }).collect())
    }
}
