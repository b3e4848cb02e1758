//! What the core is told, and what it wants done.

use super::super::{Active, Answer, Call, CommitFailure, CommitRequest, Input, ReplyId};
use crate::activity::ActivityFailure;
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Due, InboxRow, Loaded, Outcome, RequestedStart};
use crate::time::Timestamp;

/// What the core is told.
pub(crate) enum Message {
    /// Something for one execution.
    Input { key: WorkflowKey, input: Input },
    /// An execution with calls to begin is being started here: nobody is to take it up before it is adopted.
    Expect(WorkflowKey),
    /// It will not be adopted after all: it is read like any other.
    Unexpect(WorkflowKey),
    /// An execution that was just started here and has calls to begin.
    Adopt(Box<Active>),
    /// An execution that was just started here sleeps until then.
    Hint { key: WorkflowKey, wake_at: Timestamp },
    /// An execution has unread inbox rows.
    Nudge(WorkflowKey),
    /// What was asked for was read.
    Loaded { number: u64, results: Vec<(WorkflowKey, Option<Loaded>)> },
    /// It could not be read.
    LoadFailed { number: u64, keys: Vec<WorkflowKey> },
    /// A write was decided on.
    Committed { ticket: Ticket, outcome: Result<Outcome, CommitFailure> },
    /// An attempt ended.
    CallEnded { key: WorkflowKey, number: u64, limit: Option<String>, outcome: Result<Payload, ActivityFailure>, sends: u32 },
    /// What a scan found.
    Scanned(Scan),
    /// These shards are this node's from now on.
    Gain(Vec<u16>),
    /// Give these shards to these nodes, as soon as nothing of them is under way.
    Leave(Vec<(u16, String)>),
    /// The store has taken in that these shards were given away.
    Given(Vec<u16>),
    /// Begin no more calls and take no more requests.
    Drain,
}

/// What a scan found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) overdue: Vec<Due>,
    pub(crate) upcoming: Vec<Due>,
    pub(crate) horizon: Timestamp,
    pub(crate) unread: Vec<WorkflowKey>,
    pub(crate) unclaimed: Vec<InboxRow>,
    pub(crate) requested: Vec<RequestedStart>,
}

/// Names a write whose outcome the core waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// What the core wants done.
pub(crate) enum Effect {
    Load {
        number: u64,
        keys: Vec<WorkflowKey>,
    },
    Commit(Box<CommitRequest>),
    Call(Box<Call>),
    Reply(ReplyId, Answer),
    /// The execution's history grew.
    Changed(WorkflowKey),
    /// The shards that this node works on are these from now on.
    Owned(Vec<u16>),
    /// The shard is to be the other node's.
    HandOver {
        shard: u16,
        to: String,
    },
    /// The store has taken that in: who looked before knows nothing of it.
    Given(Vec<u16>),
    /// The node must stop: what it believes is not what the store holds.
    Fatal(String),
}
