//! The signals of an order.

use overdue_activities::{Capture, Money, check_path_segment};
use overdue_runtime::workflow::{NewDeadline, Signal};
use overdue_runtime::{InvalidField, Payload, Timestamp};
use serde::{Deserialize, Serialize};

/// Money arrived.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentSucceeded {
    /// The channel's id of the transaction, by which payments are deduplicated.
    pub transaction_id: String,
    /// How much: a decimal string.
    pub amount: String,
    /// In which ISO 4217 currency.
    pub currency: String,
    /// When.
    pub paid_at: Timestamp,
    /// The payment that it belongs to, if it is not the order's.
    pub payment_id: Option<String>,
}

/// The part that makes a second delivery the same.
#[derive(Serialize)]
struct Identity<'a> {
    transaction: &'a str,
    /// As a number: "19.9" is "19.90".
    amount: String,
    currency: &'a str,
}

impl PaymentSucceeded {
    /// What arrived; `None` for money that could not have passed [`Signal::check`].
    pub fn capture(&self) -> Option<Capture> {
        let money = Money::new(self.amount.as_str(), self.currency.as_str()).ok()?;
        Some(Capture { transaction_id: self.transaction_id.clone(), money, paid_at: self.paid_at })
    }
}

impl Signal for PaymentSucceeded {
    const NAME: &'static str = "payment-succeeded";

    fn check(&self) -> Result<(), Vec<InvalidField>> {
        let mut errors = Vec::new();
        for (field, value) in [("transactionId", Some(&self.transaction_id)), ("paymentId", self.payment_id.as_ref())] {
            if let Some(Err(error)) = value.map(|value| check_path_segment(value)) {
                errors.push(InvalidField::new(field, error.to_string()));
            }
        }
        if let Err(error) = Money::new(self.amount.as_str(), self.currency.as_str()) {
            errors.push(InvalidField::new(error.field(), error.to_string()));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn subject(&self) -> Option<String> {
        Some(self.transaction_id.clone())
    }

    fn identity(&self) -> Option<Payload> {
        let number = self.amount.trim_start_matches('0');
        let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
        let identity = Identity { transaction: &self.transaction_id, amount: number.to_owned(), currency: &self.currency };
        Payload::of(&identity).ok()
    }
}

/// A payment did not go through.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentFailed {
    /// Why.
    pub reason: String,
    /// Whether the buyer cannot try again; the order is then cancelled.
    #[serde(default, rename = "final")]
    pub is_final: bool,
}

impl Signal for PaymentFailed {
    const NAME: &'static str = "payment-failed";
}

/// The user does not want the order any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelOrder {
    /// Why.
    pub reason: String,
    /// Who, where it came as a cancel request of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

impl Signal for CancelOrder {
    const NAME: &'static str = "cancel-order";
}

/// The order may be paid for longer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtendDeadline {
    /// Until when.
    pub pay_deadline: Timestamp,
}

impl Signal for ExtendDeadline {
    const NAME: &'static str = "extend-deadline";
}

/// A person moves the deadline, either way. The order service still judges: it may answer that the order is not due yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetDeadline {
    /// Until when the order may be paid from now on.
    pub pay_deadline: Timestamp,
    /// Why.
    pub reason: String,
    /// Who, where it came as an operator's request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

impl Signal for SetDeadline {
    const NAME: &'static str = "set-deadline";
}

impl From<NewDeadline> for SetDeadline {
    fn from(NewDeadline { deadline, reason, actor }: NewDeadline) -> Self {
        Self { pay_deadline: deadline, reason, actor: Some(actor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(amount: &str, paid_at: &str) -> PaymentSucceeded {
        let json = format!(r#"{{"transactionId":"txn","amount":"{amount}","currency":"USD","paidAt":"{paid_at}"}}"#);
        Payload::from_json(&json).unwrap().parse().unwrap()
    }

    #[test]
    fn the_same_money_at_another_time_is_the_same_payment() {
        let identity = |amount, paid_at| payment(amount, paid_at).identity().unwrap().canonical_hash();
        let first = identity("19.90", "2026-11-30T18:00:00Z");
        assert_eq!(first, identity("19.9", "2026-12-01T18:00:00Z"));
        assert_eq!(first, identity("019.90", "2026-12-01T18:00:00Z"));
        assert_ne!(first, identity("19.91", "2026-11-30T18:00:00Z"));
        assert_ne!(identity("100", "2026-11-30T18:00:00Z"), identity("1", "2026-11-30T18:00:00Z"));
        assert_eq!(identity("5.00", "2026-11-30T18:00:00Z"), identity("5", "2026-11-30T18:00:00Z"));
    }

    #[test]
    fn money_of_the_wrong_shape_is_refused_by_name() {
        assert_eq!(payment("19.999", "2026-11-30T18:00:00Z").check().unwrap_err()[0].field, "amount");
    }
}
