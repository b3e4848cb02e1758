//! When to try again: exponential back-off whose arithmetic saturates and whose jitter only shortens.

use std::time::Duration;

/// The longest delay that a policy may name.
const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// When to try again after a transient failure, and when to stop.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Delay after the first attempt.
    pub initial: Duration,
    /// The next delay is this many times the one before. At least 1.
    pub factor: f64,
    /// No delay is longer.
    pub cap: Duration,
    /// Attempts in all, the first included; unlimited by default.
    pub attempts: Option<u32>,
    /// Time from the first attempt after which none is begun; time spent parked does not count. Unlimited by default.
    pub give_up_after: Option<Duration>,
    /// Whether delays are shortened at random, to between a half and the whole.
    pub jitter: bool,
}

impl Default for RetryPolicy {
    /// 1 s, doubling up to 5 min, for 72 h, with jitter.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(300),
            attempts: None,
            give_up_after: Some(Duration::from_secs(72 * 3600)),
            jitter: true,
        }
    }
}

/// Why a retry policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRetryPolicy {
    /// Attempts include the first one.
    #[error("attempts must be at least 1 (the first attempt counts); leave it out for no limit")]
    NoAttempts,
    /// Delays must not shrink.
    #[error("factor must be a number from 1 to 1000")]
    Factor,
    /// Delays must be positive and bounded.
    #[error("initial must be above 0 and at most cap, and cap at most 366 days")]
    Delay,
}

impl RetryPolicy {
    /// Checks the policy.
    ///
    /// # Errors
    /// [`InvalidRetryPolicy`], which names what to change.
    pub fn checked(self) -> Result<Self, InvalidRetryPolicy> {
        if self.attempts == Some(0) {
            return Err(InvalidRetryPolicy::NoAttempts);
        }
        if !(1.0..=1000.0).contains(&self.factor) {
            return Err(InvalidRetryPolicy::Factor);
        }
        if self.initial.is_zero() || self.initial > self.cap || self.cap > DELAY_MAX {
            return Err(InvalidRetryPolicy::Delay);
        }
        Ok(self)
    }

    /// The delay after attempt number `attempt` (from 1). `random` is uniform over all values and only used with jitter.
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        let exponent = f64::from(attempt.saturating_sub(1));
        let seconds = self.initial.as_secs_f64() * self.factor.powf(exponent);
        // Infinity and NaN compare false and take the cap too.
        let delay = if seconds < self.cap.as_secs_f64() { Duration::from_secs_f64(seconds) } else { self.cap };
        if !self.jitter {
            return delay;
        }
        let shorten = random as f64 / u64::MAX as f64 / 2.0;
        delay.mul_f64(1.0 - shorten)
    }

    /// Whether another attempt may be begun `elapsed` after the first, when `spent` attempts were made.
    pub fn allows_another(&self, spent: u32, elapsed: Duration) -> bool {
        self.attempts.is_none_or(|limit| spent < limit) && self.give_up_after.is_none_or(|limit| elapsed < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy { cap: Duration::from_secs(60), jitter: false, ..RetryPolicy::default() }
    }

    #[test]
    fn delays_double_up_to_the_cap_and_stay_there() {
        let delays: Vec<u64> = (1..=8).map(|attempt| policy().delay(attempt, 0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        for attempt in [32, 33, 64, 65, 100, 5000, u32::MAX] {
            assert_eq!(policy().delay(attempt, 0), Duration::from_secs(60), "attempt {attempt}");
        }
    }

    #[test]
    fn a_factor_of_one_keeps_the_delay_and_a_factor_of_ten_saturates() {
        let steady = RetryPolicy { factor: 1.0, ..policy() };
        let steep = RetryPolicy { factor: 10.0, ..policy() };
        for attempt in 1..=100 {
            assert_eq!(steady.delay(attempt, 0), Duration::from_secs(1));
            assert!(steep.delay(attempt, 0) >= Duration::from_secs(1));
            assert!(steep.delay(attempt, 0) <= Duration::from_secs(60));
        }
    }

    #[test]
    fn jitter_only_shortens_and_never_below_a_half() {
        let jittered = RetryPolicy { jitter: true, ..policy() };
        for random in [0, 1, u64::MAX / 3, u64::MAX / 2, u64::MAX] {
            let delay = jittered.delay(3, random);
            assert!(delay <= Duration::from_secs(4) && delay >= Duration::from_secs(2), "{random}: {delay:?}");
        }
    }

    #[test]
    fn one_attempt_means_one_call_and_two_mean_two() {
        let limited = |attempts| RetryPolicy { attempts: Some(attempts), ..policy() };
        assert!(!limited(1).allows_another(1, Duration::ZERO));
        assert!(limited(2).allows_another(1, Duration::ZERO));
        assert!(!limited(2).allows_another(2, Duration::ZERO));
        assert!(policy().allows_another(u32::MAX, Duration::ZERO));
        assert!(!policy().allows_another(1, Duration::from_secs(72 * 3600)));
    }

    #[test]
    fn a_policy_that_makes_no_sense_is_refused() {
        assert_eq!(RetryPolicy { attempts: Some(0), ..policy() }.checked(), Err(InvalidRetryPolicy::NoAttempts));
        for factor in [0.5, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(RetryPolicy { factor, ..policy() }.checked(), Err(InvalidRetryPolicy::Factor));
        }
        assert_eq!(RetryPolicy { initial: Duration::ZERO, ..policy() }.checked(), Err(InvalidRetryPolicy::Delay));
        assert_eq!(RetryPolicy { initial: Duration::from_secs(61), ..policy() }.checked(), Err(InvalidRetryPolicy::Delay));
    }
}
