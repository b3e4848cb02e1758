//! What a whole store came to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::violation::{Checks, Violation};
use super::{Replay, Verdict};

/// The most violations that a report names; the others are counted.
pub(super) const VIOLATIONS_MAX: usize = 10_000;

/// What came of looking at a whole store.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Executions that were looked at.
    pub workflows: u64,
    /// Of these, how many are retired: their histories are gone.
    pub retired: u64,
    /// Events of all histories.
    pub events: u64,
    /// Executions whose code this program does not have, by type: everything was looked at but their replay (I16).
    pub unknown_types: BTreeMap<String, u64>,
    /// Executions that this program cannot replay and whose rows say so: blocked ones, and those that were ended then.
    pub not_replayed: u64,
    /// Nodes whose leases have not expired.
    pub nodes_alive: u64,
    /// How often each invariant was evaluated.
    pub checks: Checks,
    /// What does not hold, at most ten thousand of them.
    pub violations: Vec<Violation>,
    /// Violations beyond that.
    pub violations_left_out: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.violations_left_out == 0
    }

    /// Takes in a look at one execution, but for its violations.
    pub(super) fn count(&mut self, workflow_type: &str, retired: bool, verdict: &Verdict) {
        self.workflows += 1;
        self.retired += u64::from(retired);
        self.events += verdict.events;
        self.checks.merge(&verdict.checks);
        match verdict.replay {
            Replay::UnknownType => *self.unknown_types.entry(workflow_type.to_owned()).or_default() += 1,
            Replay::Stopped => self.not_replayed += 1,
            Replay::Judged | Replay::NoHistory => {}
        }
    }

    /// Reports a violation, once.
    pub(super) fn violated(&mut self, violation: Violation) {
        if self.violations.contains(&violation) {
            return;
        }
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(violation);
        } else {
            self.violations_left_out += 1;
        }
    }
}
