//! The seam between the engine and a database.
//!
//! Each method is exactly one transaction, and none is open when it returns. Only the fenced owner of a shard
//! updates or deletes anything of an existing execution; everybody else only inserts. A store interprets neither
//! histories nor attempts: to it they are bytes.

mod audit;
#[cfg(test)]
mod conformance;
mod error;
mod forecast;
mod gates;
mod list;
mod membership;
mod migrations;
mod model;
mod outbox;
mod postgres;
mod requested;
mod rounds;
mod sqlite;
mod transfer;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

pub use audit::{Belonging, Roster, RunPlace, Stray, StrayPlace};
pub use error::{CommitError, StoreError};
pub use forecast::{DueCount, Forecasts};
pub use gates::{CONTROL_BYTES_MAX, CONTROLS_MAX, Control, Gates};
pub use list::{AttributeValue, Filter, Listed, Page, Position};
pub use membership::{Fence, Member, Membership, NewNode, Owner, Sharing};
pub use model::{CommitFailure, ModelStore};
pub use outbox::{Dispatch, Outbox, OutboxChange, OutboxFilter, OutboxKey, OutboxRow, OutboxState};
pub use postgres::PostgresStore;
pub(crate) use postgres::{Raised, signal_workflow, start_workflow};
pub(crate) use requested::STARTED_BY_ANOTHER;
pub use requested::{DeclaredType, RequestedStart};
pub use sqlite::SqliteStore;
pub use transfer::{
    CarriedExecution, CarriedSignal, CopyError, CopyReport, Counts, Imported, Parcel, Place, Portable, Standing, StoreName, copy,
};
pub use write::{Advance, Deposit, Forget, NewExecution, Outcome, Parked, Refuse, Retire, RowChange, Write};

use crate::history::Record;
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;

/// The most unread inbox rows that one execution, or one id without an execution, may have.
pub const INBOX_ROWS_PER_KEY_MAX: usize = 1_000;
/// The most inbox rows in a store. They exist for moments, or for a day where nobody started the order.
pub const INBOX_ROWS_MAX: usize = 100_000;

/// Where an execution stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// Open: waits for something, or is being advanced.
    Running,
    /// Open, but cannot be replayed by this program; tried again by itself.
    Blocked,
    /// Ended: the workflow returned.
    Completed,
    /// Ended: the workflow returned an error.
    Failed,
    /// Ended: the workflow stopped when asked to.
    Cancelled,
    /// Ended from outside.
    Terminated,
}

impl Status {
    /// Every status, in the order of their codes.
    pub const ALL: [Self; 6] = [Self::Running, Self::Blocked, Self::Completed, Self::Failed, Self::Cancelled, Self::Terminated];

    /// Whether something can still happen to the execution.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Blocked)
    }

    /// The word that the API and the command line use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
        }
    }

    /// The stored number.
    pub fn code(self) -> i64 {
        self as i64
    }

    /// The status of a stored number.
    pub fn from_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|index| Self::ALL.get(index).copied())
    }
}

impl std::str::FromStr for Status {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or(())
    }
}

/// The row of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Its name.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// Its run; holds the time of its start.
    pub run_id: RunId,
    /// Where it stands.
    pub status: Status,
    /// When somebody must look at it next, while it is open; `None` when only a signal or a person can move it.
    pub wake_at: Option<Timestamp>,
    /// When it ended, once it has.
    pub closed_at: Option<Timestamp>,
    /// Raised by one with every update of the row.
    pub rev: u64,
    /// Hash of the request that started it.
    pub request_hash: [u8; 16],
    /// Whether a step of it waits for a person.
    pub needs_attention: bool,
    /// The engine's notes on pending activities; empty when there are none.
    pub attempts: Bytes,
    /// Whether its history was removed and a tombstone is all that is left.
    pub retired: bool,
}

/// An execution with its history and its unread inbox rows, read in one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its row.
    pub execution: Execution,
    /// Its history, in order.
    pub records: Vec<Record>,
    /// Its unread inbox rows that are not held, oldest first (by time received, then signal id).
    pub inbox: Vec<InboxRow>,
    /// What the engine kept of a retired one; empty for every other.
    pub tombstone: Bytes,
}

/// A signal that is stored and not yet part of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// The execution that it is for, whether that exists yet or not.
    pub key: WorkflowKey,
    /// Its shard.
    pub shard: u16,
    /// Identifies the delivery.
    pub signal_id: String,
    /// Name of the signal.
    pub name: String,
    /// What it says.
    pub payload: Payload,
    /// Two deliveries with the same signal id say the same when this is equal.
    pub identity: [u8; 16],
    /// When it was stored.
    pub received_at: Timestamp,
    /// Whether nobody who knows its type has checked it: it was stored by a caller inside the store. Its `identity` is then
    /// that of the bare payload.
    pub unchecked: bool,
}

/// An open execution whose time has come, or will soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The execution.
    pub key: WorkflowKey,
    /// When it is to be looked at.
    pub wake_at: Timestamp,
}

/// An execution that has ended, as retention looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The execution.
    pub key: WorkflowKey,
    /// Its run.
    pub run_id: RunId,
    /// Its row's `rev`.
    pub rev: u64,
    /// When it ended.
    pub closed_at: Timestamp,
}

/// What a store says of itself when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// Number of shards, fixed when the store was created.
    pub shards: u16,
    /// Name and version of the database, for people.
    pub database: String,
    /// Whether nodes can share it.
    pub sharing: Sharing,
}

/// A token of the API, without the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its name: who acts.
    pub name: String,
    /// SHA-256 of the secret.
    #[serde(skip)]
    pub secret_hash: [u8; 32],
    /// What it may do: a comma-separated list of `start`, `signal`, `read`, `operate`, `admin`.
    pub scopes: String,
    /// The workflow types that it may touch, comma-separated; empty for all.
    pub types: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
}

/// A database that keeps executions. What is read of its outbox stands in [`Outbox`], what is counted in [`Forecasts`], what holds
/// calls back in [`Gates`].
///
/// # Errors
/// Every method fails with [`StoreError`] when the database does not answer; what was not committed is then not there,
/// but for [`CommitError::Unknown`].
#[async_trait]
pub trait Store: Outbox + Forecasts + Gates + Send + Sync + 'static {
    /// What this store is.
    fn facts(&self) -> &StoreFacts;

    /// Where the rows of a shard are, where a database has several places for them: a batch whose writes are all of one
    /// place is committed there alone.
    fn placement(&self, _shard: u16) -> u32 {
        0
    }

    /// Lets a node in: a lane with an epoch above every earlier one, and a lease. The node that it replaces, and in an
    /// embedded store every other one, is ended: its fence is void from then on. [`StoreError::Refused`] where the store is
    /// an unfinished copy or was moved away.
    async fn join(&self, node: &NewNode) -> Result<Fence, StoreError>;

    /// Renews the lease of the fence's node, also one that has expired and was not taken over, and tells who is there;
    /// `None` when the node was ended. Waits for no commit.
    async fn renew(&self, fence: &Fence, lease: Duration) -> Result<Option<Membership>, StoreError>;

    /// Makes the fence's node the owner of the `most` shards, of those that nobody owns, which have been free for the
    /// longest; the shards, ascending. In the node's own lane, like every change of an owner but a takeover.
    async fn claim(&self, fence: &Fence, most: usize) -> Result<Vec<u16>, CommitError>;

    /// Gives shards of the fence's node to another one, or to nobody. What the node does not own is left alone.
    async fn hand_over(&self, fence: &Fence, shards: &[u16], to: Option<&str>) -> Result<(), CommitError>;

    /// Ends a node whose lease has expired, and frees its shards: whatever it still sends is refused. False when it is
    /// alive, is gone already, or the database has not been up for `lease` (every node gets that long to come back).
    async fn take_over(&self, node_id: &str, lease: Duration) -> Result<bool, StoreError>;

    /// Raises the lane's epoch after a commit of unknown outcome. When this returns, that commit is in the store or will
    /// never be. `None` when the lane is no longer the fence's.
    async fn raise(&self, fence: &Fence) -> Result<Option<Fence>, StoreError>;

    /// Ends the fence's node and frees its shards. Ending what is not there is no error.
    async fn leave(&self, fence: &Fence) -> Result<(), StoreError>;

    /// Applies a batch in one transaction: either all of it, except the writes whose outcome says that they were not
    /// applied, or nothing. `outcomes[i]` belongs to `writes[i]`. Writes of one batch are about different executions,
    /// except deposits.
    async fn commit(&self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError>;

    /// Reads executions whole, in the order of `keys`; `None` for one that does not exist.
    async fn load(&self, keys: &[WorkflowKey]) -> Result<Vec<Option<Loaded>>, StoreError>;

    /// Reads the row of one execution.
    async fn find(&self, key: &WorkflowKey) -> Result<Option<Execution>, StoreError>;

    /// Open executions of these shards with `wake_at <= until`, the earliest `limit_per_shard` of each shard,
    /// by shard and time.
    async fn due(&self, shards: &[u16], until: Timestamp, limit_per_shard: usize) -> Result<Vec<Due>, StoreError>;

    /// Open executions of these shards with `after < wake_at <= until`, the earliest `limit_per_shard` of each shard.
    async fn upcoming(
        &self,
        shards: &[u16],
        after: Timestamp,
        until: Timestamp,
        limit_per_shard: usize,
    ) -> Result<Vec<Due>, StoreError>;

    /// Existing executions of these shards, open or closed, that have unread inbox rows which are not held; at most
    /// `limit`, each once. Not blocked ones: they take their rows up when they are tried again.
    async fn unread(&self, shards: &[u16], limit: usize) -> Result<Vec<WorkflowKey>, StoreError>;

    /// Inbox rows of these shards that are not held, received before `before`, for which no execution exists; the oldest
    /// `limit`.
    async fn unclaimed(&self, shards: &[u16], before: Timestamp, limit: usize) -> Result<Vec<InboxRow>, StoreError>;

    /// Executions of a shard that ended before `before` and are not retired: those behind `after`, the first `limit`, by
    /// time of the end, type and id.
    async fn retirable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError>;

    /// The same for executions that are retired.
    async fn forgettable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError>;

    /// Makes workflow types known to those who ask for starts and send signals inside the store. A store where nobody can
    /// has no use for it.
    async fn declare(&self, types: &[DeclaredType]) -> Result<(), StoreError> {
        let _ = types;
        Ok(())
    }

    /// Starts of these types that were asked for in these shards and not refused; the oldest `limit`.
    async fn requested_starts(&self, shards: &[u16], types: &[String], limit: usize) -> Result<Vec<RequestedStart>, StoreError> {
        let _ = (shards, types, limit);
        Ok(Vec::new())
    }

    /// The start that was asked for under this key and is not made.
    async fn requested_start(&self, key: &WorkflowKey) -> Result<Option<RequestedStart>, StoreError> {
        let _ = key;
        Ok(None)
    }

    /// A page of rows, ordered by type and id, or by `wake_at`, type and id when the filter has `due_before`.
    async fn list(&self, filter: &Filter, after: Option<&Position>, limit: usize) -> Result<Page, StoreError>;

    /// The search attributes of one execution, by name.
    async fn attributes(&self, key: &WorkflowKey) -> Result<Vec<(String, AttributeValue)>, StoreError>;

    /// The executions derived from the workflow id `root_id` (`{root_id}~…`), of any type, ordered by type and id;
    /// at most `limit`.
    async fn derived(&self, root_id: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError>;

    /// Who is in, who owns what, and the last epoch that was handed out. Takes no lock that a node could feel.
    async fn roster(&self) -> Result<Roster, StoreError>;

    /// Runs that have history rows, from `place` on, ascending within a shard; at most `limit`. Where to go on; `None` at the
    /// end.
    async fn recorded_runs(&self, place: RunPlace, limit: usize) -> Result<(Vec<RunId>, Option<RunPlace>), StoreError>;

    /// Of the next `limit` rows from `place` on those that should not be there: rows of a type that has no name or in another
    /// shard than their id's, search attributes of what does not exist or is retired. Where to go on; `None` at the end.
    async fn strays(&self, place: &StrayPlace, limit: usize) -> Result<(Vec<Stray>, Option<StrayPlace>), StoreError>;

    /// Stores a token; `false` when the name is taken.
    async fn create_token(&self, token: &Token) -> Result<bool, StoreError>;

    /// The token with this hash of its secret.
    async fn find_token(&self, secret_hash: &[u8; 32]) -> Result<Option<Token>, StoreError>;

    /// All tokens, by name.
    async fn tokens(&self) -> Result<Vec<Token>, StoreError>;

    /// Removes a token; `false` when there is none of that name.
    async fn revoke_token(&self, name: &str) -> Result<bool, StoreError>;

    /// Waits for what is under way and closes the database; later calls fail with [`StoreError::Closed`].
    async fn close(&self);
}

/// How long a store may wait for a lock of its own database before it says so.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
