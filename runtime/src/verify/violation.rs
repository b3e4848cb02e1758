//! What can be wrong, and what is.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::id::{RunId, WorkflowKey};

/// Something that must hold of whatever a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// I9: one run an id, one id a run.
    OneRun,
    /// I10: a signal, and what it is about, is at most once in a history.
    SignalsOnce,
    /// I14: a history has every event from 1 on, and each row follows from the one before.
    WholeHistory,
    /// I15: the row says what the history adds up to.
    RowIsFold,
    /// I16: the code, run over the history, asks for exactly what was recorded.
    Replays,
    /// I17: what was begun ends at most once, after it, and has ended when the execution has.
    Paired,
    /// I18: nothing follows the end.
    ClosedIsClosed,
    /// I19: an execution that has ended has no unread signal for longer than its owner needs to look.
    InboxTakenUp,
    /// I20: no epoch is above the last that was handed out, and no two are the same.
    Epochs,
    /// I21: times never fall along a history, and no timer fired early.
    TimesAscend,
    /// I22: an execution is looked at no later than something of it is due.
    Awake,
    /// I26: each shard is there once, and its owner is a node that may write.
    OneOwner,
    /// I35: the engine's notes are on activities that are pending.
    NotesOfPending,
    /// I42: nothing is left of what is gone, and of what is retired what must be.
    NothingLeft,
}

impl Invariant {
    /// Its number in the list of invariants, such as `I14`.
    pub fn id(self) -> &'static str {
        match self {
            Self::OneRun => "I9",
            Self::SignalsOnce => "I10",
            Self::WholeHistory => "I14",
            Self::RowIsFold => "I15",
            Self::Replays => "I16",
            Self::Paired => "I17",
            Self::ClosedIsClosed => "I18",
            Self::InboxTakenUp => "I19",
            Self::Epochs => "I20",
            Self::TimesAscend => "I21",
            Self::Awake => "I22",
            Self::OneOwner => "I26",
            Self::NotesOfPending => "I35",
            Self::NothingLeft => "I42",
        }
    }
}

impl Serialize for Invariant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// Something that does not hold. The same fault seen twice is equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// What should hold; its number in JSON.
    pub invariant: Invariant,
    /// The execution's type; `None` for what is of no execution.
    pub r#type: Option<String>,
    /// The execution's id.
    pub id: Option<String>,
    /// The run.
    pub run_id: Option<RunId>,
    /// What was found, for a person; without payloads.
    pub message: String,
}

impl Violation {
    /// Something wrong with an execution.
    pub(super) fn of(invariant: Invariant, key: &WorkflowKey, run_id: Option<RunId>, message: String) -> Self {
        let (r#type, id) = (Some(key.workflow_type().to_owned()), Some(key.id().to_owned()));
        Self { invariant, r#type, id, run_id, message }
    }

    /// Something wrong with the store.
    pub(super) fn of_store(invariant: Invariant, message: String) -> Self {
        Self { invariant, r#type: None, id: None, run_id: None, message }
    }
}

/// How often each invariant was evaluated: a check that never ran has shown nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checks(BTreeMap<Invariant, u64>);

impl Checks {
    /// How often this one was evaluated.
    pub fn of(&self, invariant: Invariant) -> u64 {
        self.0.get(&invariant).copied().unwrap_or(0)
    }

    /// By invariant, those that were evaluated at all.
    pub fn iter(&self) -> impl Iterator<Item = (Invariant, u64)> + '_ {
        self.0.iter().map(|(invariant, count)| (*invariant, *count))
    }

    pub(super) fn count(&mut self, invariant: Invariant, times: u64) {
        *self.0.entry(invariant).or_default() += times;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(invariant, count)| self.count(invariant, count));
    }
}
