//! Running a workflow over its history. PURE: no clock, no I/O, no store.
//!
//! One event, one poll: live and on replay, events are applied one at a time, in order, and after each the workflow is
//! polled until it waits with nothing left to wake it. The commands that it records stand directly behind that event.

mod machine;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use machine::{Machine, UnreadSignal};
