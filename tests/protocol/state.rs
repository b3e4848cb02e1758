//! What the model is made of: a database, two processes, and what was promised. Words are those of the code.

use super::property::Wrong;

/// Processes that may be nodes.
pub(crate) const PROCESSES: usize = 2;
/// Executions; execution `e` is of shard `e % shards`.
pub(crate) const EXECUTIONS: usize = 2;
/// The most shards of any bound.
pub(crate) const SHARDS: usize = 2;
/// The most ids that nodes get in their lives.
pub(crate) const NODE_IDS: usize = 4;

/// What one event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// The start that was made by this request.
    Started { run: u8 },
    /// The payment came in time: the end.
    Paid,
    /// The deadline fired and a call was scheduled, in one transition.
    Fired,
    /// The payment came while things are given back.
    PaidLate,
    /// The call's answer: the end.
    Completed,
}

/// An event, and the epoch of the commit that it came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) epoch: u8,
}

/// `store::Execution` with its history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row {
    pub(crate) rev: u8,
    pub(crate) history: Vec<Event>,
}

impl Row {
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.history.iter().any(|event| event.kind == kind)
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.has(Kind::Paid) && !self.has(Kind::Completed)
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.has(Kind::Fired)
    }

    pub(crate) fn is_paid(&self) -> bool {
        self.has(Kind::Paid) || self.has(Kind::PaidLate)
    }
}

/// `store::Write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    Start {
        execution: usize,
        run: u8,
    },
    Advance {
        execution: usize,
        rev: u8,
        first_event: u8,
        event: Event,
        consume: bool,
        asked: bool,
    },
    /// The payment of an execution that has ended: `Advance` with a spawned execution and no record, or a late `Start`.
    Late {
        execution: usize,
        consume: bool,
    },
    Deposit {
        execution: usize,
    },
}

impl Write {
    pub(crate) fn execution(&self) -> usize {
        match self {
            Self::Start { execution, .. }
            | Self::Advance { execution, .. }
            | Self::Late { execution, .. }
            | Self::Deposit { execution } => *execution,
        }
    }
}

/// `store::Outcome`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Outcome {
    /// Started, Advanced, Deposited.
    Done,
    /// Exists, Duplicate.
    There,
    NotOwned,
    UnreadInbox,
    Stale,
}

/// How far a transaction has come, on the database's side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    Sent,
    /// The fence was checked: the lane is locked, and these shards are the node's.
    Fenced {
        owned: [bool; SHARDS],
    },
    /// Committed, and not heard of yet.
    Committed(Vec<Outcome>),
    FenceLost,
}

/// A transaction of `Store::commit`. It goes on without its client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Transaction {
    pub(crate) node_id: u8,
    pub(crate) epoch: u8,
    pub(crate) writes: Vec<Write>,
    pub(crate) stage: Stage,
    pub(crate) client: Option<usize>,
}

/// `core::shards::Hold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    #[default]
    Not,
    Owned,
    Leaving {
        to: u8,
    },
}

/// A call as its node knows it (`Core::begun`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    #[default]
    None,
    Waiting,
    Answered,
}

/// An execution that is at work in a core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AtWork {
    pub(crate) row: Row,
    pub(crate) unread: bool,
    pub(crate) committing: bool,
}

/// What the committer does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Commit {
    #[default]
    Idle,
    UnderWay(Vec<Write>),
    /// `CommitError::Unknown`: to be settled, beginning with a raise.
    Unknown(Vec<Write>),
    /// The epoch is raised: to be looked for.
    Raised(Vec<Write>),
}

/// One life of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Incarnation {
    pub(crate) node_id: u8,
    pub(crate) epoch: u8,
    pub(crate) holds: [Hold; SHARDS],
    pub(crate) at_work: [Option<AtWork>; EXECUTIONS],
    pub(crate) calls: [Call; EXECUTIONS],
    /// What waits for the next batch.
    pub(crate) waiting: Vec<Write>,
    pub(crate) commit: Commit,
    /// `LaneRequest::HandOver` that is not carried out yet.
    pub(crate) handing_over: Option<(usize, u8)>,
}

/// How often something may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) starts: u8,
    pub(crate) payments: u8,
    /// Connections that break.
    pub(crate) breaks: u8,
    /// Commits that the database refuses.
    pub(crate) refusals: u8,
    pub(crate) kills: u8,
    /// Nodes that are judged dead.
    pub(crate) takeovers: u8,
    pub(crate) hand_overs: u8,
    pub(crate) joins: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The epoch of every node that is in.
    pub(crate) lanes: [Option<u8>; NODE_IDS],
    pub(crate) owners: [Option<u8>; SHARDS],
    /// The last epoch that was handed out.
    pub(crate) epochs: u8,
    pub(crate) rows: [Option<Row>; EXECUTIONS],
    /// Whether the payment lies unread in the inbox.
    pub(crate) inbox: [bool; EXECUTIONS],
    /// Whether the payment of an ended execution was routed.
    pub(crate) late: [bool; EXECUTIONS],
    /// Whether the store's time has reached the deadlines.
    pub(crate) is_due: bool,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) processes: [Option<Incarnation>; PROCESSES],
    /// The id that a process had before, to be replaced.
    pub(crate) replaces: [Option<u8>; PROCESSES],
    pub(crate) promised_starts: [bool; EXECUTIONS],
    pub(crate) promised_payments: [bool; EXECUTIONS],
    pub(crate) called: [bool; EXECUTIONS],
    pub(crate) left: Left,
    pub(crate) wrong: Option<Wrong>,
}
