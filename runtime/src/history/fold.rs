//! What a history adds up to: what is pending, what was received, how it ended.
//!
//! The fold knows no workflow code, so it also serves for executions that cannot be replayed. It trusts that the
//! history is well formed; what it cannot pair it ignores, and `verify` is the one that complains.

use std::collections::BTreeMap;

use super::event::{Event, EventKind, Failure};
use crate::payload::Payload;
use crate::time::Timestamp;

/// A timer that was started and neither fired nor was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingTimer {
    /// What the workflow calls it.
    pub name: Option<String>,
    /// When it is due.
    pub fire_at: Timestamp,
    /// When it was started.
    pub since: Timestamp,
}

/// An activity that was scheduled and has no outcome yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingActivity {
    /// Name of the activity.
    pub name: String,
    /// Its input.
    pub input: Payload,
    /// Sent with every attempt.
    pub idempotency_key: String,
    /// When it was scheduled, or last retried by a person.
    pub since: Timestamp,
    /// Why a person has to do it, if it is no call at all.
    pub by_hand: Option<String>,
    /// Since when it needs attention, with the last failure, if it does.
    pub attention: Option<(Timestamp, Failure)>,
    /// Attempts spent and requests sent before it last asked for attention.
    pub spent_before: (u32, u32),
}

/// A signal of the history, as far as a second delivery has to be compared with it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenSignal {
    /// Number of its event.
    pub number: u64,
    /// Name of the signal.
    pub name: String,
    /// Identifies the delivery.
    pub signal_id: String,
    /// What it says.
    pub payload: Payload,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Closing {
    /// It returned this.
    Completed(Payload),
    /// It returned an error.
    Failed(Failure),
    /// It stopped when asked to.
    Cancelled {
        /// Why it was asked.
        reason: String,
    },
    /// It was ended from outside.
    Terminated {
        /// Why.
        reason: String,
    },
}

/// The sum of a history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// Number of the last event.
    pub last_event: u64,
    /// Recorded time of the last event.
    pub last_at: Timestamp,
    /// Recorded time of the first event.
    pub started_at: Timestamp,
    /// Timers not yet due, by number.
    pub timers: BTreeMap<u64, PendingTimer>,
    /// Activities without outcome, by number.
    pub activities: BTreeMap<u64, PendingActivity>,
    /// Signals received, in order.
    pub signals: Vec<SeenSignal>,
    /// Whether somebody asked it to stop.
    pub cancel_requested: bool,
    /// How it ended, if it did, and when.
    pub closing: Option<(Timestamp, Closing)>,
}

impl Folded {
    /// The sum of `events`.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut folded = Self::default();
        for event in events {
            folded.apply(event);
        }
        folded
    }

    /// Whether some step waits for a person.
    pub fn needs_attention(&self) -> bool {
        self.activities.values().any(|activity| activity.attention.is_some() || activity.by_hand.is_some())
    }

    /// Takes one more event in.
    pub fn apply(&mut self, event: &Event) {
        if self.last_event == 0 {
            self.started_at = event.at;
        }
        self.last_event = event.number;
        self.last_at = event.at;
        match &event.kind {
            EventKind::TimerStarted { name, fire_at } => {
                self.timers.insert(event.number, PendingTimer { name: name.clone(), fire_at: *fire_at, since: event.at });
            }
            EventKind::TimerFired { timer } | EventKind::TimerCancelled { timer } => {
                self.timers.remove(timer);
            }
            EventKind::ActivityScheduled { name, input, idempotency_key, by_hand } => {
                self.activities.insert(
                    event.number,
                    PendingActivity {
                        name: name.clone(),
                        input: input.clone(),
                        idempotency_key: idempotency_key.clone(),
                        since: event.at,
                        by_hand: by_hand.clone(),
                        attention: None,
                        spent_before: (0, 0),
                    },
                );
            }
            EventKind::ActivityCompleted { activity, .. }
            | EventKind::ActivityFailed { activity, .. }
            | EventKind::ActivityCancelled { activity }
            | EventKind::ActivityResolved { activity, .. }
            | EventKind::ActivitySkipped { activity, .. } => {
                self.activities.remove(activity);
            }
            EventKind::AttentionRequested { activity, failure, attempts, sends } => {
                if let Some(pending) = self.activities.get_mut(activity) {
                    pending.attention = Some((event.at, failure.clone()));
                    pending.spent_before = (*attempts, *sends);
                }
            }
            EventKind::ActivityRetried { activity, .. } => {
                // A step by hand ends there: the workflow itself tries again what led to it.
                if self.activities.get(activity).is_some_and(|pending| pending.by_hand.is_some()) {
                    self.activities.remove(activity);
                } else if let Some(pending) = self.activities.get_mut(activity) {
                    pending.attention = None;
                    pending.since = event.at;
                }
            }
            EventKind::SignalReceived { name, signal_id, payload } => self.signals.push(SeenSignal {
                number: event.number,
                name: name.clone(),
                signal_id: signal_id.clone(),
                payload: payload.clone(),
            }),
            EventKind::CancelRequested { .. } => self.cancel_requested = true,
            EventKind::WorkflowCompleted { result } => self.close(event.at, Closing::Completed(result.clone())),
            EventKind::WorkflowFailed { failure } => self.close(event.at, Closing::Failed(failure.clone())),
            EventKind::WorkflowCancelled { reason } => self.close(event.at, Closing::Cancelled { reason: reason.clone() }),
            EventKind::WorkflowTerminated { reason, .. } => self.close(event.at, Closing::Terminated { reason: reason.clone() }),
            EventKind::WorkflowStarted { .. }
            | EventKind::SideEffectRecorded { .. }
            | EventKind::VersionMarked { .. }
            | EventKind::EventEmitted { .. } => {}
        }
    }

    fn close(&mut self, at: Timestamp, closing: Closing) {
        self.timers.clear();
        self.activities.clear();
        self.closing = Some((at, closing));
    }
}
