//! The runtime of Overdue: durable executions of workflows that wait for deadlines.
//!
//! It knows no orders. A program registers its workflows and activities and gets the engine, the HTTP API and the
//! command line around them.

pub mod activity;
pub mod cli;
pub mod client;
mod duration;
pub mod engine;
pub mod fault;
pub mod history;
pub mod http;
mod id;
pub mod outbox;
mod payload;
pub mod replay;
#[cfg(any(test, feature = "test-util"))]
pub mod simulation;
pub mod store;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod time;
pub mod verify;
pub mod workflow;

pub use duration::{ConfigDuration, InvalidDuration, parse_duration};
pub use id::{DERIVED_ID_BYTES_MAX, ID_BYTES_MAX, InvalidId, RunId, WorkflowKey, check_id, shard_of};
pub use payload::{InvalidField, InvalidPayload, JSON_DEPTH_MAX, Payload};
/// The driver of the connections that [`client::start_in`] takes, in its very version.
pub use sqlx;
pub use time::{InvalidTimestamp, Timestamp};
