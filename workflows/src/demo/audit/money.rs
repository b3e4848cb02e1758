//! D2: money taken means goods owed or a refund issued; never both, never neither, never more than was paid.

use super::Findings;
use super::case::{Case, Outcome};
use crate::sandbox::{Effect, same_amount};

struct Money<'a> {
    payment_id: &'a str,
    transaction_id: &'a str,
    amount: &'a str,
    currency: &'a str,
}

pub(super) fn judge(case: &Case<'_>, found: &mut Findings<'_>) {
    let captures = captures(case);
    let kept = match case.outcome() {
        Outcome::Paid(transaction_id) => Some(transaction_id),
        _ => None,
    };
    if let Some(kept) = kept
        && !captures.iter().any(|capture| capture.transaction_id == kept)
    {
        found.add("D2", format!("paid by {kept}, which nobody captured"));
    }
    for capture in &captures {
        judge_capture(case, capture, kept == Some(capture.transaction_id), found);
    }
    for refund in refunds(case) {
        if !captures.iter().any(|capture| is_same(capture, &refund)) {
            found.add("D2", format!("{} was refunded without having been captured", refund.transaction_id));
        }
    }
}

fn judge_capture(case: &Case<'_>, capture: &Money<'_>, kept: bool, found: &mut Findings<'_>) {
    let id = capture.transaction_id;
    let refunds: Vec<_> = refunds(case).into_iter().filter(|refund| is_same(capture, refund)).collect();
    match (kept, refunds.as_slice()) {
        (true, []) => {}
        (true, _) => found.add("D2", format!("{id} pays the order and was refunded as well")),
        // Only a person may decide on it, and the order it came for is not given up.
        (false, []) if case.waits_for_review() && !case.is_cancelled() => {}
        (false, []) => found.add("D2", format!("{id} was captured, and neither kept nor refunded")),
        (false, [refund]) => {
            if !same_amount(refund.amount, capture.amount) || refund.currency != capture.currency {
                let (captured, back) = (capture.sum(), refund.sum());
                found.add("D2", format!("{id} was captured with {captured} and refunded with {back}"));
            }
            if !settled(case, id) {
                found.add("D2", format!("the refund of {id} was accepted and never became final"));
            }
        }
        (false, several) => found.add("D2", format!("{id} was refunded {} times", several.len())),
    }
}

impl Money<'_> {
    fn sum(&self) -> String {
        format!("{} {}", self.amount, self.currency)
    }
}

fn is_same(left: &Money<'_>, right: &Money<'_>) -> bool {
    left.payment_id == right.payment_id && left.transaction_id == right.transaction_id
}

fn captures<'a>(case: &Case<'a>) -> Vec<Money<'a>> {
    let capture = |payment_id, effect: &'a Effect| match effect {
        Effect::PaymentCaptured { transaction_id, amount, currency, .. } => {
            Some(Money { payment_id, transaction_id, amount, currency })
        }
        _ => None,
    };
    case.effects.iter().filter_map(|effect| capture(effect.subject.as_str(), &effect.effect)).collect()
}

fn refunds<'a>(case: &Case<'a>) -> Vec<Money<'a>> {
    let refund = |payment_id, effect: &'a Effect| match effect {
        Effect::RefundAccepted { transaction_id, amount, currency, .. } => {
            Some(Money { payment_id, transaction_id, amount, currency })
        }
        _ => None,
    };
    case.effects.iter().filter_map(|effect| refund(effect.subject.as_str(), &effect.effect)).collect()
}

/// Whether the accepted refund of this transaction reached the buyer.
fn settled(case: &Case<'_>, transaction_id: &str) -> bool {
    let accepted = case.effects.iter().find_map(|effect| match &effect.effect {
        Effect::RefundAccepted { refund_id, transaction_id: of, .. } if of == transaction_id => Some(refund_id),
        _ => None,
    });
    accepted.is_some_and(|accepted| {
        case.effects.iter().any(|effect| matches!(&effect.effect, Effect::RefundSettled { refund_id } if refund_id == accepted))
    })
}
