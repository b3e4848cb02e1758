//! What all nodes agree on about something outside.

use bytes::Bytes;

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
