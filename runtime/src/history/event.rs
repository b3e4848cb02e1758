//! The events of a history.
//!
//! *Input* events come from outside the workflow (a timer fired, a signal came in); *command* events are what the
//! workflow asked for in answer, recorded directly behind the input that made it ask.

use std::collections::BTreeMap;
use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::payload::Payload;
use crate::time::Timestamp;

/// The longest failure message that is kept, in bytes; longer ones are cut.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 1024;

/// One numbered fact of a history. Numbers start at 1 and have no gaps.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Event {
    /// Position in the history.
    pub number: u64,
    /// The recorded time of the transition that it belongs to; never falls along a history.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Who acted: the name of a token, of an `X-Actor` header, or `anonymous`.
pub type Actor = String;

/// What happened.
///
/// The numbers are the binary form (CBOR arrays, RFC 8949): a new variant takes the next number, a new field too and
/// must be optional; none is ever reused.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all_fields = "camelCase")]
#[cbor(flat)]
pub enum EventKind {
    /// The execution was asked for; holds the only copy of its input.
    #[n(0)]
    WorkflowStarted {
        /// The caller's input.
        #[n(0)]
        input: Payload,
        /// When to begin, if not at once.
        #[n(1)]
        start_at: Option<Timestamp>,
        /// Search attributes.
        #[n(2)]
        attributes: BTreeMap<String, Payload>,
        /// The caller's W3C trace context.
        #[n(3)]
        traceparent: Option<String>,
    },
    /// The workflow waits for an instant.
    #[n(1)]
    TimerStarted {
        /// What the workflow calls it.
        #[n(0)]
        name: Option<String>,
        /// When it is due.
        #[n(1)]
        fire_at: Timestamp,
    },
    /// A timer's time had come.
    #[n(2)]
    TimerFired {
        /// Number of its `TimerStarted`.
        #[n(0)]
        timer: u64,
    },
    /// The workflow no longer waits for a timer.
    #[n(3)]
    TimerCancelled {
        /// Number of its `TimerStarted`.
        #[n(0)]
        timer: u64,
    },
    /// The workflow asked for an activity, or for a step that only a person can do.
    #[n(4)]
    ActivityScheduled {
        /// Name of the activity.
        #[n(0)]
        name: String,
        /// Its input: the same bytes on every attempt.
        #[n(1)]
        input: Payload,
        /// Sent with every attempt.
        #[n(2)]
        idempotency_key: String,
        /// Why a person has to do it; absent for an activity that is called.
        #[n(3)]
        by_hand: Option<String>,
    },
    /// The activity answered.
    #[n(5)]
    ActivityCompleted {
        /// Number of its `ActivityScheduled`.
        #[n(0)]
        activity: u64,
        /// Its result.
        #[n(1)]
        result: Payload,
        /// Attempts spent, this one included.
        #[n(2)]
        attempts: u32,
        /// Requests sent in all attempts.
        #[n(3)]
        sends: u32,
    },
    /// The activity failed for good, and the workflow was told.
    #[n(6)]
    ActivityFailed {
        /// Number of its `ActivityScheduled`.
        #[n(0)]
        activity: u64,
        /// The last failure.
        #[n(1)]
        failure: Failure,
        /// Attempts spent.
        #[n(2)]
        attempts: u32,
        /// Requests sent in all attempts.
        #[n(3)]
        sends: u32,
    },
    /// The workflow no longer waits for an activity; a call under way counts as maybe done.
    #[n(7)]
    ActivityCancelled {
        /// Number of its `ActivityScheduled`.
        #[n(0)]
        activity: u64,
    },
    /// The activity cannot go on without a person.
    #[n(8)]
    AttentionRequested {
        /// Number of its `ActivityScheduled`.
        #[n(0)]
        activity: u64,
        /// The last failure.
        #[n(1)]
        failure: Failure,
        /// Attempts spent.
        #[n(2)]
        attempts: u32,
        /// Requests sent in all attempts.
        #[n(3)]
        sends: u32,
    },
    /// A person had the activity tried again, under the same key.
    #[n(9)]
    ActivityRetried {
        /// Number of its `ActivityScheduled`.
        #[n(0)]
        activity: u64,
        /// Why.
        #[n(1)]
        reason: String,
        /// Who.
        #[n(2)]
        actor: Actor,
    },
    /// A person gave the activity's result.
    #[n(10)]
    ActivityResolved {
        /// Number of its `ActivityScheduled`.
        #[n(0)]
        activity: u64,
        /// The result, as if the activity had answered it.
        #[n(1)]
        result: Payload,
        /// Why.
        #[n(2)]
        reason: String,
        /// Who.
        #[n(3)]
        actor: Actor,
    },
    /// A person decided that the activity is not to be done.
    #[n(11)]
    ActivitySkipped {
        /// Number of its `ActivityScheduled`.
        #[n(0)]
        activity: u64,
        /// Why.
        #[n(1)]
        reason: String,
        /// Who.
        #[n(2)]
        actor: Actor,
    },
    /// A signal came in.
    #[n(12)]
    SignalReceived {
        /// Name of the signal.
        #[n(0)]
        name: String,
        /// Identifies the delivery; a second one with the same id is not recorded.
        #[n(1)]
        signal_id: String,
        /// What it says.
        #[n(2)]
        payload: Payload,
    },
    /// Somebody asked the workflow to stop.
    #[n(13)]
    CancelRequested {
        /// Why.
        #[n(0)]
        reason: String,
        /// Who.
        #[n(1)]
        actor: Actor,
    },
    /// A value that the workflow computed once and must see again on replay.
    #[n(14)]
    SideEffectRecorded {
        /// The value.
        #[n(0)]
        value: Payload,
    },
    /// Which version of a changed piece of code this execution runs.
    #[n(15)]
    VersionMarked {
        /// Name of the change.
        #[n(0)]
        change: String,
        /// The version.
        #[n(1)]
        version: u32,
    },
    /// The workflow returned.
    #[n(16)]
    WorkflowCompleted {
        /// What it returned.
        #[n(0)]
        result: Payload,
    },
    /// The workflow returned an error.
    #[n(17)]
    WorkflowFailed {
        /// The error.
        #[n(0)]
        failure: Failure,
    },
    /// The workflow stopped because it was asked to.
    #[n(18)]
    WorkflowCancelled {
        /// Why.
        #[n(0)]
        reason: String,
    },
    /// The execution was ended from outside, without asking the workflow.
    #[n(19)]
    WorkflowTerminated {
        /// Why.
        #[n(0)]
        reason: String,
        /// Who.
        #[n(1)]
        actor: Actor,
    },
    /// The workflow told those outside who listen.
    #[n(20)]
    EventEmitted {
        /// What happened, such as `shipment.sent`.
        #[n(0)]
        name: String,
        /// What they are told of it.
        #[n(1)]
        data: Payload,
    },
}

impl EventKind {
    /// The kind's name, as the API writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::WorkflowStarted { .. } => "WorkflowStarted",
            Self::TimerStarted { .. } => "TimerStarted",
            Self::TimerFired { .. } => "TimerFired",
            Self::TimerCancelled { .. } => "TimerCancelled",
            Self::ActivityScheduled { .. } => "ActivityScheduled",
            Self::ActivityCompleted { .. } => "ActivityCompleted",
            Self::ActivityFailed { .. } => "ActivityFailed",
            Self::ActivityCancelled { .. } => "ActivityCancelled",
            Self::AttentionRequested { .. } => "AttentionRequested",
            Self::ActivityRetried { .. } => "ActivityRetried",
            Self::ActivityResolved { .. } => "ActivityResolved",
            Self::ActivitySkipped { .. } => "ActivitySkipped",
            Self::SignalReceived { .. } => "SignalReceived",
            Self::CancelRequested { .. } => "CancelRequested",
            Self::SideEffectRecorded { .. } => "SideEffectRecorded",
            Self::VersionMarked { .. } => "VersionMarked",
            Self::WorkflowCompleted { .. } => "WorkflowCompleted",
            Self::WorkflowFailed { .. } => "WorkflowFailed",
            Self::WorkflowCancelled { .. } => "WorkflowCancelled",
            Self::WorkflowTerminated { .. } => "WorkflowTerminated",
            Self::EventEmitted { .. } => "EventEmitted",
        }
    }

    /// Whether the workflow asked for it (rather than being told).
    pub fn is_command(&self) -> bool {
        matches!(
            self,
            Self::TimerStarted { .. }
                | Self::TimerCancelled { .. }
                | Self::ActivityScheduled { .. }
                | Self::ActivityCancelled { .. }
                | Self::SideEffectRecorded { .. }
                | Self::VersionMarked { .. }
                | Self::EventEmitted { .. }
                | Self::WorkflowCompleted { .. }
                | Self::WorkflowFailed { .. }
                | Self::WorkflowCancelled { .. }
        )
    }

    /// Whether nothing can follow it.
    pub fn is_closing(&self) -> bool {
        matches!(
            self,
            Self::WorkflowCompleted { .. }
                | Self::WorkflowFailed { .. }
                | Self::WorkflowCancelled { .. }
                | Self::WorkflowTerminated { .. }
        )
    }
}

/// How a failure is to be taken; the class decides, not the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[cbor(index_only)]
pub enum FailureClass {
    /// May succeed when tried again; whether it took effect is unknown.
    #[n(0)]
    Transient,
    /// Trying again is of no use.
    #[n(1)]
    Permanent,
    /// Nothing was refused and nothing failed: wait. Costs no attempt.
    #[n(2)]
    Neutral,
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// How it is to be taken.
    #[n(0)]
    pub class: FailureClass,
    /// A constant word for the kind of failure, such as `timeout` or `http-503`.
    #[n(1)]
    pub error_type: String,
    /// What happened, for a person; at most [`FAILURE_MESSAGE_BYTES_MAX`] bytes, without control characters.
    #[n(2)]
    pub message: String,
}

impl Failure {
    /// A failure; the message is cut to the limit and its control characters become visible.
    pub fn new(class: FailureClass, error_type: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self { class, error_type: error_type.into(), message: presentable(message.as_ref()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.message)
    }
}

/// Peer text as every store, terminal and page can show it: control characters as U+FFFD, cut at a character.
fn presentable(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(FAILURE_MESSAGE_BYTES_MAX + 1)
        .map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c })
        .collect();
    if shown.len() > FAILURE_MESSAGE_BYTES_MAX {
        let mut end = FAILURE_MESSAGE_BYTES_MAX - '…'.len_utf8();
        while !shown.is_char_boundary(end) {
            end -= 1;
        }
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_message_is_cut_and_cleaned() {
        let failure = Failure::new(FailureClass::Transient, "http-500", format!("a\0b{}", "é".repeat(2000)));
        assert!(failure.message.starts_with("a\u{fffd}bé"));
        assert!(failure.message.len() <= FAILURE_MESSAGE_BYTES_MAX);
        assert!(failure.message.ends_with('…'));
    }

    #[test]
    fn an_event_reads_as_one_flat_object() {
        let event = Event { number: 3, at: Timestamp::from_micros(0), kind: EventKind::TimerFired { timer: 2 } };
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(json, r#"{"number":3,"at":"1970-01-01T00:00:00.000Z","kind":"TimerFired","timer":2}"#);
    }
}
