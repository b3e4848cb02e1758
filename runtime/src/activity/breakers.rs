//! Circuit breakers as a person sees and sets them. The breakers themselves belong to whoever makes the calls.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BreakerPosition {
    /// Calls go.
    Closed,
    /// Nothing goes for a while.
    Open,
    /// One call at a time probes.
    HalfOpen,
    /// Nothing goes until a person closes it.
    ForcedOpen,
}

/// A breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BreakerView {
    /// What it protects, such as `payments`.
    pub downstream: String,
    /// The part of it that this breaker is for, such as a payment channel; `None` for all of it.
    pub key: Option<String>,
    /// Where it stands.
    pub position: BreakerPosition,
    /// Failures in a row, while it is closed.
    pub failures: u32,
    /// Milliseconds until it lets a probe through, while it is open.
    pub probe_in_ms: Option<u64>,
    /// Why it was forced open.
    pub reason: Option<String>,
}

impl BreakerView {
    /// A breaker without anything to say but where it stands.
    pub fn new(downstream: &str, key: Option<String>, position: BreakerPosition) -> Self {
        Self { downstream: downstream.to_owned(), key, position, failures: 0, probe_in_ms: None, reason: None }
    }

    /// The same, with the time until it lets a probe through.
    #[must_use]
    pub fn probing_in(self, remaining: Duration) -> Self {
        Self { probe_in_ms: Some(u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)), ..self }
    }
}

/// There is no breaker of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoSuchBreaker(pub String);

/// The breakers of a program's activities, in this process.
pub trait BreakerPanel: Send + Sync + 'static {
    /// All of them.
    fn breakers(&self) -> Vec<BreakerView>;

    /// Opens one until it is closed by hand.
    ///
    /// # Errors
    /// [`NoSuchBreaker`].
    fn force_open(&self, downstream: &str, key: Option<&str>, reason: &str) -> Result<(), NoSuchBreaker>;

    /// Closes one, whatever opened it.
    ///
    /// # Errors
    /// [`NoSuchBreaker`].
    fn close(&self, downstream: &str, key: Option<&str>) -> Result<(), NoSuchBreaker>;
}
