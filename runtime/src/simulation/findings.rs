//! What a simulation has looked at and found.

use std::collections::BTreeMap;

use crate::verify::{Checks, Violation};

/// The most violations that are kept; what comes after the first is mostly its echo.
const VIOLATIONS_MAX: usize = 20;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which invariant.
    pub invariant: &'static str,
    /// How.
    pub message: String,
}

/// What a simulation has looked at and found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What must never be, and was.
    pub broken: Vec<Broken>,
    /// How often each invariant was looked at.
    pub looks: BTreeMap<&'static str, u64>,
    /// What happened at least once, and how often.
    pub reached: BTreeMap<&'static str, u64>,
}

impl Findings {
    pub(super) fn expect(&mut self, invariant: &'static str, holds: bool, message: impl FnOnce() -> String) {
        *self.looks.entry(invariant).or_default() += 1;
        if !holds && self.broken.len() < VIOLATIONS_MAX {
            self.broken.push(Broken { invariant, message: message() });
        }
    }

    pub(super) fn take(&mut self, checks: &Checks, violations: &[Violation]) {
        for (invariant, times) in checks.iter() {
            *self.looks.entry(invariant.id()).or_default() += times;
        }
        for violation in violations {
            if self.broken.len() < VIOLATIONS_MAX {
                let of = |name: &Option<String>| name.clone().unwrap_or_else(|| "the store".to_owned());
                let message = format!("{} {}: {}", of(&violation.r#type), of(&violation.id), violation.message);
                self.broken.push(Broken { invariant: violation.invariant.id(), message });
            }
        }
    }

    /// Adds what another simulation has found.
    pub fn add(&mut self, other: Self) {
        self.broken.extend(other.broken);
        for (invariant, looks) in other.looks {
            *self.looks.entry(invariant).or_default() += looks;
        }
        for (goal, times) in other.reached {
            *self.reached.entry(goal).or_default() += times;
        }
    }
}
