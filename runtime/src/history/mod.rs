//! What happened to an execution: events, their binary form, and what they add up to.
//!
//! Events are facts: a history is append-only, and everything else that is stored about an execution can be
//! computed from it. Nothing here reads a clock or a store.

mod codec;
mod event;
mod fold;

pub use codec::{CODEC_VERSION, Chain, CodecError, Record, decode, encode};
pub use event::{Actor, Event, EventKind, FAILURE_MESSAGE_BYTES_MAX, Failure, FailureClass};
pub use fold::{Closing, Folded, PendingActivity, PendingTimer, SeenSignal};
