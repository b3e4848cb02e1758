//! An existing service is called as it is, by configuration alone.

use overdue_activities::{DownstreamConfig, DownstreamsConfig};
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use crate::harness::{Calls, KEY, header, json, raw, received, release, service};

/// The worked example of the README.
const EXAMPLE: &str = r#"
headers = { X-Client = "overdue" }

[calls.release-stock]
method  = "PUT"
path    = "/api/v2/locks/{stockToken}/unlock?source=timeout"
headers = { X-Api-Version = "2" }
body    = { orderId = "order_no", stockToken = "lock_id", idempotencyKey = "request_no" }

[calls.release-stock.outcome]
field  = "data.state"
words  = { UNLOCKED = "RELEASED", ALREADY = "ALREADY_RELEASED" }
status = { 204 = "RELEASED", 410 = "NOT_FOUND" }
"#;

fn calls(url: &str, stock: &str) -> Calls {
    let stock = toml::from_str(&format!("url = \"{url}/shop/\"\n{stock}")).unwrap();
    let other = || DownstreamConfig::at(url);
    Calls::with(&DownstreamsConfig { orders: other(), stock, coupons: other(), payments: other() })
}

#[tokio::test]
async fn method_path_headers_and_body_are_those_of_the_existing_service() {
    let shop = service(json(200, json!({ "code": 0, "data": { "state": "UNLOCKED" } }))).await;
    let read = calls(&shop.uri(), EXAMPLE).call("release-stock", json!({ "stockToken": "a b", "orderId": "o-1" })).await;
    assert_eq!(read.unwrap(), json!({ "outcome": "RELEASED" }));
    let request = &received(&shop).await[0];
    assert_eq!((request.method.as_str(), request.url.path()), ("PUT", "/shop/api/v2/locks/a%20b/unlock"));
    assert_eq!(request.url.query(), Some("source=timeout"));
    assert_eq!((header(request, "x-client"), header(request, "x-api-version")), ("overdue", "2"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body, json!({ "order_no": "o-1", "lock_id": "a b", "request_no": KEY }));
}

#[tokio::test]
async fn their_words_and_statuses_become_our_outcomes() {
    for (answer, outcome) in [
        (json(200, json!({ "data": { "state": "UNLOCKED" } })), "RELEASED"),
        (json(200, json!({ "data": { "state": "ALREADY" } })), "ALREADY_RELEASED"),
        (json(200, json!({ "data": { "state": "NOT_FOUND" } })), "NOT_FOUND"),
        (ResponseTemplate::new(204), "RELEASED"),
        (json(410, json!({ "error": "gone" })), "NOT_FOUND"),
        (raw(410, "gone"), "NOT_FOUND"),
    ] {
        let shop = service(answer).await;
        let read = calls(&shop.uri(), EXAMPLE).call("release-stock", release()).await;
        assert_eq!(read.unwrap(), json!({ "outcome": outcome }));
    }
}

#[tokio::test]
async fn a_word_that_is_not_mapped_is_not_made_up_for_by_the_status() {
    let mapping =
        "[calls.release-stock.outcome]\nfield = \"code\"\nwords = { 0 = \"RELEASED\" }\nstatus = { 200 = \"RELEASED\" }";
    let shop = service(json(200, json!({ "code": 0 }))).await;
    assert!(calls(&shop.uri(), mapping).call("release-stock", release()).await.is_ok());
    let shop = service(json(200, json!({ "code": 5001, "message": "locked" }))).await;
    let failure = calls(&shop.uri(), mapping).call("release-stock", release()).await.unwrap_err().failure;
    assert_eq!(failure.error_type, "unknown-outcome");
    assert!(failure.message.contains("5001"), "{}", failure.message);
}

#[tokio::test]
async fn an_empty_name_leaves_a_field_out() {
    let shop = service(json(200, json!({ "outcome": "RELEASED" }))).await;
    let mapping = "[calls.release-stock]\nbody = { orderId = \"\" }";
    calls(&shop.uri(), mapping).call("release-stock", release()).await.unwrap();
    assert_eq!(received(&shop).await[0].body, b"{}");
}

#[tokio::test]
async fn fields_of_an_outcome_are_found_where_the_existing_service_puts_them() {
    let answer =
        json!({ "status": "PAID_ALREADY", "txn": { "id": 42, "total": "19.9", "ccy": "USD", "at": "2026-11-30T17:00:00Z" } });
    let shop = service(json(409, answer)).await;
    let other = || DownstreamConfig::at(shop.uri());
    let payments = toml::from_str(&format!(
        "url = \"{}\"\n[calls.close-payment.outcome]\nfield = \"status\"\nwords = {{ PAID_ALREADY = \"ALREADY_PAID\" }}\n\
         fields = {{ transactionId = \"txn.id\", amount = \"txn.total\", currency = \"txn.ccy\", paidAt = \"txn.at\" }}",
        shop.uri()
    ));
    let config = DownstreamsConfig { orders: other(), stock: other(), coupons: other(), payments: payments.unwrap() };
    let read = Calls::with(&config).call("close-payment", json!({ "paymentId": "p", "orderId": "o" })).await.unwrap();
    assert_eq!(
        read,
        json!({
            "outcome": "ALREADY_PAID", "transactionId": "42", "amount": "19.9", "currency": "USD",
            "paidAt": "2026-11-30T17:00:00.000Z",
        })
    );
}
