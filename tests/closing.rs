//! `close-payment`: each answer by its own rule, in both orders of steps.

use std::time::Duration;

use overdue_runtime::client::SignalOutcome;
use overdue_runtime::engine::OperatorAction;
use overdue_runtime::engine::breaker::BreakerPosition;
use overdue_runtime::testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Node, Order, Reply, START, outcome};
use crate::race::refund;

/// Whether the payment is closed before or after the order is cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Steps {
    AfterCancel,
    BeforeCancel,
}

const BOTH: [Steps; 2] = [Steps::AfterCancel, Steps::BeforeCancel];

fn due_at() -> overdue_runtime::Timestamp {
    START.saturating_add(Order::TIME_TO_PAY)
}

fn capture(transaction: &str) -> Value {
    json!({ "transactionId": transaction, "amount": "19.99", "currency": "USD", "paidAt": START })
}

fn order(steps: Steps) -> Order {
    match steps {
        Steps::AfterCancel => Order::new("o-1"),
        Steps::BeforeCancel => Order::new("o-1").closes_before_it_cancels(),
    }
}

/// An order whose deadline has come, at a channel that answers closes like this.
async fn due(steps: Steps, answers: impl IntoIterator<Item = Reply>) -> Node {
    let node = Node::start().await;
    node.shop.answers("close-payment", answers);
    node.place(&order(steps)).await;
    node.let_the_deadline_come().await;
    node
}

fn cancelled(refunds: Value) -> Value {
    json!({ "phase": "done", "decision": "cancelled", "reason": "TIMEOUT", "refunds": refunds })
}

/// The order in which the calls were made.
fn order_of_calls(node: &Node) -> Vec<String> {
    let mut calls: Vec<String> = node.shop.all().into_iter().map(|sent| sent.call).collect();
    calls.dedup();
    calls
}

#[tokio::test]
async fn a_payment_is_closed_after_the_cancel_or_before_it_as_the_order_says() {
    let after = due(Steps::AfterCancel, []).await;
    assert_eq!(after.ended("o-1").await, cancelled(json!([])));
    assert_eq!(order_of_calls(&after)[0], "cancel-order");

    let before = due(Steps::BeforeCancel, []).await;
    assert_eq!(before.ended("o-1").await, cancelled(json!([])));
    assert_eq!(order_of_calls(&before)[..2], ["close-payment", "cancel-order"]);
    assert_eq!(before.shop.sent("close-payment").len(), 1, "it is not closed twice");
}

#[tokio::test]
async fn closed_already_closed_and_not_created_are_done_and_the_order_is_watched_all_the_same() {
    for steps in BOTH {
        for word in ["CLOSED", "ALREADY_CLOSED", "NOT_CREATED"] {
            let node = due(steps, [outcome(word, json!({}))]).await;
            node.until_phase("o-1", "watching").await;
            assert_eq!(node.look("o-1").await["wakeAt"], json!(due_at().saturating_add(Order::WATCH)), "{steps:?} {word}");

            assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Late);

            assert_eq!(node.ended("o-1").await, cancelled(json!([refund("txn-1", "refunded")])), "{steps:?} {word}");
            assert_eq!(node.shop.sent("close-payment").len(), 1, "{steps:?} {word}");
        }
    }
}

#[tokio::test]
async fn money_that_a_close_finds_after_the_cancel_is_refunded_and_never_asked_about_again() {
    let node = due(
        Steps::AfterCancel,
        [Reply::json(409, {
            let mut body = capture("txn-1");
            body["outcome"] = json!("ALREADY_PAID");
            body
        })],
    )
    .await;

    assert_eq!(node.ended("o-1").await, cancelled(json!([refund("txn-1", "refunded")])));
    assert_eq!(node.shop.sent("close-payment").len(), 1);
    assert_eq!(node.shop.only("refund-payment").key, "order-timeout/o-1/refund-payment:txn-1");
    assert_eq!(node.shop.sent("confirm-paid").len(), 0);
}

#[tokio::test]
async fn money_that_a_close_finds_and_that_is_then_told_of_too_is_refunded_once() {
    let node = due(Steps::AfterCancel, [outcome("ALREADY_PAID", capture("txn-1"))]).await;
    node.until("o-1", "it is refunded", |look| look["progress"]["refunds"][0]["status"] == "refunded").await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Late);

    assert_eq!(node.ended("o-1").await, cancelled(json!([refund("txn-1", "refunded")])));
    assert_eq!(node.shop.sent("refund-payment").len(), 1);
}

#[tokio::test]
async fn money_that_a_close_finds_before_the_cancel_saves_the_sale() {
    let node = due(Steps::BeforeCancel, [outcome("ALREADY_PAID", capture("txn-1"))]).await;

    let result = node.ended("o-1").await;
    assert_eq!(result, json!({ "phase": "done", "decision": "paid", "reason": null, "refunds": [] }));
    let counts = [("close-payment".to_owned(), 1), ("confirm-paid".to_owned(), 1)];
    assert_eq!(node.shop.counts(), counts.into(), "nothing is cancelled and nothing goes back");
    assert_eq!(node.shop.only("confirm-paid").body, capture("txn-1"));
}

#[tokio::test]
async fn the_wrong_amount_that_a_close_finds_before_the_cancel_does_not_save_the_sale() {
    let mut found = capture("txn-1");
    found["amount"] = json!("1.99");
    let node = due(Steps::BeforeCancel, [outcome("ALREADY_PAID", found)]).await;

    let result = node.ended("o-1").await;
    assert_eq!(result["decision"], "cancelled");
    assert_eq!(node.shop.only("refund-payment").body["amount"], "1.99", "exactly what was captured");
}

#[tokio::test]
async fn a_payment_while_the_close_is_under_way_before_the_cancel_saves_the_sale() {
    let node = Node::start().await;
    let gate = node.shop.holds("close-payment", outcome("CLOSED", json!({})));
    node.place(&order(Steps::BeforeCancel)).await;
    node.let_the_deadline_come().await;
    node.shop.received("close-payment", 1).await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);

    assert_eq!(node.ended("o-1").await["decision"], "paid");
    gate.open();
    assert_eq!(node.shop.sent("cancel-order").len(), 0);
}

#[tokio::test]
async fn a_held_payment_is_voided() {
    for steps in BOTH {
        for word in ["VOIDED", "ALREADY_VOIDED"] {
            let node = due(steps, [outcome("AUTHORIZED", json!({}))]).await;
            node.shop.answers("void-payment", [outcome(word, json!({}))]);

            assert_eq!(node.ended("o-1").await, cancelled(json!([])));
            let asked = node.shop.only("void-payment");
            assert_eq!((asked.path.as_str(), asked.key.as_str()), ("/payments/o-1-pay/void", "order-timeout/o-1/void-payment"));
            assert_eq!(asked.body, json!({ "orderId": "o-1" }));
            assert_eq!(node.shop.sent("close-payment").len(), 1);
        }
    }
}

#[tokio::test]
async fn a_hold_that_was_captured_before_the_void_is_refunded_or_saves_the_sale() {
    for (steps, decision, refunds) in
        [(Steps::AfterCancel, "cancelled", json!([refund("txn-1", "refunded")])), (Steps::BeforeCancel, "paid", json!([]))]
    {
        let node = Node::start().await;
        node.shop.answers("close-payment", [outcome("AUTHORIZED", json!({}))]);
        node.shop.answers("void-payment", [outcome("ALREADY_PAID", capture("txn-1"))]);
        node.place(&order(steps)).await;
        node.let_the_deadline_come().await;

        let result = node.ended("o-1").await;
        assert_eq!((&result["decision"], &result["refunds"]), (&json!(decision), &refunds), "{steps:?}");
    }
}

#[tokio::test]
async fn a_buyer_who_is_paying_is_asked_about_again_at_growing_gaps_and_under_new_keys() {
    for steps in BOTH {
        let paying = || outcome("IN_PROGRESS", json!({}));
        let node = due(steps, [paying(), paying(), paying(), paying()]).await;

        assert_eq!(node.ended("o-1").await, cancelled(json!([])));
        let asked = node.shop.sent("close-payment");
        let at: Vec<_> = asked.iter().map(|sent| sent.at.since(due_at()).as_secs()).collect();
        assert_eq!(at, [0, 1, 3, 7, 15], "{steps:?}");
        let keys: Vec<_> = (1..=5)
            .map(|number| match number {
                1 => "order-timeout/o-1/close-payment".to_owned(),
                _ => format!("order-timeout/o-1/close-payment#{number}"),
            })
            .collect();
        assert_eq!(node.shop.keys("close-payment"), keys, "{steps:?}");
    }
}

#[tokio::test]
async fn a_success_after_the_buyer_was_paying_is_refunded() {
    let node = due(Steps::AfterCancel, [outcome("IN_PROGRESS", json!({})), outcome("ALREADY_PAID", capture("txn-1"))]).await;
    assert_eq!(node.ended("o-1").await, cancelled(json!([refund("txn-1", "refunded")])));
}

#[tokio::test]
async fn a_buyer_who_has_been_paying_for_a_day_is_a_persons_business() {
    let node = due(Steps::AfterCancel, (0..23).map(|_| outcome("TOO_EARLY", json!({ "retryAfter": 3600 })))).await;
    node.shop.always("close-payment", outcome("IN_PROGRESS", json!({})));
    let look = node.pass_until("o-1", "a person is asked", |look| look["needsAttention"] == true).await;

    assert_eq!(look["progress"]["phase"], "giving-back");
    let day = due_at().saturating_add(Duration::from_secs(24 * 3600));
    assert!(node.now() >= day && node.now() < day.saturating_add(Duration::from_secs(300)), "{}", node.now());
    let text = node.explain("o-1").await.text;
    assert!(text.contains("the buyer has been paying for a day"), "{text}");
    node.shop.always("close-payment", outcome("CLOSED", json!({})));
    node.resolve("o-1", "review-close-payment", json!({ "outcome": "CLOSED" })).await;
    assert_eq!(node.ended("o-1").await, cancelled(json!([])));
}

#[tokio::test]
async fn a_buyer_who_is_still_paying_when_a_person_has_the_channel_asked_again_is_asked_about_under_a_new_key() {
    let node = due(Steps::AfterCancel, (0..23).map(|_| outcome("TOO_EARLY", json!({ "retryAfter": 3600 })))).await;
    node.shop.always("close-payment", outcome("IN_PROGRESS", json!({})));
    node.pass_until("o-1", "a person is asked", |look| look["needsAttention"] == true).await;
    node.shop.always("close-payment", outcome("CLOSED", json!({})));
    node.retry("o-1", "review-close-payment").await;
    assert_eq!(node.ended("o-1").await, cancelled(json!([])));
    let keys = node.shop.keys("close-payment");
    let different: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(different.len(), keys.len(), "{keys:?}");
}

#[tokio::test]
async fn a_channel_that_refuses_a_close_in_the_first_minutes_is_asked_again_when_it_says() {
    for steps in BOTH {
        let node = due(steps, [outcome("TOO_EARLY", json!({ "retryAfter": 120 }))]).await;

        assert_eq!(node.ended("o-1").await, cancelled(json!([])));
        let at: Vec<_> = node.shop.sent("close-payment").iter().map(|sent| sent.at.since(due_at()).as_secs()).collect();
        assert_eq!(at, [0, 120], "{steps:?}");
        assert_eq!(node.shop.keys("close-payment"), ["order-timeout/o-1/close-payment", "order-timeout/o-1/close-payment#2"]);
        let cancelled_at = node.shop.only("cancel-order").at.since(due_at()).as_secs();
        assert_eq!(cancelled_at, if steps == Steps::BeforeCancel { 120 } else { 0 }, "while it is not final the cancel waits");
    }
}

#[tokio::test]
async fn an_unknown_end_of_a_close_is_repeated_with_the_same_key() {
    for steps in BOTH {
        let unknown = [Reply::status(500), Reply::raw(200, "<html>"), Reply::status(408), Reply::status(503)];
        let node = due(steps, unknown).await;

        assert_eq!(node.ended("o-1").await, cancelled(json!([])));
        assert_eq!(node.shop.keys("close-payment"), vec!["order-timeout/o-1/close-payment"; 5], "{steps:?}");
        let bodies: Vec<_> = node.shop.sent("close-payment").into_iter().map(|sent| sent.raw).collect();
        assert_eq!(bodies, vec![r#"{"orderId":"o-1"}"#; 5], "the same request, byte by byte");
    }
}

#[tokio::test]
async fn a_close_that_does_not_end_before_its_limit_goes_on_after_the_cancel() {
    let node = Node::start().await;
    node.shop.always("close-payment", outcome("IN_PROGRESS", json!({})));
    node.place(&order(Steps::BeforeCancel)).await;
    node.let_the_deadline_come().await;
    let look = node.pass_until("o-1", "it is cancelled", |look| look["progress"]["decision"] == "cancelled").await;

    assert_eq!(look["progress"]["phase"], "giving-back");
    let limit = due_at().saturating_add(Duration::from_secs(3600));
    assert_eq!(node.shop.only("cancel-order").at, limit);
    let asked = node.shop.sent("close-payment").len();
    node.shop.always("close-payment", outcome("CLOSED", json!({})));
    assert_eq!(node.ended("o-1").await, cancelled(json!([])));
    assert!(node.shop.sent("close-payment").len() > asked, "the close goes on beside the other steps");
    let mut keys = node.shop.keys("close-payment");
    let sent = keys.len();
    keys.dedup();
    assert!(sent - keys.len() <= 1, "only the question that the limit cut off is repeated under its key");
}

#[tokio::test]
async fn a_rejected_close_is_a_fault_of_ours_no_retry_storm_a_person_and_the_channels_breaker() {
    for steps in BOTH {
        let node = Node::start().await;
        node.shop.answers("close-payment", [outcome("REJECTED", json!({ "reason": "bad signature" }))]);
        node.place(&order(steps).with("paymentChannel", "bank")).await;
        node.let_the_deadline_come().await;
        node.until_a_person_is_needed("o-1", "review-close-payment").await;

        let explained = node.explain("o-1").await;
        assert!(explained.text.contains("the channel rejected the close: bad signature"), "{}", explained.text);
        assert!(explained.actions.iter().any(|action| action.starts_with("overdue retry order-timeout o-1")), "{explained:?}");
        let shut: Vec<_> = node.breakers.views().into_iter().filter(|breaker| breaker.key.is_some()).collect();
        assert_eq!(shut.len(), 1);
        assert_eq!((shut[0].downstream.as_str(), shut[0].key.as_deref()), ("payments", Some("bank")));
        assert_eq!(shut[0].position, BreakerPosition::ForcedOpen);

        // Another order at this channel is parked; it costs no attempt.
        node.place(&Order::new("o-2").with("paymentChannel", "bank").due(node.now())).await;
        node.until("o-2", "its close is parked", |look| look["pendingActivities"][0]["state"] == "parked").await;
        let parked = node.pending("o-2", "close-payment").await;
        assert_eq!((&parked["attempt"], &parked["parkedBy"]), (&json!(0), &json!("breaker of payments/bank")));
        node.pass(Duration::from_secs(600)).await;
        assert_eq!(node.shop.sent("close-payment").len(), 1, "no retry storm");

        node.close_breaker(Some("bank")).await;
        node.retry("o-1", "review-close-payment").await;
        assert_eq!(node.ended("o-1").await, cancelled(json!([])));
        assert_eq!(node.ended("o-2").await, cancelled(json!([])));
        let of_the_first: Vec<_> =
            node.shop.sent("close-payment").into_iter().filter(|sent| sent.subject() == "o-1-pay").collect();
        assert_eq!(of_the_first.len(), 2);
        assert_eq!(of_the_first[0].key, of_the_first[1].key, "a retry by hand is the same intent");
    }
}

#[tokio::test]
async fn a_rejected_close_that_a_person_resolves_or_skips_holds_nothing_up() {
    for (action, refunds) in [
        (OperatorAction::Skip, json!([])),
        (resolved(json!({ "outcome": "CLOSED" })), json!([])),
        (resolved(merge(json!({ "outcome": "ALREADY_PAID" }), capture("txn-1"))), json!([refund("txn-1", "refunded")])),
    ] {
        let node = due(Steps::AfterCancel, [outcome("REJECTED", json!({}))]).await;
        node.until_a_person_is_needed("o-1", "review-close-payment").await;
        let others =
            || async { (node.shop.sent("release-stock").len() + node.shop.sent("return-coupon").len() == 2).then_some(()) };
        eventually("the others go on", others).await;

        node.decide("o-1", "review-close-payment", action, "seen at the channel").await;
        node.close_breaker(None).await;

        assert_eq!(node.ended("o-1").await, cancelled(refunds));
        assert_eq!(node.shop.sent("close-payment").len(), 1);
    }
}

fn resolved(result: Value) -> OperatorAction {
    OperatorAction::Resolve(overdue_runtime::Payload::of(&result).unwrap())
}

fn merge(mut body: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { unreachable!("they are an object") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

#[tokio::test]
async fn before_the_cancel_a_close_is_asked_anew_at_a_later_deadline_only_if_there_was_nothing_to_close() {
    let later = due_at().saturating_add(Duration::from_secs(600));
    let keys = |numbers: &[&str]| -> Vec<String> {
        numbers.iter().map(|number| format!("order-timeout/o-1/close-payment{number}")).collect()
    };
    for (answer, asked) in [("CLOSED", keys(&[""])), ("NOT_CREATED", keys(&["", "#2"]))] {
        let node = Node::start().await;
        node.shop.answers("close-payment", [outcome(answer, json!({}))]);
        node.shop.answers("cancel-order", [outcome("NOT_DUE", json!({ "payDeadline": later }))]);
        node.place(&order(Steps::BeforeCancel)).await;
        node.let_the_deadline_come().await;
        node.until("o-1", "it waits again", |look| look["wakeAt"] == json!(later)).await;
        node.pass_to(later).await;
        node.ended("o-1").await;

        assert_eq!(node.shop.keys("close-payment"), asked, "{answer}");
        assert_eq!(node.shop.sent("cancel-order").len(), 2, "{answer}");
    }
}
