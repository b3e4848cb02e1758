//! Signals: what is acknowledged is durable and acted on once; what comes too late changes nothing and says so.

use std::time::Duration;

use overdue_runtime::client::{ActionOutcome, ClientError, SignalOutcome};
use serde_json::{Value, json};

use crate::harness::{Node, Order, START, outcome};
use crate::race::refund;

fn payment(amount: &str) -> Value {
    json!({ "transactionId": "txn-1", "amount": amount, "currency": "USD", "paidAt": START })
}

fn received(story: &[String]) -> usize {
    story.iter().filter(|line| line.starts_with("received")).count()
}

/// An order in each of the states in which a decision is made already.
async fn decided() -> Vec<Node> {
    let mut nodes = Vec::new();
    let paid_and_ended = Node::start().await;
    paid_and_ended.place(&Order::new("o-1")).await;
    paid_and_ended.pay("o-1", "txn-1").await;
    paid_and_ended.ended("o-1").await;
    nodes.push(paid_and_ended);
    let watched = Node::start().await;
    watched.place(&Order::new("o-1")).await;
    watched.let_the_deadline_come().await;
    watched.until_phase("o-1", "watching").await;
    nodes.push(watched);
    let cancelled_and_ended = Node::start().await;
    cancelled_and_ended.place(&Order::new("o-1")).await;
    cancelled_and_ended.let_the_deadline_come().await;
    cancelled_and_ended.ended("o-1").await;
    nodes.push(cancelled_and_ended);
    nodes
}

// After a decision.

#[tokio::test]
async fn after_a_decision_nothing_but_money_changes_anything_and_the_answer_says_late() {
    let later = START.saturating_add(Duration::from_secs(24 * 3600));
    for node in decided().await {
        let before = node.look("o-1").await;
        let requests = node.shop.all().len();
        for (name, payload) in [
            ("cancel-order", json!({ "reason": "changed my mind" })),
            ("payment-failed", json!({ "reason": "card refused", "final": true })),
            ("extend-deadline", json!({ "payDeadline": later })),
        ] {
            assert_eq!(node.signal("o-1", name, payload).await, SignalOutcome::Late, "{name}");
        }
        let cancel = node.client.cancel("order-timeout", "o-1", "changed my mind", "ops").await.unwrap();
        assert_eq!(cancel, ActionOutcome::Late);
        let after = node.look("o-1").await;
        for fact in ["status", "progress", "result", "wakeAt", "pendingActivities", "pendingTimers"] {
            assert_eq!(after[fact], before[fact], "{fact}");
        }
        if before["status"] == "completed" {
            assert_eq!(after["lastEvent"], before["lastEvent"], "a closed history gets no further event");
            let recorded = after["linked"].as_array().unwrap();
            assert_eq!(recorded.len(), 3, "each signal is recorded beside it; the cancel request is no signal: {recorded:?}");
            assert!(recorded.iter().all(|link| link["type"] == "late-signal"), "{recorded:?}");
        }
        assert_eq!(node.shop.all().len(), requests);
    }
}

// Before it.

#[tokio::test]
async fn a_failed_payment_is_only_recorded_so_that_the_buyer_may_try_another_card() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;

    let outcome = node.signal("o-1", "payment-failed", json!({ "reason": "card refused" })).await;

    assert_eq!(outcome, SignalOutcome::Applied);
    let look = node.look("o-1").await;
    assert_eq!(
        (&look["progress"]["phase"], &look["wakeAt"]),
        (&json!("waiting-for-payment"), &json!(START.saturating_add(Order::TIME_TO_PAY)))
    );
    assert_eq!(received(&node.story("o-1").await), 1);
    assert_eq!(node.shop.all().len(), 0);
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);
    assert_eq!(node.ended("o-1").await["decision"], "paid");
}

#[tokio::test]
async fn an_extended_deadline_is_recorded_and_moves_the_timer_and_a_shorter_one_does_not() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let later = START.saturating_add(Order::TIME_TO_PAY * 2);

    let extended = node.signal("o-1", "extend-deadline", json!({ "payDeadline": later })).await;
    let shortened = node.signal("o-1", "extend-deadline", json!({ "payDeadline": START })).await;

    assert_eq!((extended, shortened), (SignalOutcome::Applied, SignalOutcome::Late));
    let look = node.look("o-1").await;
    assert_eq!(look["wakeAt"], json!(later));
    assert_eq!(look["pendingTimers"].as_array().unwrap().len(), 1);
    node.let_the_deadline_come().await;
    node.pass(Order::TIME_TO_PAY - Duration::from_millis(1)).await;
    assert_eq!(node.shop.all().len(), 0);
    node.pass(Duration::from_millis(1)).await;
    node.until_phase("o-1", "watching").await;
    let asked = node.shop.only("cancel-order");
    assert_eq!((asked.at, &asked.body["payDeadline"]), (later, &json!(later)));
}

#[tokio::test]
async fn two_reasons_to_stop_are_one_stop_and_the_first_one_counts() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("cancel-order", outcome("CANCELLED", json!({})));
    node.signal("o-1", "cancel-order", json!({ "reason": "changed my mind" })).await;
    node.shop.received("cancel-order", 1).await;

    let second = node.signal("o-1", "payment-failed", json!({ "reason": "card refused", "final": true })).await;
    gate.open();

    assert_eq!(second, SignalOutcome::Late);
    assert_eq!(node.ended("o-1").await["reason"], "USER");
    assert_eq!(node.shop.sent("cancel-order").len(), 1);
}

#[tokio::test]
async fn a_payment_that_is_there_precedes_a_stop() {
    let node = Node::start().await;
    node.pay("o-1", "txn-1").await;
    node.pass(Duration::from_millis(1)).await;
    node.signal("o-1", "cancel-order", json!({ "reason": "changed my mind" })).await;
    node.place(&Order::new("o-1")).await;
    assert_eq!(node.ended("o-1").await["decision"], "paid");
    assert_eq!(node.shop.sent("cancel-order").len(), 0);
}

// Refused at the door.

#[tokio::test]
async fn an_unknown_signal_and_a_malformed_body_change_nothing() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let before = node.events("o-1").await;
    let mut without_amount = payment("19.99");
    without_amount.as_object_mut().unwrap().remove("amount");
    for (name, payload, field) in [
        ("payment-sucseeded", payment("19.99"), "name"),
        ("payment-succeeded", payment("19.999"), "payload.amount"),
        ("payment-succeeded", payment("-1"), "payload.amount"),
        ("payment-succeeded", payment("1e3"), "payload.amount"),
        ("payment-succeeded", payment("0"), "payload.amount"),
        (
            "payment-succeeded",
            json!({ "transactionId": "t", "amount": "1", "currency": "usd", "paidAt": START }),
            "payload.currency",
        ),
        (
            "payment-succeeded",
            json!({ "transactionId": "..", "amount": "1", "currency": "USD", "paidAt": START }),
            "payload.transactionId",
        ),
        (
            "payment-succeeded",
            json!({ "transactionId": "t", "amount": "1", "currency": "USD", "paidAt": 1_700_000_000 }),
            "payload.paidAt",
        ),
        ("payment-succeeded", without_amount, "payload.amount"),
        ("extend-deadline", json!({ "payDeadline": "2026-11-30T19:00:00" }), "payload.payDeadline"),
        ("cancel-order", json!({}), "payload.reason"),
    ] {
        let refused = node.try_to_signal("o-1", name, None, payload.clone()).await.unwrap_err();
        let ClientError::Invalid(fields) = &refused else { panic!("{name} {payload}: {refused:?}") };
        assert_eq!(fields[0].field, field, "{name} {payload}");
    }
    assert_eq!(node.events("o-1").await, before);
    assert_eq!(node.look("o-1").await["progress"]["phase"], "waiting-for-payment");
}

// Repeated (B040).

#[tokio::test]
async fn a_delivery_that_is_repeated_ten_times_five_at_once_is_one_event_also_after_a_restart_and_the_end() {
    let mut node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("confirm-paid", outcome("PAID", json!({})));
    let deliver = || node.pay("o-1", "txn-1");

    let five = tokio::join!(deliver(), deliver(), deliver(), deliver(), deliver());
    let mut outcomes = vec![five.0, five.1, five.2, five.3, five.4];
    for _ in 0..5 {
        outcomes.push(node.pay("o-1", "txn-1").await);
    }
    gate.open();

    assert_eq!(outcomes.iter().filter(|outcome| **outcome == SignalOutcome::Applied).count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == SignalOutcome::Duplicate).count(), 9);
    node.restart().await;
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Duplicate);
    assert_eq!(node.ended("o-1").await["decision"], "paid");
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Duplicate);
    assert_eq!(received(&node.story("o-1").await), 1);
}

#[tokio::test]
async fn the_same_signal_id_with_another_body_is_a_conflict_and_changes_nothing() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.signal("o-1", "payment-failed", json!({ "reason": "first" })).await;
    let send = |signal_id, reason| node.try_to_signal("o-1", "payment-failed", Some(signal_id), json!({ "reason": reason }));
    assert_eq!(send("delivery-1", "card refused").await.unwrap(), SignalOutcome::Applied);
    assert_eq!(send("delivery-1", "card refused").await.unwrap(), SignalOutcome::Duplicate);
    let before = node.events("o-1").await;

    let refused = send("delivery-1", "card expired").await.unwrap_err();

    assert!(matches!(refused, ClientError::Conflict { .. }), "{refused:?}");
    assert_eq!(node.events("o-1").await, before);
}

#[tokio::test]
async fn a_payment_is_the_same_when_transaction_amount_and_currency_are_whatever_time_and_signal_id_it_has() {
    let node = Node::start().await;
    node.place(&Order::new("o-1").costs("19.90", "USD")).await;
    let gate = node.shop.holds("confirm-paid", outcome("PAID", json!({})));
    let at = |amount: &str, minute: u64| {
        let paid_at = START.saturating_add(Duration::from_secs(60 * minute));
        json!({ "transactionId": "txn-1", "amount": amount, "currency": "USD", "paidAt": paid_at })
    };
    let send = |signal_id, payload| node.try_to_signal("o-1", "payment-succeeded", signal_id, payload);

    assert_eq!(send(None, at("19.90", 0)).await.unwrap(), SignalOutcome::Applied);
    assert_eq!(send(None, at("19.9", 7)).await.unwrap(), SignalOutcome::Duplicate);
    assert_eq!(send(Some("evt-2"), at("19.90", 0)).await.unwrap(), SignalOutcome::Duplicate);
    let refused = send(None, at("19.91", 0)).await.unwrap_err();
    assert!(matches!(refused, ClientError::Conflict { .. }), "{refused:?}");
    let refused = send(Some("evt-3"), at("19.91", 0)).await.unwrap_err();
    assert!(matches!(refused, ClientError::Conflict { .. }), "{refused:?}");
    gate.open();

    assert_eq!(node.ended("o-1").await["decision"], "paid");
    assert_eq!(received(&node.story("o-1").await), 1);
}

// While the end is being written (B038).

#[tokio::test]
async fn every_signal_that_is_acknowledged_while_the_last_step_ends_is_in_a_history() {
    let node = Node::start().await;
    node.place(&Order::new("o-1").with("latePaymentWindow", "PT0S")).await;
    let gate = node.shop.holds("close-payment", outcome("CLOSED", json!({})));
    node.shop.always("confirm-paid", outcome("ALREADY_CANCELLED", json!({})));
    node.let_the_deadline_come().await;
    node.shop.received("close-payment", 1).await;

    let sends = (0..200).map(|number| {
        let (node, gate) = (&node, &gate);
        async move {
            if number == 100 {
                gate.open();
            }
            node.pay("o-1", &format!("txn-{number}")).await
        }
    });
    let outcomes = futures::future::join_all(sends).await;

    assert_eq!(outcomes.len(), 200, "each was acknowledged");
    node.ended("o-1").await;
    let mut recorded = received(&node.story("o-1").await);
    let mut refunds = node.look("o-1").await["result"]["refunds"].as_array().unwrap().len();
    let linked = node.linked("o-1").await;
    for id in &linked {
        refunds += node.late_payment_ended(id).await["refunds"].as_array().unwrap().len();
    }
    recorded += linked.len();
    assert_eq!((recorded, refunds), (200, 200), "in the order's history, or in one that is linked to it; and acted on");
    let mut refunded: Vec<_> =
        node.shop.sent("refund-payment").into_iter().map(|sent| sent.body["transactionId"].to_string()).collect();
    refunded.sort();
    refunded.dedup();
    assert_eq!((refunded.len(), node.shop.sent("refund-payment").len()), (200, 200), "each once");
}

#[tokio::test]
async fn a_late_payments_handler_is_found_again_by_a_payment_that_has_another_delivery_id() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.ended("o-1").await;
    node.shop.always("confirm-paid", outcome("ALREADY_CANCELLED", json!({})));
    let send = |signal_id| node.try_to_signal("o-1", "payment-succeeded", Some(signal_id), payment("19.99"));

    assert_eq!(send("evt-1").await.unwrap(), SignalOutcome::Late);
    let linked = node.linked("o-1").await;
    node.late_payment_ended(&linked[0]).await;
    assert_eq!(send("evt-2").await.unwrap(), SignalOutcome::Duplicate);

    assert_eq!(node.linked("o-1").await, linked);
    assert_eq!(node.shop.sent("refund-payment").len(), 1);
    assert_eq!(node.look_at("late-payment", &linked[0]).await["result"]["refunds"], json!([refund("txn-1", "refunded")]));
}
