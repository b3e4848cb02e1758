//! What those outside are told of an order, over real HTTP, signed; and what a person can do when a receiver refuses.

use overdue_activities::{WebhooksConfig, register_webhooks};
use serde_json::{Value, json};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

use crate::harness::{Node, Order, Reply, Setup, outcome, program, run};

/// A receiver that answers so, and a node that tells it of all orders.
async fn told_to(status: u16) -> (MockServer, Node) {
    let receiver = MockServer::start().await;
    Mock::given(matchers::any()).respond_with(ResponseTemplate::new(status)).mount(&receiver).await;
    let (url, secret) = (receiver.uri(), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(secret.path(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let setup = Setup::default().telling(move |sinks, environment| {
        let config = json!({ "crm": { "url": url, "events": ["order.*"], "secrets": [{ "file": secret.path() }] } });
        let config: WebhooksConfig = serde_json::from_value(config).unwrap();
        register_webhooks(sinks, &config, environment).unwrap();
    });
    (receiver, setup.start().await)
}

/// What came, in order: name and data.
async fn came(receiver: &MockServer) -> Vec<(String, Value)> {
    let requests = receiver.received_requests().await.unwrap();
    let read = |body: &[u8]| {
        let body: Value = serde_json::from_slice(body).unwrap();
        (body["type"].as_str().unwrap().to_owned(), body["data"].clone())
    };
    requests.iter().map(|request| read(&request.body)).collect()
}

/// Waits until so many events have come.
async fn until_came(receiver: &MockServer, count: usize) -> Vec<(String, Value)> {
    overdue_runtime::testing::eventually("events come", || async {
        let came = came(receiver).await;
        (came.len() >= count).then_some(came)
    })
    .await
}

#[tokio::test]
async fn a_cancelled_order_and_its_refund_are_told_once_each_in_this_order() {
    let (receiver, node) = told_to(204).await;
    node.place(&Order::new("o-1").with("userId", "u-7").with("orderNo", "N-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;
    node.pay("o-1", "txn-1").await;
    node.ended("o-1").await;
    let customer = json!({ "orderId": "o-1", "orderNo": "N-1", "userId": "u-7" });
    let mut cancelled = customer.as_object().unwrap().clone();
    cancelled.extend(json!({ "reason": "TIMEOUT", "amount": "19.99", "currency": "USD" }).as_object().unwrap().clone());
    let refunded = json!({ "orderId": "o-1", "transactionId": "txn-1", "amount": "19.99", "currency": "USD" });
    let expected = [("order.cancelled".to_owned(), Value::Object(cancelled)), ("order.refunded".to_owned(), refunded)];
    assert_eq!(until_came(&receiver, 2).await, expected);
    let outbox = node.client.outbox(&Default::default()).await;
    assert!(outbox.is_err(), "a limit is needed");
}

#[tokio::test]
async fn a_paid_order_is_told_with_the_transaction_that_it_is_kept_by() {
    let (receiver, node) = told_to(204).await;
    node.place(&Order::new("o-1")).await;
    node.pay("o-1", "txn-1").await;
    node.ended("o-1").await;
    let paid = json!({ "orderId": "o-1", "transactionId": "txn-1", "amount": "19.99", "currency": "USD" });
    assert_eq!(until_came(&receiver, 1).await, [("order.paid".to_owned(), paid)]);
}

#[tokio::test]
async fn a_step_that_needs_a_person_is_told_with_all_that_its_decision_takes() {
    let (receiver, node) = told_to(204).await;
    node.shop.answers("release-stock", [Reply::status(422)]);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    let step = node.until_a_person_is_needed("o-1", "release-stock").await;
    let came = until_came(&receiver, 2).await;
    let (name, data) = came.iter().find(|(name, _)| name == "order.needs-attention").unwrap();
    assert_eq!(
        (name.as_str(), &data["orderId"], &data["step"]),
        ("order.needs-attention", &json!("o-1"), &json!("release-stock"))
    );
    assert_eq!((&data["workflowType"], &data["workflowId"]), (&json!("order-timeout"), &json!("o-1")));
    assert!(data["failure"].as_str().unwrap().starts_with("http-422"), "{data}");
    assert!(data["number"].is_u64(), "{data} {step}");
}

#[tokio::test]
async fn a_refund_of_a_late_payment_is_told_too() {
    let (receiver, node) = told_to(204).await;
    node.shop.answers("confirm-paid", [outcome("ALREADY_CANCELLED", json!({}))]);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.ended("o-1").await;
    node.pay("o-1", "txn-1").await;
    let id = node.linked("o-1").await.remove(0);
    node.late_payment_ended(&id).await;
    let came = until_came(&receiver, 2).await;
    assert_eq!((came[1].0.as_str(), &came[1].1["transactionId"]), ("order.refunded", &json!("txn-1")));
}

#[tokio::test]
async fn what_a_receiver_refuses_for_good_is_listed_and_a_person_has_it_sent_again_or_skips_it() {
    let (receiver, node) = told_to(422).await;
    let api = node.listen().await;
    let at = async |args: &[&str]| run(program().args(args).args(["--url", &api.url])).await;
    node.place(&Order::new("o-1")).await;
    node.pay("o-1", "txn-1").await;
    node.ended("o-1").await;
    let parked = overdue_runtime::testing::eventually("a person is needed", || async {
        let listed = at(&["outbox", "list", "--state", "needs-attention", "--json"]).await.json();
        listed["events"].as_array().unwrap().first().cloned()
    })
    .await;
    assert_eq!((&parked["sink"], &parked["event"], &parked["workflowId"]), (&json!("crm"), &json!("order.paid"), &json!("o-1")));
    assert_eq!((&parked["attempts"], &parked["nextAttemptAt"]), (&json!(1), &Value::Null));
    let id = parked["id"].as_str().unwrap();
    let shown = at(&["outbox", "list", "--sink", "crm"]).await;
    assert!(
        shown.stdout.contains(id) && shown.stdout.contains("order.paid of order-timeout o-1 to crm: needs-attention"),
        "{shown:?}"
    );

    let retried = at(&["outbox", "retry", id, "--reason", "mended"]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    until_came(&receiver, 2).await;
    overdue_runtime::testing::eventually("it is parked again", || async {
        let listed = at(&["outbox", "list", "--state", "needs-attention", "--json"]).await.json();
        (listed["events"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    assert_eq!(at(&["outbox", "skip", id, "--reason", "known"]).await.code, Some(0));
    assert_eq!(at(&["outbox", "list", "--json"]).await.json(), json!({ "events": [], "next": null }));
    let gone = at(&["outbox", "skip", id, "--reason", "known"]).await;
    assert!(gone.code == Some(1) && gone.stderr.contains("it was delivered or skipped"), "{gone:?}");
    let unknown = at(&["outbox", "list", "--state", "lost"]).await;
    assert!(unknown.stderr.contains("waiting, failing or needs-attention"), "{unknown:?}");
}
