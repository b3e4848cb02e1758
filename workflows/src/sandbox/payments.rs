//! The payment service: a channel where buyers pay, and which closes, voids and refunds.
//!
//! | payment | close | void |
//! |---|---|---|
//! | unknown | NOT_CREATED (no tombstone: a signed pay link may still be out) | NOT_CREATED |
//! | younger than the channel allows | TOO_EARLY | |
//! | captured | ALREADY_PAID with the first capture not yet refunded | ALREADY_PAID |
//! | held | AUTHORIZED | VOIDED |
//! | the buyer is paying | IN_PROGRESS, a set number of times | ALREADY_VOIDED |
//! | open | CLOSED | ALREADY_VOIDED |
//! | closed, voided | ALREADY_CLOSED | ALREADY_VOIDED |
//!
//! A buyer's money may arrive after the close: a slow bank method settles whenever it does.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::book::{Ask, Book, Decision};
use super::refunds::Refunds;
use super::{Call, Effect, Service};

/// How the channel treats one payment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PaymentTerms {
    /// For so many milliseconds after its opening a close is answered `TOO_EARLY`.
    pub too_early_ms: u32,
    /// So many closes are answered `IN_PROGRESS`: the buyer is at the channel's page.
    pub in_progress_asks: u32,
    /// Every close is answered `REJECTED`: the merchant's signature is bad.
    pub rejects_close: bool,
    /// A refund stays `PROCESSING` for so many status queries.
    pub refund_queries: u32,
    /// So many refund requests are answered `REJECTED` first: the merchant's balance is too small.
    pub refund_rejections: u32,
}

/// Money that the channel took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The channel's id of this taking.
    pub transaction_id: String,
    /// How much, a decimal string.
    pub amount: String,
    /// ISO 4217.
    pub currency: String,
    /// When.
    pub paid_at: Timestamp,
}

/// Where a payment stands, captures aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentStatus {
    /// The buyer can pay.
    Open,
    /// The money is held, not taken.
    Held,
    /// The buyer can no longer begin to pay.
    Closed,
    /// The hold was given up.
    Voided,
}

/// One payment at the channel.
#[derive(Clone, Debug)]
pub(super) struct Payment {
    pub(super) order_id: String,
    pub(super) status: PaymentStatus,
    pub(super) captures: Vec<Capture>,
    pub(super) refunds: Refunds,
    terms: PaymentTerms,
    opened_at: Timestamp,
    in_progress_asks: u32,
}

impl Payment {
    /// The capture that a close reports: one that still needs its refund comes first.
    fn reported_capture(&self) -> Option<&Capture> {
        self.captures
            .iter()
            .find(|capture| self.refunds.of_transaction(&capture.transaction_id).is_none())
            .or_else(|| self.captures.first())
    }

    fn too_early_seconds(&self, now: Timestamp) -> Option<i64> {
        let from = self.opened_at + SignedDuration::from_millis(i64::from(self.terms.too_early_ms));
        let left_ms = from.duration_since(now).as_millis();
        (left_ms > 0).then(|| i64::try_from((left_ms + 999) / 1000).unwrap_or(i64::MAX))
    }
}

fn already_paid(capture: &Capture) -> Decision {
    Decision::conflict(json!({
        "outcome": "ALREADY_PAID",
        "transactionId": capture.transaction_id,
        "amount": capture.amount,
        "currency": capture.currency,
        "paidAt": format!("{:.3}", capture.paid_at),
    }))
}

#[derive(Default)]
pub(super) struct Payments {
    payments: HashMap<String, Payment>,
}

impl Payments {
    pub(super) fn payment(&self, payment_id: &str) -> Option<&Payment> {
        self.payments.get(payment_id)
    }

    fn close(&self, ask: &Ask<'_>) -> Result<Decision, Decision> {
        let order_id = ask.text("orderId")?;
        let Some(payment) = self.payments.get(ask.subject).filter(|payment| payment.order_id == order_id) else {
            return Ok(Decision::unknown("NOT_CREATED"));
        };
        if payment.terms.rejects_close {
            return Ok(Decision::conflict(json!({ "outcome": "REJECTED", "reason": "bad signature" })).not_kept());
        }
        if let Some(capture) = payment.reported_capture() {
            return Ok(already_paid(capture));
        }
        if let Some(seconds) = payment.too_early_seconds(ask.now) {
            return Ok(Decision::done(json!({ "outcome": "TOO_EARLY", "retryAfter": seconds })));
        }
        Ok(match payment.status {
            PaymentStatus::Held => Decision::outcome("AUTHORIZED"),
            PaymentStatus::Open if payment.in_progress_asks > 0 => {
                Decision::outcome("IN_PROGRESS").with(Effect::PaymentAskedEarly)
            }
            PaymentStatus::Open => Decision::outcome("CLOSED").with(Effect::PaymentClosed),
            PaymentStatus::Closed => Decision::outcome("ALREADY_CLOSED").again(Effect::PaymentClosed, ask.subject),
            PaymentStatus::Voided => Decision::outcome("ALREADY_CLOSED"),
        })
    }

    fn void(&self, ask: &Ask<'_>) -> Result<Decision, Decision> {
        let order_id = ask.text("orderId")?;
        let Some(payment) = self.payments.get(ask.subject).filter(|payment| payment.order_id == order_id) else {
            return Ok(Decision::unknown("NOT_CREATED"));
        };
        if let Some(capture) = payment.reported_capture() {
            return Ok(already_paid(capture));
        }
        Ok(match payment.status {
            PaymentStatus::Held => Decision::outcome("VOIDED").with(Effect::PaymentVoided),
            PaymentStatus::Voided => Decision::outcome("ALREADY_VOIDED").again(Effect::PaymentVoided, ask.subject),
            PaymentStatus::Open | PaymentStatus::Closed => Decision::outcome("ALREADY_VOIDED"),
        })
    }

    fn refund(&self, ask: &Ask<'_>) -> Result<Decision, Decision> {
        match self.payments.get(ask.subject) {
            Some(payment) => payment.refunds.request(ask, &payment.captures),
            None => Ok(Decision::conflict(json!({ "outcome": "REJECTED", "reason": "no such payment" })).not_kept()),
        }
    }

    fn refund_status(&self, ask: &Ask<'_>) -> Decision {
        let refund_id = ask.body.get("refundId").and_then(Value::as_str).unwrap_or("");
        self.payments.get(ask.subject).map_or_else(|| Decision::unknown("NOT_FOUND"), |payment| payment.refunds.status(refund_id))
    }
}

impl Book for Payments {
    const SERVICE: Service = Service::Payments;

    fn decide(&self, ask: &Ask<'_>) -> Decision {
        match ask.call {
            Call::ClosePayment => self.close(ask),
            Call::VoidPayment => self.void(ask),
            Call::RefundPayment => self.refund(ask),
            Call::RefundStatus => Ok(self.refund_status(ask)),
            _ => Err(Decision::unknown("NOT_FOUND")),
        }
        .unwrap_or_else(|refusal| refusal)
    }

    fn apply(&mut self, subject: &str, effect: &Effect, at: Timestamp) {
        if let Effect::PaymentOpened { order_id, terms } = effect {
            let payment = Payment {
                order_id: order_id.clone(),
                status: PaymentStatus::Open,
                captures: Vec::new(),
                refunds: Refunds::new(terms.refund_queries, terms.refund_rejections),
                in_progress_asks: terms.in_progress_asks,
                terms: terms.clone(),
                opened_at: at,
            };
            self.payments.insert(subject.to_owned(), payment);
            return;
        }
        let Some(payment) = self.payments.get_mut(subject) else { return };
        match effect {
            Effect::PaymentAskedEarly => payment.in_progress_asks = payment.in_progress_asks.saturating_sub(1),
            Effect::PaymentHeld => payment.status = PaymentStatus::Held,
            Effect::PaymentClosed => payment.status = PaymentStatus::Closed,
            Effect::PaymentVoided => payment.status = PaymentStatus::Voided,
            Effect::PaymentCaptured { transaction_id, amount, currency, paid_at } => payment.captures.push(Capture {
                transaction_id: transaction_id.clone(),
                amount: amount.clone(),
                currency: currency.clone(),
                paid_at: *paid_at,
            }),
            refund => payment.refunds.apply(refund),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::book::{ask, ask_at};

    fn with_payment(terms: PaymentTerms) -> Payments {
        let mut payments = Payments::default();
        let opened = Effect::PaymentOpened { order_id: "o-1".into(), terms };
        payments.apply("p-1", &opened, Timestamp::UNIX_EPOCH);
        payments
    }

    fn capture(payments: &mut Payments, transaction: &str) {
        let captured = Effect::PaymentCaptured {
            transaction_id: transaction.into(),
            amount: "10.00".into(),
            currency: "USD".into(),
            paid_at: Timestamp::UNIX_EPOCH,
        };
        payments.apply("p-1", &captured, Timestamp::UNIX_EPOCH);
    }

    fn close(payments: &mut Payments) -> Decision {
        ask(payments, Call::ClosePayment, "p-1", json!({ "orderId": "o-1" }))
    }

    #[test]
    fn an_open_payment_is_closed_once() {
        let mut payments = with_payment(PaymentTerms::default());
        assert_eq!(close(&mut payments).answer["outcome"], "CLOSED");
        let again = close(&mut payments);
        assert_eq!(again.answer["outcome"], "ALREADY_CLOSED");
        assert_eq!(again.asked_again.as_deref(), Some("close p-1"));
    }

    #[test]
    fn a_captured_payment_says_with_which_transaction() {
        let mut payments = with_payment(PaymentTerms::default());
        capture(&mut payments, "t-1");
        let answer = close(&mut payments).answer;
        assert_eq!(
            answer,
            json!({
                "outcome": "ALREADY_PAID", "transactionId": "t-1", "amount": "10.00", "currency": "USD",
                "paidAt": "1970-01-01T00:00:00.000Z",
            })
        );
    }

    #[test]
    fn a_close_reports_the_capture_that_still_needs_its_refund() {
        let mut payments = with_payment(PaymentTerms::default());
        capture(&mut payments, "t-1");
        capture(&mut payments, "t-2");
        let refund = json!({
            "refundId": "f-1", "transactionId": "t-1", "amount": "10", "currency": "USD", "reason": "late",
        });
        ask(&mut payments, Call::RefundPayment, "p-1", refund);
        assert_eq!(close(&mut payments).answer["transactionId"], "t-2");
    }

    #[test]
    fn money_may_arrive_after_the_close() {
        let mut payments = with_payment(PaymentTerms::default());
        close(&mut payments);
        capture(&mut payments, "t-1");
        assert_eq!(close(&mut payments).answer["outcome"], "ALREADY_PAID");
    }

    #[test]
    fn a_held_payment_is_voided_and_then_counts_as_closed() {
        let mut payments = with_payment(PaymentTerms::default());
        payments.apply("p-1", &Effect::PaymentHeld, Timestamp::UNIX_EPOCH);
        assert_eq!(close(&mut payments).answer["outcome"], "AUTHORIZED");
        let body = json!({ "orderId": "o-1" });
        assert_eq!(ask(&mut payments, Call::VoidPayment, "p-1", body.clone()).answer["outcome"], "VOIDED");
        assert_eq!(ask(&mut payments, Call::VoidPayment, "p-1", body).answer["outcome"], "ALREADY_VOIDED");
        assert_eq!(close(&mut payments).answer["outcome"], "ALREADY_CLOSED");
    }

    #[test]
    fn a_captured_hold_cannot_be_voided() {
        let mut payments = with_payment(PaymentTerms::default());
        capture(&mut payments, "t-1");
        let answer = ask(&mut payments, Call::VoidPayment, "p-1", json!({ "orderId": "o-1" })).answer;
        assert_eq!(answer["outcome"], "ALREADY_PAID");
    }

    #[test]
    fn a_buyer_who_is_paying_holds_the_close_up() {
        let mut payments = with_payment(PaymentTerms { in_progress_asks: 1, ..PaymentTerms::default() });
        assert_eq!(close(&mut payments).answer["outcome"], "IN_PROGRESS");
        assert_eq!(close(&mut payments).answer["outcome"], "CLOSED");
    }

    #[test]
    fn a_young_payment_cannot_be_closed_yet() {
        let mut payments = with_payment(PaymentTerms { too_early_ms: 1500, ..PaymentTerms::default() });
        let body = json!({ "orderId": "o-1" });
        let early = ask_at(&mut payments, Call::ClosePayment, "p-1", body.clone(), Timestamp::UNIX_EPOCH);
        assert_eq!(early.answer, json!({ "outcome": "TOO_EARLY", "retryAfter": 2 }));
        assert_eq!(close(&mut payments).answer["outcome"], "CLOSED");
    }

    #[test]
    fn an_unknown_payment_is_not_created() {
        let mut payments = Payments::default();
        let answered = close(&mut payments);
        assert_eq!((answered.status, &answered.answer["outcome"]), (404, &json!("NOT_CREATED")));
    }

    #[test]
    fn a_rejected_close_is_asked_afresh_under_the_same_key() {
        let mut payments = with_payment(PaymentTerms { rejects_close: true, ..PaymentTerms::default() });
        let rejected = close(&mut payments);
        assert_eq!((&rejected.answer["outcome"], rejected.kept), (&json!("REJECTED"), false));
    }
}
