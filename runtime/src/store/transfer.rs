//! Moving everything that a store holds into another store, of whatever kind.
//!
//! Executions travel as they are: run, `rev`, `wake_at`, attempts, every history row. Both stores are marked, so that at every
//! moment at most one of them can be served: two would each cancel and refund the same orders. Lanes and leases stay behind.

mod copy;
mod digest;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use bytes::Bytes;

pub use copy::{CopyError, CopyReport, copy};

use super::{
    AttributeValue, Control, Execution, InboxRow, OutboxKey, OutboxRow, Parked, RequestedStart, StoreError, StoreFacts, Token,
};
use crate::history::Record;
use crate::id::WorkflowKey;

/// A store as another one remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreName {
    /// Given to it when it was created.
    pub id: [u8; 16],
    /// Where it is, for people; without credentials.
    pub url: String,
}

/// What a store is in the moving of stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which store this is.
    pub name: StoreName,
    /// It is the unfinished copy of this store, and must not be served.
    pub copying_from: Option<StoreName>,
    /// It was moved into this store, and must not be served.
    pub moved_to: Option<StoreName>,
    /// Who holds it now, where it has no lock that keeps others off.
    pub in_use_by: Option<String>,
}

impl Standing {
    /// Refuses a store that must not be served.
    ///
    /// # Errors
    /// [`StoreError::Refused`], with what to do.
    pub fn check_servable(&self) -> Result<(), StoreError> {
        let own = &self.name.url;
        if let Some(StoreName { url, .. }) = &self.moved_to {
            return Err(StoreError::Refused(format!(
                "{own} was moved to {url}: use that one; if it is to be used here again, run `overdue copy --from {url} --to {own}`"
            )));
        }
        if let Some(StoreName { url, .. }) = &self.copying_from {
            return Err(StoreError::Refused(format!(
                "{own} is the unfinished copy of {url}: run `overdue copy --from {url} --to {own}` again, it goes on where it was interrupted"
            )));
        }
        Ok(())
    }
}

/// How far an export has come. The order is that of executions, inbox rows, requested starts, the outbox, tokens, controls, and within each that
/// of the keys' bytes (type, id, signal id): the same in every store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Among the executions, behind this one.
    Executions(Option<WorkflowKey>),
    /// Among the inbox rows, behind this one.
    Signals(Option<(WorkflowKey, String)>),
    /// Among the starts that were asked for inside the store, behind this one.
    Requests(Option<WorkflowKey>),
    /// Among the events that sinks do not have yet, behind this one; in the order of their own names.
    Outbox(Option<OutboxKey>),
    /// At the tokens.
    Tokens,
    /// At what nodes agree on.
    Controls,
}

impl Place {
    /// The beginning.
    pub const START: Self = Self::Executions(None);
}

/// An execution with all that belongs to it but its inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct CarriedExecution {
    /// Its row.
    pub execution: Execution,
    /// What is left of a retired one; empty for every other.
    pub tombstone: Bytes,
    /// What it waits behind.
    pub parked: Option<Parked>,
    /// Its history, in order.
    pub records: Vec<Record>,
    /// Its search attributes, by name.
    pub attributes: Vec<(String, AttributeValue)>,
}

/// An inbox row, whether its execution exists or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedSignal {
    /// The row.
    pub row: InboxRow,
    /// Whether it could not be taken up.
    pub held: bool,
}

/// What is carried over at once; of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Parcel {
    /// Executions, by type and id.
    Executions(Vec<CarriedExecution>),
    /// Inbox rows, by type, id and signal id.
    Signals(Vec<CarriedSignal>),
    /// Starts that were asked for inside the store and are not made, refused ones included, by type and id.
    Requests(Vec<RequestedStart>),
    /// Events that sinks do not have yet, by name.
    Outbox(Vec<OutboxRow>),
    /// All tokens, by name.
    Tokens(Vec<Token>),
    /// All that nodes agree on, by name.
    Controls(Vec<Control>),
}

/// How many rows a store has in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Executions.
    pub executions: u64,
    /// History rows.
    pub history_rows: u64,
    /// Search attributes.
    pub attributes: u64,
    /// Inbox rows.
    pub inbox_rows: u64,
    /// Starts that were asked for inside the store and are not made, refused ones included.
    pub requested_starts: u64,
    /// Events that sinks do not have yet, one for each sink.
    pub outbox_rows: u64,
    /// Tokens.
    pub tokens: u64,
    /// What nodes agree on.
    pub controls: u64,
}

/// What came of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// All of the parcel is there, now or before.
    Whole,
    /// Nothing of it was stored: this is there already and is something else.
    Differs(String),
}

/// A store that can be moved. Each method is one transaction.
///
/// Nobody else writes to it from the moment that it is opened for a copy until it is closed: a store into which callers write
/// by themselves, inside their own transactions, keeps them off, and refuses them once it was moved.
///
/// # Errors
/// Every method fails with [`StoreError`] when the database does not answer.
#[async_trait]
pub trait Portable: Send + Sync {
    /// What this store is.
    fn facts(&self) -> &StoreFacts;

    /// What it is in the moving of stores.
    async fn standing(&self) -> Result<Standing, StoreError>;

    /// Sets both marks. Ends every lane there is in the same transaction: a node that was frozen must change nothing when it
    /// wakes, and none joins while a mark is set.
    async fn mark(&self, copying_from: Option<&StoreName>, moved_to: Option<&StoreName>) -> Result<(), StoreError>;

    /// What comes next from `place` on, at most `limit` items (all tokens, and all controls, at once), and where to go on; `None` at the end. Fewer
    /// items, but at least one, where their histories are large. An empty parcel only says that nothing of its kind is left.
    async fn export(&self, place: &Place, limit: usize) -> Result<(Parcel, Option<Place>), StoreError>;

    /// Stores what is not there yet. What is there and equal is left as it is. [`StoreError::Refused`] for what this kind of store
    /// has no place for.
    async fn import(&self, parcel: &Parcel) -> Result<Imported, StoreError>;

    /// Removes everything but the store's name, its marks and its number of shards.
    async fn clear(&self) -> Result<(), StoreError>;

    /// Counts all rows, whether or not an export reaches them.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// Waits for what is under way and closes the database.
    async fn close(&self);
}
