//! What calls came to in the last while, in a few buckets of time.

use std::collections::VecDeque;
use std::time::Duration;

/// So many buckets make a window: what is older leaves it in steps of a tenth.
const BUCKETS: u32 = 10;

/// When a share of failed or slow calls opens a breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioPolicy {
    /// How far back calls count.
    pub window: Duration,
    /// The share of failed and slow calls, above 0 and up to 1, from which on it opens.
    pub ratio: f64,
    /// Fewer calls in the window say nothing.
    pub calls_min: u32,
    /// A call that took so long counts as a failed one here; `None` where time does not count.
    pub slow_call: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    began: Duration,
    calls: u32,
    bad: u32,
}

/// The calls of the last window.
#[derive(Debug, Default)]
pub(super) struct Window {
    buckets: VecDeque<Bucket>,
}

impl Window {
    /// Counts a call; whether the share of bad ones is now too high.
    pub(super) fn count(&mut self, policy: RatioPolicy, is_bad: bool, now: Duration) -> bool {
        self.buckets.retain(|bucket| now.saturating_sub(bucket.began) < policy.window);
        let is_over = |bucket: &Bucket| now.saturating_sub(bucket.began) >= policy.window / BUCKETS;
        if self.buckets.back().is_none_or(is_over) {
            self.buckets.push_back(Bucket { began: now, calls: 0, bad: 0 });
        }
        if let Some(last) = self.buckets.back_mut() {
            last.calls = last.calls.saturating_add(1);
            last.bad = last.bad.saturating_add(u32::from(is_bad));
        }
        let sum = |of: fn(&Bucket) -> u32| self.buckets.iter().map(|bucket| u64::from(of(bucket))).sum::<u64>();
        let (calls, bad) = (sum(|bucket| bucket.calls), sum(|bucket| bucket.bad));
        #[allow(clippy::cast_precision_loss, reason = "counts of calls in a window are far below 2^52")]
        let share = bad as f64 / calls.max(1) as f64;
        is_bad && calls >= u64::from(policy.calls_min) && share >= policy.ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RatioPolicy = RatioPolicy { window: Duration::from_secs(10), ratio: 0.5, calls_min: 4, slow_call: None };

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn half_of_enough_calls_is_too_much() {
        let mut window = Window::default();
        let counted = [true, true, false, true].map(|is_bad| window.count(POLICY, is_bad, at(1)));
        assert_eq!(counted, [false, false, false, true], "three calls are too few to say anything");
        assert!(!window.count(POLICY, false, at(1)), "a good call opens nothing");
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let mut window = Window::default();
        for _ in 0..100 {
            window.count(POLICY, true, at(0));
        }
        let counted = [false, false, false, true].map(|is_bad| window.count(POLICY, is_bad, at(10)));
        assert_eq!(counted, [false; 4]);
    }
}
