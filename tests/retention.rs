//! Long after an order: its history is gone, but its id is still taken, and money that comes still finds its end.

use std::time::Duration;

use overdue_runtime::client::{ActionOutcome, ClientError, SignalOutcome};
use overdue_runtime::engine::Retain;
use serde_json::{Value, json};

use crate::harness::{Node, Order, Setup, outcome, run};
use crate::race::refund;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// An order of each end, with their histories removed: `cancelled` by its deadline, `paid` by txn-1.
async fn long_ago() -> Node {
    let mut setup = Setup::default();
    setup.engine.retain = Some(Retain { history: 30 * DAY, tombstone: 400 * DAY });
    let node = setup.start().await;
    for id in ["cancelled", "paid"] {
        node.place(&Order::new(id)).await;
    }
    node.pay("paid", "txn-1").await;
    node.ended("paid").await;
    node.let_the_deadline_come().await;
    node.ended("cancelled").await;
    node.pass(30 * DAY).await;
    for id in ["cancelled", "paid"] {
        until_retired(&node, id).await;
    }
    node
}

/// Retention works in steps of the node's time.
async fn until_retired(node: &Node, id: &str) {
    for _ in 0..400 {
        if !node.look(id).await["retiredAt"].is_null() {
            return;
        }
        node.pass(Duration::from_millis(500)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{id} is not retired: {:#}", node.look(id).await);
}

fn payment(transaction: &str, amount: &str, payment_id: Option<&str>) -> Value {
    let mut payment = json!({
        "transactionId": transaction, "amount": amount, "currency": "USD", "paidAt": "2026-12-24T18:00:00Z",
    });
    if let Some(payment_id) = payment_id {
        payment["paymentId"] = json!(payment_id);
    }
    payment
}

#[tokio::test]
async fn what_became_of_an_order_is_told_though_its_history_is_gone() {
    let node = long_ago().await;
    let look = node.look("cancelled").await;
    assert_eq!(
        (&look["status"], &look["result"]["decision"], &look["input"]),
        (&json!("completed"), &json!("cancelled"), &Value::Null)
    );
    assert_eq!(node.events("cancelled").await, Vec::<Value>::new());
    let text = node.explain("cancelled").await.text;
    assert!(text.contains("decision cancelled") && text.contains("history was removed by retention"), "{text}");

    let api = node.listen().await;
    let followed = api.get("/v1/workflows/order-timeout/cancelled/history?follow=1").await;
    assert_eq!((followed.status.as_u16(), followed.text.as_str()), (200, ""), "the stream ends at once");
    let shown = run(crate::harness::program().args(["describe", "order-timeout", "cancelled", "--url", &api.url])).await;
    assert!(shown.stdout.contains("history removed"), "{shown:?}");
}

#[tokio::test]
async fn a_start_that_is_repeated_after_a_month_is_the_same_run_and_places_no_second_order() {
    let node = long_ago().await;
    let before = node.look("paid").await;
    let requests = node.shop.all().len();
    let again = node.place(&Order::new("paid")).await;
    assert_eq!(
        (json!(again.run_id), json!(again.started_at), again.replayed),
        (before["runId"].clone(), before["startedAt"].clone(), true)
    );
    let refused = node.try_to_place(&Order::new("paid").costs("5.00", "USD")).await.unwrap_err();
    assert!(matches!(refused, ClientError::Conflict { .. }), "{refused:?}");
    assert_eq!(node.shop.all().len(), requests);
}

#[tokio::test]
async fn a_payment_that_is_told_again_is_a_duplicate_and_one_that_contradicts_it_is_refused() {
    let node = long_ago().await;
    let requests = node.shop.all().len();
    let send = |signal_id, payload| node.try_to_signal("paid", "payment-succeeded", signal_id, payload);

    assert_eq!(send(None, payment("txn-1", "19.99", None)).await.unwrap(), SignalOutcome::Duplicate);
    assert_eq!(send(Some("evt-9"), payment("txn-1", "19.99", None)).await.unwrap(), SignalOutcome::Duplicate);
    for signal_id in [None, Some("evt-9")] {
        let refused = send(signal_id, payment("txn-1", "29.99", None)).await.unwrap_err();
        assert!(matches!(refused, ClientError::Conflict { .. }), "{refused:?}");
    }
    assert_eq!(node.client.cancel("order-timeout", "paid", "too late", "ops").await.unwrap(), ActionOutcome::Late);
    assert_eq!((node.shop.all().len(), node.linked("paid").await.len()), (requests, 0));
}

#[tokio::test]
async fn a_payment_of_a_month_later_is_refunded_once_the_order_service_has_said_that_it_does_not_keep_the_order() {
    let node = long_ago().await;
    node.shop.always("confirm-paid", outcome("ALREADY_CANCELLED", json!({})));
    let send = |signal_id| {
        node.try_to_signal("cancelled", "payment-succeeded", Some(signal_id), payment("txn-7", "19.99", Some("pay-7")))
    };

    assert_eq!(send("evt-1").await.unwrap(), SignalOutcome::Late);
    let linked = node.linked("cancelled").await;
    let result = node.late_payment_ended(&linked[0]).await;

    assert_eq!(result["refunds"], json!([refund("txn-7", "refunded")]));
    let of_the_order: Vec<_> = node.shop.all().into_iter().filter(|sent| sent.body["transactionId"] == "txn-7").collect();
    let calls: Vec<&str> = of_the_order.iter().map(|sent| sent.call.as_str()).collect();
    assert_eq!(calls, ["confirm-paid", "refund-payment"], "asked first");
    assert_eq!((of_the_order[0].subject(), of_the_order[1].subject()), ("cancelled", "pay-7"));
    assert_eq!(send("evt-2").await.unwrap(), SignalOutcome::Duplicate);
    assert_eq!(node.shop.count("refund-payment"), 1);
}

#[tokio::test]
async fn a_payment_of_a_month_later_that_keeps_the_order_is_kept() {
    let node = long_ago().await;
    node.shop.always("confirm-paid", outcome("ALREADY_PAID", json!({ "transactionId": "txn-7" })));
    let sent = node.try_to_signal("cancelled", "payment-succeeded", None, payment("txn-7", "19.99", Some("pay-7"))).await;
    assert_eq!(sent.unwrap(), SignalOutcome::Late);
    let linked = node.linked("cancelled").await;
    assert_eq!(node.late_payment_ended(&linked[0]).await["decision"], "paid");
    assert_eq!(node.shop.count("refund-payment"), 0);
}

#[tokio::test]
async fn a_payment_of_a_month_later_that_names_no_payment_comes_to_a_person_and_is_not_dropped() {
    let node = long_ago().await;
    node.shop.always("confirm-paid", outcome("ALREADY_CANCELLED", json!({})));
    let sent = node.try_to_signal("cancelled", "payment-succeeded", None, payment("txn-7", "19.99", None)).await;
    assert_eq!(sent.unwrap(), SignalOutcome::Late);
    let linked = node.linked("cancelled").await;
    // Which payment it belonged to went with the order's input.
    let look = node.until_at("late-payment", &linked[0], "a person is asked", |look| look["needsAttention"] == true).await;
    assert_eq!(look["pendingActivities"][0]["name"], "review-refund", "{look:#}");
    let asked = node.shop.all().into_iter().filter(|sent| sent.body["transactionId"] == "txn-7").map(|sent| sent.call);
    assert_eq!(asked.collect::<Vec<_>>(), ["confirm-paid"]);
}
