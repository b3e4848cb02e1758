//! How often, how long and how many at once.

use std::time::Duration;

use super::retry::RetryPolicy;

/// The largest result that is kept, in bytes; a larger one is a permanent failure of its activity.
const RESULT_BYTES_MAX: usize = 256 * 1024;

/// The options of an activity.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivityOptions {
    /// How long it may wait for its first attempt; time spent parked does not count. Unlimited by default.
    pub schedule_to_start: Option<Duration>,
    /// How long one attempt may take; then it counts as failed with an unknown outcome. Default 30 s.
    pub start_to_close: Duration,
    /// How long all attempts together may take; time spent parked does not count. Unlimited by default.
    pub schedule_to_close: Option<Duration>,
    /// When to try again.
    pub retry: RetryPolicy,
    /// What happens when no attempt is left, or a failure is permanent.
    pub exhausted: Exhausted,
    /// The largest result, in bytes.
    pub result_bytes_max: usize,
    /// How many attempts a node keeps under way at once, with those of other activities that name the same limit.
    pub limit: Option<DispatchLimit>,
}

impl Default for ActivityOptions {
    fn default() -> Self {
        Self {
            schedule_to_start: None,
            start_to_close: Duration::from_secs(30),
            schedule_to_close: None,
            retry: RetryPolicy::default(),
            exhausted: Exhausted::Fail,
            result_bytes_max: RESULT_BYTES_MAX,
            limit: None,
        }
    }
}

/// What becomes of an activity that cannot go on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The workflow gets the failure as an error.
    Fail,
    /// The activity waits for a person, who retries, resolves or skips it; the workflow goes on waiting.
    NeedsAttention,
}

/// A bound on attempts under way, shared by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchLimit {
    /// What is protected, such as `stock`.
    pub name: String,
    /// Attempts under way at once; the others wait, unstarted, in the order of their arrival.
    pub concurrency: usize,
}
