//! Starts and signals that callers left in the store, in transactions of their own.

use std::time::Duration;

use super::cluster::*;
use super::harness::*;
use crate::client::ClientError;
use crate::engine::{EngineConfig, Retain};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Deposit, InboxRow, RequestedStart, Status, Store};

const SECOND: Duration = Duration::from_secs(1);

fn requested(cluster: &Cluster, id: &str, seconds: u64) -> RequestedStart {
    let deadline = cluster.now().saturating_add(Duration::from_secs(seconds));
    let key = WorkflowKey::new("waits", id);
    RequestedStart {
        shard: key.shard(SHARDS),
        key,
        input: format!("{{ \"deadline\" :\n \"{deadline}\" }}"),
        attributes: Some(r#"{"sku": "A-1"}"#.into()),
        start_at: None,
        refused: None,
    }
}

/// A signal as a caller inside the store leaves it: checked by nobody.
fn left(id: &str, signal_id: &str, payload: &str) -> Deposit {
    let key = WorkflowKey::new("waits", id);
    let payload = Payload::from_json(payload).unwrap();
    Deposit {
        row: InboxRow {
            shard: key.shard(SHARDS),
            key,
            signal_id: signal_id.into(),
            name: "paid".into(),
            identity: payload.canonical_hash(),
            payload,
            received_at: START,
            unchecked: true,
        },
    }
}

/// Leaves signals in the store, beside the commit of an order of no interest.
async fn leave(cluster: &Cluster, signals: Vec<Deposit>) {
    for signal in signals {
        cluster.store.deposit_before_next_commit(signal);
    }
    cluster.order(0, &format!("beside-{}", cluster.store.commits()), 3600).await;
}

#[tokio::test]
async fn a_start_that_was_left_in_the_store_is_made_once_by_its_owner() {
    let cluster = Cluster::of(2).await;
    for n in 0..10 {
        cluster.store.request_start(requested(&cluster, &n.to_string(), 5));
    }
    cluster.pass(2 * SECOND).await;
    for n in 0..10 {
        assert_eq!(cluster.kinds(0, &n.to_string()).await, ["WorkflowStarted", "TimerStarted"]);
    }
    assert_eq!(cluster.until(0, "3", "it is there", |_| true).await.attributes.len(), 1);
    cluster.pass(5 * SECOND).await;
    assert_eq!(cluster.calls(), 10);
}

#[tokio::test]
async fn a_deadline_that_has_passed_before_the_start_is_seen_fires_at_once() {
    let cluster = Cluster::of(1).await;
    let request = requested(&cluster, "1", 0);
    cluster.pass(3 * SECOND).await;
    cluster.store.request_start(request);
    cluster.pass(2 * SECOND).await;
    assert_eq!(cluster.calls_of("1"), 1);
}

#[tokio::test]
async fn a_start_of_a_type_that_callers_cannot_start_is_not_made() {
    let cluster = Cluster::of(1).await;
    let of_callers = requested(&cluster, "1", 5);
    let key = WorkflowKey::new("own", "1");
    cluster.store.request_start(RequestedStart { shard: key.shard(SHARDS), key, ..of_callers });
    cluster.pass(3 * SECOND).await;
    let Err(ClientError::NotFound(message)) = cluster.nodes[0].client.describe("own", "1").await else { panic!("it is there") };
    assert!(message.contains("started by the program alone"), "{message}");
}

#[tokio::test]
async fn a_start_that_cannot_be_made_is_kept_and_whoever_asks_is_told_why() {
    let cluster = Cluster::of(1).await;
    let mut request = requested(&cluster, "1", 5);
    request.input = r#"{"dead": 1}"#.into();
    cluster.store.request_start(request);
    cluster.pass(3 * SECOND).await;
    let Err(ClientError::NotFound(message)) = cluster.nodes[0].client.describe("waits", "1").await else { panic!("it is there") };
    assert!(message.contains("not started") && message.contains("deadline"), "{message}");
    cluster.order(0, "1", 5).await;
    assert_eq!(cluster.kinds(0, "1").await.len(), 2, "the id is still free");
}

#[tokio::test]
async fn the_same_start_left_again_changes_nothing_and_another_one_is_kept_with_the_reason() {
    let cluster = Cluster::of(1).await;
    let first = requested(&cluster, "1", 60);
    cluster.store.request_start(first.clone());
    cluster.pass(2 * SECOND).await;
    cluster.store.request_start(first);
    cluster.pass(2 * SECOND).await;
    let key = WorkflowKey::new("waits", "1");
    let left = || async { cluster.store.requested_start(&key).await.unwrap() };
    assert_eq!(left().await, None);
    cluster.store.request_start(requested(&cluster, "1", 90));
    cluster.pass(2 * SECOND).await;
    assert!(left().await.unwrap().refused.unwrap().contains("another request"));
    assert_eq!(cluster.kinds(0, "1").await.len(), 2);
}

#[tokio::test]
async fn a_payment_left_in_the_store_beats_a_deadline_that_has_not_fired() {
    let cluster = Cluster::of(1).await;
    cluster.order(0, "1", 5).await;
    cluster.pass(3 * SECOND).await;
    leave(&cluster, vec![left("1", "sql-1", r#"{"by":"tx-1"}"#)]).await;
    cluster.pass(2 * SECOND).await;
    let paid = cluster.until(0, "1", "it is paid", |found| found.status == Status::Completed).await;
    assert_eq!(paid.result.unwrap().as_str(), r#""paid by tx-1""#);
    assert_eq!(cluster.calls(), 0);
}

#[tokio::test]
async fn a_payment_told_of_twice_under_two_ids_is_one_signal() {
    let cluster = Cluster::of(1).await;
    leave(&cluster, vec![left("1", "sql-1", r#"{"by":"tx-1"}"#), left("1", "sql-2", r#"{ "by" : "tx-1" }"#)]).await;
    cluster.store.request_start(requested(&cluster, "1", 60));
    cluster.pass(2 * SECOND).await;
    let kinds = cluster.kinds(0, "1").await;
    assert_eq!(kinds.iter().filter(|kind| **kind == "SignalReceived").count(), 1, "{kinds:?}");
}

#[tokio::test]
async fn a_signal_that_cannot_be_read_is_held_and_holds_nothing_up() {
    let buffer = 20 * SECOND;
    let cluster = Cluster::with(1, EngineConfig { buffer, ..EngineConfig::default() }).await;
    cluster.order(0, "open", 5).await;
    cluster.order(0, "closed", 5).await;
    cluster.pay(0, "closed", "tx-0").await;
    let unreadable = |id: &str| left(id, "sql-1", r#"{"by": 17}"#);
    leave(&cluster, vec![unreadable("open"), unreadable("closed"), unreadable("never")]).await;
    cluster.pass(buffer + 15 * SECOND).await;
    assert_eq!(cluster.calls_of("open"), 1, "its deadline was not held up");
    let shards: Vec<u16> = (0..SHARDS).collect();
    assert_eq!(cluster.store.unread(&shards, 10).await.unwrap(), []);
    assert_eq!(cluster.store.unclaimed(&shards, cluster.now(), 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_payment_told_of_again_after_the_end_under_another_id_goes_to_no_late_handler() {
    let retain = Some(Retain { history: 20 * SECOND, tombstone: 3600 * SECOND });
    let cluster = Cluster::with(1, EngineConfig { retain, ..EngineConfig::default() }).await;
    cluster.order(0, "1", 3600).await;
    cluster.pay(0, "1", "tx-1").await;
    let late = || async { cluster.store.derived("1", 10).await.unwrap() };
    leave(&cluster, vec![left("1", "sql-1", r#"{ "by" : "tx-1" }"#)]).await;
    cluster.pass(3 * SECOND).await;
    assert_eq!(late().await, [], "its money was taken");
    cluster.pass(60 * SECOND).await;
    assert!(cluster.until(0, "1", "it is there", |_| true).await.retired_at.is_some());
    leave(&cluster, vec![left("1", "sql-2", r#"{"by":"tx-1"}"#)]).await;
    cluster.pass(3 * SECOND).await;
    assert_eq!(late().await, [], "its tombstone knows");
    leave(&cluster, vec![left("1", "sql-3", r#"{"by":"tx-2"}"#)]).await;
    cluster.pass(3 * SECOND).await;
    assert_eq!(late().await.len(), 1, "another payment is late");
}

#[tokio::test]
async fn a_payment_told_of_twice_in_the_transition_that_ends_its_order_goes_to_no_late_handler() {
    let cluster = Cluster::of(1).await;
    cluster.order(0, "1", 3600).await;
    leave(&cluster, vec![left("1", "sql-1", r#"{"by":"tx-1"}"#), left("1", "sql-2", r#"{ "by" : "tx-1" }"#)]).await;
    cluster.pass(3 * SECOND).await;
    assert_eq!(cluster.until(0, "1", "it is paid", |_| true).await.status, Status::Completed);
    assert_eq!(cluster.store.derived("1", 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_stored_signal_that_contradicts_one_that_was_taken_is_held_after_the_end_too() {
    let retain = Some(Retain { history: 20 * SECOND, tombstone: 3600 * SECOND });
    let cluster = Cluster::with(1, EngineConfig { retain, ..EngineConfig::default() }).await;
    cluster.order(0, "1", 3600).await;
    cluster.pay(0, "1", "tx-1").await;
    leave(&cluster, vec![left("1", "tx-1", r#"{"by":"tx-2"}"#)]).await;
    cluster.pass(60 * SECOND).await;
    let shards: Vec<u16> = (0..SHARDS).collect();
    assert_eq!(cluster.store.unread(&shards, 10).await.unwrap(), [], "it is not looked at again");
    assert_eq!(cluster.until(0, "1", "it is there", |_| true).await.retired_at, None, "what nobody acted upon is kept");
}

#[tokio::test]
async fn a_signal_that_cannot_be_read_behind_one_that_ends_its_order_does_not_hold_up_the_end() {
    let cluster = Cluster::of(1).await;
    cluster.order(0, "1", 3600).await;
    leave(&cluster, vec![left("1", "sql-1", r#"{"by":"tx-1"}"#), left("1", "sql-2", r#"{"by":17}"#)]).await;
    cluster.pass(3 * SECOND).await;
    assert_eq!(cluster.until(0, "1", "it is paid", |_| true).await.status, Status::Completed);
}

#[tokio::test]
async fn signals_of_types_that_the_program_does_not_know_do_not_hold_up_those_behind_them() {
    let buffer = 20 * SECOND;
    let cluster = Cluster::with(1, EngineConfig { buffer, ..EngineConfig::default() }).await;
    let of_gone_type = |n: usize| {
        let mut deposit = left(&n.to_string(), "s", r#"{"by":"tx-1"}"#);
        deposit.row.key = WorkflowKey::new("gone", n.to_string());
        deposit
    };
    leave(&cluster, (0..150).map(of_gone_type).collect()).await;
    let mut behind = left("never", "sql-1", r#"{"by":"tx-1"}"#);
    behind.row.received_at = START.saturating_add(SECOND);
    leave(&cluster, vec![behind]).await;
    cluster.pass(buffer + 35 * SECOND).await;
    assert_eq!(cluster.store.derived("never", 10).await.unwrap().len(), 1, "the late handler has it");
}
