//! Many nodes on one store: spread, takeover, hand-over, wrong clocks, requests to the wrong node.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::cluster::*;
use super::harness::*;
use crate::client::{SignalOutcome, StartRequest};
use crate::engine::core::{Core, Effect};
use crate::engine::{Active, Input, Message, Start};
use crate::payload::Payload;
use crate::store::{CommitFailure, Status};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn nodes_share_the_shards_evenly_and_an_order_may_be_started_anywhere() {
    let cluster = Cluster::of(3).await;
    for n in 0..30 {
        cluster.order(n % 3, &format!("order-{n}"), 5).await;
    }
    cluster.pass(8 * SECOND).await;
    assert_eq!(cluster.calls(), 30);
    for n in 0..30 {
        assert_eq!(cluster.calls_of(&format!("order-{n}")), 1);
    }
}

#[tokio::test]
async fn the_orders_of_a_dead_node_fire_within_its_lease_and_a_scan() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.order(0, &id, 2).await;
    cluster.nodes[1].tasks.freeze();
    cluster.pass(SECOND).await;
    assert_eq!(cluster.calls_of(&id), 0);
    cluster.pass(LEASE + SECOND).await;
    assert_eq!(cluster.calls_of(&id), 1);
    assert_eq!(cluster.nodes[0].shards(), usize::from(SHARDS));
}

#[tokio::test]
async fn a_node_that_was_stopped_past_its_lease_changes_nothing_and_joins_again() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.order(0, &id, 2).await;
    cluster.nodes[1].tasks.freeze();
    cluster.pass(LEASE + 2 * SECOND).await;
    let before = cluster.kinds(0, &id).await;
    assert_eq!(cluster.calls_of(&id), 1);
    cluster.nodes[1].tasks.thaw();
    settle().await;
    cluster.until_even().await;
    cluster.pass(2 * SECOND).await;
    assert_eq!(cluster.kinds(0, &id).await, before);
    assert_eq!(cluster.calls_of(&id), 1, "what it had in mind to call, it did not call");
    assert_eq!(cluster.nodes[1].client.engine().unready_reason(), None);
}

#[tokio::test]
async fn a_node_that_was_stopped_for_less_than_its_lease_keeps_its_shards() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.order(0, &id, 2).await;
    cluster.nodes[1].tasks.freeze();
    cluster.pass(LEASE / 2).await;
    cluster.nodes[1].tasks.thaw();
    cluster.pass(SECOND).await;
    assert_eq!((cluster.calls_of(&id), cluster.owner_of(&id)), (1, 1));
    assert_eq!(cluster.nodes[1].shards(), usize::from(SHARDS) / 2);
}

#[tokio::test]
async fn a_call_that_a_dead_node_had_under_way_is_made_again_by_its_heir_under_the_same_key() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.script.acts.lock().unwrap().push_back(Act::Gate(Arc::new(Notify::new()), "never"));
    cluster.order(1, &id, 1).await;
    cluster.pass(2 * SECOND).await;
    assert_eq!(cluster.calls_of(&id), 1);
    cluster.nodes[1].tasks.freeze();
    cluster.pass(LEASE + 5 * SECOND).await;
    assert_eq!(cluster.calls_of(&id), 2, "calls carry the same key");
    cluster.until(0, &id, "the answer is recorded", |found| found.pending_activities.is_empty()).await;
}

#[tokio::test]
async fn a_new_node_gets_its_share_once_the_calls_under_way_have_ended() {
    let mut cluster = Cluster::of(1).await;
    let gate = Arc::new(Notify::new());
    for n in 0..usize::from(SHARDS) * 4 {
        cluster.script.acts.lock().unwrap().push_back(Act::Gate(gate.clone(), "late"));
        cluster.order(0, &format!("order-{n}"), 1).await;
    }
    cluster.pass(2 * SECOND).await;
    let begun = cluster.calls();
    assert_eq!(begun, usize::from(SHARDS) * 4);
    cluster.join(Offset::Right).await;
    cluster.pass(3 * SECOND).await;
    assert_eq!(cluster.nodes[1].shards(), 0, "every shard has a call under way");
    gate.notify_waiters();
    cluster.until_even().await;
    cluster.pass(2 * SECOND).await;
    assert_eq!(cluster.calls(), begun, "no call was made twice");
}

#[tokio::test]
async fn a_shard_moves_without_its_last_call_when_that_takes_too_long() {
    let mut cluster = Cluster::of(1).await;
    for n in 0..usize::from(SHARDS) * 4 {
        cluster.script.acts.lock().unwrap().push_back(Act::Gate(Arc::new(Notify::new()), "never"));
        cluster.order(0, &format!("order-{n}"), 1).await;
    }
    cluster.pass(2 * SECOND).await;
    cluster.join(Offset::Right).await;
    cluster.pass(13 * SECOND).await;
    assert_eq!(cluster.nodes[1].shards(), usize::from(SHARDS) / 2);
    let key_of = |n: usize| format!("order-{n}");
    let moved: Vec<usize> = (0..usize::from(SHARDS) * 4).filter(|n| cluster.owner_of(&key_of(*n)) == 1).collect();
    cluster.pass(5 * SECOND).await;
    assert!(moved.iter().all(|n| cluster.calls_of(&key_of(*n)) == 2), "the heir makes the call again");
}

#[tokio::test]
async fn a_node_that_drains_leaves_nothing_behind_for_others_to_wait_for() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.order(0, &id, 3).await;
    cluster.nodes[1].client.engine().drain().await;
    cluster.store.reopen();
    cluster.pass(2 * SECOND).await;
    assert_eq!(cluster.nodes[0].shards(), usize::from(SHARDS), "long before a lease would be over");
    cluster.pass(2 * SECOND).await;
    assert_eq!(cluster.calls_of(&id), 1);
}

#[tokio::test]
async fn a_signal_through_a_node_that_is_not_the_owner_is_stored_and_beats_the_deadline() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.order(0, &id, 3).await;
    assert_eq!(cluster.pay(0, &id, "tx-1").await, SignalOutcome::Buffered, "nobody said where the owner is");
    cluster.pass(SECOND).await;
    let paid = cluster.until(0, &id, "the payment is taken up", |found| found.status == Status::Completed).await;
    assert_eq!(paid.result.unwrap().as_str(), r#""paid by tx-1""#);
    cluster.pass(4 * SECOND).await;
    assert_eq!(cluster.calls_of(&id), 0);
    assert_eq!(cluster.pay(1, &id, "tx-1").await, SignalOutcome::Duplicate);
}

#[tokio::test]
async fn nodes_whose_clocks_are_ten_minutes_wrong_fire_nothing_early_and_nothing_late() {
    let mut cluster = Cluster::of(1).await;
    cluster.join(Offset::Ahead(600 * SECOND)).await;
    cluster.join(Offset::Behind(600 * SECOND)).await;
    cluster.until_even().await;
    let began = cluster.now();
    for n in 0..30 {
        cluster.order(n % 3, &format!("order-{n}"), 20).await;
    }
    cluster.pass(20 * SECOND - Duration::from_millis(250)).await;
    assert_eq!(cluster.calls(), 0, "nothing early");
    cluster.pass(Duration::from_millis(750)).await;
    assert_eq!(cluster.calls(), 30, "nothing late");
    let calls = cluster.script.calls.lock().unwrap();
    assert!(calls.iter().all(|(_, _, at)| *at >= began.saturating_add(20 * SECOND)));
}

#[tokio::test]
async fn at_whatever_moment_a_node_is_stopped_it_makes_no_call_after_its_lease() {
    let mut stopped_before_its_call = 0;
    for moment in 0..40 {
        let cluster = Cluster::of(2).await;
        let id = cluster.id_owned_by(1);
        cluster.order(0, &id, 2).await;
        cluster.pass(2 * SECOND - Duration::from_millis(250)).await;
        cluster.nodes[1].tasks.freeze_after(moment);
        cluster.clock.advance(Duration::from_millis(250));
        settle().await;
        stopped_before_its_call += usize::from(cluster.calls() == 0);
        cluster.pass(LEASE + 3 * SECOND).await;
        let before = (cluster.calls(), cluster.kinds(0, &id).await);
        cluster.nodes[1].tasks.thaw();
        cluster.pass(SECOND).await;
        assert_eq!((cluster.calls(), cluster.kinds(0, &id).await), before, "stopped {moment} steps after the deadline");
        assert!(before.0 >= 1, "the heir made the call");
    }
    assert!(stopped_before_its_call > 5, "{stopped_before_its_call} moments lay between the deadline and the call");
}

#[tokio::test]
async fn a_node_whose_core_hangs_loses_its_shards_although_its_steward_lives() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.order(0, &id, 2).await;
    // The first task of a node is the one that runs its core.
    cluster.nodes[1].tasks.hang(0);
    cluster.pass(2 * LEASE + 3 * SECOND).await;
    assert_eq!(cluster.nodes[0].shards(), usize::from(SHARDS));
    assert_eq!(cluster.calls_of(&id), 1);
    cluster.nodes[1].tasks.thaw();
    cluster.until_even().await;
    assert_eq!(cluster.calls_of(&id), 1);
}

#[tokio::test]
async fn a_node_that_drains_ends_although_two_starts_of_one_order_wait_in_its_lane() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    // The second task of a node is its committer: everything gathers in front of it.
    node.tasks.hang(1);
    let ended = async {
        tokio::join!(cluster.order(0, "1", 50), cluster.order(0, "1", 50), node.client.engine().drain());
    };
    let thaw = async {
        settle().await;
        node.tasks.thaw();
        settle().await;
    };
    let ended = tokio::time::timeout(5 * SECOND, async { tokio::join!(ended, thaw) });
    assert!(ended.await.is_ok(), "what is asked for behind a write that is carried over is not forgotten");
}

#[tokio::test]
async fn a_node_whose_commits_come_to_nothing_loses_its_shards_although_its_lease_could_be_renewed() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.order(0, &id, 2).await;
    for _ in 0..10_000 {
        cluster.store.fail_next_commit(CommitFailure::Unavailable);
    }
    cluster.pass(4 * LEASE).await;
    assert_eq!(cluster.nodes[0].shards(), usize::from(SHARDS));
}

#[tokio::test]
async fn a_node_with_nothing_to_write_keeps_its_shards_after_a_commit_that_came_to_nothing() {
    let cluster = Cluster::of(2).await;
    let id = cluster.id_owned_by(1);
    cluster.store.fail_next_commit(CommitFailure::Unavailable);
    let input = Payload::of(&Order { deadline: cluster.now() }).unwrap();
    cluster.nodes[1].client.start(start_request(&id, input)).await.unwrap_err();
    cluster.pass(5 * LEASE).await;
    assert_eq!((cluster.nodes[0].shards(), cluster.owner_of(&id)), (usize::from(SHARDS) / 2, 1));
}

#[test]
fn an_execution_for_which_no_place_was_held_is_read_and_not_taken_from_the_memory_of_its_start() {
    let code = Arc::new(registries(Waits, &Script::default()));
    let request = StartRequest { workflow_type: "calls-at-once".into(), ..start_request("1", Payload::null()) };
    let start = Start::checked(&code, SHARDS, request, START, &mut || 7).unwrap();
    let (new, active) = Active::start(&code, start).unwrap();
    let mut core = Core::new(code, SHARDS, SECOND, Box::new(|| 7));
    // The shard came when the start was on its way; a scan has found the execution, which its owner of then may have moved on.
    core.step(Message::Gain((0..SHARDS).collect()), START);
    core.step(Message::Input { key: new.key, input: Input::Due }, START);
    core.flush(START);
    core.step(Message::Adopt(Box::new(active)), START);
    let effects = core.flush(START);
    assert!(effects.iter().all(|effect| !matches!(effect, Effect::Call(_))), "its first call may have been made by another node");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Load { number: 2, .. })));
}

#[test]
fn a_shard_that_is_being_given_away_is_not_taken_back_by_a_look_that_comes_before_the_store_has_taken_that_in() {
    let code = Arc::new(registries(Waits, &Script::default()));
    let mut core = Core::new(code, SHARDS, SECOND, Box::new(|| 7));
    let mut owned_after = |message| {
        core.step(message, START);
        let owned = |effect: &Effect| if let Effect::Owned(shards) = effect { Some(shards.clone()) } else { None };
        core.flush(START).iter().rev().find_map(owned)
    };
    assert_eq!(owned_after(Message::Gain(vec![1, 2])), Some(vec![1, 2]));
    assert_eq!(owned_after(Message::Leave(vec![(1, "heir".into())])), Some(vec![2]));
    assert_eq!(owned_after(Message::Gain(vec![1])), None, "the lane has not carried it out: the store still names this node");
    assert_eq!(owned_after(Message::Given(vec![1])), None);
    assert_eq!(owned_after(Message::Gain(vec![1])), Some(vec![1, 2]), "it came back");
}
