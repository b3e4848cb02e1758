//! What callers ask for inside the store, in transactions of their own.

use crate::id::WorkflowKey;
use crate::time::Timestamp;

/// A start that a caller asked for inside a transaction of its own, in the store itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedStart {
    /// The execution to be started.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// The input: JSON, as the caller wrote it.
    pub input: String,
    /// Search attributes: a JSON object, as the caller wrote it.
    pub attributes: Option<String>,
    /// When to begin, if not at once.
    pub start_at: Option<Timestamp>,
    /// Why it is not started, once that is known.
    pub refused: Option<String>,
}

/// A workflow type and what may be sent to it, so that the store can refuse the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredType {
    /// Its name.
    pub name: String,
    /// The names of its signals.
    pub signals: Vec<String>,
}

/// Why a start that was asked for is refused when its id was started by another request.
pub(crate) const STARTED_BY_ANOTHER: &str = "its id was started by another request before; ids are used once";
