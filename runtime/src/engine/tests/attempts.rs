//! Attempts: classes of failures, persons, cancel and terminate.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::harness::*;
use crate::activity::{ActivityFailure, ActivityOptions, DispatchLimit};
use crate::client::{ActionOutcome, ActivityState, ClientError, Description, StartRequest};
use crate::engine::{EngineConfig, OperatorAction};
use crate::history::EventKind;
use crate::payload::Payload;
use crate::store::Status;

fn timeout() -> Act {
    Act::Fail(ActivityFailure::transient("timeout", "no answer"))
}

fn attention(description: &Description) -> bool {
    description.needs_attention
}

#[tokio::test]
async fn a_transient_failure_is_tried_five_times_at_growing_gaps_and_then_needs_attention() {
    let node = Node::start().await;
    node.plan(std::iter::repeat_n(timeout(), 5));
    node.order("1", 0).await;
    node.pass(Duration::from_secs(20)).await;
    let calls = node.calls();
    let gaps: Vec<u64> = calls.windows(2).map(|pair| pair[1].2.since(pair[0].2).as_secs()).collect();
    assert_eq!(gaps, [1, 2, 4, 8]);
    assert!(calls.iter().all(|(key, ..)| key == "waits/1/script"), "one key for all attempts");
    let description = node.describe("1").await;
    let step = &description.pending_activities[0];
    assert_eq!((step.state, step.attempt), (ActivityState::NeedsAttention, 5));
    assert!(description.needs_attention && description.wake_at.is_none());
    node.pass(Duration::from_secs(60)).await;
    assert_eq!(node.calls().len(), 5, "no loop");
}

#[tokio::test]
async fn a_neutral_failure_waits_without_costing_an_attempt() {
    let node = Node::start().await;
    node.plan([Act::Fail(ActivityFailure::parked("breaker of stock", Duration::from_secs(30)))]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let description = node.describe("1").await;
    let step = &description.pending_activities[0];
    assert_eq!((step.state, step.attempt, step.parked_by.as_deref()), (ActivityState::Parked, 0, Some("breaker of stock")));
    assert_eq!(step.next_attempt_at, description.wake_at);
    let explained = node.client.explain("waits", "1").await.unwrap();
    assert!(explained.text.contains("parked by the breaker of stock"), "{}", explained.text);
    node.pass(Duration::from_secs(30)).await;
    assert_eq!(node.calls().iter().map(|call| call.1).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn an_operator_retries_a_step_under_the_same_key_and_the_workflow_goes_on() {
    let node = Node::start().await;
    node.plan([Act::Fail(ActivityFailure::permanent("http-422", "refused"))]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let step = node.until("1", "needs attention", attention).await.pending_activities.remove(0);
    let retried = node.client.operate("waits", "1", step.number, OperatorAction::Retry, "fixed it", "alice").await.unwrap();
    assert_eq!(retried, ActionOutcome::Applied);
    node.pass(Duration::from_secs(61)).await;
    assert_eq!(node.closed("1").await, "done");
    let calls = node.calls();
    assert_eq!((calls.len(), &calls[0].0, calls[1].1), (2, &calls[1].0, 2));
    let events = node.events("1").await;
    let recorded = |kind: &EventKind| matches!(kind, EventKind::ActivityRetried { reason, actor, .. } if reason == "fixed it" && actor == "alice");
    assert_eq!(count(&events, recorded), 1);
}

#[tokio::test]
async fn an_operator_resolves_a_step_with_a_result_of_its_shape_only() {
    let node = Node::start().await;
    node.plan([Act::Fail(ActivityFailure::permanent("http-422", "refused"))]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let number = node.until("1", "needs attention", attention).await.pending_activities[0].number;
    let resolve = |json: &str| {
        let action = OperatorAction::Resolve(Payload::from_json(json).unwrap());
        node.client.operate("waits", "1", number, action, "ticket 4711", "alice")
    };
    assert!(matches!(resolve("5").await, Err(ClientError::Invalid(_))));
    resolve("\"by hand\"").await.unwrap();
    node.pass(Duration::from_secs(61)).await;
    assert_eq!(node.closed("1").await, "by hand");
    assert!(matches!(resolve("\"again\"").await, Err(ClientError::Conflict { .. })));
}

#[tokio::test]
async fn a_skipped_step_is_an_error_that_the_workflow_sees() {
    let node = Node::start().await;
    node.plan([Act::Fail(ActivityFailure::permanent("http-422", "refused"))]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let number = node.until("1", "needs attention", attention).await.pending_activities[0].number;
    node.client.operate("waits", "1", number, OperatorAction::Skip, "not needed", "bob").await.unwrap();
    let description = node.until("1", "ends", |description| description.closed_at.is_some()).await;
    assert_eq!((description.status, description.failure.unwrap().error_type.as_str()), (Status::Failed, "skipped"));
}

#[tokio::test]
async fn a_step_that_is_being_called_cannot_be_retried_and_one_that_does_not_exist_is_not_found() {
    let node = Node::start().await;
    let gate = Arc::new(Notify::new());
    node.plan([Act::Gate(gate.clone(), "late")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let number = node.describe("1").await.pending_activities[0].number;
    let retry = |number| node.client.operate("waits", "1", number, OperatorAction::Retry, "why not", "bob");
    assert!(matches!(retry(number).await, Err(ClientError::Conflict { .. })));
    assert!(matches!(retry(99).await, Err(ClientError::NotFound(_))));
    gate.notify_one();
    node.pass(Duration::from_secs(61)).await;
    assert_eq!(node.closed("1").await, "late");
}

#[tokio::test]
async fn more_requests_than_one_transition_takes_are_all_answered_even_if_none_changes_anything() {
    let node = Node::start().await;
    node.order("1", 10).await;
    let retries = (0..250).map(|_| node.client.operate("waits", "1", 99, OperatorAction::Retry, "why not", "bob"));
    let answers = tokio::time::timeout(Duration::from_secs(10), futures::future::join_all(retries)).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Err(ClientError::NotFound(_)))));
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_counts_as_failed_with_an_unknown_outcome() {
    let node = Node::start().await;
    node.plan([Act::Gate(Arc::new(Notify::new()), "never")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(32)).await;
    let calls = node.calls();
    assert_eq!(calls.iter().map(|call| call.1).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(calls[1].2.since(calls[0].2), Duration::from_secs(31), "30 s of start-to-close and 1 s of back-off");
}

#[tokio::test]
async fn an_attempt_that_cannot_begin_in_time_is_never_made() {
    let limit = DispatchLimit { name: "one at a time".into(), concurrency: 1 };
    let options = ActivityOptions { schedule_to_start: Some(Duration::from_secs(5)), limit: Some(limit), ..script_options() };
    let node = Node::with_options(EngineConfig::default(), Some(options)).await;
    let gate = Arc::new(Notify::new());
    node.plan([Act::Gate(gate.clone(), "first")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    node.order("2", 0).await;
    node.pass(Duration::from_secs(6)).await;
    gate.notify_one();
    node.pass(Duration::from_secs(1)).await;
    let late = node.until("2", "needs attention", attention).await;
    assert_eq!(late.pending_activities[0].last_failure.as_ref().unwrap().error_type, "schedule-to-start");
    assert_eq!(node.calls().len(), 1, "only the first was sent");
}

#[tokio::test]
async fn all_attempts_together_end_with_schedule_to_close() {
    let options = ActivityOptions { schedule_to_close: Some(Duration::from_secs(5)), ..script_options() };
    let node = Node::with_options(EngineConfig::default(), Some(options)).await;
    node.plan(std::iter::repeat_n(timeout(), 9));
    node.order("1", 0).await;
    node.pass(Duration::from_secs(20)).await;
    assert!(node.describe("1").await.needs_attention);
    assert_eq!(node.calls().len(), 3, "at 0, 1 and 3 s; the next would come at 7 s");
}

#[tokio::test]
async fn a_workflow_that_calls_at_once_makes_one_first_attempt_whatever_the_scan_sees() {
    let node = Node::start().await;
    for id in 0..50 {
        let start = StartRequest { workflow_type: "calls-at-once".into(), ..start_request(&id.to_string(), Payload::null()) };
        let scans = node.pass(Duration::from_secs(1));
        let (started, ()) = futures::future::join(node.client.start(start), scans).await;
        started.unwrap();
    }
    node.pass(Duration::from_secs(3)).await;
    assert!(node.calls().iter().all(|call| call.1 == 1), "{:?}", node.calls());
    assert_eq!(node.calls().len(), 50);
}

#[tokio::test]
async fn a_panicking_activity_is_a_transient_failure() {
    let node = Node::start().await;
    node.plan([Act::Panic]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(63)).await;
    assert_eq!(node.closed("1").await, "done");
}

#[tokio::test]
async fn cancel_reaches_the_workflow_once_and_terminate_ends_it_without_asking() {
    let node = Node::start().await;
    node.order("1", 10).await;
    node.order("2", 10).await;
    assert_eq!(node.client.cancel("waits", "1", "test", "bob").await.unwrap(), ActionOutcome::Applied);
    let description = node.until("1", "ends", |description| description.closed_at.is_some()).await;
    assert_eq!(description.status, Status::Cancelled);
    assert_eq!(node.client.cancel("waits", "1", "test", "bob").await.unwrap(), ActionOutcome::Late);
    assert_eq!(node.client.terminate("waits", "2", "test", "bob").await.unwrap(), ActionOutcome::Applied);
    assert_eq!(node.describe("2").await.status, Status::Terminated);
    assert!(matches!(node.client.cancel("waits", "3", "test", "bob").await, Err(ClientError::NotFound(_))));
    assert!(matches!(node.client.cancel("waits", "1", " ", "bob").await, Err(ClientError::Invalid(_))), "no reason given");
}

/// An order whose call waits for its limit, behind that of another one.
async fn behind_another(gate: &Arc<Notify>) -> Node {
    let limit = DispatchLimit { name: "one at a time".into(), concurrency: 1 };
    let options = ActivityOptions { limit: Some(limit), ..script_options() };
    let node = Node::with_options(EngineConfig::default(), Some(options)).await;
    node.plan([Act::Gate(gate.clone(), "first")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    node.order("2", 0).await;
    node.pass(Duration::from_secs(1)).await;
    node
}

#[tokio::test]
async fn a_call_that_waits_for_its_limit_is_not_made_once_its_execution_has_ended() {
    let gate = Arc::new(Notify::new());
    let node = behind_another(&gate).await;
    node.client.terminate("waits", "2", "not wanted", "bob").await.unwrap();
    gate.notify_one();
    node.pass(Duration::from_secs(1)).await;
    assert_eq!(node.calls().len(), 1, "{:?}", node.calls());
}

#[tokio::test]
async fn an_execution_whose_waiting_call_is_no_longer_wanted_is_not_kept_in_memory_for_it() {
    let gate = Arc::new(Notify::new());
    let node = behind_another(&gate).await;
    let number = node.describe("2").await.pending_activities[0].number;
    let by_hand = OperatorAction::Resolve(Payload::from_json("\"by hand\"").unwrap());
    node.client.operate("waits", "2", number, by_hand, "ticket 4711", "alice").await.unwrap();
    gate.notify_one();
    node.pass(Duration::from_secs(1)).await;
    assert_eq!((node.calls().len(), node.client.engine().executions_at_work()), (1, 0));
}
