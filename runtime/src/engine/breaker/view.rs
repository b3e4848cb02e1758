//! Circuit breakers as a person sees them.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use super::BreakerName;
use super::machine::BreakerState;

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
    /// Everything goes, whatever comes of it, until a person says otherwise.
    ForcedClosed,
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
    /// Failures in a row that this node has counted, while it is closed.
    pub failures: u32,
    /// Milliseconds until it lets a probe through, while it is open.
    pub probe_in_ms: Option<u64>,
    /// Why it was forced.
    pub reason: Option<String>,
    /// Who forced it.
    pub actor: Option<String>,
}

impl BreakerView {
    pub(super) fn new(name: &BreakerName, state: &BreakerState, reason: Option<String>, actor: Option<String>) -> Self {
        let millis = |remaining: &Duration| u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
        let (position, failures, probe_in_ms) = match state {
            BreakerState::Closed { failures } => (BreakerPosition::Closed, *failures, None),
            BreakerState::Open { remaining } => (BreakerPosition::Open, 0, Some(millis(remaining))),
            BreakerState::HalfOpen => (BreakerPosition::HalfOpen, 0, None),
            BreakerState::ForcedOpen => (BreakerPosition::ForcedOpen, 0, None),
            BreakerState::ForcedClosed => (BreakerPosition::ForcedClosed, 0, None),
        };
        let (downstream, key) = (name.downstream.clone(), name.key.clone());
        Self { downstream, key, position, failures, probe_in_ms, reason, actor }
    }
}
