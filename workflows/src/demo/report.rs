//! What a run comes to: counts, lateness and violations, for a person and for a script.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::audit::{Audit, Outcome, Violation};
use super::engine::Down;
use super::evidence::Evidence;
use super::lateness::{self, Measured};
use crate::sandbox::{Effect, FaultKind};

/// Violations and duplicate effects that the text names one by one; the JSON names all.
const SHOWN_WRONGS: usize = 20;

/// The summary of a run.
pub(super) struct Report {
    seed: u64,
    nodes: usize,
    orders: usize,
    paid: u64,
    cancelled: BTreeMap<String, u64>,
    refunded: u64,
    released: u64,
    returned: u64,
    closed: u64,
    needs_attention: u64,
    reviewed: u64,
    executions: BTreeMap<String, u64>,
    requests: u64,
    faults: BTreeMap<FaultKind, u64>,
    duplicate_callbacks: u64,
    duplicate_effects: Vec<String>,
    kills: u64,
    lateness: Measured,
    violations: Vec<Violation>,
    wall: Duration,
}

impl Report {
    pub(super) fn new(
        (seed, nodes): (u64, usize),
        evidence: &Evidence,
        audit: &Audit<'_>,
        downs: &[Down],
        wall: Duration,
    ) -> Report {
        let effects = |wanted: fn(&Effect) -> bool| evidence.effects().filter(|effect| wanted(&effect.effect)).count() as u64;
        let mut report = Report {
            seed,
            nodes,
            orders: evidence.orders.len(),
            paid: 0,
            cancelled: BTreeMap::new(),
            refunded: effects(|effect| matches!(effect, Effect::RefundSettled { .. })),
            released: effects(|effect| *effect == Effect::StockReleased),
            returned: effects(|effect| *effect == Effect::CouponReturned),
            closed: effects(|effect| matches!(effect, Effect::PaymentClosed | Effect::PaymentVoided)),
            needs_attention: audit.cases.iter().filter(|case| case.needs_attention()).count() as u64,
            reviewed: evidence.reviewed,
            executions: BTreeMap::new(),
            requests: 0,
            faults: BTreeMap::new(),
            duplicate_callbacks: evidence.signals.iter().filter(|signal| signal.repeat).count() as u64,
            duplicate_effects: audit.duplicate_effects.clone(),
            kills: downs.iter().filter(|down| down.by_sigkill).count() as u64,
            lateness: lateness::measure(&audit.cases, downs),
            violations: audit.violations.clone(),
            wall,
        };
        for case in &audit.cases {
            match case.outcome() {
                Outcome::Paid(_) => report.paid += 1,
                Outcome::Cancelled(reason) => *report.cancelled.entry(reason.to_owned()).or_default() += 1,
                Outcome::Undecided | Outcome::Torn => {}
            }
        }
        for execution in &evidence.executions {
            *report.executions.entry(execution.kind.clone()).or_default() += 1;
        }
        for request in evidence.requests() {
            report.requests += 1;
            if let Some(kind) = request.fault {
                *report.faults.entry(kind).or_default() += 1;
            }
        }
        report
    }

    /// Whether nothing is wrong.
    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.duplicate_effects.is_empty()
    }

    fn cancelled(&self) -> u64 {
        self.cancelled.values().sum()
    }

    fn faults(&self, kind: FaultKind) -> u64 {
        self.faults.get(&kind).copied().unwrap_or(0)
    }

    /// The object that `--json` prints.
    pub(super) fn json(&self) -> Value {
        json!({
            "orders": self.orders,
            "seed": self.seed,
            "nodes": self.nodes,
            "paid": self.paid,
            "cancelled": self.cancelled(),
            "cancelled_by_reason": self.cancelled,
            "refunded": self.refunded,
            "stock_released": self.released,
            "coupons_returned": self.returned,
            "payments_closed": self.closed,
            "needs_attention": self.needs_attention,
            "reviewed": self.reviewed,
            "executions": self.executions,
            "calls": self.requests,
            "violations": self.violations.len(),
            "violation_details": self.violations,
            "duplicate_effects": self.duplicate_effects.len(),
            "duplicate_effect_details": self.duplicate_effects,
            "kills": self.kills,
            "faults": {
                "timeout_after_effect": self.faults(FaultKind::TimeoutAfterEffect),
                "unavailable": self.faults(FaultKind::Unavailable),
                "throttled": self.faults(FaultKind::Throttled),
                "server_error": self.faults(FaultKind::ServerError),
                "connection_closed": self.faults(FaultKind::ConnectionClosed),
                "duplicate_callbacks": self.duplicate_callbacks,
            },
            "lateness_ms": self.lateness.all,
            "lateness_ms_engine_up": self.lateness.engine_up,
            "lateness_orders": self.lateness.orders,
            "wall_s": (self.wall.as_secs_f64() * 10.0).round() / 10.0,
        })
    }

    /// The same for a person.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string does not fail");
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let reasons: Vec<_> = self.cancelled.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let late_payments = self.executions.get("late-payment").copied().unwrap_or(0);
        writeln!(out, "{} orders in {:.1} s, --seed {}", self.orders, self.wall.as_secs_f64(), self.seed)?;
        writeln!(out, "who won      {} paid, {} cancelled ({})", self.paid, self.cancelled(), reasons.join(", "))?;
        writeln!(out, "given back   {} reservations, {} coupons; {} payments closed", self.released, self.returned, self.closed)?;
        writeln!(out, "refunded     {} payments; {late_payments} came after the close", self.refunded)?;
        writeln!(out, "by a person  {} payments reviewed, {} orders still need attention", self.reviewed, self.needs_attention)?;
        writeln!(
            out,
            "misfortune   engine killed {} times; of {} calls {} had no answer after their effect, {} got 503, {} got \
             429, {} got 500, {} lost their connection; {} duplicate callbacks",
            self.kills,
            self.requests,
            self.faults(FaultKind::TimeoutAfterEffect),
            self.faults(FaultKind::Unavailable),
            self.faults(FaultKind::Throttled),
            self.faults(FaultKind::ServerError),
            self.faults(FaultKind::ConnectionClosed),
            self.duplicate_callbacks,
        )?;
        let (all, up) = (self.lateness.all, self.lateness.engine_up);
        writeln!(
            out,
            "lateness     p50 {} ms, p99 {} ms, max {} ms over {} orders (without the time that no engine ran: p50 {} \
             ms, p99 {} ms, max {} ms)",
            all.p50, all.p99, all.max, self.lateness.orders, up.p50, up.p99, up.max
        )?;
        writeln!(out, "audit        {} violations, {} duplicate effects", self.violations.len(), self.duplicate_effects.len())?;
        let violations = self.violations.iter().map(|it| format!("{} {}: {}", it.rule, it.order_id, it.reason));
        let mut wrong: Vec<_> = violations.chain(self.duplicate_effects.iter().cloned()).collect();
        let hidden = wrong.len().saturating_sub(SHOWN_WRONGS);
        wrong.truncate(SHOWN_WRONGS);
        for line in wrong {
            writeln!(out, "  {line}")?;
        }
        if hidden > 0 {
            writeln!(out, "  and {hidden} more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::audit::audit;
    use super::*;

    fn report(evidence: &Evidence) -> Report {
        Report::new((7, 1), evidence, &audit(evidence), &[], Duration::from_millis(1234))
    }

    #[test]
    fn the_json_has_every_field_that_scripts_rely_on() {
        let json = report(&Evidence::default()).json();
        for field in ["orders", "paid", "cancelled", "refunded", "needs_attention", "violations", "duplicate_effects", "kills"] {
            assert_eq!(json[field], 0, "{field}");
        }
        for fault in ["timeout_after_effect", "unavailable", "throttled", "duplicate_callbacks"] {
            assert_eq!(json["faults"][fault], 0, "{fault}");
        }
        for percentile in ["p50", "p99", "max"] {
            assert_eq!(json["lateness_ms"][percentile], 0.0, "{percentile}");
        }
        assert_eq!(json["wall_s"], 1.2);
    }

    #[test]
    fn a_run_with_a_violation_is_not_clean_and_names_it() {
        let evidence = Evidence { orders: vec!["o-1".into()], ..Evidence::default() };
        let report = report(&evidence);
        assert!(!report.is_clean());
        assert!(report.text().contains("D1 o-1: the order is neither paid nor cancelled"), "{}", report.text());
    }
}
