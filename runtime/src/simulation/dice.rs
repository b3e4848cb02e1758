//! Numbers that follow from a seed.

use std::time::Duration;

use crate::engine::Randomness;
use crate::testing::SeededRandom;

/// A sequence of numbers; the same seed gives the same one.
pub struct Dice(SeededRandom);

impl Dice {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// Any number.
    pub fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next_u64() % end }
    }

    /// A number between these, both included.
    pub fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True with this probability, between 0 and 1.
    pub fn chance(&self, probability: f64) -> bool {
        // 53 bits are what a double holds exactly.
        ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A time up to `most`, in microseconds.
    pub fn up_to(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.below(most + 1))
    }

    /// A time between these.
    pub fn time_between(&self, least: Duration, most: Duration) -> Duration {
        least + self.up_to(most.saturating_sub(least))
    }

    /// One of these, if there is one.
    pub fn pick<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(of.len() as u64)).ok()?)
    }
}
