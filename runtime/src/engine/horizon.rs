//! The near horizon: (time, execution) pairs that will be due soon. A pair is a hint; the decision is made from the
//! freshly loaded row.

use std::collections::BTreeSet;

use crate::fault::{Whim, whim};
use crate::id::WorkflowKey;
use crate::store::Due;
use crate::time::Timestamp;

/// The most pairs that are kept; when full, what is latest is left to the scan.
const PAIRS_MAX: usize = 100_000;

/// The pairs, by time.
#[derive(Default)]
pub(crate) struct Horizon {
    pairs: BTreeSet<(Timestamp, WorkflowKey)>,
    /// Up to which time new pairs are of interest.
    edge: Timestamp,
}

impl Horizon {
    /// Adds what a scan up to `edge` found.
    pub(crate) fn extend(&mut self, found: Vec<Due>, edge: Timestamp) {
        self.edge = self.edge.max(edge);
        for due in found {
            self.insert(due.wake_at, due.key);
        }
    }

    /// Adds a pair, unless it is beyond the edge or there is no room. What is due already never is: the scan under way
    /// may have read the store before it was there.
    pub(crate) fn hint(&mut self, wake_at: Timestamp, key: &WorkflowKey, now: Timestamp) {
        if wake_at <= self.edge.max(now) {
            self.insert(wake_at, key.clone());
        }
    }

    fn insert(&mut self, wake_at: Timestamp, key: WorkflowKey) {
        if whim(Whim::WheelOff) {
            return;
        }
        self.pairs.insert((wake_at, key));
        if self.pairs.len() > PAIRS_MAX {
            self.pairs.pop_last();
        }
    }

    /// When the earliest pair is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.pairs.first().map(|(at, _)| *at)
    }

    /// Takes the earliest pair, if it is due.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<WorkflowKey> {
        if self.next()? > now {
            return None;
        }
        self.pairs.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn key(id: &str) -> WorkflowKey {
        WorkflowKey::new("t", id)
    }

    #[test]
    fn pairs_come_in_the_order_of_their_time_and_not_before_it() {
        let mut horizon = Horizon::default();
        let due = |second, id| Due { key: key(id), wake_at: at(second) };
        horizon.extend(vec![due(3, "b"), due(1, "a"), due(3, "a")], at(10));
        assert_eq!(horizon.pop_due(at(0)), None);
        let order: Vec<_> = std::iter::from_fn(|| horizon.pop_due(at(3))).map(|key| key.id().to_owned()).collect();
        assert_eq!(order, ["a", "a", "b"]);
    }

    #[test]
    fn what_lies_beyond_the_edge_takes_no_memory() {
        let mut horizon = Horizon::default();
        horizon.extend(Vec::new(), at(10));
        horizon.hint(at(11), &key("a"), at(9));
        assert_eq!(horizon.next(), None);
        horizon.hint(at(10), &key("a"), at(9));
        assert_eq!(horizon.next(), Some(at(10)));
    }

    #[test]
    fn what_is_due_already_waits_for_no_scan() {
        let mut horizon = Horizon::default();
        horizon.hint(at(9), &key("a"), at(9));
        assert_eq!(horizon.pop_due(at(9)), Some(key("a")));
    }
}
