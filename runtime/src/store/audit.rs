//! What a store tells of itself to whoever checks it: who is in, and what it holds of executions that are not there.

use crate::id::{RunId, WorkflowKey};
use crate::store::Fence;
use crate::time::Timestamp;

/// Lanes, nodes and owners as they are stored, in one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// The store's clock at some moment of the call; `None` when the store has none of its own.
    pub now: Option<Timestamp>,
    /// The last epoch that any lane got; 0 when none did.
    pub last_epoch: i64,
    /// The nodes by id, and whether each is alive, as far as the store can tell.
    pub nodes: Vec<(String, bool)>,
    /// The lanes, by node and number.
    pub lanes: Vec<Fence>,
    /// The owner of each shard as it is stored, by shard; `None` for nobody.
    pub owners: Vec<(u16, Option<String>)>,
}

impl Roster {
    /// The living node that owns a shard.
    pub fn attendant(&self, shard: u16) -> Option<&str> {
        let owner = self.owners.iter().find(|(number, _)| *number == shard)?.1.as_deref()?;
        self.nodes.iter().any(|(node_id, alive)| *alive && node_id == owner).then_some(owner)
    }
}

/// How far a walk along the runs with a history has come: behind this run of this shard. A store that does not keep histories
/// by shard walks along all of them in shard 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    /// The shard.
    pub shard: u16,
    /// The last run that was seen in it.
    pub after: Option<RunId>,
}

/// Rows that belong to executions, besides their histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Belonging {
    /// Rows of executions, as far as their type goes.
    Types,
    /// Search attributes.
    Attributes,
    /// Stored signals.
    Signals,
    /// Starts that were asked for inside the store.
    Starts,
}

impl Belonging {
    /// All of them, in the order of a walk.
    pub const ALL: [Self; 4] = [Self::Types, Self::Attributes, Self::Signals, Self::Starts];

    /// The one behind it.
    pub(super) fn next(self) -> Option<Self> {
        Self::ALL.into_iter().find(|other| *other > self)
    }
}

/// How far a walk along these rows has come, in the store's own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayPlace {
    /// Of which kind.
    pub of: Belonging,
    /// In which shard, where the store keeps them by shard.
    pub shard: u16,
    /// Behind the row of this type (by name or number, as the store orders them), id and name.
    pub after: Option<(String, String, String)>,
}

impl StrayPlace {
    /// The beginning.
    pub const START: Self = Self::of(Belonging::ALL[0]);

    /// The beginning of the rows of one kind.
    pub(super) const fn of(of: Belonging) -> Self {
        Self { of, shard: 0, after: None }
    }
}

/// A row that should not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The execution that it is of by its own account; `None` when its type has no name.
    pub key: Option<WorkflowKey>,
    /// What it is and what is wrong with it.
    pub what: String,
}

/// What is wrong with the shard of a row.
pub(super) fn shard_fault(what: &str, id: &str, stored: u16, shards: u16) -> Option<String> {
    let expected = crate::id::shard_of(id, shards);
    (stored != expected).then(|| format!("{what} is in shard {stored}, and its id says {expected}"))
}
