//! Histories that were recorded once are replayed by today's code, one of every path to a decision; and a program that
//! would go another way blocks, visibly, instead of guessing.
//!
//! `tests/histories` holds the records as the store held them. A path that is new is recorded by
//! `RECORD_HISTORIES=1 cargo test -p overdue-workflows --test specifications every_path`; files that exist are never
//! written again: they are what older programs left behind.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use overdue_activities::{ReleaseStockInput, ReleaseStockOutcome, ReturnCouponInput, ReturnCouponOutcome};
use overdue_runtime::client::SignalOutcome;
use overdue_runtime::history::{Record, decode};
use overdue_runtime::replay::Machine;
use overdue_runtime::workflow::{
    ActivityError, Saga, SignalDeclaration, Workflow, WorkflowContext, WorkflowError, WorkflowRegistry,
};
use overdue_runtime::{RunId, WorkflowKey};
use overdue_workflows::order_timeout::{OrderInput, Progress};
use overdue_workflows::{LATE_PAYMENT, ORDER_TIMEOUT, OrderTimeout, Settings, register};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::{Node, Order, Reply, START, Setup, outcome};

/// A recorded history: the first line of its file, then a line a record.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    r#type: String,
    id: String,
    run_id: RunId,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    first_event: u64,
    bytes: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/histories")
}

fn workflows() -> WorkflowRegistry {
    let mut workflows = WorkflowRegistry::default();
    register(&mut workflows, Settings::default());
    workflows
}

/// Every path: its name, how it is walked, and the decision at its end.
const PATHS: [&str; 26] = [
    "already-cancelled",
    "already-paid",
    "attention-retried-resolved-skipped",
    "before-cancel-limit",
    "before-cancel-saves-the-sale",
    "buffered-payment",
    "cancelled",
    "close-in-progress-then-paid",
    "close-rejected",
    "confirm-expired",
    "confirm-not-found",
    "double-payment",
    "extended",
    "hold-voided",
    "late-payment",
    "late-refund",
    "not-due",
    "not-found",
    "paid",
    "payment-failed",
    "refund-processing-rejected-refunded",
    "told-cancelled",
    "told-late-payment-refunded",
    "told-paid",
    "told-refunded",
    "wrong-amount-accepted",
];

/// Walks a path to its end; gives the type and id of the execution that is of interest.
async fn walk(node: &Node, name: &str) -> (&'static str, String) {
    let shop = &node.shop;
    let plain = |word: &str| outcome(word, json!({}));
    let capture = json!({ "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": START });
    let order = Order::new("o-1");
    let order = if name.starts_with("before-cancel") { order.closes_before_it_cancels() } else { order };
    match name {
        "already-cancelled" => shop.answers("cancel-order", [plain("ALREADY_CANCELLED")]),
        "already-paid" => shop.answers("cancel-order", [outcome("ALREADY_PAID", json!({ "transactionId": "txn-9" }))]),
        "attention-retried-resolved-skipped" => {
            for call in ["release-stock", "return-coupon", "close-payment"] {
                shop.answers(call, [Reply::status(422)]);
            }
        }
        "before-cancel-limit" => shop.answers("close-payment", (0..20).map(|_| plain("IN_PROGRESS"))),
        "before-cancel-saves-the-sale" => shop.answers("close-payment", [outcome("ALREADY_PAID", capture)]),
        "close-in-progress-then-paid" => {
            shop.answers("close-payment", [plain("IN_PROGRESS"), outcome("ALREADY_PAID", capture)]);
        }
        "close-rejected" => shop.answers("close-payment", [plain("REJECTED")]),
        "confirm-expired" => shop.answers("confirm-paid", [plain("EXPIRED")]),
        "confirm-not-found" => shop.answers("confirm-paid", [plain("NOT_FOUND")]),
        "double-payment" => {
            let twice = outcome("ALREADY_PAID", json!({ "transactionId": "txn-1" }));
            shop.answers("confirm-paid", [plain("PAID"), twice]);
        }
        "hold-voided" => shop.answers("close-payment", [plain("AUTHORIZED")]),
        "late-payment" | "told-late-payment-refunded" => shop.answers("confirm-paid", [plain("ALREADY_CANCELLED")]),
        "not-due" => {
            let later = START.saturating_add(Order::TIME_TO_PAY * 2);
            shop.answers(
                "cancel-order",
                [outcome("NOT_READY", json!({ "retryAfter": 5 })), outcome("NOT_DUE", json!({ "payDeadline": later }))],
            );
        }
        "not-found" => shop.answers("cancel-order", [plain("NOT_FOUND")]),
        "refund-processing-rejected-refunded" => {
            shop.answers("refund-payment", [plain("PROCESSING")]);
            shop.answers("refund-status", [plain("PROCESSING"), plain("REJECTED")]);
        }
        _ => {}
    }
    if name == "buffered-payment" {
        node.pay("o-1", "txn-1").await;
    }
    node.place(&order).await;
    match name {
        "paid" | "told-paid" | "confirm-expired" => {
            node.pay("o-1", "txn-1").await;
        }
        "confirm-not-found" => {
            node.pay("o-1", "txn-1").await;
            node.until_a_person_is_needed("o-1", "review-order").await;
            node.resolve("o-1", "review-order", json!({})).await;
        }
        "double-payment" => {
            node.pay("o-1", "txn-1").await;
            node.pay("o-1", "txn-2").await;
        }
        "payment-failed" => {
            node.signal("o-1", "payment-failed", json!({ "reason": "refused", "final": true })).await;
        }
        "extended" => {
            let later = START.saturating_add(Order::TIME_TO_PAY * 3);
            node.signal("o-1", "extend-deadline", json!({ "payDeadline": later })).await;
        }
        "wrong-amount-accepted" => {
            node.pay_amount("o-1", "txn-1", "1.99", "USD").await;
            node.until_a_person_is_needed("o-1", "review-payment").await;
            node.resolve("o-1", "review-payment", json!({ "decision": "accept" })).await;
        }
        "attention-retried-resolved-skipped" => {
            node.let_the_deadline_come().await;
            for call in ["release-stock", "return-coupon", "close-payment"] {
                node.until_a_person_is_needed("o-1", call).await;
            }
            node.retry("o-1", "release-stock").await;
            node.resolve("o-1", "return-coupon", json!({ "outcome": "RETURNED" })).await;
            node.skip("o-1", "close-payment").await;
        }
        "close-rejected" => {
            node.let_the_deadline_come().await;
            node.until_a_person_is_needed("o-1", "review-close-payment").await;
            node.resolve("o-1", "review-close-payment", json!({ "outcome": "CLOSED" })).await;
        }
        "late-refund" | "told-refunded" | "refund-processing-rejected-refunded" => {
            node.let_the_deadline_come().await;
            node.until_phase("o-1", "watching").await;
            node.pay("o-1", "txn-1").await;
        }
        "late-payment" | "told-late-payment-refunded" => {
            node.let_the_deadline_come().await;
            node.ended("o-1").await;
            node.pay("o-1", "txn-1").await;
            let id = node.linked("o-1").await.remove(0);
            node.late_payment_ended(&id).await;
            return (LATE_PAYMENT, id);
        }
        _ => {}
    }
    node.ended("o-1").await;
    (ORDER_TIMEOUT, "o-1".into())
}

async fn records(node: &Node, workflow_type: &str, id: &str) -> (RunId, Vec<Record>) {
    let key = WorkflowKey::new(workflow_type, id);
    let loaded = node.store.load(std::slice::from_ref(&key)).await.unwrap().pop().unwrap().unwrap();
    (loaded.execution.run_id, loaded.records)
}

/// Replays a history and checks that its end is the one that is recorded in it.
fn replay(workflow_type: &str, id: &str, run_id: RunId, records: &[Record]) -> Result<(), String> {
    let key = WorkflowKey::new(workflow_type, id);
    let (events, _) = decode(run_id, records).map_err(|error| error.to_string())?;
    let machine = Machine::replay(&workflows(), &key, run_id, &events).map_err(|fault| fault.to_string())?;
    let last = serde_json::to_value(events.last().unwrap()).unwrap();
    assert!(machine.is_closed(), "{workflow_type} {id}: {last}");
    let progress: Value = serde_json::from_str(machine.progress().unwrap().as_str()).unwrap();
    assert_eq!(progress, last["result"], "the account at the end is the result");
    Ok(())
}

#[tokio::test]
async fn every_path_that_is_walked_today_can_be_replayed_today() {
    for name in PATHS {
        let node = Node::start().await;
        let (workflow_type, id) = walk(&node, name).await;
        let (run_id, records) = records(&node, workflow_type, &id).await;
        replay(workflow_type, &id, run_id, &records).unwrap_or_else(|fault| panic!("{name}: {fault}"));

        let file = folder().join(format!("{name}.ndjson"));
        if std::env::var_os("RECORD_HISTORIES").is_some() && !file.exists() {
            let head = Head { r#type: workflow_type.to_owned(), id, run_id };
            let mut text = serde_json::to_string(&head).unwrap() + "\n";
            for record in &records {
                let line = Line { first_event: record.first_event, bytes: hex::encode(&record.bytes) };
                text += &(serde_json::to_string(&line).unwrap() + "\n");
            }
            std::fs::write(file, text).unwrap();
        }
    }
}

#[test]
fn every_recorded_history_is_replayed_by_todays_code() {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let mut lines = text.lines();
        let head: Head = serde_json::from_str(lines.next().unwrap()).unwrap();
        let records: Vec<Record> = lines
            .map(|line| {
                let line: Line = serde_json::from_str(line).unwrap();
                Record { first_event: line.first_event, bytes: Bytes::from(hex::decode(line.bytes).unwrap()) }
            })
            .collect();
        replay(&head.r#type, &head.id, head.run_id, &records).unwrap_or_else(|fault| {
            panic!("{name}: {fault}\nThis program would go another way than orders that are under way: keep the old way with ctx.version")
        });
        found.insert(name);
    }
    let missing: Vec<_> = PATHS.iter().filter(|name| !found.contains(**name)).collect();
    assert!(missing.is_empty(), "not recorded yet: {missing:?}");
}

#[test]
fn a_history_with_a_lost_or_changed_row_is_noticed() {
    let text = std::fs::read_to_string(folder().join("cancelled.ndjson")).unwrap();
    let head: Head = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let rows: Vec<Record> = text
        .lines()
        .skip(1)
        .map(|line| {
            let line: Line = serde_json::from_str(line).unwrap();
            Record { first_event: line.first_event, bytes: Bytes::from(hex::decode(line.bytes).unwrap()) }
        })
        .collect();
    assert!(decode(head.run_id, &rows).is_ok());
    for lost in 0..rows.len() - 1 {
        let without: Vec<_> = rows.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, row)| row.clone()).collect();
        assert!(decode(head.run_id, &without).is_err(), "row {lost} is lost");
    }
    for changed in 0..rows.len() {
        let mut rows = rows.clone();
        let mut bytes = rows[changed].bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        rows[changed].bytes = Bytes::from(bytes);
        assert!(decode(head.run_id, &rows).is_err(), "row {changed} is changed");
    }
}

// A program that goes another way (B018, B086).

/// The order's workflow as a careless deployment would have it: one step more for some orders.
struct Changed;

#[async_trait]
impl Workflow for Changed {
    const TYPE: &'static str = ORDER_TIMEOUT;
    type Input = OrderInput;
    type Output = Progress;

    async fn run(&self, ctx: WorkflowContext, order: OrderInput) -> Result<Progress, WorkflowError> {
        if order.order_id.starts_with("broken") {
            ctx.sleep(Duration::from_secs(1)).named("anotherStep").await?;
        }
        OrderTimeout::default().run(ctx, order).await
    }

    fn signals(&self) -> Vec<SignalDeclaration> {
        OrderTimeout::default().signals()
    }
}

#[tokio::test]
async fn of_twenty_orders_the_one_that_a_new_program_cannot_run_is_blocked_and_the_others_go_on() {
    let mut node = Node::start().await;
    let fine: Vec<String> = (0..19).map(|number| format!("o-{number}")).collect();
    for id in fine.iter().map(String::as_str).chain(["broken"]) {
        node.place(&Order::bare(id)).await;
    }
    let setup = Setup::default();
    node.restart_with(setup.clone().deploying(|workflows| workflows.register(Changed))).await;
    node.let_the_deadline_come().await;

    for id in &fine {
        node.until_phase(id, "watching").await;
    }
    let look = node.until("broken", "it is blocked", |look| look["status"] == "blocked").await;
    assert_eq!(look["failure"]["errorType"], "nondeterminism");
    let explained = node.explain("broken").await;
    assert!(explained.text.contains("order-timeout broken is blocked:"), "{}", explained.text);
    assert!(explained.actions.contains(&"overdue terminate order-timeout broken --reason TEXT".to_owned()));
    assert_eq!(node.pay("broken", "txn-1").await, SignalOutcome::Buffered, "money is kept until it can be run again");

    node.restart_with(setup).await;
    assert_eq!(node.ended("broken").await["decision"], "paid", "it heals by itself under a program that can run it");
}

/// A workflow whose second version has a step more.
struct GoingHome {
    version: u32,
}

#[async_trait]
impl Workflow for GoingHome {
    const TYPE: &'static str = "going-home";
    type Input = String;
    type Output = u32;

    async fn run(&self, ctx: WorkflowContext, order: String) -> Result<u32, WorkflowError> {
        let version = if self.version == 1 { 1 } else { ctx.version("coupon-goes-home-too", 1, 2) };
        ctx.sleep(Duration::from_secs(60)).named("bedtime").await?;
        let stock = ReleaseStockInput { stock_token: format!("{order}-stock"), order_id: order.clone() };
        ctx.activity_named::<ReleaseStockOutcome>("release-stock", &stock).await?;
        if version >= 2 {
            let coupon = ReturnCouponInput { coupon_id: format!("{order}-coupon"), order_id: order };
            ctx.activity_named::<ReturnCouponOutcome>("return-coupon", &coupon).await?;
        }
        Ok(version)
    }
}

#[tokio::test]
async fn orders_that_wait_finish_with_the_steps_they_began_with_and_new_ones_with_the_new() {
    let program = |version| Setup::default().deploying(move |workflows| workflows.register(GoingHome { version }));
    let mut node = program(1).start().await;
    for number in 0..10 {
        node.start_workflow("going-home", &format!("old-{number}"), &json!(format!("old-{number}"))).await;
    }
    node.restart_with(program(2)).await;
    for number in 0..10 {
        node.start_workflow("going-home", &format!("new-{number}"), &json!(format!("new-{number}"))).await;
    }
    node.pass(Duration::from_secs(60)).await;

    for (age, version, coupons) in [("old", 1, 0), ("new", 2, 1)] {
        for number in 0..10 {
            let id = format!("{age}-{number}");
            let look = node.until_at("going-home", &id, "it ends", |look| look["status"] == "completed").await;
            assert_eq!(look["result"], json!(version), "{id}");
            let returned = node.shop.sent("return-coupon").iter().filter(|sent| sent.subject() == format!("{id}-coupon")).count();
            assert_eq!(returned, coupons, "{id}");
            let marked = node.events_of("going-home", &id).await.into_iter().find(|event| event["kind"] == "VersionMarked");
            assert_eq!(
                marked.map(|event| event["version"].clone()),
                (version == 2).then(|| json!(2)),
                "{id}: its history says so"
            );
        }
    }
    node.restart_with(program(1)).await;
    node.start_workflow("going-home", "older", &json!("older")).await;
    assert_eq!(node.look_at("going-home", "older").await["status"], "running");
}

// A saga's way back (B052).

/// Two steps with their ways back, and a third one that fails.
struct BuildUp;

#[async_trait]
impl Workflow for BuildUp {
    const TYPE: &'static str = "build-up";
    type Input = ();
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        let stock = |token: &str| ReleaseStockInput { stock_token: token.into(), order_id: "o".into() };
        let call = |token: &str| ctx.activity_named::<ReleaseStockOutcome>("release-stock", &stock(token)).intent(token);
        let mut saga = Saga::new(&ctx);
        saga.step(call("do-a"), call("undo-a")).await?;
        saga.step(call("do-b"), call("undo-b")).await?;
        match call("do-c").exhausted(overdue_runtime::activity::Exhausted::Fail).await {
            Ok(_) => Ok("built".into()),
            Err(ActivityError::Failed(failure)) => {
                saga.compensate().await?;
                Ok(format!("undone after {}", failure.error_type))
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[tokio::test]
async fn what_was_done_is_undone_in_reverse_and_an_undo_that_fails_waits_for_a_person_before_the_next() {
    let node = Setup::default().deploying(|workflows| workflows.register(BuildUp)).start().await;
    let broken = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_broken = broken.clone();
    node.shop.judges("release-stock", move |sent| match sent.subject() {
        "do-c" => Reply::status(422),
        "undo-b" if is_broken.load(std::sync::atomic::Ordering::Relaxed) => Reply::status(503),
        _ => outcome("RELEASED", json!({})),
    });
    node.start_workflow("build-up", "b-1", &Value::Null).await;
    let needed = |look: &Value| look["needsAttention"] == true;
    let look = node.pass_until_at("build-up", "b-1", "a person is needed", needed).await;

    let asked = || node.shop.sent("release-stock").iter().map(|sent| sent.subject().to_owned()).collect::<Vec<_>>();
    let until_stuck = ["do-a", "do-b", "do-c", "undo-b", "undo-b", "undo-b", "undo-b", "undo-b"];
    assert_eq!(asked(), until_stuck);
    node.pass(Duration::from_secs(60)).await;
    assert_eq!(asked(), until_stuck, "no loop");

    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    let number = look["pendingActivities"][0]["number"].as_u64().unwrap();
    let retry = overdue_runtime::engine::OperatorAction::Retry;
    node.client.operate("build-up", "b-1", number, retry, "it is back", "ops").await.unwrap();
    let look = node.until_at("build-up", "b-1", "it ends", |look| look["status"] == "completed").await;
    assert_eq!(look["result"], "undone after http-422");
    assert_eq!(asked()[until_stuck.len()..], ["undo-b", "undo-a"]);
}
