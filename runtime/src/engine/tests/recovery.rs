//! What survives the end of a process, a lost commit, a full disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::harness::*;
use crate::activity::{ActivityFailure, ActivityOptions, RetryPolicy};
use crate::client::{ActivityState, ClientError, SignalOutcome};
use crate::engine::EngineConfig;
use crate::payload::Payload;
use crate::store::CommitFailure;

#[tokio::test]
async fn a_call_that_the_end_of_the_process_cut_off_is_made_again_under_the_same_key() {
    let mut node = Node::start().await;
    node.plan([Act::Gate(Arc::new(Notify::new()), "never")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    node.restart().await;
    node.pass(Duration::from_secs(70)).await;
    let calls = node.calls();
    assert_eq!(
        calls.iter().map(|call| (call.0.as_str(), call.1)).collect::<Vec<_>>(),
        [("waits/1/script", 1), ("waits/1/script", 2)]
    );
    assert_eq!(node.closed("1").await, "done");
}

#[tokio::test]
async fn attempts_and_the_time_of_the_next_one_survive_the_process() {
    let mut node = Node::start().await;
    node.plan(std::iter::repeat_n(Act::Fail(ActivityFailure::transient("timeout", "no answer")), 4));
    node.order("1", 0).await;
    node.pass(Duration::from_secs(8)).await;
    let before = node.describe("1").await.pending_activities.remove(0);
    assert_eq!((before.state, before.attempt), (ActivityState::BackingOff, 4));
    node.restart().await;
    let after = node.describe("1").await.pending_activities.remove(0);
    assert_eq!(before, after);
    node.pass(Duration::from_secs(6)).await;
    assert_eq!(node.calls().len(), 4, "not before its time");
    node.pass(Duration::from_secs(3)).await;
    assert_eq!(node.calls().last().unwrap().1, 5);
}

#[tokio::test]
async fn orders_due_while_nobody_ran_fire_after_the_restart_without_any_other_event() {
    let mut node = Node::start().await;
    for id in 0..50 {
        node.order(&id.to_string(), 5).await;
    }
    node.clock.advance(Duration::from_secs(1));
    settle().await;
    node.restart().await;
    node.clock.advance(Duration::from_secs(20));
    settle().await;
    node.pass(Duration::from_secs(2)).await;
    assert_eq!(node.calls().len(), 50);
}

#[tokio::test]
async fn a_call_that_ends_the_process_again_and_again_comes_to_a_person() {
    let mut node = Node::start().await;
    node.plan(std::iter::repeat_n(Act::Gate(Arc::new(Notify::new()), "never"), 10));
    node.order("1", 0).await;
    for _ in 0..6 {
        node.pass(Duration::from_secs(25)).await;
        node.restart().await;
    }
    node.pass(Duration::from_secs(1)).await;
    let description = node.describe("1").await;
    assert!(description.needs_attention);
    assert_eq!(description.pending_activities[0].last_failure.as_ref().unwrap().error_type, "node-lost");
    assert_eq!(node.calls().len(), 5);
}

#[tokio::test]
async fn when_the_disk_is_full_nothing_is_acknowledged_and_nothing_acknowledged_is_lost() {
    let node = Node::start().await;
    node.order("1", 5).await;
    node.store.fail_next_commit(CommitFailure::DiskFull);
    assert!(matches!(node.pay("1", "txn").await, Err(ClientError::Unavailable)));
    node.store.fail_next_commit(CommitFailure::DiskFull);
    let input = Payload::of(&Order { deadline: START }).unwrap();
    let refused = node.client.start(start_request("2", input));
    let refused = futures::future::join(refused, node.pass(Duration::from_secs(1))).await.0;
    assert!(matches!(refused, Err(ClientError::Unavailable)));
    node.pass(Duration::from_secs(1)).await;
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Applied);
    assert_eq!(node.closed("1").await, "paid by txn");
    assert!(matches!(node.client.describe("waits", "2").await, Err(ClientError::NotFound(_))));
}

#[tokio::test]
async fn a_result_whose_commit_failed_is_committed_later_and_the_call_not_repeated() {
    let node = Node::start().await;
    let gate = Arc::new(Notify::new());
    node.plan([Act::Gate(gate.clone(), "once")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    node.store.fail_next_commit(CommitFailure::Unavailable);
    gate.notify_one();
    node.pass(Duration::from_secs(65)).await;
    assert_eq!(node.closed("1").await, "once");
    assert_eq!(node.calls().len(), 1);
}

#[tokio::test]
async fn a_poison_transition_blocks_its_own_execution_and_no_neighbour() {
    let node = Node::start().await;
    node.order("poison", 100).await;
    node.order("neighbour", 100).await;
    node.store.reject(|write| matches!(write, crate::store::Write::Advance(advance) if advance.key.id() == "poison" && advance.record.is_some()));
    let (poisoned, paid) = futures::join!(node.pay("poison", "a"), node.pay("neighbour", "b"));
    assert!(matches!(poisoned, Err(ClientError::Rejected)));
    assert_eq!(paid.unwrap(), SignalOutcome::Applied);
    let blocked = node.until("poison", "blocked", |description| description.failure.is_some()).await;
    assert_eq!(blocked.status, crate::store::Status::Blocked);
    node.store.reject(|_| false);
    node.pass(Duration::from_secs(3)).await;
    assert_eq!(node.pay("poison", "a").await.unwrap(), SignalOutcome::Applied, "it heals by itself");
}

/// Whether a write would store this text in a history.
fn holds(write: &crate::store::Write, text: &str) -> bool {
    let crate::store::Write::Advance(advance) = write else { return false };
    let record = advance.record.as_ref();
    record.is_some_and(|record| record.bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[tokio::test]
async fn a_signal_that_cannot_be_stored_takes_none_with_it_that_is_taken_up_beside_it() {
    for order in [["bad", "good"], ["good", "bad"]] {
        let node = Node::start().await;
        node.order("1", 100).await;
        node.store.reject(|write| holds(write, "bad"));
        let (first, second) = futures::join!(node.pay("1", order[0]), node.pay("1", order[1]));
        let (bad, good) = if order[0] == "bad" { (first, second) } else { (second, first) };
        assert!(matches!(good, Ok(SignalOutcome::Applied | SignalOutcome::Buffered)), "{order:?}: {good:?}");
        assert!(!matches!(bad, Ok(SignalOutcome::Applied)), "{order:?}: {bad:?}");
        node.pass(Duration::from_secs(10)).await;
        assert_eq!(node.closed("1").await, "paid by good", "{order:?}");
    }
}

#[tokio::test]
async fn a_stored_signal_that_cannot_be_taken_up_is_held_alone() {
    let mut node = Node::start().await;
    // Both wait before the start, and are taken up in one transition.
    node.pay("1", "bad").await.unwrap();
    node.pay("1", "good").await.unwrap();
    node.store.reject(|write| holds(write, "bad"));
    node.order("1", 100).await;
    node.pass(Duration::from_secs(10)).await;
    assert_eq!(node.closed("1").await, "paid by good");
    node.restart().await;
}

#[tokio::test]
async fn a_node_that_lost_its_fence_stops_and_changes_nothing_more() {
    let mut node = Node::start().await;
    node.order("1", 10).await;
    let old = node.client.clone();
    node.restart().await;
    let paid = old.signal(crate::client::SignalRequest {
        workflow_type: "waits".into(),
        id: "1".into(),
        name: "paid".into(),
        signal_id: None,
        payload: Payload::of(&Paid { by: "zombie".into() }).unwrap(),
    });
    assert!(matches!(paid.await, Err(ClientError::Unavailable)));
    assert!(old.engine().unready_reason().unwrap().contains("fence"), "{:?}", old.engine().unready_reason());
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Applied);
}

#[tokio::test]
async fn a_drain_waits_for_the_call_under_way_and_records_its_result() {
    let mut node = Node::start().await;
    let gate = Arc::new(Notify::new());
    node.plan([Act::Gate(gate.clone(), "slow")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let engine = node.client.engine().clone();
    let drained = async {
        gate.notify_one();
        node.pass(Duration::from_secs(1)).await;
    };
    futures::join!(engine.drain(), drained);
    node.store.reopen();
    node.restart().await;
    node.pass(Duration::from_secs(61)).await;
    assert_eq!(node.closed("1").await, "slow");
    assert_eq!(node.calls().len(), 1);
}

#[tokio::test]
async fn a_result_of_the_last_attempt_whose_commit_failed_is_not_taken_for_lost() {
    let retry = RetryPolicy { attempts: Some(1), ..script_options().retry };
    let node = Node::with_options(EngineConfig::default(), Some(ActivityOptions { retry, ..script_options() })).await;
    let gate = Arc::new(Notify::new());
    node.plan([Act::Gate(gate.clone(), "once")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    node.store.fail_next_commit(CommitFailure::Unavailable);
    gate.notify_one();
    node.pass(Duration::from_secs(65)).await;
    let ended = node.describe("1").await;
    assert!(!ended.needs_attention, "{:?}", ended.pending_activities);
    assert_eq!(node.closed("1").await, "once");
}
