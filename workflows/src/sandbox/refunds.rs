//! The refunds of one payment: each captured transaction goes back at most once, with exactly what was captured.
//!
//! | refund | request | status query |
//! |---|---|---|
//! | none, capture known, same amount | REFUNDED, or PROCESSING where the channel is slow | NOT_FOUND |
//! | none, no such capture or another amount | REJECTED | NOT_FOUND |
//! | refused so far | REJECTED, a set number of times | REJECTED |
//! | under way | PROCESSING | PROCESSING, a set number of times, then REFUNDED |
//! | done | ALREADY_REFUNDED | REFUNDED |
//!
//! A second request for the same transaction under another refund id is the same refund.

use std::collections::HashMap;

use serde_json::json;

use super::Effect;
use super::book::{Ask, Decision};
use super::money::same_amount;
use super::payments::Capture;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Refused,
    Processing { queries_left: u32 },
    Settled,
}

#[derive(Clone, Debug)]
struct Refund {
    transaction_id: Option<String>,
    state: State,
}

/// The refunds of one payment, by the caller's refund id.
#[derive(Clone, Debug)]
pub(super) struct Refunds {
    by_id: HashMap<String, Refund>,
    queries: u32,
    rejections_left: u32,
}

impl Refunds {
    pub(super) fn new(queries: u32, rejections: u32) -> Refunds {
        Refunds { by_id: HashMap::new(), queries, rejections_left: rejections }
    }

    /// The id of the refund that gives this transaction back, if one was accepted.
    pub(super) fn of_transaction(&self, transaction_id: &str) -> Option<&str> {
        self.by_id
            .iter()
            .find(|(_, refund)| refund.transaction_id.as_deref() == Some(transaction_id))
            .map(|(refund_id, _)| refund_id.as_str())
    }

    /// Whether this transaction has gone back to the buyer.
    pub(super) fn settled(&self, transaction_id: &str) -> bool {
        self.by_id
            .values()
            .any(|refund| refund.transaction_id.as_deref() == Some(transaction_id) && refund.state == State::Settled)
    }

    pub(super) fn request(&self, ask: &Ask<'_>, captures: &[Capture]) -> Result<Decision, Decision> {
        let refund_id = ask.text("refundId")?.to_owned();
        let transaction_id = ask.text("transactionId")?.to_owned();
        let amount = ask.text("amount")?.to_owned();
        let currency = ask.text("currency")?.to_owned();
        ask.text("reason")?;
        let accepted = || Effect::RefundAccepted {
            refund_id: refund_id.clone(),
            transaction_id: transaction_id.clone(),
            amount: amount.clone(),
            currency: currency.clone(),
        };
        let known = self.of_transaction(&transaction_id).or_else(|| {
            // A refund id that once gave back another transaction must not give back this one.
            self.by_id.get(&refund_id).filter(|refund| refund.transaction_id.is_some()).map(|_| refund_id.as_str())
        });
        if let Some(known) = known {
            let answer = match self.by_id[known].state {
                State::Processing { .. } => Decision::outcome("PROCESSING"),
                State::Settled | State::Refused => Decision::outcome("ALREADY_REFUNDED"),
            };
            return Ok(answer.again(accepted(), ask.subject));
        }
        let Some(capture) = captures.iter().find(|capture| capture.transaction_id == transaction_id) else {
            return Ok(rejected("no such capture"));
        };
        if !same_amount(&capture.amount, &amount) || capture.currency != currency {
            return Ok(rejected("not what was captured"));
        }
        if self.rejections_left > 0 {
            return Ok(rejected("insufficient balance").with(Effect::RefundRefused { refund_id }));
        }
        Ok(if self.queries > 0 {
            Decision::outcome("PROCESSING").with(accepted())
        } else {
            Decision::outcome("REFUNDED").with(accepted()).with(Effect::RefundSettled { refund_id })
        })
    }

    pub(super) fn status(&self, refund_id: &str) -> Decision {
        let asked = Effect::RefundAsked { refund_id: refund_id.to_owned() };
        match self.by_id.get(refund_id).map(|refund| refund.state) {
            None => Decision::unknown("NOT_FOUND"),
            Some(State::Refused) => Decision::outcome("REJECTED"),
            Some(State::Settled) => Decision::outcome("REFUNDED"),
            Some(State::Processing { queries_left: 0 | 1 }) => {
                Decision::outcome("REFUNDED").with(Effect::RefundSettled { refund_id: refund_id.to_owned() })
            }
            Some(State::Processing { .. }) => Decision::outcome("PROCESSING").with(asked),
        }
    }

    pub(super) fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::RefundRefused { refund_id } => {
                self.rejections_left = self.rejections_left.saturating_sub(1);
                self.by_id.insert(refund_id.clone(), Refund { transaction_id: None, state: State::Refused });
            }
            Effect::RefundAccepted { refund_id, transaction_id, .. } => {
                let state = State::Processing { queries_left: self.queries };
                let refund = Refund { transaction_id: Some(transaction_id.clone()), state };
                self.by_id.insert(refund_id.clone(), refund);
            }
            Effect::RefundAsked { refund_id } => {
                if let Some(Refund { state: State::Processing { queries_left }, .. }) = self.by_id.get_mut(refund_id) {
                    *queries_left = queries_left.saturating_sub(1);
                }
            }
            Effect::RefundSettled { refund_id } => {
                if let Some(refund) = self.by_id.get_mut(refund_id) {
                    refund.state = State::Settled;
                }
            }
            _ => {}
        }
    }
}

/// A refusal changes nothing and may turn out otherwise later, under the same key.
fn rejected(reason: &str) -> Decision {
    Decision::conflict(json!({ "outcome": "REJECTED", "reason": reason })).not_kept()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::sandbox::Call;

    fn captures() -> Vec<Capture> {
        vec![Capture {
            transaction_id: "t-1".into(),
            amount: "10.00".into(),
            currency: "USD".into(),
            paid_at: jiff::Timestamp::UNIX_EPOCH,
        }]
    }

    fn body(refund_id: &str, transaction: &str, amount: &str) -> Value {
        json!({
            "refundId": refund_id, "transactionId": transaction, "amount": amount, "currency": "USD", "reason": "late",
        })
    }

    fn request(refunds: &mut Refunds, body: Value) -> Decision {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let ask = Ask { call: Call::RefundPayment, subject: "p-1", body: &body, now };
        let decision = refunds.request(&ask, &captures()).unwrap();
        apply(refunds, &decision);
        decision
    }

    fn apply(refunds: &mut Refunds, decision: &Decision) {
        for effect in &decision.effects {
            refunds.apply(effect);
        }
    }

    #[test]
    fn a_capture_is_refunded_once_even_under_another_refund_id() {
        let mut refunds = Refunds::new(0, 0);
        assert_eq!(request(&mut refunds, body("f-1", "t-1", "10")).answer["outcome"], "REFUNDED");
        let again = request(&mut refunds, body("f-2", "t-1", "10"));
        assert_eq!(again.answer["outcome"], "ALREADY_REFUNDED");
        assert_eq!(again.asked_again.as_deref(), Some("refund p-1 t-1"));
        assert!(again.effects.is_empty());
        assert!(refunds.settled("t-1"));
    }

    #[test]
    fn only_what_was_captured_goes_back() {
        let mut refunds = Refunds::new(0, 0);
        assert_eq!(request(&mut refunds, body("f-1", "t-1", "11")).answer["outcome"], "REJECTED");
        assert_eq!(request(&mut refunds, body("f-1", "t-9", "10")).answer["outcome"], "REJECTED");
        assert_eq!(refunds.of_transaction("t-1"), None);
    }

    #[test]
    fn a_slow_refund_settles_after_its_queries() {
        let mut refunds = Refunds::new(2, 0);
        assert_eq!(request(&mut refunds, body("f-1", "t-1", "10")).answer["outcome"], "PROCESSING");
        assert_eq!(request(&mut refunds, body("f-1", "t-1", "10")).answer["outcome"], "PROCESSING");
        for expected in ["PROCESSING", "REFUNDED", "REFUNDED"] {
            let decision = refunds.status("f-1");
            apply(&mut refunds, &decision);
            assert_eq!(decision.answer["outcome"], expected);
        }
        assert_eq!(request(&mut refunds, body("f-1", "t-1", "10")).answer["outcome"], "ALREADY_REFUNDED");
    }

    #[test]
    fn a_refused_refund_succeeds_later_under_the_same_id() {
        let mut refunds = Refunds::new(0, 1);
        let refused = request(&mut refunds, body("f-1", "t-1", "10"));
        assert_eq!((&refused.answer["outcome"], refused.kept), (&json!("REJECTED"), false));
        assert_eq!(refunds.status("f-1").answer["outcome"], "REJECTED");
        assert_eq!(request(&mut refunds, body("f-1", "t-1", "10")).answer["outcome"], "REFUNDED");
    }

    #[test]
    fn an_unknown_refund_is_not_found() {
        assert_eq!(Refunds::new(0, 0).status("f-1").status, 404);
    }
}
