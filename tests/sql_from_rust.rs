//! The same from Rust: `start_in` and `signal_in`, inside a transaction of the order service's own.

use std::collections::BTreeMap;

use overdue_runtime::Payload;
use overdue_runtime::client::{ClientError, SignalRequest, StartRequest, signal_in, start_in};
use overdue_runtime::sqlx::{self, PgPool};
use overdue_runtime::store::{PostgresStore, StoreError};
use overdue_workflows::ORDER_TIMEOUT;
use serde_json::{Value, json};

use crate::harness::order_service::{in_the_future, now};
use crate::harness::{Order, OrderService};

fn start(order: &Order) -> StartRequest {
    StartRequest {
        workflow_type: ORDER_TIMEOUT.into(),
        id: order.id.clone(),
        input: Payload::of(&order.input()).unwrap(),
        start_at: None,
        attributes: BTreeMap::from([("vip".to_owned(), Payload::from_json("true").unwrap())]),
        traceparent: None,
    }
}

fn signal(order: &str, name: &str, payload: &Value) -> SignalRequest {
    SignalRequest {
        workflow_type: ORDER_TIMEOUT.into(),
        id: order.into(),
        name: name.into(),
        signal_id: Some("d-1".into()),
        payload: Payload::of(payload).unwrap(),
    }
}

async fn pool(service: &OrderService) -> PgPool {
    PgPool::connect(service.url.split('?').next().unwrap()).await.unwrap()
}

#[tokio::test]
async fn an_order_its_workflow_and_its_payment_are_committed_together_from_rust_too() {
    let service = OrderService::open().await;
    let pool = pool(&service).await;
    let order = Order::bare("o-1").due(in_the_future());
    let payment = json!({ "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": now() });
    for ends in ["ROLLBACK", "COMMIT"] {
        let mut transaction = pool.begin().await.unwrap();
        sqlx::query("INSERT INTO orders (id, amount) VALUES ('o-1', '19.99')").execute(&mut *transaction).await.unwrap();
        start_in(&mut transaction, &start(&order)).await.unwrap();
        signal_in(&mut transaction, &signal("o-1", "payment-succeeded", &payment)).await.unwrap();
        if ends == "COMMIT" {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
            service.everything_was_seen().await;
            assert!(service.is_missing("o-1").await);
        }
    }
    let look = service.node.until("o-1", "it is paid", |look| look["progress"]["decision"] == "paid").await;
    assert_eq!(look["attributes"], json!({ "vip": true }));
}

#[tokio::test]
async fn a_start_from_rust_is_the_same_request_as_one_over_http_to_the_microsecond() {
    let service = OrderService::open().await;
    let pool = pool(&service).await;
    let request = StartRequest { start_at: Some(in_the_future()), ..start(&Order::bare("o-1").due(in_the_future())) };
    let started = service.node.client.start(request.clone()).await.unwrap();
    start_in(&mut pool.acquire().await.unwrap(), &request).await.unwrap();
    service.everything_was_seen().await;
    let look = service.node.look("o-1").await;
    assert_eq!((&look["runId"], look.get("refusedStart")), (&json!(started.run_id), None));
}

#[tokio::test]
async fn what_is_refused_is_an_error_of_the_client_that_says_what_to_mend() {
    let service = OrderService::open().await;
    let pool = pool(&service).await;
    let mut session = pool.acquire().await.unwrap();
    let good = start(&Order::bare("o-1").due(in_the_future()));

    let refused = start_in(&mut session, &StartRequest { workflow_type: "order".into(), ..good.clone() }).await;
    assert!(
        matches!(&refused, Err(ClientError::UnknownType { found, known })
        if found == "order" && known.contains("order-timeout")),
        "{refused:?}"
    );
    let refused = start_in(&mut session, &StartRequest { id: "a/b".into(), ..good.clone() }).await;
    assert!(
        matches!(&refused, Err(ClientError::Invalid(fields))
        if fields[0].field == "id" && fields[0].message.starts_with("an id is")),
        "{refused:?}"
    );
    let refused = signal_in(&mut session, &signal("o-1", "paid", &json!({}))).await;
    assert!(matches!(&refused, Err(ClientError::Invalid(fields)) if fields[0].field == "name"), "{refused:?}");
    let long = SignalRequest { signal_id: Some("x".repeat(201)), ..signal("o-1", "cancel-order", &json!({})) };
    let refused = signal_in(&mut session, &long).await;
    assert!(matches!(&refused, Err(ClientError::Invalid(fields)) if fields[0].field == "signalId"), "{refused:?}");
    signal_in(&mut session, &signal("o-2", "cancel-order", &json!({ "reason": "x" }))).await.unwrap();
    let refused = signal_in(&mut session, &signal("o-2", "cancel-order", &json!({ "reason": "y" }))).await;
    assert!(matches!(&refused, Err(ClientError::Conflict { run_id: None, .. })), "{refused:?}");

    let copying = PostgresStore::open_to_copy(&service.url, None).await.unwrap();
    let refused = start_in(&mut session, &good).await;
    assert!(
        matches!(&refused, Err(ClientError::Store(StoreError::Refused(message)))
        if message.contains("is being copied") && message.contains("try again")),
        "{refused:?}"
    );
    overdue_runtime::store::Portable::close(&copying).await;
    start_in(&mut session, &good).await.unwrap();
}
