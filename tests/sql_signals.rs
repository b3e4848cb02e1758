//! Signals inside the transactions of an order service, on PostgreSQL: as good as those over HTTP, whenever they come.

use std::time::Duration;

use overdue_runtime::client::SignalOutcome;
use overdue_workflows::LATE_PAYMENT;
use serde_json::{Value, json};

use crate::harness::order_service::{in_the_future, now, of_kind};
use crate::harness::{Order, OrderService, Sql, outcome, raised};
use crate::race::refund;

fn decided(word: &'static str) -> impl Fn(&Value) -> bool {
    move |look| look["progress"]["decision"] == word
}

async fn payments(service: &OrderService, order: &str) -> usize {
    of_kind(&service.node.events(order).await, "SignalReceived").len()
}

#[tokio::test]
async fn a_payment_that_is_committed_with_the_order_services_own_rows_beats_the_deadline() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.place(&Order::bare("o-1").due(now().saturating_add(Duration::from_secs(3)))).await.unwrap();
    service.started("o-1").await;
    session.run("BEGIN; UPDATE orders SET amount = 'paid'").await;
    session.pay("o-1", "txn-1", None).await.unwrap();
    session.run("COMMIT").await;
    service.node.until("o-1", "it is paid", decided("paid")).await;
    assert_eq!((service.node.shop.count("confirm-paid"), service.node.shop.count("cancel-order")), (1, 0));
}

#[tokio::test]
async fn a_payment_that_was_rolled_back_was_never_made() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.place(&Order::bare("o-1").due(now().saturating_add(Duration::from_millis(600)))).await.unwrap();
    session.run("BEGIN").await;
    session.pay("o-1", "txn-1", None).await.unwrap();
    session.run("ROLLBACK").await;
    service.node.until("o-1", "it is cancelled", decided("cancelled")).await;
    assert_eq!((payments(&service, "o-1").await, service.node.shop.count("confirm-paid")), (0, 0));
}

#[tokio::test]
async fn a_payment_before_the_start_waits_for_it() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.pay("o-1", "txn-1", None).await.unwrap();
    service.everything_was_seen().await;
    session.place(&Order::bare("o-1").due(now())).await.unwrap();
    service.node.until("o-1", "it is paid, though its deadline has passed", decided("paid")).await;
    assert_eq!(service.node.shop.count("cancel-order"), 0);
}

#[tokio::test]
async fn a_payment_in_the_transaction_of_the_start_is_one_with_it() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.run("BEGIN").await;
    session.pay("o-1", "txn-1", None).await.unwrap();
    session.place(&Order::bare("o-1").due(now())).await.unwrap();
    session.run("COMMIT").await;
    service.node.until("o-1", "it is paid", decided("paid")).await;
    assert_eq!(service.node.shop.count("cancel-order"), 0);
}

#[tokio::test]
async fn a_payment_after_the_end_goes_to_the_handler_of_late_ones_and_is_given_back_once() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    service.node.shop.always("confirm-paid", outcome("ALREADY_CANCELLED", json!({})));
    session.place(&Order::new("o-1").due(now()).with("latePaymentWindow", "PT0S")).await.unwrap();
    service.node.until("o-1", "it ends", |look| look["status"] == "completed").await;
    session.pay("o-1", "txn-1", None).await.unwrap();
    service.node.shop.received("refund-payment", 1).await;
    let linked = service.node.linked("o-1").await;
    assert_eq!(linked.len(), 1, "{linked:?}");
    let settled = |look: &Value| look["status"] == "completed";
    let late = service.node.until_at(LATE_PAYMENT, &linked[0], "the late payment is settled", settled).await;
    assert!(late["result"].to_string().contains("refunded"), "{late}");
    // Told of it again, in another delivery.
    session.pay("o-1", "txn-1", Some("once-more")).await.unwrap();
    service.everything_was_seen().await;
    assert_eq!((service.node.linked("o-1").await.len(), service.node.shop.count("refund-payment")), (1, 1));
}

#[tokio::test]
async fn a_payment_after_the_decision_is_given_back_by_the_order_itself() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.place(&Order::new("o-1").due(now())).await.unwrap();
    service.node.until_phase("o-1", "watching").await;
    session.pay("o-1", "txn-1", None).await.unwrap();
    let given_back = |look: &Value| look["progress"]["refunds"] == json!([refund("txn-1", "refunded")]);
    service.node.until("o-1", "it is given back", given_back).await;
}

#[tokio::test]
async fn the_same_delivery_again_is_one_and_another_one_under_its_id_is_refused() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.run("BEGIN").await;
    let payload = r#"{"transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": "2026-11-30T18:00:00Z"}"#;
    for same in [payload.to_owned(), payload.replace(": ", ":")] {
        session.send("o-1", "payment-succeeded", &same, Some("d-1")).await.unwrap();
    }
    session.run("SAVEPOINT before").await;
    let other = session.send("o-1", "payment-succeeded", &payload.replace("19.99", "5.00"), Some("d-1")).await;
    let refused = raised(other);
    assert!(refused.code == "23505" && refused.message.contains("saying something else"), "{refused:?}");
    session.run("ROLLBACK TO SAVEPOINT before; COMMIT").await;
    session.place(&Order::bare("o-1").due(in_the_future())).await.unwrap();
    service.node.until("o-1", "it is paid", decided("paid")).await;
    session.send("o-1", "payment-succeeded", payload, Some("d-1")).await.unwrap();
    service.everything_was_seen().await;
    assert_eq!(payments(&service, "o-1").await, 1);
}

#[tokio::test]
async fn one_payment_told_of_under_two_ids_and_over_http_too_is_one_payment() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.place(&Order::bare("o-1").due(in_the_future())).await.unwrap();
    service.started("o-1").await;
    session.run("BEGIN").await;
    session.pay("o-1", "txn-1", Some("d-1")).await.unwrap();
    session.pay("o-1", "txn-1", Some("d-2")).await.unwrap();
    session.run("COMMIT").await;
    service.node.until("o-1", "it is paid", decided("paid")).await;
    assert_eq!(service.node.pay("o-1", "txn-1").await, SignalOutcome::Duplicate);
    service.everything_was_seen().await;
    assert_eq!((payments(&service, "o-1").await, service.node.shop.count("refund-payment")), (1, 0));
}

#[tokio::test]
async fn more_signals_than_one_workflow_may_have_waiting_are_refused_until_they_are_taken_up() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let cancel = r#"{"reason": "x"}"#;
    session
        .run(
            "SELECT overdue.signal_workflow('order-timeout', 'o-1', 'cancel-order', '{\"reason\": \"x\"}', 'd-' || n)
             FROM generate_series(1, 1000) AS n",
        )
        .await;
    let refused = raised(session.send("o-1", "cancel-order", cancel, None).await);
    assert!(refused.code == "54000" && refused.hint.contains("taken up"), "{refused:?}");
    session.send("o-2", "cancel-order", cancel, None).await.unwrap();
}

#[tokio::test]
async fn a_signal_that_the_program_cannot_read_holds_nothing_up() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    for payload in [r#"{"transactionId": "\ud800"}"#, r#"{"transactionId": 17}"#, r#""\ud800\ud800""#, "null"] {
        session.send("o-1", "payment-succeeded", payload, None).await.unwrap();
    }
    session.place(&Order::new("o-1").due(now())).await.unwrap();
    service.node.until("o-1", "it is cancelled", decided("cancelled")).await;
    session.pay("o-1", "txn-1", None).await.unwrap();
    service.node.shop.received("refund-payment", 1).await;
    assert_eq!(payments(&service, "o-1").await, 1);
}
