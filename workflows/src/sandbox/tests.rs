//! The shop over real HTTP: idempotency, faults as a caller feels them, and replay of the ledgers.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Client, Response};
use serde_json::{Value, json};

use super::*;

struct Caller {
    shop: Shop,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Caller {
    async fn with(faults: FaultPlan) -> Caller {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::start(folder.path(), faults).await.unwrap();
        let past = Timestamp::now() - Duration::from_secs(1);
        shop.place_order(&NewOrder::new("o-1", past).with_everything()).await.unwrap();
        let client = Client::builder().timeout(Duration::from_millis(100)).build().unwrap();
        Caller { shop, client, _folder: folder }
    }

    async fn send(&self, service: Service, path: &str, key: &str, body: Value) -> reqwest::Result<Response> {
        let url = format!("{}{path}", self.shop.urls().of(service));
        self.client.post(url).header("Idempotency-Key", key).json(&body).send().await
    }

    async fn release(&self, key: &str) -> (u16, Value) {
        let path = "/reservations/o-1-stock/release";
        let response = self.send(Service::Stock, path, key, json!({ "orderId": "o-1" })).await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    fn effects(&self, wanted: &Effect) -> usize {
        self.shop.effects(Service::Stock).unwrap().iter().filter(|effect| effect.effect == *wanted).count()
    }
}

#[tokio::test]
async fn the_same_key_gets_the_stored_answer_and_the_effect_happens_once() {
    let caller = Caller::with(FaultPlan::none()).await;
    assert_eq!(caller.release("k-1").await, (200, json!({ "outcome": "RELEASED" })));
    assert_eq!(caller.release("k-1").await, (200, json!({ "outcome": "RELEASED" })));
    assert_eq!(caller.effects(&Effect::StockReleased), 1);
    assert!(caller.shop.requests(Service::Stock).unwrap()[1].repeated);
    assert_eq!(caller.shop.counts().duplicate_effects, 0);
}

#[tokio::test]
async fn another_key_for_the_same_effect_is_counted_and_changes_nothing() {
    let caller = Caller::with(FaultPlan::none()).await;
    caller.release("k-1").await;
    assert_eq!(caller.release("k-2").await, (200, json!({ "outcome": "ALREADY_RELEASED" })));
    assert_eq!(caller.effects(&Effect::StockReleased), 1);
    assert_eq!(caller.shop.counts().duplicate_effects, 1);
}

#[tokio::test]
async fn a_key_of_another_request_is_refused_and_counted() {
    let caller = Caller::with(FaultPlan::none()).await;
    caller.release("k-1").await;
    let path = "/reservations/o-1-stock/release";
    let refused = caller.send(Service::Stock, path, "k-1", json!({ "orderId": "o-2" })).await.unwrap();
    assert_eq!(refused.status(), 422);
    assert_eq!(caller.shop.counts().reused_keys, 1);
}

#[tokio::test]
async fn a_request_without_a_key_or_with_a_broken_body_is_refused() {
    let caller = Caller::with(FaultPlan::none()).await;
    let url = format!("{}/reservations/o-1-stock/release", caller.shop.urls().stock);
    let keyless = caller.client.post(&url).json(&json!({ "orderId": "o-1" })).send().await.unwrap();
    assert_eq!(keyless.status(), 400);
    let broken = caller.client.post(&url).header("Idempotency-Key", "k").body("{").send().await.unwrap();
    assert_eq!(broken.status(), 400);
    assert_eq!(caller.effects(&Effect::StockReleased), 0);
}

#[tokio::test]
async fn a_withheld_answer_has_had_its_effect_and_a_repeat_under_the_key_learns_it() {
    let plan = FaultPlan::none().withholding(Duration::from_secs(5));
    let caller = Caller::with(plan.plant(Service::Stock, "o-1-stock", 1..=1, Fault::TimeoutAfterEffect)).await;
    let path = "/reservations/o-1-stock/release";
    let error = caller.send(Service::Stock, path, "k-1", json!({ "orderId": "o-1" })).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(caller.release("k-1").await.1, json!({ "outcome": "RELEASED" }));
    assert_eq!(caller.effects(&Effect::StockReleased), 1);
    assert_eq!(caller.shop.counts().faults(FaultKind::TimeoutAfterEffect), 1);
}

#[tokio::test]
async fn a_broken_connection_has_had_its_effect_too() {
    let plan = FaultPlan::none().plant(Service::Stock, "o-1-stock", 1..=1, Fault::ConnectionClosed);
    let caller = Caller::with(plan).await;
    let path = "/reservations/o-1-stock/release";
    let unreadable = match caller.send(Service::Stock, path, "k-1", json!({ "orderId": "o-1" })).await {
        Ok(response) => response.bytes().await.is_err(),
        Err(_) => true,
    };
    assert!(unreadable);
    assert_eq!(caller.release("k-1").await.1, json!({ "outcome": "RELEASED" }));
}

#[tokio::test]
async fn refusals_come_before_the_effect_and_are_not_stored_under_the_key() {
    let plan = FaultPlan::none()
        .plant(Service::Stock, "o-1-stock", 1..=1, Fault::Unavailable)
        .plant(Service::Stock, "o-1-stock", 2..=2, Fault::Throttled { retry_after: 7 })
        .plant(Service::Stock, "o-1-stock", 3..=3, Fault::ServerError);
    let caller = Caller::with(plan).await;
    assert_eq!(caller.release("k-1").await.0, 503);
    let path = "/reservations/o-1-stock/release";
    let throttled = caller.send(Service::Stock, path, "k-1", json!({ "orderId": "o-1" })).await.unwrap();
    assert_eq!((throttled.status().as_u16(), &throttled.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    assert_eq!(caller.release("k-1").await.0, 500);
    assert_eq!(caller.effects(&Effect::StockReleased), 0);
    assert_eq!(caller.release("k-1").await, (200, json!({ "outcome": "RELEASED" })));
}

#[tokio::test]
async fn a_shop_started_again_on_its_ledgers_stands_where_it_stood() {
    let caller = Caller::with(FaultPlan::none()).await;
    caller.release("k-1").await;
    let Caller { shop, client, _folder } = caller;
    shop.capture("o-1-pay", &Capture::now("t-1", "10.00", "USD")).await.unwrap();
    let counts = shop.counts();
    let captures = shop.captures("o-1-pay");
    let folder = shop.folder().to_owned();
    drop(shop);

    let shop = Shop::start(&folder, FaultPlan::none()).await.unwrap();
    let caller = Caller { shop, client, _folder };

    assert_eq!(caller.shop.counts(), counts);
    assert_eq!(caller.shop.captures("o-1-pay"), captures);
    assert_eq!(caller.release("k-1").await.1, json!({ "outcome": "RELEASED" }));
    assert!(caller.shop.requests(Service::Stock).unwrap()[1].repeated);
    assert_eq!(caller.shop.reservation("o-1-stock"), Some(ReservationStatus::Released));
}

#[tokio::test]
async fn a_late_forward_call_after_its_compensation_is_refused() {
    let caller = Caller::with(FaultPlan::none()).await;
    let body = json!({ "orderId": "o-2" });
    let released = caller.send(Service::Stock, "/reservations/o-2-stock/release", "k-1", body.clone()).await.unwrap();
    let returned = caller.send(Service::Coupons, "/coupons/o-2-coupon/return", "k-2", body).await.unwrap();
    assert_eq!((released.status().as_u16(), returned.status().as_u16()), (404, 404));

    let late = NewReservation { token: "o-2-stock".into(), sku: "sku-1".into(), quantity: 1 };
    assert!(matches!(caller.shop.reserve("o-2", &late).await, Err(Error::Refused { .. })));
    assert!(matches!(caller.shop.lock_coupon("o-2", "o-2-coupon").await, Err(Error::Refused { .. })));
    assert!(caller.shop.stock_level("sku-1").conserves());
}

#[tokio::test]
async fn a_slow_refund_is_followed_by_its_status() {
    let caller = Caller::with(FaultPlan::none()).await;
    let terms = PaymentTerms { refund_queries: 2, ..PaymentTerms::default() };
    caller.shop.open_payment("o-1", &NewPayment { payment_id: "p-2".into(), terms }).await.unwrap();
    caller.shop.capture("p-2", &Capture::now("t-1", "10.00", "USD")).await.unwrap();
    let body = json!({ "refundId": "f-1", "transactionId": "t-1", "amount": "10.00", "currency": "USD", "reason": "late" });
    let accepted = caller.send(Service::Payments, "/payments/p-2/refunds", "k-1", body).await.unwrap();
    assert_eq!(accepted.json::<Value>().await.unwrap()["outcome"], "PROCESSING");
    let url = format!("{}/payments/p-2/refunds/f-1", caller.shop.urls().payments);
    for expected in ["PROCESSING", "REFUNDED", "REFUNDED"] {
        let status: Value = caller.client.get(&url).send().await.unwrap().json().await.unwrap();
        assert_eq!(status["outcome"], expected);
    }
    assert!(caller.shop.refunded("p-2", "t-1"));
}

#[tokio::test]
async fn the_listing_names_the_orders_that_wait_past_their_deadline() {
    let caller = Caller::with(FaultPlan::none()).await;
    let future = Timestamp::now() + Duration::from_secs(60);
    caller.shop.place_order(&NewOrder::new("o-2", future)).await.unwrap();
    let url = format!("{}/orders?status=WAIT_PAY&deadlineBefore={:.3}", caller.shop.urls().orders, Timestamp::now());
    let page: Value = caller.client.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(page["orders"].as_array().unwrap().len(), 1);
    assert_eq!(page["orders"][0]["orderId"], "o-1");
    assert_eq!(page["next"], Value::Null);
}

#[tokio::test]
async fn the_batch_endpoints_are_absent() {
    let caller = Caller::with(FaultPlan::none()).await;
    let absent = caller.send(Service::Stock, "/reservations:release", "k-1", json!({ "items": [] })).await.unwrap();
    assert_eq!((absent.status().as_u16(), absent.bytes().await.unwrap().len()), (404, 0));
}

#[tokio::test]
async fn many_requests_share_few_flushes_and_all_are_in_the_ledger() {
    let caller = Caller::with(FaultPlan::none()).await;
    let past = Timestamp::now();
    let ids: Vec<_> = (0..200).map(|number| format!("many-{number}")).collect();
    let orders: Vec<_> = ids.iter().map(|id| NewOrder::new(id, past).with_everything()).collect();
    futures::future::try_join_all(orders.iter().map(|order| caller.shop.place_order(order))).await.unwrap();
    assert_eq!(caller.shop.effects(Service::Orders).unwrap().len(), 201);
    let level = caller.shop.stock_level("sku-1");
    assert!(level.conserves() && level.reserved == 201, "{level:?}");
}
