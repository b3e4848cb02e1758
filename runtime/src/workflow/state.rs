//! What a workflow's context and the machine that drives it share.
//!
//! The machine applies one event, then polls; the context's futures read what was applied and record commands. With
//! `recorded` commands at hand (replay), each command must be the one that was recorded at its place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::calls::CallOptions;
use super::error::ActivityError;
use crate::history::EventKind;
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;

/// The most commands that a workflow may record in answer to one event; more is taken for an endless loop.
const COMMANDS_PER_EVENT_MAX: usize = 10_000;

/// Why a workflow cannot be run over its history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayFault {
    /// The code asks for something else than what the history says it asked for.
    #[error("nondeterminism at event {position}: the history has {expected}, the workflow asks for {found}")]
    Nondeterminism {
        /// Number of the event.
        position: u64,
        /// What the history has there.
        expected: String,
        /// What the code asks for.
        found: String,
    },
    /// The code does not support the version that this execution runs.
    #[error("change {change:?} is at version {found}, this program supports {min} to {max}")]
    UnsupportedVersion {
        /// Name of the change.
        change: String,
        /// The recorded version.
        found: u32,
        /// The lowest supported.
        min: u32,
        /// The highest supported.
        max: u32,
    },
    /// A recorded value does not have the shape that the code expects.
    #[error("{what} cannot be read by this program: {reason}")]
    Unreadable {
        /// Which value.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The code panicked.
    #[error("the workflow panicked: {0}")]
    Panic(String),
    /// The code neither waits nor ends.
    #[error("the workflow neither waits nor ends: {0}")]
    Endless(String),
    /// No workflow of this type is registered.
    #[error("workflow type {0:?} is unknown to this program")]
    UnknownType(String),
    /// The history itself is not well formed.
    #[error("the history cannot be read: {0}")]
    History(String),
}

impl ReplayFault {
    /// A constant word for the kind of fault.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Nondeterminism { .. } => "nondeterminism",
            Self::UnsupportedVersion { .. } => "unsupported-version",
            Self::Unreadable { .. } => "unreadable",
            Self::Panic(_) => "panic",
            Self::Endless(_) => "endless",
            Self::UnknownType(_) => "unknown-type",
            Self::History(_) => "history",
        }
    }
}

/// How an activity ended, as its future sees it.
#[derive(Clone, Debug)]
pub(crate) enum ActivityOutcome {
    Completed(Payload),
    Failed(ActivityError),
    /// A step by hand that a person wants to be tried again.
    Retried,
}

/// A pending timer or activity.
pub(crate) struct Slot<T> {
    pub(crate) outcome: Option<T>,
    /// Whether an earlier request than the one that failed was sent.
    pub(crate) sent_before: bool,
    pub(crate) waker: Option<Waker>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { outcome: None, sent_before: false, waker: None }
    }
}

/// A signal that was received and not yet taken.
pub(crate) struct Delivered {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) signal_id: String,
    pub(crate) payload: Payload,
}

pub(crate) struct State {
    pub(crate) key: WorkflowKey,
    pub(crate) run_id: RunId,
    pub(crate) key_namespace: String,
    pub(crate) now: Timestamp,
    next_number: u64,
    recorded: Option<VecDeque<EventKind>>,
    produced: Vec<EventKind>,
    fault: Option<ReplayFault>,
    pub(crate) timers: BTreeMap<u64, Slot<()>>,
    pub(crate) activities: BTreeMap<u64, Slot<ActivityOutcome>>,
    pub(crate) by_hand: BTreeSet<u64>,
    pub(crate) call_options: BTreeMap<u64, CallOptions>,
    pub(crate) intents: BTreeMap<String, u32>,
    pub(crate) signals: VecDeque<Delivered>,
    pub(crate) signal_wakers: Vec<Waker>,
    pub(crate) late_answers: BTreeSet<u64>,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) shield_depth: u32,
    pub(crate) versions: BTreeMap<String, u32>,
    pub(crate) progress: Option<Payload>,
    pub(crate) draws: u64,
    /// Set once the future is dropped from outside: what it drops then is no decision of the workflow.
    pub(crate) torn_down: bool,
}

/// The state behind a lock that is only ever held for a moment within a poll.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn new(key: WorkflowKey, run_id: RunId, key_namespace: String) -> Self {
        Self(Arc::new(Mutex::new(State {
            key,
            run_id,
            key_namespace,
            now: Timestamp::default(),
            next_number: 1,
            recorded: None,
            produced: Vec::new(),
            fault: None,
            timers: BTreeMap::new(),
            activities: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            call_options: BTreeMap::new(),
            intents: BTreeMap::new(),
            signals: VecDeque::new(),
            signal_wakers: Vec::new(),
            late_answers: BTreeSet::new(),
            cancel_reason: None,
            shield_depth: 0,
            versions: BTreeMap::new(),
            progress: None,
            draws: 0,
            torn_down: false,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of workflow code is caught by the machine, which then never polls again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Begins a poll in answer to the event `number`; `recorded` are the commands that the history has behind it.
    pub(crate) fn begin(&mut self, number: u64, now: Timestamp, recorded: Option<VecDeque<EventKind>>) {
        self.next_number = number + 1;
        self.now = self.now.max(now);
        self.recorded = recorded;
        self.produced.clear();
    }

    /// Ends the poll: the commands to be recorded behind the event.
    pub(crate) fn finish(&mut self) -> Result<Vec<EventKind>, ReplayFault> {
        if let Some(left) = self.recorded.take().and_then(|mut recorded| recorded.pop_front()) {
            let position = self.next_number;
            self.fail(ReplayFault::Nondeterminism { position, expected: describe(&left), found: "nothing".into() });
        }
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(std::mem::take(&mut self.produced)),
        }
    }

    /// Keeps the first fault of a poll.
    pub(crate) fn fail(&mut self, fault: ReplayFault) {
        self.fault.get_or_insert(fault);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Records a command and returns its number.
    pub(crate) fn command(&mut self, command: EventKind) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        if self.produced.len() >= COMMANDS_PER_EVENT_MAX {
            self.fail(ReplayFault::Endless(format!("more than {COMMANDS_PER_EVENT_MAX} commands in answer to one event")));
            return number;
        }
        match self.recorded.as_mut().map(VecDeque::pop_front) {
            None => self.produced.push(command),
            Some(Some(found)) if is_same_command(&found, &command) => self.produced.push(found),
            Some(other) => {
                let expected = other.as_ref().map_or_else(|| "nothing more".to_owned(), describe);
                self.fail(ReplayFault::Nondeterminism { position: number, expected, found: describe(&command) });
            }
        }
        number
    }

    /// The command that the history has next; `None` when the workflow runs live.
    pub(crate) fn next_recorded(&self) -> Option<Option<&EventKind>> {
        self.recorded.as_ref().map(VecDeque::front)
    }

    /// Whether a future that is polled now must give up.
    pub(crate) fn is_cancelled_here(&self) -> bool {
        self.cancel_reason.is_some() && self.shield_depth == 0
    }

    /// The idempotency key of an intent: `{namespace}/{order}/{intent}`, with what a header cannot hold escaped.
    pub(crate) fn idempotency_key(&self, intent: &str) -> String {
        let mut key = String::new();
        for byte in format!("{}/{}/{intent}", self.key_namespace, self.key.root_id()).bytes() {
            match byte {
                b'%' | 0..=0x20 | 0x7f.. => key.push_str(&format!("%{byte:02X}")),
                _ => key.push(byte.into()),
            }
        }
        key
    }
}

/// Whether a recorded command is the one that the code asks for now. The input of an activity and the data of an event are
/// not compared: what was recorded is what is sent, so that a new field in new code does not stop what is under way.
fn is_same_command(recorded: &EventKind, asked: &EventKind) -> bool {
    use EventKind as K;
    match (recorded, asked) {
        (K::TimerStarted { name, fire_at }, K::TimerStarted { name: name2, fire_at: fire_at2 }) => {
            name == name2 && fire_at == fire_at2
        }
        (
            K::ActivityScheduled { name, idempotency_key, by_hand, .. },
            K::ActivityScheduled { name: name2, idempotency_key: key2, by_hand: by_hand2, .. },
        ) => name == name2 && idempotency_key == key2 && by_hand.is_some() == by_hand2.is_some(),
        (K::TimerCancelled { timer }, K::TimerCancelled { timer: timer2 }) => timer == timer2,
        (K::ActivityCancelled { activity }, K::ActivityCancelled { activity: activity2 }) => activity == activity2,
        (K::VersionMarked { change, .. }, K::VersionMarked { change: change2, .. }) => change == change2,
        (K::EventEmitted { name, .. }, K::EventEmitted { name: name2, .. }) => name == name2,
        (K::SideEffectRecorded { .. }, K::SideEffectRecorded { .. })
        | (K::WorkflowCompleted { .. }, K::WorkflowCompleted { .. })
        | (K::WorkflowFailed { .. }, K::WorkflowFailed { .. })
        | (K::WorkflowCancelled { .. }, K::WorkflowCancelled { .. }) => true,
        _ => false,
    }
}

/// A command in a few words, without payloads.
fn describe(command: &EventKind) -> String {
    let name = command.name();
    match command {
        EventKind::TimerStarted { name: timer, fire_at } => match timer {
            Some(timer) => format!("{name} {timer:?} at {fire_at}"),
            None => format!("{name} at {fire_at}"),
        },
        EventKind::ActivityScheduled { name: activity, idempotency_key, .. } => format!("{name} {activity} ({idempotency_key})"),
        EventKind::TimerCancelled { timer: number } | EventKind::ActivityCancelled { activity: number } => {
            format!("{name} of event {number}")
        }
        EventKind::VersionMarked { change, version } => format!("{name} {change:?} = {version}"),
        EventKind::EventEmitted { name: event, .. } => format!("{name} {event}"),
        _ => name.to_owned(),
    }
}
