//! The writes of a batch and what came of each.

use bytes::Bytes;

use super::list::AttributeValue;
use super::{Dispatch, Execution, InboxRow, OutboxRow, Status};
use crate::history::Record;
use crate::id::{RunId, WorkflowKey};
use crate::time::Timestamp;

/// One write of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create an execution with its first transition.
    Start(NewExecution),
    /// Apply a transition to an existing execution.
    Advance(Advance),
    /// Store a signal for an execution that cannot take it now.
    Deposit(Deposit),
    /// Note why a start that was asked for, or a stored signal, is not taken up.
    Refuse(Refuse),
    /// Remove the history and the attributes of a closed execution, and leave a tombstone.
    Retire(Retire),
    /// Remove a tombstone: nothing of the execution is left.
    Forget(Forget),
    /// Note what became of an event on its way to a sink.
    Dispatch(Dispatch),
}

impl Write {
    /// The shard of all that it is about.
    pub fn shard(&self) -> u16 {
        match self {
            Self::Start(new) => new.shard,
            Self::Advance(advance) => advance.shard,
            Self::Deposit(deposit) => deposit.row.shard,
            Self::Refuse(refuse) => refuse.shard,
            Self::Retire(retire) => retire.shard,
            Self::Forget(forget) => forget.shard,
            Self::Dispatch(dispatch) => dispatch.place.shard,
        }
    }
}

/// An execution to be created. The unique key (type, id) decides who creates it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewExecution {
    /// Its name.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// Its run.
    pub run_id: RunId,
    /// Hash of the request that starts it.
    pub request_hash: [u8; 16],
    /// Its first events; `first_event` is 1.
    pub record: Record,
    /// The row after the first transition.
    pub row: RowChange,
    /// Search attributes, at most one value a name.
    pub attributes: Vec<(String, AttributeValue)>,
    /// Inbox rows (by execution and signal id) that it takes up; they are removed with it, also when the key exists.
    pub consume: Vec<(WorkflowKey, String)>,
    /// What it emits, for each sink that takes it; the first of a sink is due.
    pub emit: Vec<OutboxRow>,
    /// Whether it was asked for inside the store. That request is removed with it, also when the key exists with the same
    /// request hash; when it exists with another one, the request is kept and noted as refused.
    pub requested: bool,
}

/// What an execution waits behind whose calls are held back, and since when: the oldest are let go first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parked {
    /// The breaker, by name; not empty.
    pub gate: String,
    /// When the call was asked for that waits the longest.
    pub since: Timestamp,
}

/// The changeable part of an execution's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// Where it stands.
    pub status: Status,
    /// When somebody must look at it next; `None` for a closed one.
    pub wake_at: Option<Timestamp>,
    /// When it ended; `None` for an open one.
    pub closed_at: Option<Timestamp>,
    /// Whether a step of it waits for a person.
    pub needs_attention: bool,
    /// The engine's notes on pending activities; empty when there are none.
    pub attempts: Bytes,
    /// What it waits behind; `None` for one that is closed, blocked, or at its start.
    pub parked: Option<Parked>,
}

/// A transition of an existing execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Advance {
    /// The execution.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// Its run.
    pub run_id: RunId,
    /// The row's `rev` as the owner knows it. Checked, and raised by one, when `row` is given.
    pub rev: u64,
    /// Events to append; their position must be free.
    pub record: Option<Record>,
    /// The new row; `None` leaves it, and its `rev`, as it is.
    pub row: Option<RowChange>,
    /// Signal ids of inbox rows of this execution that these events take up; they are removed.
    pub consume: Vec<String>,
    /// Signal ids of inbox rows of this execution that cannot be taken up; they are kept and marked held.
    pub hold: Vec<String>,
    /// Executions to be created with it. One that exists already is left as it is.
    pub spawn: Vec<NewExecution>,
    /// What it emits, for each sink that takes it; due unless an earlier one of this run waits for the same sink.
    pub emit: Vec<OutboxRow>,
    /// Refuse the write when the execution has an unread inbox row that is neither held nor among `consume`.
    pub guard_inbox: bool,
}

/// What is not taken up; it is kept, and nobody looks at it again by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// The execution that it is about, whether that exists or not.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// The stored signal, which is marked held; `None` for the start that was asked for under this key.
    pub signal_id: Option<String>,
    /// Why.
    pub reason: String,
}

/// A signal to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Deposit {
    /// The row. Its key is (type, id, signal id).
    pub row: InboxRow,
}

/// A closed execution whose time in full is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retire {
    /// The execution.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// Its run.
    pub run_id: RunId,
    /// The row's `rev` as the owner read it; raised by one.
    pub rev: u64,
    /// What is left, in the engine's own form; not empty.
    pub tombstone: Bytes,
}

/// A retired execution whose time as a tombstone is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The execution.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// Its run.
    pub run_id: RunId,
    /// The row's `rev` as the owner read it.
    pub rev: u64,
}

/// What came of one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A start: created. `inbox` tells whether unread inbox rows wait for it.
    Started {
        /// Whether unread inbox rows wait for it.
        inbox: bool,
    },
    /// A start: not applied, the key exists already.
    Exists(Box<Execution>),
    /// A transition: applied.
    Advanced,
    /// A transition, a refusal, a dispatch, or retiring or forgetting: not applied, its shard belongs to another node, or to none.
    NotOwned,
    /// A transition: not applied, there is an unread inbox row and it has the guard. Retiring or forgetting: not applied,
    /// there is an inbox row, held or not.
    UnreadInbox,
    /// A transition: not applied, the execution does not exist, its `rev` is another, its events' position is taken, or it
    /// is retired and would get events or another row. Somebody else wrote it: the owner's memory of it is worthless.
    /// Retiring or forgetting: not applied, the execution is not closed (or not retired) at this run and `rev`. A dispatch: not
    /// applied, the row is gone or has another count of attempts.
    Stale,
    /// A refusal: noted, if what it is about is still there.
    Refused,
    /// A deposit: stored.
    Deposited,
    /// A deposit: not applied, a row with this signal id and the same identity is there.
    Duplicate,
    /// A deposit: not applied, a row with this signal id and another identity is there.
    Conflict,
    /// Retiring: done.
    Retired,
    /// Forgetting: done.
    Forgotten,
    /// A dispatch: done.
    Dispatched,
    /// A deposit: not applied, [`super::INBOX_ROWS_PER_KEY_MAX`] or [`super::INBOX_ROWS_MAX`] is reached.
    InboxFull,
}
