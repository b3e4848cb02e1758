//! Payment against deadline, signals before the start and after the end.

use std::sync::Arc;
use std::time::Duration;

use super::harness::*;
use crate::client::{ClientError, SignalOutcome, SignalRequest};
use crate::engine::EngineConfig;
use crate::history::EventKind;
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Deposit, InboxRow, Status};

#[tokio::test]
async fn a_payment_before_the_deadline_wins_and_kills_the_timer_in_the_same_commit() {
    let node = Node::start().await;
    node.order("1", 10).await;
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Applied);
    assert_eq!(node.closed("1").await, "paid by txn");
    assert_eq!(
        node.kinds("1").await,
        ["WorkflowStarted", "TimerStarted", "SignalReceived", "TimerCancelled", "WorkflowCompleted"]
    );
    node.pass(Duration::from_secs(20)).await;
    assert!(node.calls().is_empty());
}

#[tokio::test]
async fn at_the_deadline_the_call_is_made_once_and_not_before() {
    let node = Node::start().await;
    node.order("1", 10).await;
    node.pass(Duration::from_millis(9_999)).await;
    assert!(node.calls().is_empty());
    node.pass(Duration::from_millis(1)).await;
    let calls = node.calls();
    assert_eq!(calls, [("waits/1/script".to_owned(), 1, START.saturating_add(Duration::from_secs(10)))]);
}

#[tokio::test]
async fn with_the_timers_off_the_scan_alone_fires_everything() {
    let node = Node::with(EngineConfig { timers: false, ..EngineConfig::default() }).await;
    for id in 0..20 {
        node.order(&id.to_string(), 10).await;
    }
    node.pass(Duration::from_secs(12)).await;
    assert_eq!(node.calls().len(), 20);
}

#[tokio::test]
async fn an_order_with_a_far_deadline_holds_up_none_with_a_near_one() {
    let node = Node::start().await;
    node.order("far", 1_000_000).await;
    node.order("near", 2).await;
    node.order("nearer", 1).await;
    node.pass(Duration::from_secs(2)).await;
    let order: Vec<_> = node.calls().into_iter().map(|(key, ..)| key).collect();
    assert_eq!(order, ["waits/nearer/script", "waits/near/script"]);
}

#[tokio::test]
async fn a_payment_that_was_stored_after_the_read_and_before_the_firings_commit_beats_the_deadline() {
    let node = Node::start().await;
    node.order("1", 10).await;
    let payload = Payload::of(&Paid { by: "txn".into() }).unwrap();
    let key = WorkflowKey::new("waits", "1");
    let row = InboxRow {
        shard: key.shard(4),
        key,
        signal_id: "txn".into(),
        name: "paid".into(),
        identity: payload.canonical_hash(),
        payload,
        received_at: START,
        unchecked: false,
    };
    node.store.deposit_before_next_commit(Deposit { row });
    node.pass(Duration::from_secs(10)).await;
    assert_eq!(node.closed("1").await, "paid by txn");
    assert!(node.calls().is_empty(), "the firing was refused");
}

#[tokio::test]
async fn a_deadline_in_the_past_is_due_at_once() {
    let node = Node::start().await;
    let input = Payload::from_json(r#"{"deadline":"1970-01-01T00:00:00Z"}"#).unwrap();
    node.client.start(start_request("1", input)).await.unwrap();
    node.pass(Duration::from_millis(500)).await;
    assert_eq!(node.calls().len(), 1);
}

#[tokio::test]
async fn a_signal_before_the_start_is_buffered_and_precedes_even_a_deadline_in_the_past() {
    let node = Node::start().await;
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Buffered);
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Duplicate);
    node.pass(Duration::from_secs(5)).await;
    let input = Payload::of(&Order { deadline: START }).unwrap();
    node.client.start(start_request("1", input)).await.unwrap();
    assert_eq!(node.closed("1").await, "paid by txn");
    assert!(node.calls().is_empty());
}

#[tokio::test]
async fn of_many_signals_before_the_start_the_first_decides_and_every_other_one_is_late_in_the_same_commit() {
    let node = Node::start().await;
    for number in 0..150 {
        let outcome = node.pay("1", &format!("txn-{number:03}")).await.unwrap();
        assert_eq!(outcome, SignalOutcome::Buffered);
        node.clock.advance(Duration::from_millis(1));
    }
    node.order("1", 10).await;
    assert_eq!(node.closed("1").await, "paid by txn-000");
    assert_eq!(node.describe("1").await.linked.len(), 100, "a description names the first hundred of 149");
    let before = node.store.commits();
    node.pass(Duration::from_secs(5)).await;
    assert!(node.store.commits() - before <= 2, "and then there is quiet");
}

#[tokio::test]
async fn a_signal_after_the_end_opens_a_linked_execution_and_leaves_the_closed_history_alone() {
    let node = Node::start().await;
    node.order("1", 10).await;
    node.pay("1", "first").await.unwrap();
    let before = node.events("1").await;
    assert_eq!(node.pay("1", "second").await.unwrap(), SignalOutcome::Late);
    assert_eq!(node.pay("1", "second").await.unwrap(), SignalOutcome::Duplicate);
    assert_eq!(node.pay("1", "first").await.unwrap(), SignalOutcome::Duplicate);
    assert_eq!(node.events("1").await, before);
    let description = node.describe("1").await;
    assert_eq!(description.linked.len(), 1);
    let link = &description.linked[0];
    let linked = node.client.describe(&link.workflow_type, &link.id).await.unwrap();
    assert_eq!((linked.status, linked.linked[0].id.as_str()), (Status::Completed, "1"));
}

#[tokio::test]
async fn a_signal_that_the_workflow_finds_too_late_is_answered_so() {
    let node = Node::start().await;
    node.order("1", 1).await;
    node.pass(Duration::from_secs(2)).await;
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Late);
    assert_eq!(node.closed("1").await, "done, then paid by txn");
}

#[tokio::test]
async fn one_signal_id_is_recorded_once_however_often_and_however_fast_it_comes() {
    let node = Node::start().await;
    node.order("1", 1).await;
    node.pass(Duration::from_secs(1)).await;
    let outcomes = futures::future::join_all((0..20).map(|_| node.pay("1", "txn"))).await;
    let fresh = outcomes.iter().filter(|outcome| !matches!(outcome, Ok(SignalOutcome::Duplicate))).count();
    assert_eq!(fresh, 1);
    assert_eq!(count(&node.events("1").await, |kind| matches!(kind, EventKind::SignalReceived { .. })), 1);
}

#[tokio::test]
async fn a_signal_id_that_says_something_else_is_a_conflict_and_changes_nothing() {
    let node = Node::start().await;
    node.order("1", 10).await;
    let send = |id: &str, by: &str| {
        let payload = Payload::of(&Paid { by: by.into() }).unwrap();
        let signal_id = Some(id.to_owned());
        node.client.signal(SignalRequest {
            workflow_type: "waits".into(),
            id: "1".into(),
            name: "paid".into(),
            signal_id,
            payload,
        })
    };
    send("delivery-1", "a").await.unwrap();
    assert!(matches!(send("delivery-1", "b").await, Err(ClientError::Conflict { .. })));
    assert_eq!(send("delivery-2", "a").await.unwrap().outcome, SignalOutcome::Duplicate, "same subject under another id");
}

#[tokio::test]
async fn an_undeclared_signal_or_type_is_refused_at_the_door() {
    let node = Node::start().await;
    let send = |workflow_type: &str, name: &str| {
        let payload = Payload::null();
        let request =
            SignalRequest { workflow_type: workflow_type.into(), id: "1".into(), name: name.into(), signal_id: None, payload };
        node.client.signal(request)
    };
    assert!(matches!(send("waits", "piad").await, Err(ClientError::Invalid(_))));
    assert!(matches!(send("other", "paid").await, Err(ClientError::UnknownType { .. })));
    assert!(matches!(send("waits", "paid").await, Err(ClientError::Invalid(_))), "null is no payment");
}

#[tokio::test]
async fn the_same_start_gives_the_same_run_and_another_one_a_conflict() {
    let node = Node::start().await;
    let start = |deadline: u64| {
        let input = Payload::of(&Order { deadline: START.saturating_add(Duration::from_secs(deadline)) }).unwrap();
        node.client.start(start_request("1", input))
    };
    let all = futures::future::join_all((0..50).map(|_| start(10))).await;
    let created = all.iter().filter(|answer| !answer.as_ref().unwrap().replayed).count();
    let runs: std::collections::BTreeSet<_> = all.iter().map(|answer| answer.as_ref().unwrap().run_id).collect();
    assert_eq!((created, runs.len()), (1, 1));
    let Err(ClientError::Conflict { run_id, .. }) = start(11).await else { panic!("another request under the same id") };
    assert_eq!(run_id, runs.first().copied());
    node.pay("1", "txn").await.unwrap();
    node.closed("1").await;
    let again = start(10).await.unwrap();
    assert!(again.replayed && again.status == Status::Completed);
}

#[tokio::test]
async fn payment_and_deadline_in_the_same_instant_give_one_decision_in_either_order() {
    for pay_first in [true, false] {
        let node = Node::start().await;
        node.order("1", 10).await;
        node.pass(Duration::from_millis(9_999)).await;
        if pay_first {
            let (paid, ()) = futures::join!(node.pay("1", "txn"), async { node.clock.advance(Duration::from_millis(1)) });
            paid.unwrap();
        } else {
            node.clock.advance(Duration::from_millis(1));
            node.pay("1", "txn").await.unwrap();
        }
        node.pass(Duration::from_secs(61)).await;
        let result = node.closed("1").await;
        let cancelled = node.calls().len();
        match result.as_str() {
            "paid by txn" => assert_eq!(cancelled, 0),
            "done, then paid by txn" => assert_eq!(cancelled, 1),
            other => panic!("neither paid nor cancelled: {other}"),
        }
    }
}

#[tokio::test]
async fn of_two_signals_that_waited_for_the_start_the_second_goes_the_way_of_late_ones_when_the_first_ends_the_workflow() {
    let node = Node::start().await;
    assert_eq!(node.pay("1", "a").await.unwrap(), SignalOutcome::Buffered);
    assert_eq!(node.pay("1", "b").await.unwrap(), SignalOutcome::Buffered);
    node.order("1", 10).await;
    node.pass(Duration::from_secs(2)).await;
    let ended = node.describe("1").await;
    assert_eq!((ended.status, ended.linked.len()), (Status::Completed, 1));
    assert_eq!(node.closed("1").await, "paid by a");
}

#[tokio::test]
async fn of_more_repeated_signals_than_one_transition_takes_every_one_is_answered() {
    let node = Node::start().await;
    node.plan([Act::Gate(Arc::default(), "never")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let all = futures::future::join_all((0..350).map(|_| node.pay("1", "txn")));
    let patience = Box::pin(node.pass(Duration::from_secs(3)));
    let futures::future::Either::Left((answers, _)) = futures::future::select(all, patience).await else {
        panic!("some are still waiting for their answer")
    };
    let repeated = answers.iter().filter(|answer| matches!(answer, Ok(SignalOutcome::Duplicate))).count();
    assert_eq!(repeated, 349);
}
