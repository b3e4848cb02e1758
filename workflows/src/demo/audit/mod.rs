//! The audit: the shop's ledgers against the engine's histories, order by order.
//!
//! | rule | what must hold |
//! |---|---|
//! | D1 | each order is either paid or cancelled, once, and the workflow's decision agrees |
//! | D2 | captured money is what the order is paid by, or went back exactly once and exactly |
//! | D3 | stock and coupon went back exactly once if the order is cancelled, never if it is paid; the payment is settled |
//! | D4 | no cancel for a timeout before the deadline, none by the user without a user |
//! | D5 | every acknowledged signal is in a history of its order |
//! | D6 | every effect has its intent in a history, histories are whole, results say what the ledgers say |
//! | D7 | `verify` finds nothing wrong with what the engines stored (this one needs the store) |
//!
//! The rules are pure and know only ledgers, histories and acknowledgements, so that the files that `--out` leaves are
//! enough to repeat the judgement.

mod case;
mod goods;
mod money;
mod race;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::evidence::Evidence;
use crate::sandbox::{Effect, EffectRecord};
pub(super) use case::{Case, Outcome};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Violation {
    /// The order, or `*` for the shop as a whole.
    pub(super) order_id: String,
    /// Which rule is broken.
    pub(super) rule: &'static str,
    /// How.
    pub(super) reason: String,
}

impl Violation {
    /// What `verify` found wrong with the store.
    pub(super) fn of_store(reason: String) -> Self {
        Self { order_id: "*".into(), rule: "D7", reason }
    }
}

/// The judgement.
pub(super) struct Audit<'a> {
    pub(super) cases: Vec<Case<'a>>,
    pub(super) violations: Vec<Violation>,
    /// Requests that asked, under another key, for an effect that stood already, and effects that happened twice.
    pub(super) duplicate_effects: Vec<String>,
}

/// Judges the evidence.
pub(super) fn audit(evidence: &Evidence) -> Audit<'_> {
    let cases = case::cases(evidence);
    let mut violations = Vec::new();
    for case in &cases {
        let mut found = Findings { order_id: &case.order_id, violations: &mut violations };
        race::judge(case, &mut found);
        money::judge(case, &mut found);
        goods::judge(case, &mut found);
        record::judge(case, &mut found);
    }
    record::judge_whole(evidence, &mut violations);
    goods::judge_stock(evidence, &mut violations);
    Audit { cases, violations, duplicate_effects: duplicate_effects(evidence) }
}

/// Where a rule writes down what it finds about one order.
struct Findings<'a> {
    order_id: &'a str,
    violations: &'a mut Vec<Violation>,
}

impl Findings<'_> {
    fn add(&mut self, rule: &'static str, reason: impl Into<String>) {
        self.violations.push(Violation { order_id: self.order_id.to_owned(), rule, reason: reason.into() });
    }
}

fn duplicate_effects(evidence: &Evidence) -> Vec<String> {
    let asked_again = evidence.requests().filter(|request| request.duplicate_effect).map(|request| {
        let key = request.key.as_deref().unwrap_or("none");
        format!("{:?} of {} was asked for again under the key {key}", request.call, request.subject)
    });
    let mut seen = HashSet::new();
    let happened_again = evidence.effects().filter_map(|effect| {
        let once = effect.effect.once(&effect.subject)?;
        let again = format!("{once} happened again");
        (!seen.insert(once)).then_some(again)
    });
    asked_again.chain(happened_again).collect()
}

/// Which order each reservation, coupon and payment belongs to.
fn owners(evidence: &Evidence) -> HashMap<&str, &str> {
    evidence.effects().filter_map(owned_by).collect()
}

fn owned_by(effect: &EffectRecord) -> Option<(&str, &str)> {
    match &effect.effect {
        Effect::StockReserved { order_id, .. } | Effect::CouponLocked { order_id } | Effect::PaymentOpened { order_id, .. } => {
            Some((&effect.subject, order_id))
        }
        Effect::OrderPlaced { .. } => Some((&effect.subject, &effect.subject)),
        _ => None,
    }
}
