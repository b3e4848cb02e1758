//! How a workflow, and what it waits for, can fail.

use crate::history::{Failure, FailureClass};

/// The workflow was asked to stop while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the workflow was asked to stop")]
pub struct Cancelled;

/// Why an activity gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActivityError {
    /// It failed for good.
    #[error("{0}")]
    Failed(Failure),
    /// A person decided that it is not to be done.
    #[error("skipped by hand: {reason}")]
    Skipped {
        /// Why.
        reason: String,
    },
    /// The workflow was asked to stop; the activity is maybe done.
    #[error("the workflow was asked to stop")]
    Cancelled,
}

impl ActivityError {
    /// Whether the activity may have taken effect although it gave no result, as far as its last attempt tells.
    pub fn maybe_done(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.class != FailureClass::Permanent || failure.error_type == "result",
            Self::Skipped { .. } => false,
            Self::Cancelled => true,
        }
    }
}

impl From<Cancelled> for ActivityError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// How a workflow ends without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowError {
    /// It stops because it was asked to.
    #[error("the workflow was asked to stop")]
    Cancelled,
    /// It failed.
    #[error("{0}")]
    Failed(Failure),
}

impl WorkflowError {
    /// A failure with a constant word for its kind and a message for a person.
    pub fn failed(error_type: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self::Failed(Failure::new(FailureClass::Permanent, error_type, message))
    }
}

impl From<Cancelled> for WorkflowError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<ActivityError> for WorkflowError {
    fn from(error: ActivityError) -> Self {
        match error {
            ActivityError::Failed(failure) => Self::Failed(failure),
            ActivityError::Skipped { reason } => Self::failed("skipped", reason),
            ActivityError::Cancelled => Self::Cancelled,
        }
    }
}
