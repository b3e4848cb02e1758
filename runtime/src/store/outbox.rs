//! Events on their way to those outside: a row for each event and each sink that takes it.
//!
//! A row is written by the transition that emits its event and removed when the sink has it, so that what is there is what
//! is still to be done. Of the rows of one run for one sink only the first is ever due; the next one becomes due when it is
//! gone. Everything but the first insert is the owner's, fenced like its other writes.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;

/// Names a row. Sorts by shard, sink, run and event: of one run and sink the first comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OutboxKey {
    /// Shard of the execution.
    pub shard: u16,
    /// Who is told.
    pub sink: String,
    /// The run that emitted it.
    pub run_id: RunId,
    /// Number of the event in the run's history.
    pub event: u64,
}

/// An event that a sink does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its name.
    pub place: OutboxKey,
    /// The execution.
    pub key: WorkflowKey,
    /// What happened.
    pub name: String,
    /// What is told of it.
    pub data: Payload,
    /// When it happened.
    pub emitted_at: Timestamp,
    /// When it is sent next; `None` while it waits for one before it, or for a person. A store decides it of a new row: due at
    /// `emitted_at`, unless one before it is there.
    pub next_at: Option<Timestamp>,
    /// Attempts that failed, since a person last had it tried again.
    pub attempts: u32,
    /// When the first of them ended.
    pub failing_since: Option<Timestamp>,
    /// Whether only a person can have it go on.
    pub parked: bool,
    /// Why the last attempt failed.
    pub failure: Option<String>,
}

/// Where a row stands, as people look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutboxState {
    /// Not tried yet, or again.
    Waiting,
    /// Tried and to be tried again.
    Failing,
    /// Waits for a person.
    NeedsAttention,
}

impl OutboxState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Failing, Self::NeedsAttention];

    /// The word that the API and the command line use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Failing => "failing",
            Self::NeedsAttention => "needs-attention",
        }
    }
}

impl std::str::FromStr for OutboxState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(())
    }
}

impl OutboxRow {
    /// Where it stands.
    pub fn state(&self) -> OutboxState {
        match (self.parked, self.attempts) {
            (true, _) => OutboxState::NeedsAttention,
            (false, 0) => OutboxState::Waiting,
            (false, _) => OutboxState::Failing,
        }
    }
}

/// Which rows are looked for; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxFilter {
    /// Of this sink.
    pub sink: Option<String>,
    /// In this state.
    pub state: Option<OutboxState>,
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxChange {
    /// The sink has it, or is not to have it: the row goes, and the next one of its run is due at `now`.
    Remove {
        /// The present instant.
        now: Timestamp,
    },
    /// It stays and stands otherwise.
    Update {
        /// As in the row.
        next_at: Option<Timestamp>,
        /// As in the row.
        attempts: u32,
        /// As in the row.
        failing_since: Option<Timestamp>,
        /// As in the row. One that is parked has failed at least once.
        parked: bool,
        /// As in the row.
        failure: Option<String>,
    },
}

/// A change of a row by its owner. Refused ([`super::Outcome::Stale`]) unless the row is there with this count of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The execution.
    pub key: WorkflowKey,
    /// The row.
    pub place: OutboxKey,
    /// Its `attempts` as the owner read it.
    pub attempts: u32,
    /// What becomes of it.
    pub change: OutboxChange,
}

/// What is read of the outbox.
///
/// # Errors
/// Every method fails with [`StoreError`] when the database does not answer.
#[async_trait]
pub trait Outbox {
    /// Rows of this sink in these shards with `next_at <= until`: the earliest `limit`, by that time, run and event.
    async fn outbox_due(&self, sink: &str, shards: &[u16], until: Timestamp, limit: usize) -> Result<Vec<OutboxRow>, StoreError>;

    /// Rows behind `after`, in the order of their names, at most `limit`.
    async fn outbox_page(
        &self,
        filter: &OutboxFilter,
        after: Option<&OutboxKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError>;

    /// The row of this name.
    async fn outbox_row(&self, place: &OutboxKey) -> Result<Option<OutboxRow>, StoreError>;
}
