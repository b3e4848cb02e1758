//! A process's own clock: it may be off, run fast or slow, and be set.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::executor::Simulation;
use crate::engine::Clock;
use crate::time::Timestamp;

/// Parts in a million.
const MILLION: i128 = 1_000_000;

/// A clock that is wrong as it is told to be.
#[derive(Clone)]
pub struct NodeClock {
    simulation: Simulation,
    /// How much faster than the true time it runs, in millionths.
    drift_ppm: i64,
    /// What its time of day is ahead by, in microseconds.
    ahead: Arc<Mutex<i64>>,
}

impl NodeClock {
    /// A clock that runs `drift_ppm` millionths fast and whose time of day is `ahead` microseconds ahead.
    pub fn new(simulation: Simulation, drift_ppm: i64, ahead: i64) -> Self {
        Self { simulation, drift_ppm, ahead: Arc::new(Mutex::new(ahead)) }
    }

    /// Sets the time of day forward by so many microseconds, or back.
    pub fn step(&self, by: i64) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    fn drift_over(&self, true_time: Duration) -> i64 {
        let micros = i128::try_from(true_time.as_micros()).unwrap_or(i128::MAX);
        i64::try_from(micros * i128::from(self.drift_ppm) / MILLION).unwrap_or(i64::MAX)
    }
}

#[async_trait]
impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let ahead = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let off = ahead + self.drift_over(self.simulation.now());
        Timestamp::from_micros(self.simulation.time().as_micros() + off)
    }

    fn monotonic(&self) -> Duration {
        let true_time = self.simulation.now();
        let drift = Duration::from_micros(self.drift_over(true_time).unsigned_abs());
        if self.drift_ppm >= 0 { true_time + drift } else { true_time.saturating_sub(drift) }
    }

    async fn sleep(&self, duration: Duration) {
        let until = self.monotonic().saturating_add(duration);
        // The remainder is slept again: a clock that runs slow has not come to its end yet.
        loop {
            let left = until.saturating_sub(self.monotonic());
            if left.is_zero() {
                return;
            }
            self.simulation.sleep(left).await;
        }
    }
}
