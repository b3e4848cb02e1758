//! D3: what was held for an order goes back exactly once, and only if the order is cancelled.

use std::collections::BTreeMap;

use super::super::evidence::Evidence;
use super::case::{Case, Outcome};
use super::{Findings, Violation};
use crate::sandbox::{Effect, StockLevel};

pub(super) fn judge(case: &Case<'_>, found: &mut Findings<'_>) {
    let cancelled = match case.outcome() {
        Outcome::Cancelled(_) => true,
        Outcome::Paid(_) => false,
        Outcome::Undecided | Outcome::Torn => return,
    };
    for token in case.subjects(|effect| matches!(effect, Effect::StockReserved { .. })) {
        let times = case.times(token, |effect| *effect == Effect::StockReleased);
        given_back("stock", token, cancelled, times, found);
    }
    for coupon in case.subjects(|effect| matches!(effect, Effect::CouponLocked { .. })) {
        let times = case.times(coupon, |effect| *effect == Effect::CouponReturned);
        given_back("coupon", coupon, cancelled, times, found);
    }
    if cancelled {
        for payment in case.subjects(|effect| matches!(effect, Effect::PaymentOpened { .. })) {
            payment_is_settled(case, payment, found);
        }
    }
}

fn given_back(what: &str, subject: &str, cancelled: bool, times: usize, found: &mut Findings<'_>) {
    match (cancelled, times) {
        (true, 1) | (false, 0) => {}
        (true, 0) => found.add("D3", format!("cancelled, but the {what} {subject} was not given back")),
        (true, _) => found.add("D3", format!("the {what} {subject} was given back {times} times")),
        (false, _) => found.add("D3", format!("paid, and the {what} {subject} was given back all the same")),
    }
}

/// Closed, voided, or captured: then D2 says what must happen with the money.
fn payment_is_settled(case: &Case<'_>, payment: &str, found: &mut Findings<'_>) {
    let settled = case.times(payment, |effect| {
        matches!(effect, Effect::PaymentClosed | Effect::PaymentVoided | Effect::PaymentCaptured { .. })
    });
    if settled == 0 {
        found.add("D3", format!("cancelled, but the payment {payment} is still open"));
    }
}

/// No unit of any SKU was lost or made, recomputed from the ledger alone.
pub(super) fn judge_stock(evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut levels: BTreeMap<&str, StockLevel> = BTreeMap::new();
    let mut reserved: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for effect in evidence.effects() {
        match &effect.effect {
            Effect::StockAdded { quantity } => {
                let level = levels.entry(&effect.subject).or_default();
                level.initial += quantity;
                level.available += quantity;
            }
            Effect::StockReserved { sku, quantity, .. } => {
                let level = levels.entry(sku).or_default();
                level.available = level.available.saturating_sub(*quantity);
                level.reserved += quantity;
                reserved.insert(&effect.subject, (sku, *quantity));
            }
            Effect::StockReleased | Effect::StockSold => {
                let Some((sku, quantity)) = reserved.get(effect.subject.as_str()) else { continue };
                let level = levels.entry(sku).or_default();
                level.reserved = level.reserved.saturating_sub(*quantity);
                let to = if effect.effect == Effect::StockSold { &mut level.sold } else { &mut level.available };
                *to += quantity;
            }
            _ => {}
        }
    }
    for (sku, level) in levels.iter().filter(|(_, level)| !level.conserves()) {
        let reason = format!("the units of {sku} do not add up: {level:?}");
        violations.push(Violation { order_id: "*".to_owned(), rule: "D3", reason });
    }
}
