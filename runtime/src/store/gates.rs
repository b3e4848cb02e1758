//! What holds calls to the world back: where it stands, as all nodes agree, and who waits behind it.

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use crate::id::WorkflowKey;

/// The most documents in a store; there is one for each breaker that ever moved, and for each limit that a person set.
pub const CONTROLS_MAX: usize = 10_000;
/// The largest document, in bytes.
pub const CONTROL_BYTES_MAX: usize = 4 * 1024;

/// A small document that is replaced as a whole by whoever knows its last revision. To a store its value is bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// What it is about, such as `breaker payments`.
    pub name: String,
    /// Raised by one with every replacement, from 1.
    pub rev: u64,
    /// What it says; at most [`CONTROL_BYTES_MAX`].
    pub value: Bytes,
}

/// The gates of a store: breakers, and what else holds calls back.
///
/// # Errors
/// As of [`super::Store`].
#[async_trait]
pub trait Gates {
    /// Everything that nodes agree on about the world outside, by name.
    async fn controls(&self) -> Result<Vec<Control>, StoreError>;

    /// Replaces a document by its next revision: `control.rev` is one above the one that stands there (1 where none does).
    /// `false` when another one stands there, and nothing is changed. Any node may: what it writes is a proposal on what it
    /// has read, and no lane protects it.
    async fn replace_control(&self, control: &Control) -> Result<bool, StoreError>;

    /// Executions of these shards that wait behind this gate: those of them all that have waited the longest, at most `limit`,
    /// by the time since when they wait, type and id.
    async fn parked(&self, shards: &[u16], gate: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError>;
}
