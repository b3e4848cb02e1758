//! Nodes that share a store: who is alive, and who owns which shard.
//!
//! A lease says only who is alive, by the store's clock; what makes a commit safe is the fence.

use std::time::Duration;

use crate::time::Timestamp;

/// The right of one writer of one node to write, checked by the database in every commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The node, new at every process start.
    pub node_id: String,
    /// Which of the node's writers.
    pub lane: u16,
    /// The number that the database must still show for this lane.
    pub epoch: i64,
}

/// Whether nodes can share a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One node has it to itself, and owns every shard from the moment that it joins.
    Embedded,
    /// Many nodes share it; each claims shards.
    Shared,
}

/// A node that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Its id, never used before.
    pub node_id: String,
    /// Where the others reach it, if they can.
    pub url: Option<String>,
    /// What the others show it to be let in.
    pub secret: String,
    /// How long it counts as alive without a renewal.
    pub lease: Duration,
    /// The id that this process had before: that node is ended, and its shards are this one's.
    pub replaces: Option<String>,
}

impl NewNode {
    /// A node that cannot be reached and replaces nobody.
    pub fn new(node_id: impl Into<String>, lease: Duration) -> Self {
        Self { node_id: node_id.into(), url: None, secret: String::new(), lease, replaces: None }
    }
}

/// A node as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub node_id: String,
    /// Where it is reached.
    pub url: Option<String>,
    /// What to show it.
    pub secret: String,
    /// Whether its lease has not expired, by the store's clock.
    pub alive: bool,
}

/// Who owns a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This node, dead or alive.
    Node(String),
    /// Nobody, for so long.
    Nobody(Duration),
}

impl Owner {
    /// Whether it is this node.
    pub fn is(&self, node_id: &str) -> bool {
        matches!(self, Self::Node(owner) if owner == node_id)
    }
}

/// Who is there and who owns what, in one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The store's clock at some moment of the call; `None` when the store has none of its own.
    pub now: Option<Timestamp>,
    /// How long the database has been up.
    pub up: Duration,
    /// The nodes, by id.
    pub members: Vec<Member>,
    /// The owners, by shard.
    pub owners: Vec<Owner>,
}
