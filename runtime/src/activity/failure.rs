//! How an attempt fails.

use std::time::Duration;

use crate::history::{Failure, FailureClass};

/// The failure of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct ActivityFailure {
    /// What happened and how it is to be taken.
    pub failure: Failure,
    /// How long to wait at least before the next attempt, if the receiver or a limit said so.
    pub retry_after: Option<Duration>,
    /// The breaker or limit that holds the call back, such as `breaker of stock`; only of neutral failures.
    pub parked_by: Option<String>,
    /// The gate that lets the call go, by name, where something watches it: `retry_after` is then only the latest.
    pub gate: Option<String>,
}

impl ActivityFailure {
    /// May succeed later; whether it took effect is unknown.
    pub fn transient(error_type: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(FailureClass::Transient, error_type, message)
    }

    /// Trying again is of no use.
    pub fn permanent(error_type: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::new(FailureClass::Permanent, error_type, message)
    }

    /// Wait `retry_after`, at no cost of attempts.
    pub fn neutral(error_type: impl Into<String>, message: impl AsRef<str>, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..Self::new(FailureClass::Neutral, error_type, message) }
    }

    /// Nothing was sent: a breaker or limit holds the call back for `retry_after`.
    pub fn parked(by: impl Into<String>, retry_after: Duration) -> Self {
        let by = by.into();
        Self {
            retry_after: Some(retry_after),
            failure: Failure::new(FailureClass::Neutral, "parked", format!("held back by the {by}")),
            parked_by: Some(by),
            gate: None,
        }
    }

    fn new(class: FailureClass, error_type: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self { failure: Failure::new(class, error_type, message), retry_after: None, parked_by: None, gate: None }
    }
}
