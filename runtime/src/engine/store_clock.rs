//! The time of day of nodes that share a store: a proven lower bound of the store's own clock.
//!
//! The store's clock is read now and then. Between two readings a node adds what its monotonic clock says, less the most
//! that this may run fast. So a timer is never early by the store's clock, however wrong the node's own time of day is,
//! and late by no more than a reading's way back and the drift since.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::Clock;
use crate::time::Timestamp;

/// A monotonic clock runs fast by at most one part in so many (500 ppm, what NTP assumes of a quartz).
const DRIFT_PARTS: u32 = 2_000;

/// A clock that follows a store's.
pub(super) struct StoreClock {
    node: Arc<dyn Clock>,
    reading: Mutex<Option<Reading>>,
}

/// The store's clock was at least at `at` when the node's monotonic clock stood at `received`.
#[derive(Clone, Copy)]
struct Reading {
    at: Timestamp,
    received: Duration,
}

impl Reading {
    fn bound(self, monotonic: Duration) -> Timestamp {
        let since = monotonic.saturating_sub(self.received);
        self.at.saturating_add(since.saturating_sub(since / DRIFT_PARTS))
    }
}

impl StoreClock {
    /// A clock that goes by the node's own until the store's is first read.
    pub(super) fn new(node: Arc<dyn Clock>) -> Self {
        Self { node, reading: Mutex::new(None) }
    }

    /// Takes in what the store's clock showed at some moment between `sent` and `received` (monotonic).
    pub(super) fn read(&self, at: Timestamp, sent: Duration, received: Duration) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let latest_possible = at.saturating_add(received.saturating_sub(sent));
        let kept = reading.map(|reading| reading.bound(received)).filter(|bound| *bound >= at && *bound <= latest_possible);
        // The earlier bound is the better one, unless it shows that the store's clock was set back.
        if kept.is_none() {
            *reading = Some(Reading { at, received });
        }
    }
}

#[async_trait]
impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let reading = *self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.map_or_else(|| self.node.now(), |reading| reading.bound(self.node.monotonic()))
    }

    fn monotonic(&self) -> Duration {
        self.node.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.node.sleep(duration).await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::ManualClock;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn a_node_whose_clock_is_wrong_goes_by_the_stores() {
        let node = ManualClock::at(at(600_000));
        let clock = StoreClock::new(Arc::new(node.clone()));
        let now = node.monotonic();
        clock.read(at(5), now, now);
        assert_eq!(clock.now(), at(5));
        node.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), at(5 + 2_000 - 1), "less the drift that is possible");
    }

    #[test]
    fn a_slow_answer_does_not_set_the_clock_back_and_a_store_that_was_set_back_does() {
        let node = ManualClock::at(at(0));
        let clock = StoreClock::new(Arc::new(node.clone()));
        clock.read(at(10_000), node.monotonic(), node.monotonic());
        let sent = node.monotonic();
        node.advance(Duration::from_millis(400));
        clock.read(at(10_001), sent, node.monotonic());
        assert!(clock.now() >= at(10_399), "{}", clock.now());
        clock.read(at(3_000), node.monotonic(), node.monotonic());
        assert_eq!(clock.now(), at(3_000));
    }

    proptest! {
        /// The store's clock and the node's run at rates within the drift; answers take any time on either way.
        #[test]
        fn the_bound_never_passes_the_stores_clock(
            steps in prop::collection::vec((0u64..3_000, 0u64..500, 0u64..500), 1..40),
            fast in 0u64..500,
        ) {
            let node = ManualClock::at(at(0));
            let clock = StoreClock::new(Arc::new(node.clone()));
            let mut store_micros = 1_000_000_000i64;
            let pass = |millis: u64, store_micros: &mut i64| {
                node.advance(Duration::from_micros(millis * (1_000_000 + fast) / 1_000));
                *store_micros += i64::try_from(millis * 1_000).unwrap();
            };
            for (wait, way, back) in steps {
                let sent = clock.monotonic();
                pass(way, &mut store_micros);
                let shown = Timestamp::from_micros(store_micros);
                pass(back, &mut store_micros);
                clock.read(shown, sent, clock.monotonic());
                prop_assert!(clock.now() <= Timestamp::from_micros(store_micros));
                pass(wait, &mut store_micros);
                prop_assert!(clock.now() <= Timestamp::from_micros(store_micros));
            }
        }
    }
}
