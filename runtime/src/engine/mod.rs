//! The node: it advances the executions of its shards.
//!
//! The decisions are made by one `Core`, a state machine without I/O: a message and the time in, effects out. Around it
//! run a committer (the one writer), loaders, a scanner and the calls. Invariant: nothing is answered and no call is
//! begun before the commit that holds its cause.

mod active;
mod ask;
mod attempt;
mod balance;
pub mod breaker;
mod call;
mod committer;
mod core;
mod courier;
mod dispatch;
mod emitted;
mod environment;
mod gather;
mod horizon;
mod incarnation;
mod lease;
mod mistakes;
mod node;
mod notes;
mod ownership;
mod retention;
mod scanner;
mod settle;
mod shell;
mod signal;
mod start;
mod steward;
mod store_clock;
#[cfg(test)]
mod tests;
mod tombstone;
mod transition;
mod wake;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use active::Registries;
pub use environment::{Clock, Environment, Randomness, Spawner};
pub use node::{Engine, EngineConfig, EngineError};
pub use retention::Retain;

pub(crate) use self::core::Message;
pub(crate) use active::Active;
pub(crate) use ask::Ask;
pub(crate) use committer::{CommitFailure, CommitRequest, ReplyTo};
pub(crate) use notes::{AttemptNote, Notes};
pub(crate) use ownership::Route;
pub(crate) use signal::{SignalCheck, check_against, is_readable, report_held, signal_of};
pub use start::StartRequest;
pub(crate) use start::{Start, StartRefused, attribute_value, request_hash};
pub(crate) use tombstone::Tombstone;
#[cfg(test)]
pub(crate) use transition::new_run_id;
pub(crate) use transition::{Step, late_execution};
pub(crate) use wake::wake_at;

use crate::activity::{ActivityContext, ActivityFailure, ActivityOptions, RetryPolicy};
use crate::id::{RunId, WorkflowKey};
use crate::payload::{InvalidField, Payload};
use crate::store::InboxRow;

/// When a blocked execution is tried again: after 1 s, doubling up to a minute, for ever.
const BLOCKED_BACKOFF: RetryPolicy = RetryPolicy {
    initial: Duration::from_secs(1),
    factor: 2.0,
    cap: Duration::from_secs(60),
    attempts: None,
    give_up_after: None,
    jitter: false,
};

/// Names an answer that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReplyId(pub(crate) u64);

/// A signal that was checked at the door.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IncomingSignal {
    pub(crate) name: String,
    pub(crate) signal_id: String,
    pub(crate) payload: Payload,
    pub(crate) subject: Option<String>,
    pub(crate) identity: [u8; 16],
}

/// What a person decides about an activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperatorAction {
    /// Try it again, under the same key.
    Retry,
    /// It is done, with this result.
    Resolve(Payload),
    /// It is not to be done.
    Skip,
}

/// Something that an execution has to take up.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// It was loaded: attempts of an earlier process have an unknown outcome.
    Recover,
    /// Its time may have come.
    Due,
    /// The gate that it waits behind opens for it.
    LetGo,
    /// An attempt ended.
    Attempt { number: u64, outcome: Result<Payload, ActivityFailure>, sends: u32 },
    /// A stored signal.
    Inbox(InboxRow),
    /// A signal whose sender waits for the answer.
    Signal { signal: IncomingSignal, reply: ReplyId },
    /// A cancel request, for a workflow that does not take it as a signal.
    Cancel { reason: String, actor: String, reply: ReplyId },
    /// A person ends the execution.
    Terminate { reason: String, actor: String, reply: ReplyId },
    /// A person decides about an activity.
    Operate { number: u64, action: OperatorAction, reason: String, actor: String, reply: ReplyId },
}

impl Input {
    /// How many bytes of caller data it brings.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Inbox(row) => row.payload.len(),
            Self::Signal { signal, .. } => signal.payload.len(),
            Self::Attempt { outcome: Ok(result), .. } => result.len(),
            Self::Operate { action: OperatorAction::Resolve(result), .. } => result.len(),
            _ => 0,
        }
    }

    /// Who waits for an answer.
    pub(crate) fn reply(&self) -> Option<ReplyId> {
        match self {
            Self::Signal { reply, .. }
            | Self::Cancel { reply, .. }
            | Self::Terminate { reply, .. }
            | Self::Operate { reply, .. } => Some(*reply),
            Self::Recover | Self::Due | Self::LetGo | Self::Attempt { .. } | Self::Inbox(_) => None,
        }
    }
}

/// What somebody who waits is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Answer {
    /// It is part of the history.
    Applied,
    /// It is stored and will be taken up.
    Buffered,
    /// It came after the end or after the decision; what it takes is done.
    Late,
    /// It was there already.
    Duplicate,
    /// It was not taken, and nothing changed.
    Refused(RefusedInput),
}

/// Why an input was not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RefusedInput {
    /// There is no such execution.
    NotFound,
    /// The signal's id or subject was seen before, saying something else.
    SignalConflict,
    /// The execution's or the inbox's limit is reached.
    TooManySignals,
    /// The activity has no such number.
    NoSuchActivity,
    /// The activity has ended already.
    NotPending,
    /// The activity is being called right now.
    UnderWay,
    /// The given result does not have the activity's shape.
    InvalidResult(InvalidField),
    /// The execution has ended.
    Closed(RunId),
    /// The execution cannot be replayed now.
    Blocked,
    /// Another node works on this execution, or will.
    NotOwner,
    /// What it leads to cannot be stored.
    Rejected,
    /// It could not be stored now.
    Unavailable,
}

/// An attempt to be made.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: WorkflowKey,
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) input: Payload,
    pub(crate) options: ActivityOptions,
    pub(crate) ctx: ActivityContext,
}
