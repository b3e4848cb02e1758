//! Batches where a store keeps its shards at several places: each is of one of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::harness::START;
use crate::engine::committer::{CommitRequest, Committer, LaneRequest, ReplyTo};
use crate::engine::lease::Lease;
use crate::history::Record;
use crate::id::{RunId, WorkflowKey};
use crate::store::{Advance, ModelStore, NewExecution, NewNode, Outcome, RowChange, Status, Store, Write};
use crate::testing::manual_environment;

const SHARDS: u16 = 16;

fn place_of(shard: u16) -> u32 {
    u32::from(shard % 4)
}

/// The place of the execution with this id.
fn place(id: &str) -> u32 {
    place_of(WorkflowKey::new("waits", id).shard(SHARDS))
}

fn run_of(id: &str) -> RunId {
    let mut bytes = [0; 16];
    bytes[..id.len()].copy_from_slice(id.as_bytes());
    RunId(uuid::Uuid::from_bytes(bytes))
}

fn start(id: &str) -> Write {
    let key = WorkflowKey::new("waits", id);
    Write::Start(NewExecution {
        shard: key.shard(SHARDS),
        run_id: run_of(id),
        key,
        request_hash: [0; 16],
        record: Record { first_event: 1, bytes: Bytes::from_static(b"start") },
        row: RowChange {
            status: Status::Running,
            wake_at: None,
            closed_at: None,
            needs_attention: false,
            attempts: Bytes::new(),
            parked: None,
        },
        attributes: Default::default(),
        consume: Vec::new(),
        emit: Vec::new(),
        requested: false,
    })
}

fn append(id: &str, first_event: u64) -> Write {
    let key = WorkflowKey::new("waits", id);
    Write::Advance(Advance {
        shard: key.shard(SHARDS),
        run_id: run_of(id),
        key,
        rev: 0,
        record: Some(Record { first_event, bytes: Bytes::from_static(b"more") }),
        row: None,
        consume: Vec::new(),
        hold: Vec::new(),
        emit: Vec::new(),
        guard_inbox: false,
        spawn: Vec::new(),
    })
}

/// The ids of a batch.
fn ids(batch: &[Write]) -> Vec<&str> {
    fn id(write: &Write) -> &str {
        match write {
            Write::Start(new) => new.key.id(),
            Write::Advance(advance) => advance.key.id(),
            _ => panic!("the test writes no other"),
        }
    }
    batch.iter().map(id).collect()
}

/// What becomes of writes that all wait when the committer begins: the batches, and an outcome for each write.
async fn commit_all(placed: bool, writes: Vec<Write>) -> (Vec<Vec<Write>>, Vec<Outcome>) {
    let store = Arc::new(ModelStore::new(SHARDS));
    store.place(if placed { place_of } else { |_| 0 });
    let (environment, _) = manual_environment(START, 1);
    let fence = store.join(&NewNode::new("node", Duration::from_secs(5))).await.unwrap();
    let (lane, requests) = mpsc::unbounded_channel();
    let (core, _from_core) = mpsc::unbounded_channel();
    let mut answers = Vec::new();
    for write in writes {
        let (answer, answered) = oneshot::channel();
        let _ = lane.send(LaneRequest::Write(Box::new(CommitRequest { write, reply_to: ReplyTo::Request(answer) })));
        answers.push(answered);
    }
    let _ = lane.send(LaneRequest::Finish);
    let lease = Arc::new(Lease::new(Duration::from_secs(5), environment.clock.monotonic()));
    let clock = Arc::clone(&environment.clock);
    Committer { store: Arc::clone(&store) as Arc<dyn Store>, fence, clock, lease, requests, core, news: watch::Sender::new(()) }
        .run()
        .await;
    let mut outcomes = Vec::new();
    for answered in answers {
        outcomes.push(answered.await.unwrap().unwrap());
    }
    (store.batches(), outcomes)
}

fn orders(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("order-{n}")).collect()
}

#[tokio::test]
async fn a_batch_never_mixes_places() {
    let orders = orders(300);
    let (batches, outcomes) = commit_all(true, orders.iter().map(|id| start(id)).collect()).await;
    assert_eq!(outcomes.len(), 300);
    for batch in &batches {
        let places: Vec<u32> = ids(batch).into_iter().map(place).collect();
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    }
}

#[tokio::test]
async fn neighbours_of_one_place_stay_together() {
    let orders = orders(300);
    let (batches, _) = commit_all(true, orders.iter().map(|id| start(id)).collect()).await;
    assert_eq!(batches.len(), 4, "one for each place");
    assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 300);
}

#[tokio::test]
async fn with_a_single_place_everything_that_waits_is_one_batch() {
    let orders = orders(300);
    let (batches, _) = commit_all(false, orders.iter().map(|id| start(id)).collect()).await;
    assert_eq!(batches.len(), 1);
}

#[tokio::test]
async fn writes_about_one_execution_keep_their_order_beside_other_places() {
    let orders = orders(8);
    let rounds = (0..4).flat_map(|round| orders.iter().map(move |id| if round == 0 { start(id) } else { append(id, 1 + round) }));
    let (batches, outcomes) = commit_all(true, rounds.collect()).await;
    let expected = |at: usize| if at < 8 { Outcome::Started { inbox: false } } else { Outcome::Advanced };
    for (at, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome, expected(at), "write {at}");
    }
    for batch in &batches {
        let mut once = ids(batch);
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), batch.len(), "an execution is in a batch once");
    }
}

#[tokio::test]
async fn the_oldest_write_is_always_in_the_next_batch() {
    // One place is never out of work, and the other has a single write in the midst of it.
    let busy = orders(6_000).into_iter().filter(|id| place(id) == 0).collect::<Vec<_>>();
    let lone = orders(100).into_iter().find(|id| place(id) == 1).unwrap();
    let mut writes: Vec<Write> = busy.iter().map(|id| start(id)).collect();
    assert!(writes.len() > 1_200, "more than two full batches");
    writes.insert(1, start(&lone));
    let (batches, _) = commit_all(true, writes).await;
    let of_lone = batches.iter().position(|batch| ids(batch).contains(&lone.as_str())).unwrap();
    assert_eq!(of_lone, 1, "it came second, so that the second batch is its own");
}

#[tokio::test]
async fn what_the_lane_is_asked_for_besides_waits_for_writes_that_were_put_off_and_is_not_lost() {
    let order = ["order-1".to_owned()];
    // The second waits for the first; behind both the lane is told to finish.
    let writes = order.iter().flat_map(|id| [start(id), append(id, 2)]).collect();
    let ended = tokio::time::timeout(Duration::from_secs(60), commit_all(false, writes)).await;
    let (batches, _) = ended.expect("the committer finishes");
    assert_eq!(batches.len(), 2);
}
