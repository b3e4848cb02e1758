//! The race between a payment and the deadline, and its one winner: every row of the table.

use std::time::Duration;

use overdue_runtime::client::{ClientError, ListQuery, SignalOutcome};
use overdue_runtime::testing::eventually;
use overdue_workflows::LATE_PAYMENT;
use serde_json::{Value, json};

use crate::harness::{Node, Order, START, Setup, outcome};

fn paid() -> Value {
    json!({ "phase": "done", "decision": "paid", "reason": null, "refunds": [] })
}

pub(crate) fn refund(transaction: &str, status: &str) -> Value {
    json!({ "transactionId": transaction, "amount": "19.99", "currency": "USD", "status": status })
}

fn cancelled(refunds: &[Value]) -> Value {
    json!({ "phase": "done", "decision": "cancelled", "reason": "TIMEOUT", "refunds": refunds })
}

// Before the workflow exists.

#[tokio::test]
async fn a_payment_before_the_workflow_exists_is_stored_and_applied_at_its_start() {
    let node = Node::start().await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Buffered);
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Duplicate);
    node.place(&Order::new("o-1")).await;

    assert_eq!(node.ended("o-1").await, paid());
    assert_eq!(node.story("o-1").await.iter().filter(|line| *line == "received payment-succeeded txn-1").count(), 1);
    assert_eq!(node.shop.counts(), [("confirm-paid".to_owned(), 1)].into());
}

#[tokio::test]
async fn a_payment_whose_order_does_not_start_within_a_day_is_taken_up_by_the_late_payment_handler() {
    let node = Node::start().await;
    node.shop.always("confirm-paid", outcome("ALREADY_CANCELLED", json!({})));
    let payload = json!({
        "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": START, "paymentId": "o-1-pay",
    });
    assert_eq!(node.signal("o-1", "payment-succeeded", payload).await, SignalOutcome::Buffered);

    node.pass(Duration::from_secs(24 * 3600 - 60)).await;
    let before = listed(&node).await;
    node.pass(Duration::from_secs(60)).await;
    let id = eventually("the late-payment handler takes it up", || async {
        node.pass(Duration::from_secs(1)).await;
        listed(&node).await.first().cloned()
    })
    .await;

    assert_eq!(before, Vec::<String>::new(), "not before the day is over");
    let result = node.late_payment_ended(&id).await;
    assert_eq!(result["decision"], "cancelled");
    assert_eq!(result["refunds"], json!([refund("txn-1", "refunded")]));
    assert_eq!(node.shop.only("refund-payment").path, "/payments/o-1-pay/refunds");
}

async fn listed(node: &Node) -> Vec<String> {
    let query = ListQuery { workflow_type: Some(LATE_PAYMENT.into()), limit: 10, ..ListQuery::default() };
    let page = node.client.list(&query).await.unwrap();
    page.workflows.into_iter().map(|listed| listed.id).collect()
}

// Before the deadline's firing is committed.

#[tokio::test]
async fn a_payment_before_the_deadline_wins_and_the_timer_dies_in_the_same_commit() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);

    assert_eq!(node.ended("o-1").await, paid());
    let story = [
        "started",
        "settings kept",
        "wait for payDeadline",
        "received payment-succeeded txn-1",
        "no longer wait for payDeadline",
        "call confirm-paid",
        "confirm-paid answered PAID",
        "completed",
    ];
    assert_eq!(node.story("o-1").await, story);
    let asked = node.shop.only("confirm-paid");
    assert_eq!(asked.path, "/orders/o-1/confirm-paid");
    assert_eq!(asked.key, "order-timeout/o-1/confirm-paid:txn-1");
    assert_eq!(asked.body, json!({ "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": START }));
    assert_eq!(node.shop.all().len(), 1, "nothing is given back");
}

#[tokio::test]
async fn a_timer_that_was_cancelled_by_a_payment_never_fires() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("confirm-paid", outcome("PAID", json!({})));
    node.pay("o-1", "txn-1").await;
    node.shop.received("confirm-paid", 1).await;
    let look = node.look("o-1").await;
    assert_eq!(look["pendingTimers"], json!([]));
    gate.open();

    assert_eq!(node.ended("o-1").await, paid());
    node.let_the_deadline_come().await;
    node.place(&Order::bare("o-2").due(START)).await;
    node.until_phase("o-2", "watching").await;

    assert_eq!(node.shop.sent("cancel-order").len(), 1, "only the other order is cancelled");
    assert!(!node.story("o-1").await.contains(&"payDeadline has come".to_owned()));
}

// After the firing, before cancel-order answered: its answer decides.

#[tokio::test]
async fn a_payment_while_cancel_order_is_asked_keeps_the_order_if_the_order_service_says_so() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("cancel-order", outcome("ALREADY_PAID", json!({ "transactionId": "txn-1" })));
    node.let_the_deadline_come().await;
    node.shop.received("cancel-order", 1).await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);
    gate.open();

    assert_eq!(node.ended("o-1").await, paid());
    let story = [
        "started",
        "settings kept",
        "wait for payDeadline",
        "payDeadline has come",
        "call cancel-order",
        "received payment-succeeded txn-1",
        "cancel-order answered ALREADY_PAID",
        "call confirm-paid",
        "confirm-paid answered PAID",
        "completed",
    ];
    assert_eq!(node.story("o-1").await, story);
    let counts = [("cancel-order".to_owned(), 1), ("confirm-paid".to_owned(), 1)];
    assert_eq!(node.shop.counts(), counts.into(), "nothing is given back");
}

#[tokio::test]
async fn a_payment_while_cancel_order_is_asked_is_refunded_if_the_order_was_cancelled() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("cancel-order", outcome("CANCELLED", json!({})));
    node.let_the_deadline_come().await;
    node.shop.received("cancel-order", 1).await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);
    gate.open();

    assert_eq!(node.ended("o-1").await, cancelled(&[refund("txn-1", "refunded")]));
    assert_eq!(node.shop.sent("confirm-paid").len(), 0, "the order is never revived");
    assert_eq!(node.shop.sent("refund-payment").len(), 1);
}

// After cancel-order said CANCELLED.

#[tokio::test]
async fn a_payment_after_the_cancel_is_late_and_refunded_once_however_often_it_is_delivered() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;

    let delivered = [node.pay("o-1", "txn-1").await, node.pay("o-1", "txn-1").await, node.pay("o-1", "txn-1").await];

    assert_eq!(delivered, [SignalOutcome::Late, SignalOutcome::Duplicate, SignalOutcome::Duplicate]);
    assert_eq!(node.ended("o-1").await, cancelled(&[refund("txn-1", "refunded")]));
    let asked = node.shop.only("refund-payment");
    assert_eq!(asked.path, "/payments/o-1-pay/refunds");
    assert_eq!(asked.key, "order-timeout/o-1/refund-payment:txn-1");
    let body = json!({
        "refundId": "o-1:txn-1", "transactionId": "txn-1", "amount": "19.99", "currency": "USD",
        "reason": "the order is not kept by this payment",
    });
    assert_eq!(asked.body, body);
    let counts = ["cancel-order", "close-payment", "refund-payment", "release-stock", "return-coupon"];
    assert_eq!(node.shop.counts(), counts.map(|call| (call.to_owned(), 1)).into(), "nothing is given back twice");
}

#[tokio::test]
async fn a_late_payment_that_names_its_own_payment_is_refunded_there() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;

    let payload = json!({
        "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": START, "paymentId": "another-pay",
    });
    node.signal("o-1", "payment-succeeded", payload).await;

    node.ended("o-1").await;
    assert_eq!(node.shop.only("refund-payment").path, "/payments/another-pay/refunds");
}

#[tokio::test]
async fn a_payment_on_the_last_millisecond_of_the_watch_is_refunded_by_the_order_itself() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;
    let gate = node.shop.holds("refund-payment", outcome("REFUNDED", json!({})));

    node.pass(Order::WATCH - Duration::from_millis(1)).await;
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Late);
    node.pass(Duration::from_millis(1)).await;
    node.shop.received("refund-payment", 1).await;
    assert_eq!(node.look("o-1").await["status"], "running", "it does not end before the money is back");
    gate.open();

    assert_eq!(node.ended("o-1").await, cancelled(&[refund("txn-1", "refunded")]));
    assert_eq!(node.linked("o-1").await, Vec::<String>::new());
}

// After the workflow completed.

#[tokio::test]
async fn a_late_payment_that_somebody_wants_to_cancel_goes_back_all_the_same() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.ended("o-1").await;
    node.shop.answers("confirm-paid", [outcome("ALREADY_CANCELLED", json!({}))]);
    node.shop.answers("refund-payment", [outcome("PROCESSING", json!({}))]);
    node.pay("o-1", "txn-1").await;
    let id = node.linked("o-1").await.remove(0);
    node.until_at(LATE_PAYMENT, &id, "it is processing", |look| look["progress"]["refunds"][0]["status"] == "processing").await;

    node.client.cancel(LATE_PAYMENT, &id, "a slip of the hand", "bob").await.unwrap();

    assert_eq!(node.late_payment_ended(&id).await["refunds"], json!([refund("txn-1", "refunded")]));
}

#[tokio::test]
async fn a_payment_after_the_end_opens_a_linked_execution_that_asks_before_it_refunds() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.ended("o-1").await;
    let closed = node.events("o-1").await;
    node.shop.answers("confirm-paid", [outcome("ALREADY_CANCELLED", json!({}))]);

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Late);

    let linked = node.linked("o-1").await;
    assert_eq!(linked.len(), 1, "{linked:?}");
    let result = node.late_payment_ended(&linked[0]).await;
    assert_eq!(
        result,
        json!({
            "phase": "done", "decision": "cancelled", "reason": null, "refunds": [refund("txn-1", "refunded")],
        })
    );
    let story = [
        "started",
        "call confirm-paid",
        "confirm-paid answered ALREADY_CANCELLED",
        "call refund-payment",
        "refund-payment answered REFUNDED",
        "completed",
    ];
    assert_eq!(node.late_story(&linked[0]).await, story);
    assert_eq!(node.events("o-1").await, closed, "the closed history gets no further event");
    let back = node.look_at(LATE_PAYMENT, &linked[0]).await;
    assert_eq!(back["linked"], json!([{ "type": "order-timeout", "id": "o-1" }]), "linked both ways");
    assert_eq!(node.shop.only("refund-payment").key, "order-timeout/o-1/refund-payment:txn-1", "the order's own key");
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Duplicate, "redelivered");
    assert_eq!(node.linked("o-1").await, linked, "one execution for order and transaction");
}

#[tokio::test]
async fn a_redelivered_payment_of_an_order_that_it_paid_is_a_duplicate_and_moves_nothing() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.pay("o-1", "txn-1").await;
    node.ended("o-1").await;
    let closed = node.events("o-1").await;

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Duplicate);

    assert_eq!(node.events("o-1").await, closed);
    assert_eq!(node.linked("o-1").await, Vec::<String>::new());
    assert_eq!(node.shop.counts(), [("confirm-paid".to_owned(), 1)].into());
}

#[tokio::test]
async fn another_payment_after_a_paid_order_ended_is_refunded_only_if_the_order_service_names_another_transaction() {
    let node = Node::start().await;
    for order in ["o-1", "o-2"] {
        node.place(&Order::new(order)).await;
        node.pay(order, "txn-1").await;
        node.ended(order).await;
    }
    node.shop.judges("confirm-paid", |sent| {
        let kept_by = if sent.subject() == "o-1" { "txn-1" } else { "txn-2" };
        outcome("ALREADY_PAID", json!({ "transactionId": kept_by }))
    });

    node.pay("o-1", "txn-2").await;
    node.pay("o-2", "txn-2").await;

    let [double, kept] = [&node.linked("o-1").await[0], &node.linked("o-2").await[0]].map(Clone::clone);
    assert_eq!(node.late_payment_ended(&double).await["refunds"], json!([refund("txn-2", "refunded")]));
    assert_eq!(node.late_payment_ended(&kept).await, paid());
    assert_eq!(node.shop.only("refund-payment").path, "/payments/o-1-pay/refunds");
}

// Once the order is paid; twice.

#[tokio::test]
async fn the_same_transaction_twice_is_a_duplicate_and_nothing_more_happens() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("confirm-paid", outcome("PAID", json!({})));

    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Duplicate);
    gate.open();

    assert_eq!(node.ended("o-1").await, paid());
    assert_eq!(node.shop.counts(), [("confirm-paid".to_owned(), 1)].into());
}

#[tokio::test]
async fn of_two_payments_one_keeps_the_order_and_the_other_is_refunded() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("confirm-paid", outcome("PAID", json!({})));
    node.shop.answers("confirm-paid", [outcome("ALREADY_PAID", json!({ "transactionId": "txn-1" }))]);

    node.pay("o-1", "txn-1").await;
    node.shop.received("confirm-paid", 1).await;
    assert_eq!(node.pay("o-1", "txn-2").await, SignalOutcome::Applied);
    gate.open();

    let result = node.ended("o-1").await;
    assert_eq!(result["decision"], "paid");
    assert_eq!(result["refunds"], json!([refund("txn-2", "refunded")]));
    let asked: Vec<_> = node.shop.sent("confirm-paid").into_iter().map(|sent| sent.body["transactionId"].clone()).collect();
    assert_eq!(asked, ["txn-1", "txn-2"], "the order service is asked before the second one goes back");
    assert_eq!(node.shop.only("refund-payment").body["transactionId"], "txn-2");
}

#[tokio::test]
async fn a_second_payment_that_the_order_service_keeps_the_order_by_is_not_refunded() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    let gate = node.shop.holds("confirm-paid", outcome("ALREADY_PAID", json!({ "transactionId": "txn-2" })));
    node.shop.answers("confirm-paid", [outcome("ALREADY_PAID", json!({ "transactionId": "txn-2" }))]);

    node.pay("o-1", "txn-1").await;
    node.shop.received("confirm-paid", 1).await;
    node.pay("o-1", "txn-2").await;
    gate.open();

    let result = node.ended("o-1").await;
    assert_eq!(result["decision"], "paid");
    assert_eq!(result["refunds"], json!([refund("txn-1", "refunded")]));
    assert_eq!(node.shop.only("refund-payment").body["transactionId"], "txn-1");
}

#[tokio::test]
async fn every_transaction_of_a_cancelled_order_is_refunded_under_a_key_of_its_own() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;

    node.pay("o-1", "txn-1").await;
    node.pay("o-1", "txn-2").await;

    let result = node.ended("o-1").await;
    assert_eq!(result["refunds"], json!([refund("txn-1", "refunded"), refund("txn-2", "refunded")]));
    let mut keys = node.shop.keys("refund-payment");
    keys.sort();
    assert_eq!(keys, ["order-timeout/o-1/refund-payment:txn-1", "order-timeout/o-1/refund-payment:txn-2"]);
}

// With the wrong amount or currency.

async fn with_a_wrong_payment(node: &Node, amount: &str, currency: &str) {
    node.place(&Order::new("o-1")).await;
    assert_eq!(node.pay_amount("o-1", "txn-1", amount, currency).await, SignalOutcome::Applied);
    node.until_a_person_is_needed("o-1", "review-payment").await;
}

#[tokio::test]
async fn a_payment_of_another_amount_is_held_for_a_person_and_the_deadline_runs_on() {
    let node = Node::start().await;
    with_a_wrong_payment(&node, "1.99", "USD").await;

    let look = node.look("o-1").await;
    assert_eq!((&look["needsAttention"], &look["progress"]["phase"]), (&json!(true), &json!("waiting-for-payment")));
    let step = node.pending("o-1", "review-payment").await;
    let input = json!({
        "transactionId": "txn-1", "amount": "1.99", "currency": "USD", "expectedAmount": "19.99", "expectedCurrency": "USD",
    });
    assert_eq!(step["input"], input);
    let text = node.explain("o-1").await.text;
    assert!(
        text.contains(
            "1.99 USD arrived for an order of 19.99 USD: resolve it with {\"decision\":\"accept\"} or {\"decision\":\"refund\"}"
        ),
        "{text}"
    );

    node.let_the_deadline_come().await;
    let result = node.ended("o-1").await;
    assert_eq!(result["decision"], "cancelled");
    let back = json!([{ "transactionId": "txn-1", "amount": "1.99", "currency": "USD", "status": "refunded" }]);
    assert_eq!(result["refunds"], back, "exactly what was captured");
    assert_eq!(node.shop.only("refund-payment").body["amount"], "1.99");
    assert_eq!(node.shop.sent("confirm-paid").len(), 0);
    let ended = node.look("o-1").await;
    assert_eq!(ended["needsAttention"], false, "nobody is asked any more");
}

#[tokio::test]
async fn a_payment_in_another_currency_is_held_too() {
    let node = Node::start().await;
    with_a_wrong_payment(&node, "19.99", "EUR").await;
    let text = node.explain("o-1").await.text;
    assert!(text.contains("19.99 EUR arrived for an order of 19.99 USD"), "{text}");
}

#[tokio::test]
async fn the_same_amount_written_otherwise_is_the_right_amount() {
    let node = Node::start().await;
    node.place(&Order::new("o-1").costs("19.90", "USD")).await;
    node.pay_amount("o-1", "txn-1", "19.9", "USD").await;
    assert_eq!(node.ended("o-1").await, paid());
    assert_eq!(node.shop.only("confirm-paid").body["amount"], "19.9", "as it was written");
}

#[tokio::test]
async fn a_held_payment_that_a_person_accepts_is_confirmed() {
    let node = Node::start().await;
    with_a_wrong_payment(&node, "1.99", "USD").await;

    node.resolve("o-1", "review-payment", json!({ "decision": "accept" })).await;

    assert_eq!(node.ended("o-1").await, paid());
    assert_eq!(node.shop.only("confirm-paid").body["amount"], "1.99");
    let story = node.story("o-1").await;
    assert!(story.contains(&"review-payment resolved by ops: done by hand, ticket 4711".to_owned()), "{story:?}");
}

#[tokio::test]
async fn a_held_payment_that_a_person_does_not_want_goes_back_while_the_order_waits_on() {
    for skipped in [false, true] {
        let node = Node::start().await;
        with_a_wrong_payment(&node, "1.99", "USD").await;

        match skipped {
            true => node.skip("o-1", "review-payment").await,
            false => node.resolve("o-1", "review-payment", json!({ "decision": "refund" })).await,
        }
        node.until("o-1", "it is refunded", |look| look["progress"]["refunds"][0]["status"] == "refunded").await;

        assert_eq!(node.progress("o-1").await["phase"], "waiting-for-payment");
        assert_eq!(node.pay("o-1", "txn-2").await, SignalOutcome::Applied);
        assert_eq!(node.ended("o-1").await["decision"], "paid");
        assert_eq!(node.shop.only("refund-payment").body["amount"], "1.99");
    }
}

#[tokio::test]
async fn a_wrong_result_of_a_review_is_refused_by_name_and_the_step_still_waits() {
    let node = Node::start().await;
    with_a_wrong_payment(&node, "1.99", "USD").await;
    let number = node.pending("o-1", "review-payment").await["number"].as_u64().unwrap();
    let resolve =
        overdue_runtime::engine::OperatorAction::Resolve(overdue_runtime::Payload::from_json(r#"{"decision":"keep"}"#).unwrap());
    let refused = node.client.operate("order-timeout", "o-1", number, resolve, "a slip", "ops").await.unwrap_err();
    let ClientError::Invalid(fields) = &refused else { panic!("{refused:?}") };
    assert_eq!(fields[0].field, "result.decision");
    assert_eq!(node.pending("o-1", "review-payment").await["state"], "needs-attention");
}

#[tokio::test]
async fn the_right_payment_after_a_wrong_one_keeps_the_order_and_the_wrong_one_goes_back() {
    let node = Node::start().await;
    with_a_wrong_payment(&node, "1.99", "USD").await;
    node.shop.answers("confirm-paid", [outcome("PAID", json!({})), outcome("ALREADY_PAID", json!({ "transactionId": "txn-2" }))]);

    assert_eq!(node.pay("o-1", "txn-2").await, SignalOutcome::Applied);

    let result = node.ended("o-1").await;
    assert_eq!(result["decision"], "paid");
    let back = json!([{ "transactionId": "txn-1", "amount": "1.99", "currency": "USD", "status": "refunded" }]);
    assert_eq!(result["refunds"], back);
}

// What an acknowledgement means.

#[tokio::test]
async fn a_payment_that_cannot_be_stored_is_not_acknowledged() {
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.store.close().await;

    let payload = json!({ "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": START });
    let refused = node.try_to_signal("o-1", "payment-succeeded", None, payload).await.unwrap_err();
    assert!(matches!(refused, ClientError::Unavailable), "{refused:?}");
}

// Money in every currency (B056).

#[tokio::test]
async fn a_refund_has_the_digits_of_its_currency_as_they_were_written() {
    let node = Node::start().await;
    let prices = [("5800", "JPY"), ("1.255", "KWD"), ("19.99", "USD"), ("0.001", "BHD")];
    for (amount, currency) in prices {
        let order = format!("o-{currency}");
        node.place(&Order::new(&order).costs(amount, currency)).await;
    }
    node.let_the_deadline_come().await;
    for (amount, currency) in prices {
        let order = format!("o-{currency}");
        node.until_phase(&order, "watching").await;
        node.pay_amount(&order, &format!("txn-{currency}"), amount, currency).await;
        node.until(&order, "it is refunded", |look| look["progress"]["refunds"][0]["status"] == "refunded").await;
        let refunds = node.shop.sent("refund-payment");
        let body = &refunds.last().unwrap().body;
        assert_eq!((&body["amount"], &body["currency"]), (&json!(amount), &json!(currency)));
    }
    for (amount, currency) in [("58.5", "JPY"), ("19.999", "USD")] {
        let order = Order::new("o-wrong").costs(amount, currency);
        let refused = node.try_to_place(&order).await.unwrap_err();
        let ClientError::Invalid(fields) = &refused else { panic!("{refused:?}") };
        assert_eq!(fields[0].field, "input.amount", "{amount} {currency}");
    }
}

// A lateness of the scan alone must be enough.

#[tokio::test]
async fn the_deadline_comes_also_when_no_timer_is_kept_in_memory() {
    let mut setup = Setup::default();
    setup.engine.timers = false;
    let node = setup.start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;
    assert_eq!(node.shop.only("cancel-order").at, START.saturating_add(Order::TIME_TO_PAY));
}
