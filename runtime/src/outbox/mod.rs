//! Who is told what happened: sinks, and which events they take.
//!
//! A sink is a receiver of events outside: a webhook today, a broker some day. It delivers one event at a time as often as it
//! is asked to; when it is asked, in which order and how often again is the engine's (`engine/courier.rs`), and what is
//! still to be delivered stands in the store.

mod pattern;
mod registry;

use std::time::Duration;

use async_trait::async_trait;

pub use pattern::{EventPattern, InvalidPattern};
pub use registry::{InvalidSinkName, SinkRegistry, check_sink_name};

use crate::activity::RetryPolicy;
use crate::history::{Failure, FailureClass};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;

/// An event on its way to a sink: the same on every attempt but for the number of the attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Identifies the event at every receiver: under it a receiver tells a repeat.
    pub id: String,
    /// The execution that it is about.
    pub key: WorkflowKey,
    /// The run that emitted it.
    pub run_id: RunId,
    /// Number of the event in the run's history; ascends along a run.
    pub number: u64,
    /// What happened.
    pub name: String,
    /// What is told of it.
    pub data: Payload,
    /// When it happened.
    pub emitted_at: Timestamp,
    /// Which attempt this is, from 1, since a person last had it tried again.
    pub attempt: u32,
}

/// The id of an event, whoever is told of it. No dot is in it: signatures put dots between their parts.
pub fn event_id(run_id: RunId, number: u64) -> String {
    format!("evt_{}_{number}", run_id.0.simple())
}

/// A receiver of events.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Its name in the store and in the API. Another name is another receiver.
    fn name(&self) -> &str;

    /// Whether it takes events of this name. Asked when the event is emitted.
    fn takes(&self, event: &str) -> bool;

    /// How many at once, how long, and when again.
    fn options(&self) -> SinkOptions {
        SinkOptions::default()
    }

    /// Makes one attempt. It may be dropped when its time is up, and be made again although it succeeded (a crash in between):
    /// the receiver tells a repeat by [`Envelope::id`].
    ///
    /// # Errors
    /// A [`DeliveryFailure`], whose class decides what happens next.
    async fn deliver(&self, envelope: &Envelope) -> Result<(), DeliveryFailure>;
}

/// How a sink is used.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkOptions {
    /// Attempts under way at once on one node; of one execution there is never more than one.
    pub concurrency: usize,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// When it is tried again, and when a person is asked.
    pub retry: RetryPolicy,
}

impl Default for SinkOptions {
    /// 16 at once, 15 s each; again after 5 s, doubling up to an hour, for 72 h.
    fn default() -> Self {
        Self {
            concurrency: 16,
            timeout: Duration::from_secs(15),
            retry: RetryPolicy { initial: Duration::from_secs(5), cap: Duration::from_secs(3600), ..RetryPolicy::default() },
        }
    }
}

/// Why an event was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct DeliveryFailure {
    /// How it is to be taken, and what happened. A permanent one waits for a person, a neutral one costs no attempt.
    pub failure: Failure,
    /// Not to be tried again before; already cut to what the sink believes.
    pub retry_after: Option<Duration>,
}

impl DeliveryFailure {
    /// May succeed when tried again.
    pub fn transient(error_type: &str, message: impl AsRef<str>) -> Self {
        Self { failure: Failure::new(FailureClass::Transient, error_type, message), retry_after: None }
    }

    /// Trying again is of no use.
    pub fn permanent(error_type: &str, message: impl AsRef<str>) -> Self {
        Self { failure: Failure::new(FailureClass::Permanent, error_type, message), retry_after: None }
    }

    /// The receiver asks to wait.
    pub fn neutral(error_type: &str, message: impl AsRef<str>) -> Self {
        Self { failure: Failure::new(FailureClass::Neutral, error_type, message), retry_after: None }
    }

    /// The same, not to be tried again before `wait` is over.
    #[must_use]
    pub fn after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }
}
