//! The steps after the deadline: what `cancel-order` and `confirm-paid` may answer, and both ways of giving back.

use std::time::Duration;

use overdue_runtime::client::SignalOutcome;
use serde_json::{Value, json};

use crate::harness::{Node, Order, START, outcome};
use crate::race::refund;

const DUE: fn() -> overdue_runtime::Timestamp = || START.saturating_add(Order::TIME_TO_PAY);

/// The calls that give something back.
const GIVE_BACK: [&str; 3] = ["release-stock", "return-coupon", "close-payment"];

fn ended(decision: &str, reason: Value, refunds: Value) -> Value {
    json!({ "phase": "done", "decision": decision, "reason": reason, "refunds": refunds })
}

fn gave_back(node: &Node) -> Vec<usize> {
    GIVE_BACK.iter().map(|call| node.shop.sent(call).len()).collect()
}

/// An order whose deadline has come.
async fn due(node: &Node) {
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
}

// cancel-order.

#[tokio::test]
async fn an_unpaid_order_is_cancelled_and_everything_goes_back_side_by_side_once() {
    let node = Node::start().await;
    due(&node).await;

    assert_eq!(node.ended("o-1").await, ended("cancelled", json!("TIMEOUT"), json!([])));
    let asked = node.shop.only("cancel-order");
    assert_eq!((asked.path.as_str(), asked.key.as_str()), ("/orders/o-1/cancel", "order-timeout/o-1/cancel-order"));
    assert_eq!(asked.body, json!({ "reason": "TIMEOUT", "payDeadline": DUE() }));
    assert_eq!(asked.at, DUE(), "not a moment early");
    for (call, path) in [
        ("release-stock", "/reservations/o-1-stock/release"),
        ("return-coupon", "/coupons/o-1-coupon/return"),
        ("close-payment", "/payments/o-1-pay/close"),
    ] {
        let asked = node.shop.only(call);
        assert_eq!((asked.path.as_str(), asked.key), (path, format!("order-timeout/o-1/{call}")));
        assert_eq!(asked.body, json!({ "orderId": "o-1" }));
    }
    let story = node.story("o-1").await;
    let beginning = [
        "started",
        "settings kept",
        "wait for payDeadline",
        "payDeadline has come",
        "call cancel-order",
        "cancel-order answered CANCELLED",
        "call release-stock",
        "call return-coupon",
        "call close-payment",
    ];
    assert_eq!(story[..beginning.len()], beginning);
    assert_eq!(story[story.len() - 3..], ["wait for latePaymentWatch", "latePaymentWatch has come", "completed"]);
}

#[tokio::test]
async fn the_steps_run_side_by_side_so_that_a_slow_one_holds_up_no_other() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("release-stock", outcome("RELEASED", json!({})));
    node.let_the_deadline_come().await;

    for call in GIVE_BACK {
        node.shop.received(call, 1).await;
    }
    assert_eq!(node.progress("o-1").await["phase"], "giving-back");
    gate.open();
    node.until_phase("o-1", "watching").await;
}

#[tokio::test]
async fn an_order_that_was_cancelled_before_still_gets_everything_back() {
    let node = Node::start().await;
    node.shop.answers("cancel-order", [outcome("ALREADY_CANCELLED", json!({}))]);
    due(&node).await;

    assert_eq!(node.ended("o-1").await, ended("cancelled", json!("TIMEOUT"), json!([])));
    assert_eq!(gave_back(&node), [1, 1, 1]);
}

#[tokio::test]
async fn an_order_that_was_paid_before_stops_and_nothing_goes_back() {
    for fields in [json!({}), json!({ "transactionId": "txn-9" })] {
        let node = Node::start().await;
        node.shop.answers("cancel-order", [outcome("ALREADY_PAID", fields)]);
        due(&node).await;

        assert_eq!(node.ended("o-1").await, ended("paid", Value::Null, json!([])));
        assert_eq!(gave_back(&node), [0, 0, 0]);
        assert_eq!(node.shop.counts(), [("cancel-order".to_owned(), 1)].into());
    }
}

#[tokio::test]
async fn an_order_service_that_knows_a_later_deadline_is_asked_again_then_under_a_new_key() {
    let node = Node::start().await;
    let later = DUE().saturating_add(Duration::from_secs(600));
    node.shop.answers("cancel-order", [outcome("NOT_DUE", json!({ "payDeadline": later }))]);
    due(&node).await;
    let look = node.until("o-1", "it waits again", |look| look["wakeAt"] == json!(later)).await;

    assert_eq!(look["progress"]["phase"], "waiting-for-payment");
    assert_eq!(look["pendingTimers"][0]["fireAt"], json!(later));
    node.pass(Duration::from_millis(599_999)).await;
    assert_eq!(node.shop.sent("cancel-order").len(), 1);
    node.pass(Duration::from_millis(1)).await;
    node.until_phase("o-1", "watching").await;

    let asked = node.shop.sent("cancel-order");
    assert_eq!(asked.iter().map(|sent| sent.at).collect::<Vec<_>>(), [DUE(), later]);
    assert_eq!(node.shop.keys("cancel-order"), ["order-timeout/o-1/cancel-order", "order-timeout/o-1/cancel-order#2"]);
    assert_eq!(asked[1].body["payDeadline"], json!(later));
}

#[tokio::test]
async fn a_payment_until_the_later_deadline_still_wins() {
    let node = Node::start().await;
    let later = DUE().saturating_add(Duration::from_secs(600));
    node.shop.answers("cancel-order", [outcome("NOT_DUE", json!({ "payDeadline": later }))]);
    due(&node).await;
    node.until("o-1", "it waits again", |look| look["wakeAt"] == json!(later)).await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);

    assert_eq!(node.ended("o-1").await, ended("paid", Value::Null, json!([])));
    assert_eq!(gave_back(&node), [0, 0, 0]);
}

#[tokio::test]
async fn an_order_service_that_is_not_due_at_a_passed_deadline_is_not_asked_in_a_loop() {
    let node = Node::start().await;
    node.shop.answers("cancel-order", [outcome("NOT_DUE", json!({ "payDeadline": START }))]);
    due(&node).await;
    node.until("o-1", "it waits again", |look| look["progress"]["phase"] == "waiting-for-payment").await;

    node.ended("o-1").await;
    let asked: Vec<_> = node.shop.sent("cancel-order").iter().map(|sent| sent.at).collect();
    assert_eq!(asked, [DUE(), DUE().saturating_add(Duration::from_secs(1))]);
}

#[tokio::test]
async fn an_order_service_whose_clock_is_behind_is_asked_at_growing_gaps() {
    let node = Node::start().await;
    let not_due = || outcome("NOT_DUE", json!({ "payDeadline": DUE() }));
    node.shop.answers("cancel-order", (0..5).map(|_| not_due()));
    due(&node).await;

    assert_eq!(node.ended("o-1").await, ended("cancelled", json!("TIMEOUT"), json!([])));
    let at: Vec<_> = node.shop.sent("cancel-order").iter().map(|sent| sent.at.since(DUE()).as_secs()).collect();
    assert_eq!(at, [0, 1, 3, 7, 15, 31]);
}

#[tokio::test]
async fn an_order_still_being_created_is_asked_about_again_after_the_time_it_says_under_new_keys() {
    let node = Node::start().await;
    let not_ready = |seconds: u64| outcome("NOT_READY", json!({ "retryAfter": seconds }));
    node.shop.answers("cancel-order", [not_ready(30), not_ready(1)]);
    due(&node).await;

    assert_eq!(node.ended("o-1").await, ended("cancelled", json!("TIMEOUT"), json!([])));
    let at: Vec<_> = node.shop.sent("cancel-order").iter().map(|sent| sent.at.since(DUE()).as_secs()).collect();
    // The second gap is the longer one of what it said and of ours, which doubles.
    assert_eq!(at, [0, 30, 32]);
    let keys = ["cancel-order", "cancel-order#2", "cancel-order#3"].map(|intent| format!("order-timeout/o-1/{intent}"));
    assert_eq!(node.shop.keys("cancel-order"), keys);
    assert_eq!(gave_back(&node), [1, 1, 1]);
}

#[tokio::test]
async fn an_order_that_the_order_service_does_not_know_is_recorded_and_gives_nothing_back() {
    let node = Node::start().await;
    node.shop.answers("cancel-order", [crate::harness::Reply::json(404, json!({ "outcome": "NOT_FOUND" }))]);
    due(&node).await;

    assert_eq!(node.ended("o-1").await, ended("order-not-found", Value::Null, json!([])));
    assert_eq!(gave_back(&node), [0, 0, 0]);
    assert!(node.story("o-1").await.contains(&"cancel-order answered NOT_FOUND".to_owned()));
}

// Who else may stop an order.

#[tokio::test]
async fn the_user_and_a_final_payment_failure_stop_an_order_before_its_deadline_for_their_own_reason() {
    for (name, payload, reason) in [
        ("cancel-order", json!({ "reason": "changed my mind" }), "USER"),
        ("payment-failed", json!({ "reason": "card refused", "final": true }), "PAYMENT_FAILED"),
    ] {
        let node = Node::start().await;
        node.place(&Order::new("o-1")).await;

        assert_eq!(node.signal("o-1", name, payload).await, SignalOutcome::Applied);

        assert_eq!(node.ended("o-1").await, ended("cancelled", json!(reason), json!([])));
        assert_eq!(node.shop.only("cancel-order").body["reason"], reason);
        assert_eq!(gave_back(&node), [1, 1, 1]);
        let story = node.story("o-1").await;
        let at = story.iter().position(|line| line == "no longer wait for payDeadline").unwrap();
        assert!(story[at - 1].starts_with(&format!("received {name}")), "the timer dies with the reason: {story:?}");
    }
}

// What there is nothing to give back of.

#[tokio::test]
async fn a_step_without_its_token_is_not_run() {
    for (missing, counts) in [
        (vec!["stockToken"], [0, 1, 1]),
        (vec!["couponId"], [1, 0, 1]),
        (vec!["paymentId"], [1, 1, 0]),
        (vec!["stockToken", "couponId", "paymentId"], [0, 0, 0]),
    ] {
        let node = Node::start().await;
        let order = missing.iter().fold(Order::new("o-1"), |order, field| order.without(field));
        node.place(&order).await;
        node.let_the_deadline_come().await;

        assert_eq!(node.ended("o-1").await["decision"], "cancelled");
        assert_eq!(gave_back(&node), counts, "{missing:?}");
    }
}

#[tokio::test]
async fn stock_and_coupon_that_went_back_before_or_never_were_there_are_done() {
    for word in ["ALREADY_RELEASED", "NOT_FOUND"] {
        let node = Node::start().await;
        node.shop.answers("release-stock", [outcome(word, json!({}))]);
        node.shop.answers("return-coupon", [outcome(if word == "NOT_FOUND" { word } else { "ALREADY_RETURNED" }, json!({}))]);
        due(&node).await;

        assert_eq!(node.ended("o-1").await, ended("cancelled", json!("TIMEOUT"), json!([])));
        assert_eq!(gave_back(&node), [1, 1, 1]);
    }
}

#[tokio::test]
async fn a_deadline_in_the_past_is_due_at_once_and_the_cancel_runs_once() {
    for deadline in ["2001-09-09T01:46:39Z", "1970-01-01T00:00:00Z"] {
        let node = Node::start().await;
        node.place(&Order::new("o-1").with("payDeadline", deadline)).await;

        node.until_phase("o-1", "watching").await;

        assert_eq!(node.shop.only("cancel-order").at, START, "{deadline}: no time had to pass");
    }
}

// confirm-paid.

async fn paid_once(node: &Node) {
    node.place(&Order::new("o-1")).await;
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);
}

#[tokio::test]
async fn an_order_that_is_paid_by_this_transaction_already_is_paid() {
    let node = Node::start().await;
    node.shop.answers("confirm-paid", [outcome("ALREADY_PAID", json!({ "transactionId": "txn-1" }))]);
    paid_once(&node).await;

    assert_eq!(node.ended("o-1").await, ended("paid", Value::Null, json!([])));
    assert_eq!(node.shop.counts(), [("confirm-paid".to_owned(), 1)].into());
}

#[tokio::test]
async fn an_order_that_another_transaction_paid_was_paid_twice_and_ours_goes_back() {
    let node = Node::start().await;
    node.shop.answers("confirm-paid", [outcome("ALREADY_PAID", json!({ "transactionId": "txn-9" }))]);
    paid_once(&node).await;

    assert_eq!(node.ended("o-1").await, ended("paid", Value::Null, json!([refund("txn-1", "refunded")])));
    assert_eq!(gave_back(&node), [0, 0, 0]);
    assert_eq!(node.shop.only("refund-payment").body["transactionId"], "txn-1");
}

#[tokio::test]
async fn an_order_that_was_cancelled_meanwhile_takes_the_cancelled_path_and_the_payment_goes_back() {
    let node = Node::start().await;
    node.shop.answers("confirm-paid", [outcome("ALREADY_CANCELLED", json!({}))]);
    paid_once(&node).await;

    let result = node.ended("o-1").await;
    assert_eq!(result["decision"], "cancelled");
    assert_eq!(result["refunds"], json!([refund("txn-1", "refunded")]));
    assert_eq!(gave_back(&node), [1, 1, 1], "the give-back steps are made sure of");
}

#[tokio::test]
async fn a_payment_that_the_order_service_refuses_as_expired_cancels_the_order_and_goes_back() {
    let node = Node::start().await;
    node.shop.answers("confirm-paid", [outcome("EXPIRED", json!({}))]);
    paid_once(&node).await;

    assert_eq!(node.ended("o-1").await, ended("cancelled", json!("TIMEOUT"), json!([refund("txn-1", "refunded")])));
    assert_eq!(node.shop.only("cancel-order").body["reason"], "TIMEOUT");
    assert_eq!(gave_back(&node), [1, 1, 1]);
}

#[tokio::test]
async fn an_expired_payment_of_an_order_that_is_not_due_goes_back_and_the_order_waits_on() {
    let node = Node::start().await;
    let later = DUE().saturating_add(Duration::from_secs(600));
    node.shop.answers("confirm-paid", [outcome("EXPIRED", json!({}))]);
    node.shop.answers("cancel-order", [outcome("NOT_DUE", json!({ "payDeadline": later }))]);
    paid_once(&node).await;
    node.until("o-1", "it is refunded", |look| look["progress"]["refunds"][0]["status"] == "refunded").await;

    assert_eq!(node.progress("o-1").await["phase"], "waiting-for-payment");
    assert_eq!(node.ended("o-1").await["decision"], "cancelled");
    assert_eq!(node.shop.sent("cancel-order")[1].at, later);
    assert_eq!(node.shop.sent("refund-payment").len(), 1);
}

#[tokio::test]
async fn a_payment_of_an_order_that_the_order_service_does_not_know_goes_back_and_a_person_is_told() {
    let node = Node::start().await;
    node.shop.answers("confirm-paid", [crate::harness::Reply::json(404, json!({ "outcome": "NOT_FOUND" }))]);
    paid_once(&node).await;
    node.until_a_person_is_needed("o-1", "review-order").await;

    let text = node.explain("o-1").await.text;
    assert!(text.contains("money came for an order that the order service does not know; it is refunded"), "{text}");
    node.until("o-1", "it is refunded", |look| look["progress"]["refunds"][0]["status"] == "refunded").await;
    node.resolve("o-1", "review-order", json!({})).await;
    assert_eq!(node.ended("o-1").await, ended("order-not-found", Value::Null, json!([refund("txn-1", "refunded")])));
    assert_eq!(gave_back(&node), [0, 0, 0]);
}

// The same answers, after the order's workflow has ended.

#[tokio::test]
async fn each_answer_to_a_payment_after_the_end_has_the_same_meaning_as_before_it() {
    for (word, fields, decision, refunded) in [
        ("PAID", json!({}), "paid", false),
        ("ALREADY_PAID", json!({ "transactionId": "txn-1" }), "paid", false),
        ("ALREADY_PAID", json!({ "transactionId": "txn-9" }), "paid", true),
        ("ALREADY_CANCELLED", json!({}), "cancelled", true),
        ("EXPIRED", json!({}), "cancelled", true),
    ] {
        let node = Node::start().await;
        due(&node).await;
        node.ended("o-1").await;
        node.shop.answers("confirm-paid", [outcome(word, fields)]);
        node.shop.answers("cancel-order", [outcome("ALREADY_CANCELLED", json!({}))]);

        assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Late);

        let linked = node.linked("o-1").await;
        let result = node.late_payment_ended(&linked[0]).await;
        let refunds = if refunded { json!([refund("txn-1", "refunded")]) } else { json!([]) };
        assert_eq!((&result["decision"], &result["refunds"]), (&json!(decision), &refunds), "{word}");
        let cancels = if word == "EXPIRED" { 2 } else { 1 };
        assert_eq!(node.shop.sent("cancel-order").len(), cancels, "{word}");
    }
}
