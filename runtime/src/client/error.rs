//! Why a request is not granted.

use crate::id::{InvalidId, RunId};
use crate::payload::InvalidField;
use crate::store::StoreError;
use crate::workflow::WorkflowRegistry;

/// Why a request is not granted. Nothing changed, except where it says that the outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The request cannot be understood: fields that are not as they must be, by shape.
    #[error("the request is malformed: {}", list(.0))]
    Malformed(Vec<InvalidField>),
    /// The request is understood, but its values are not valid.
    #[error("the request is not valid: {}", list(.0))]
    Invalid(Vec<InvalidField>),
    /// There is no such workflow type.
    #[error("there is no workflow type {found:?}; this program knows {known}")]
    UnknownType {
        /// The name that was asked for.
        found: String,
        /// The names that are known.
        known: String,
    },
    /// There is no such execution, or activity of it.
    #[error("{0}")]
    NotFound(String),
    /// The request contradicts what is stored.
    #[error("{message}")]
    Conflict {
        /// What it contradicts, and what to do.
        message: String,
        /// The run that it contradicts.
        run_id: Option<RunId>,
    },
    /// A part of the request is over its limit.
    #[error("{0}")]
    TooLarge(String),
    /// A limit on how many is reached.
    #[error("{0}")]
    TooMany(String),
    /// The node cannot take the request now; nothing is known to have changed. Repeat it, with the same ids.
    #[error("the node cannot take the request now; repeat it with the same ids")]
    Unavailable,
    /// What was asked for can never be stored.
    #[error("what was asked for could not be stored; the node's log says why")]
    Rejected,
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ClientError {
    pub(crate) fn unknown_type(found: &str, workflows: &WorkflowRegistry) -> Self {
        Self::UnknownType { found: found.to_owned(), known: workflows.open_types().collect::<Vec<_>>().join(", ") }
    }

    pub(crate) fn invalid_id(error: &InvalidId) -> Self {
        Self::Invalid(vec![InvalidField::new("id", error.to_string())])
    }

    pub(crate) fn not_found(key: &crate::id::WorkflowKey) -> Self {
        Self::NotFound(format!("there is no workflow {key}"))
    }

    pub(crate) fn conflict(message: impl Into<String>, run_id: Option<RunId>) -> Self {
        Self::Conflict { message: message.into(), run_id }
    }
}

fn list(fields: &[InvalidField]) -> String {
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
