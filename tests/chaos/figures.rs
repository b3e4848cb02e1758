//! What a run came to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::caught::Caught;
use crate::faults::Fault;
use crate::log::Log;

/// A run in which less was acknowledged shows nothing.
const ACKNOWLEDGED_MIN: u64 = 150;

pub(crate) struct Figures {
    begun: Instant,
    pub(crate) rounds: u64,
    pub(crate) orders: u64,
    pub(crate) struck: BTreeMap<Fault, u64>,
    /// Faults that had nothing to strike, such as a commit that did not come.
    pub(crate) missed: u64,
    pub(crate) disks: BTreeMap<&'static str, u64>,
    pub(crate) verifications: u64,
    /// Looks at a store that could not be reached at that moment.
    pub(crate) unanswered: u64,
    pub(crate) checks: u64,
    pub(crate) recoveries: Vec<Duration>,
    pub(crate) caught: Caught,
}

impl Figures {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            begun: Instant::now(),
            rounds: 0,
            orders: 0,
            struck: BTreeMap::new(),
            missed: 0,
            disks: BTreeMap::new(),
            verifications: 0,
            unanswered: 0,
            checks: 0,
            recoveries: Vec::new(),
            caught: Caught::new(nodes),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn longest(&self) -> Duration {
        self.recoveries.iter().max().copied().unwrap_or_default()
    }

    /// All of it on one line.
    pub(crate) fn line(&self, log: &Log) -> String {
        let sums = log.sums();
        let faults: Vec<String> = self.struck.iter().map(|(fault, times)| format!("{fault:?} {times}")).collect();
        format!(
            "{:.0} s: rounds {}, orders {}, acknowledged {}, unknown {}, resolved {}, faults {} ({}), checks {}, longest recovery {:.1} s, violations {}",
            self.elapsed().as_secs_f64(),
            self.rounds,
            self.orders,
            sums.acknowledged.values().sum::<u64>(),
            sums.unknown,
            sums.resolved,
            self.struck.values().sum::<u64>(),
            faults.join(", "),
            self.checks,
            self.longest().as_secs_f64(),
            log.violations().len(),
        )
    }

    /// All of it as a table.
    pub(crate) fn table(&self, log: &Log) -> String {
        let sums = log.sums();
        let mut rows = vec![
            ("wall time".to_owned(), format!("{:.0} s", self.elapsed().as_secs_f64())),
            ("rounds, orders".to_owned(), format!("{}, {}", self.rounds, self.orders)),
        ];
        rows.extend(sums.acknowledged.iter().map(|(operation, times)| (format!("acknowledged: {operation}"), times.to_string())));
        rows.push(("answers unknown, resolved later".into(), format!("{}, of {} operations", sums.unknown, sums.resolved)));
        rows.push(("answers that refused".into(), sums.refused.to_string()));
        rows.extend(self.struck.iter().map(|(fault, times)| (format!("fault: {fault:?}"), times.to_string())));
        rows.extend(self.disks.iter().map(|(store, times)| (format!("fault: disk full, {store}"), times.to_string())));
        rows.push(("faults that found nothing to strike".into(), self.missed.to_string()));
        rows.push(("nodes' logs".into(), self.caught.text()));
        let looks = format!("{}, with {} checks; {} more found no database", self.verifications, self.checks, self.unanswered);
        rows.push(("verifications".into(), looks));
        let mut sorted = self.recoveries.clone();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        let recovery = format!("{:.1} s, {:.1} s", median.as_secs_f64(), self.longest().as_secs_f64());
        rows.push(("recovery: median, longest".into(), recovery));
        rows.push(("violations".into(), log.violations().len().to_string()));
        rows.into_iter().map(|(name, value)| format!("{name:<38} {value}\n")).collect()
    }

    /// Why this run shows nothing, if it does not.
    pub(crate) fn vacuous(&self, log: &Log, every_fault: bool) -> Vec<String> {
        let sums = log.sums();
        let mut reasons = Vec::new();
        let mut least = |what: &str, is: u64, wanted: u64| {
            if is < wanted {
                reasons.push(format!("{what}: {is}, and {wanted} are the least"));
            }
        };
        least("acknowledged", sums.acknowledged.values().sum(), ACKNOWLEDGED_MIN);
        least("unknown answers", sums.unknown, 1);
        least("takeovers", self.caught.count("takeovers"), 1);
        least("zombies refused", self.caught.count("zombies refused"), 1);
        least("commits of unknown outcome", self.caught.count("commits of unknown outcome"), 1);
        least("verifications", self.verifications, 1);
        if every_fault {
            for fault in Fault::ALL {
                least(&format!("{fault:?}"), self.struck.get(&fault).copied().unwrap_or(0), 1);
            }
        }
        reasons
    }
}
