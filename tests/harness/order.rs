//! An order as a start describes it.

use std::time::Duration;

use overdue_runtime::Timestamp;
use serde_json::{Map, Value, json};

use super::START;

/// An order of 19.99 USD with stock, coupon and payment, due half an hour after the story begins and watched for an hour.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) id: String,
    input: Map<String, Value>,
}

impl Order {
    pub(crate) const TIME_TO_PAY: Duration = Duration::from_secs(30 * 60);
    pub(crate) const WATCH: Duration = Duration::from_secs(3600);

    pub(crate) fn new(id: &str) -> Self {
        let input = json!({
            "orderId": id, "payDeadline": START.saturating_add(Self::TIME_TO_PAY), "amount": "19.99", "currency": "USD",
            "paymentId": format!("{id}-pay"), "stockToken": format!("{id}-stock"), "couponId": format!("{id}-coupon"),
            "latePaymentWindow": "PT1H",
        });
        let Value::Object(input) = input else { unreachable!("it is an object") };
        Self { id: id.to_owned(), input }
    }

    /// Without anything to give back or to close.
    pub(crate) fn bare(id: &str) -> Self {
        Self::new(id).without("paymentId").without("stockToken").without("couponId")
    }

    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.input.insert(field.to_owned(), value.into());
        self
    }

    pub(crate) fn without(mut self, field: &str) -> Self {
        self.input.remove(field);
        self
    }

    pub(crate) fn costs(self, amount: &str, currency: &str) -> Self {
        self.with("amount", amount).with("currency", currency)
    }

    pub(crate) fn due(self, at: Timestamp) -> Self {
        self.with("payDeadline", at.to_string())
    }

    pub(crate) fn closes_before_it_cancels(self) -> Self {
        self.with("closePayment", "beforeCancel")
    }

    pub(crate) fn input(&self) -> Value {
        Value::Object(self.input.clone())
    }
}
