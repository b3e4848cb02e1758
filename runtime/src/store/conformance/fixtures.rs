//! The words that the specifications are written in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::SHARDS;
use crate::history::Record;
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::store::{
    Advance, CommitError, Deposit, Execution, Fence, Forget, InboxRow, Loaded, Membership, NewExecution, NewNode, Outcome,
    Retire, RowChange, Status, Store, Write,
};
use crate::time::Timestamp;

/// An arbitrary instant that the others are counted from.
const EPOCH_SECONDS: i64 = 1_700_000_000;

/// `seconds` after an arbitrary instant.
pub(in crate::store) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros((EPOCH_SECONDS + seconds) * 1_000_000)
}

pub(in crate::store) fn all_shards() -> Vec<u16> {
    (0..SHARDS).collect()
}

pub(in crate::store) fn order(id: &str) -> WorkflowKey {
    WorkflowKey::new("order-timeout", id)
}

pub(in crate::store) fn hash(text: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    short
}

pub(in crate::store) fn run_of(key: &WorkflowKey) -> RunId {
    let digest = hash(&key.to_string());
    RunId::new(1_700_000_000_000, digest[..10].try_into().unwrap())
}

pub(in crate::store) fn record(first_event: u64, text: &str) -> Record {
    Record { first_event, bytes: Bytes::copy_from_slice(text.as_bytes()) }
}

/// The row of an execution that sleeps until `wake_at`.
pub(in crate::store) fn sleeping(wake_at: Option<Timestamp>) -> RowChange {
    RowChange { status: Status::Running, wake_at, closed_at: None, needs_attention: false, attempts: Bytes::new(), parked: None }
}

/// The row of an execution that has ended.
pub(in crate::store) fn closed(status: Status, closed_at: Timestamp) -> RowChange {
    RowChange { status, wake_at: None, closed_at: Some(closed_at), needs_attention: false, attempts: Bytes::new(), parked: None }
}

/// A start that sleeps for an hour.
pub(in crate::store) fn new(key: &WorkflowKey) -> NewExecution {
    NewExecution {
        key: key.clone(),
        shard: key.shard(SHARDS),
        run_id: run_of(key),
        request_hash: hash(key.id()),
        record: record(1, "started"),
        row: sleeping(Some(at(3600))),
        attributes: Vec::new(),
        consume: Vec::new(),
        emit: Vec::new(),
        requested: false,
    }
}

/// A transition that changes nothing yet.
pub(in crate::store) fn advance(key: &WorkflowKey) -> Advance {
    Advance {
        key: key.clone(),
        shard: key.shard(SHARDS),
        run_id: run_of(key),
        rev: 0,
        record: None,
        row: None,
        consume: Vec::new(),
        hold: Vec::new(),
        spawn: Vec::new(),
        emit: Vec::new(),
        guard_inbox: false,
    }
}

pub(in crate::store) fn retire(key: &WorkflowKey, rev: u64) -> Retire {
    let tombstone = Bytes::from_static(b"what is left");
    Retire { key: key.clone(), shard: key.shard(SHARDS), run_id: run_of(key), rev, tombstone }
}

pub(in crate::store) fn forget(key: &WorkflowKey, rev: u64) -> Forget {
    Forget { key: key.clone(), shard: key.shard(SHARDS), run_id: run_of(key), rev }
}

pub(in crate::store) fn signal(key: &WorkflowKey, signal_id: &str, received_at: Timestamp) -> InboxRow {
    InboxRow {
        key: key.clone(),
        shard: key.shard(SHARDS),
        signal_id: signal_id.to_owned(),
        name: "payment-succeeded".into(),
        payload: Payload::from_json(r#"{"amount":"19.99","n":9007199254740993}"#).unwrap(),
        identity: hash(signal_id),
        received_at,
        unchecked: false,
    }
}

pub(in crate::store) fn deposit(row: &InboxRow) -> Write {
    Write::Deposit(Deposit { row: row.clone() })
}

/// A node under a name of its own, whose lease is over at once.
pub(in crate::store) fn joining() -> NewNode {
    static NODES: AtomicU32 = AtomicU32::new(1);
    NewNode::new(format!("node-{:09}", NODES.fetch_add(1, Ordering::Relaxed)), Duration::ZERO)
}

/// A store and the right to write to it.
pub(in crate::store) struct Node {
    pub(in crate::store) store: Arc<dyn Store>,
    pub(in crate::store) fence: Fence,
}

impl Node {
    /// A node that has ended every other one and owns every shard.
    pub(in crate::store) async fn on(store: Arc<dyn Store>) -> Self {
        let node = Self::beside(store).await;
        for other in node.membership().await.members {
            if other.node_id != node.fence.node_id {
                assert!(node.store.take_over(&other.node_id, Duration::ZERO).await.unwrap());
            }
        }
        node.claim(usize::MAX).await;
        node
    }

    /// A node beside those that are there, without a shard where nodes share the store. Its lease is over at once.
    pub(in crate::store) async fn beside(store: Arc<dyn Store>) -> Self {
        let fence = store.join(&joining()).await.unwrap();
        Self { store, fence }
    }

    pub(in crate::store) async fn membership(&self) -> Membership {
        self.store.renew(&self.fence, Duration::ZERO).await.unwrap().expect("the node was not ended")
    }

    /// The shards that it owns.
    pub(in crate::store) async fn shards(&self) -> Vec<u16> {
        let owners = self.membership().await.owners;
        (0..).zip(owners).filter(|(_, owner)| owner.is(&self.fence.node_id)).map(|(shard, _)| shard).collect()
    }

    pub(in crate::store) async fn claim(&self, most: usize) -> Vec<u16> {
        self.store.claim(&self.fence, most).await.unwrap()
    }

    pub(in crate::store) async fn commit(&self, writes: &[Write]) -> Vec<Outcome> {
        self.try_commit(writes).await.unwrap()
    }

    pub(in crate::store) async fn try_commit(&self, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        self.store.commit(&self.fence, writes).await
    }

    pub(in crate::store) async fn write(&self, write: Write) -> Outcome {
        self.commit(&[write]).await.remove(0)
    }

    pub(in crate::store) async fn start(&self, new: NewExecution) {
        assert_eq!(self.write(Write::Start(new)).await, Outcome::Started { inbox: false });
    }

    pub(in crate::store) async fn deposit(&self, row: &InboxRow) {
        assert_eq!(self.write(deposit(row)).await, Outcome::Deposited);
    }

    pub(in crate::store) async fn find(&self, key: &WorkflowKey) -> Option<Execution> {
        self.store.find(key).await.unwrap()
    }

    pub(in crate::store) async fn load(&self, key: &WorkflowKey) -> Loaded {
        self.store.load(std::slice::from_ref(key)).await.unwrap().remove(0).unwrap()
    }
}
