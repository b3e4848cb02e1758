//! Executions that their program cannot run: visible, bounded, and healed by the right program.

use std::time::Duration;

use async_trait::async_trait;

use super::harness::*;
use crate::client::{ClientError, SignalOutcome, SignalRequest};
use crate::payload::Payload;
use crate::store::Status;
use crate::workflow::*;

/// The same type, asking for something else.
struct Changed;

#[async_trait]
impl Workflow for Changed {
    const TYPE: &'static str = "waits";
    type Input = Order;
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, _order: Order) -> Result<String, WorkflowError> {
        ctx.sleep(Duration::from_secs(1)).named("other").await?;
        Ok(String::new())
    }

    fn signals(&self) -> Vec<SignalDeclaration> {
        vec![SignalDeclaration::of::<Paid>()]
    }
}

#[tokio::test]
async fn changed_code_blocks_the_execution_visibly_and_the_right_code_heals_it() {
    let mut node = Node::start().await;
    node.order("1", 5).await;
    node.restart_with(Changed).await;
    node.pass(Duration::from_secs(10)).await;
    let blocked = node.describe("1").await;
    assert_eq!((blocked.status, blocked.failure.as_ref().unwrap().error_type.as_str()), (Status::Blocked, "nondeterminism"));
    let explained = node.client.explain("waits", "1").await.unwrap();
    assert!(explained.text.contains("event 2") && explained.text.contains("tried again by itself"), "{}", explained.text);
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Buffered, "an acknowledged signal waits with it");
    node.restart().await;
    node.pass(Duration::from_secs(1)).await;
    assert_eq!(node.closed("1").await, "paid by txn");
}

#[tokio::test]
async fn a_blocked_execution_is_tried_at_growing_gaps_and_not_in_a_loop() {
    let mut node = Node::start().await;
    node.order("1", 0).await;
    node.restart_with(Changed).await;
    node.pass(Duration::from_secs(10)).await;
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Buffered, "and what waits for it does not hurry it");
    let before = node.store.commits();
    node.pass(Duration::from_secs(600)).await;
    let tries = node.store.commits() - before;
    assert!((10..=20).contains(&tries), "a minute apart at last: {tries} in ten minutes");
}

#[tokio::test]
async fn a_blocked_execution_can_be_terminated_and_nothing_else() {
    let mut node = Node::start().await;
    node.order("1", 5).await;
    node.restart_with(Changed).await;
    node.pass(Duration::from_secs(10)).await;
    assert!(matches!(node.client.cancel("waits", "1", "stop", "bob").await, Err(ClientError::Conflict { .. })));
    node.client.terminate("waits", "1", "beyond repair", "bob").await.unwrap();
    assert_eq!(node.describe("1").await.status, Status::Terminated);
}

#[tokio::test]
async fn a_blocked_execution_delays_no_other() {
    let mut node = Node::start().await;
    node.order("1", 5).await;
    node.restart_with(Changed).await;
    node.order("2", 0).await;
    node.pass(Duration::from_secs(7)).await;
    assert_eq!(node.describe("1").await.status, Status::Blocked);
    assert_eq!(node.describe("2").await.status, Status::Completed);
}

#[tokio::test]
async fn a_blocked_execution_can_be_terminated_although_a_signal_waits_for_it_and_the_signal_is_late() {
    let mut node = Node::start().await;
    node.order("1", 5).await;
    node.restart_with(Changed).await;
    node.pass(Duration::from_secs(10)).await;
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Buffered);
    let end = Box::pin(node.client.terminate("waits", "1", "beyond repair", "bob"));
    let patience = Box::pin(node.pass(Duration::from_secs(2)));
    let futures::future::Either::Left((ended, _)) = futures::future::select(end, patience).await else {
        panic!("the request to terminate it is not answered")
    };
    ended.unwrap();
    node.pass(Duration::from_secs(2)).await;
    let ended = node.describe("1").await;
    assert_eq!((ended.status, ended.linked.len()), (Status::Terminated, 1));
}

#[tokio::test]
async fn a_signal_that_waits_for_a_blocked_execution_does_not_have_it_tried_more_often() {
    let mut node = Node::start().await;
    node.order("1", 0).await;
    node.restart_with(Changed).await;
    node.pass(Duration::from_secs(10)).await;
    assert_eq!(node.pay("1", "txn").await.unwrap(), SignalOutcome::Buffered);
    let before = node.store.commits();
    node.pass(Duration::from_secs(600)).await;
    let tries = node.store.commits() - before;
    assert!((9..=20).contains(&tries), "a minute apart at last: {tries} in ten minutes");
}

#[tokio::test]
async fn a_signal_that_contradicts_a_recorded_one_is_refused_by_a_blocked_execution_too() {
    let mut node = Node::start().await;
    node.plan([Act::Gate(Default::default(), "never")]);
    node.order("1", 0).await;
    node.pass(Duration::from_secs(1)).await;
    let send = async |node: &Node, by: &str| {
        let payload = Payload::of(&Paid { by: by.into() }).unwrap();
        let (workflow_type, id, name) = ("waits".into(), "1".into(), "paid".into());
        let signal_id = Some("delivery-1".to_owned());
        node.client.signal(SignalRequest { workflow_type, id, name, signal_id, payload }).await
    };
    assert_eq!(send(&node, "a").await.unwrap().outcome, SignalOutcome::Applied);
    node.restart_with(Changed).await;
    node.pass(Duration::from_secs(1)).await;
    assert_eq!(node.describe("1").await.status, Status::Blocked);
    assert!(matches!(send(&node, "b").await, Err(ClientError::Conflict { .. })), "acknowledged, it would be dropped later");
    assert_eq!(send(&node, "a").await.unwrap().outcome, SignalOutcome::Duplicate);
}
