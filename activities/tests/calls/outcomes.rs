//! Every outcome of every call, and the exact request that asks for it.

use overdue_activities::{DownstreamConfig, DownstreamsConfig};
use overdue_runtime::engine::breaker::{BreakerPosition, Setting};
use serde_json::{Value, json};
use wiremock::matchers::{any, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::harness::{Calls, KEY, context, header, json, received, service};

struct Row {
    call: &'static str,
    input: Value,
    request: (&'static str, &'static str, Value),
    answers: Vec<(u16, Value)>,
}

fn capture() -> Value {
    json!({ "transactionId": "x-1", "amount": "19.90", "currency": "USD", "paidAt": "2026-11-30T17:59:59.500Z" })
}

fn outcome(word: &str, fields: &Value) -> Value {
    let mut answer = fields.clone();
    answer["outcome"] = json!(word);
    answer
}

fn table() -> Vec<Row> {
    let none = json!({});
    let ok = |word: &str| (200, outcome(word, &none));
    let conflict = |word: &str| (409, outcome(word, &none));
    let missing = |word: &str| (404, outcome(word, &none));
    let end = || json!({ "paymentId": "p/1", "orderId": "o-1", "paymentChannel": "alipay" });
    vec![
        Row {
            call: "cancel-order",
            input: json!({ "orderId": "o-1", "reason": "TIMEOUT", "payDeadline": "2026-11-30T18:00:00.000Z" }),
            request: ("POST", "/orders/o-1/cancel", json!({ "reason": "TIMEOUT", "payDeadline": "2026-11-30T18:00:00.000Z" })),
            answers: vec![
                ok("CANCELLED"),
                conflict("ALREADY_CANCELLED"),
                conflict("ALREADY_PAID"),
                (409, outcome("ALREADY_PAID", &json!({ "transactionId": "x-1" }))),
                (200, outcome("NOT_DUE", &json!({ "payDeadline": "2026-12-01T18:00:00.000Z" }))),
                (200, outcome("NOT_READY", &json!({ "retryAfter": 3 }))),
                missing("NOT_FOUND"),
            ],
        },
        Row {
            call: "confirm-paid",
            input: outcome_input(),
            request: ("POST", "/orders/o%20%C3%A9%2F1/confirm-paid", capture()),
            answers: vec![
                ok("PAID"),
                (409, outcome("ALREADY_PAID", &json!({ "transactionId": "x-2" }))),
                conflict("ALREADY_CANCELLED"),
                conflict("EXPIRED"),
                missing("NOT_FOUND"),
            ],
        },
        Row {
            call: "release-stock",
            input: json!({ "stockToken": "t-1", "orderId": "o-1" }),
            request: ("POST", "/reservations/t-1/release", json!({ "orderId": "o-1" })),
            answers: vec![ok("RELEASED"), ok("ALREADY_RELEASED"), missing("NOT_FOUND")],
        },
        Row {
            call: "return-coupon",
            input: json!({ "couponId": "c-1", "orderId": "o-1" }),
            request: ("POST", "/coupons/c-1/return", json!({ "orderId": "o-1" })),
            answers: vec![ok("RETURNED"), ok("ALREADY_RETURNED"), missing("NOT_FOUND")],
        },
        Row {
            call: "close-payment",
            input: end(),
            request: ("POST", "/payments/p%2F1/close", json!({ "orderId": "o-1" })),
            answers: vec![
                ok("CLOSED"),
                ok("ALREADY_CLOSED"),
                (409, outcome("ALREADY_PAID", &capture())),
                ok("AUTHORIZED"),
                ok("IN_PROGRESS"),
                missing("NOT_CREATED"),
                (200, outcome("TOO_EARLY", &json!({ "retryAfter": 60 }))),
                (409, outcome("REJECTED", &json!({ "reason": "bad signature" }))),
            ],
        },
        Row {
            call: "void-payment",
            input: end(),
            request: ("POST", "/payments/p%2F1/void", json!({ "orderId": "o-1" })),
            answers: vec![ok("VOIDED"), ok("ALREADY_VOIDED"), (409, outcome("ALREADY_PAID", &capture()))],
        },
        Row {
            call: "refund-payment",
            input: json!({
                "paymentId": "p-1", "refundId": "f-1", "transactionId": "x-1", "amount": "5800", "currency": "JPY",
                "reason": "LATE_PAYMENT",
            }),
            request: (
                "POST",
                "/payments/p-1/refunds",
                json!({
                    "refundId": "f-1", "transactionId": "x-1", "amount": "5800", "currency": "JPY", "reason": "LATE_PAYMENT",
                }),
            ),
            answers: vec![ok("REFUNDED"), ok("ALREADY_REFUNDED"), ok("PROCESSING"), conflict("REJECTED")],
        },
        Row {
            call: "refund-status",
            input: json!({ "paymentId": "p-1", "refundId": "f 1" }),
            request: ("GET", "/payments/p-1/refunds/f%201", Value::Null),
            answers: vec![ok("REFUNDED"), ok("PROCESSING"), ok("REJECTED"), missing("NOT_FOUND")],
        },
    ]
}

fn outcome_input() -> Value {
    let mut input = capture();
    input["orderId"] = json!("o é/1");
    input
}

#[tokio::test]
async fn every_outcome_of_every_call_is_read_and_its_request_is_exact() {
    let shop = MockServer::start().await;
    for row in table() {
        let calls = Calls::to(&shop.uri(), |_| {});
        for (status, answer) in row.answers {
            shop.reset().await;
            Mock::given(any()).respond_with(json(status, answer.clone())).mount(&shop).await;
            let ctx = context().with_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
            let read = calls.attempt(&ctx, row.call, row.input.clone()).await.unwrap();
            assert_eq!(read, answer, "{}", row.call);
            assert_eq!(ctx.sends(), 1);

            let requests = received(&shop).await;
            let [request] = requests.as_slice() else { panic!("{} sends", requests.len()) };
            let (method, path, body) = &row.request;
            assert_eq!((request.method.as_str(), request.url.path(), request.url.query()), (*method, *path, None));
            let sent = if request.body.is_empty() { Value::Null } else { serde_json::from_slice(&request.body).unwrap() };
            assert_eq!(&sent, body, "{}", row.call);
            assert_eq!(header(request, "idempotency-key"), KEY);
            assert_eq!(header(request, "content-type"), "application/json");
            assert_eq!(header(request, "accept"), "application/json");
            assert!(header(request, "traceparent").starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
            assert_eq!(header(request, "accept-encoding"), "");
            assert_eq!(header(request, "tracestate"), "");
        }
    }
}

#[tokio::test]
async fn an_outcome_that_a_call_does_not_have_is_never_taken_for_done() {
    for (call, input) in [("release-stock", json!({ "stockToken": "t", "orderId": "o" })), ("cancel-order", cancel())] {
        for answer in [json!({ "outcome": "DONE" }), json!({ "outcome": "REFUNDED" }), json!({ "state": "ok" }), json!({})] {
            let shop = service(json(200, answer)).await;
            let failure = Calls::to(&shop.uri(), |_| {}).call(call, input.clone()).await.unwrap_err().failure;
            assert_eq!(
                (failure.class, failure.error_type.as_str()),
                (overdue_runtime::history::FailureClass::Permanent, "unknown-outcome")
            );
        }
    }
}

fn cancel() -> Value {
    json!({ "orderId": "o-1", "reason": "USER", "payDeadline": "2026-11-30T18:00:00.000Z" })
}

#[tokio::test]
async fn an_outcome_without_what_belongs_to_it_needs_a_person() {
    for answer in [
        json!({ "outcome": "ALREADY_PAID" }),
        json!({ "outcome": "ALREADY_PAID", "transactionId": "x", "amount": "19.999", "currency": "USD", "paidAt": "2026-11-30T17:00:00Z" }),
        json!({ "outcome": "ALREADY_PAID", "transactionId": "x", "amount": "19.99", "currency": "USD", "paidAt": 1_700_000_000 }),
    ] {
        let shop = service(json(200, answer)).await;
        let input = json!({ "paymentId": "p", "orderId": "o" });
        let failure = Calls::to(&shop.uri(), |_| {}).call("close-payment", input).await.unwrap_err().failure;
        assert_eq!(failure.error_type, "unknown-outcome");
        assert!(failure.message.contains("ALREADY_PAID is not complete"), "{}", failure.message);
    }
}

#[tokio::test]
async fn amounts_keep_their_digits_in_every_currency() {
    for (amount, currency) in [("5800", "JPY"), ("1.255", "KWD"), ("19.99", "USD"), ("0.001", "BHD"), ("19.90", "USD")] {
        let body = format!(
            r#"{{"outcome":"ALREADY_PAID","transactionId":9007199254740993,"amount":{amount},"currency":"{currency}","paidAt":"2026-11-30T17:00:00Z"}}"#
        );
        let shop = service(crate::harness::raw(200, body)).await;
        let calls = Calls::to(&shop.uri(), |_| {});
        let read = calls.call("close-payment", json!({ "paymentId": "p", "orderId": "o" })).await.unwrap();
        assert_eq!((read["amount"].as_str(), read["transactionId"].as_str()), (Some(amount), Some("9007199254740993")));

        let refund = json!({
            "paymentId": "p", "refundId": "f", "transactionId": "3544790567247868102", "amount": amount, "currency": currency,
            "reason": "LATE_PAYMENT",
        });
        let _ = calls.call("refund-payment", refund).await;
        let sent: Value = serde_json::from_slice(&received(&shop).await[1].body).unwrap();
        assert_eq!((sent["amount"].as_str(), sent["currency"].as_str()), (Some(amount), Some(currency)));
        assert_eq!(sent["transactionId"], "3544790567247868102");
    }
}

#[tokio::test]
async fn a_wait_comes_from_the_body_then_from_the_header_then_from_a_default() {
    for (body, header, expected) in [
        (json!({ "retryAfter": 7 }), Some("9"), 7),
        (json!({ "retryAfter": "7" }), None, 7),
        (json!({}), Some("9"), 9),
        (json!({ "retryAfter": -1 }), Some("9"), 9),
        (json!({ "retryAfter": 1.5 }), None, 5),
        (json!({ "retryAfter": 0 }), None, 1),
        (json!({ "retryAfter": 86400 }), None, 3600),
    ] {
        let mut answer = json(200, outcome("NOT_READY", &body));
        if let Some(header) = header {
            answer = answer.insert_header("retry-after", header);
        }
        let shop = service(answer).await;
        let read = Calls::to(&shop.uri(), |_| {}).call("cancel-order", cancel()).await.unwrap();
        assert_eq!(read, json!({ "outcome": "NOT_READY", "retryAfter": expected }), "{body} {header:?}");
    }
}

#[tokio::test]
async fn a_rejected_close_shuts_its_channel_and_no_other_until_a_person_opens_it() {
    let shop = service(json(409, json!({ "outcome": "REJECTED", "reason": "bad signature" }))).await;
    let calls = Calls::to(&shop.uri(), |_| {});
    let close = |channel: &str| json!({ "paymentId": "p", "orderId": "o", "paymentChannel": channel });
    let status = |channel: &str| {
        let refund = json!({ "paymentId": "p", "refundId": "f", "paymentChannel": channel });
        async { calls.call("refund-status", refund).await }
    };
    calls.call("close-payment", close("alipay")).await.unwrap();

    let parked = calls.call("close-payment", close("alipay")).await.unwrap_err();
    assert_eq!(parked.parked_by.as_deref(), Some("breaker of payments/alipay"));
    assert!(status("alipay").await.unwrap_err().parked_by.is_some());
    assert_eq!(received(&shop).await.len(), 1, "nothing more is sent to the channel");
    assert!(status("paypal").await.is_ok());

    let shut = calls.breakers.views().into_iter().find(|breaker| breaker.key.as_deref() == Some("alipay")).unwrap();
    assert_eq!((shut.downstream.as_str(), shut.position), ("payments", BreakerPosition::ForcedOpen));
    assert_eq!(shut.reason.as_deref(), Some("close-payment was answered REJECTED: bad signature"));
    calls.set("payments", Some("alipay"), Setting::Close).await.unwrap();
    assert!(status("alipay").await.is_ok());
}

#[tokio::test]
async fn a_channel_that_fails_holds_back_no_order_of_another_where_channels_count_for_themselves() {
    let shop = service(json(200, json!({ "outcome": "CLOSED" }))).await;
    let down = Mock::given(path("/payments/p-alipay/close")).respond_with(ResponseTemplate::new(503));
    down.with_priority(1).mount(&shop).await;
    let at = || DownstreamConfig::at(shop.uri());
    let mut payments = at();
    payments.breaker.by_channel = true;
    let calls = Calls::with(&DownstreamsConfig { orders: at(), stock: at(), coupons: at(), payments });
    let close = |channel: &str| {
        let close = json!({ "paymentId": format!("p-{channel}"), "orderId": "o", "paymentChannel": channel });
        async { calls.call("close-payment", close).await }
    };
    for _ in 0..5 {
        assert_eq!(close("alipay").await.unwrap_err().failure.error_type, "http-503");
        assert!(close("bank").await.is_ok());
    }
    assert_eq!(close("alipay").await.unwrap_err().parked_by.as_deref(), Some("breaker of payments/alipay"));
    assert!(close("bank").await.is_ok());
    assert_eq!(received(&shop).await.len(), 11, "nothing more is sent to the channel that fails");
}

#[tokio::test]
async fn an_operators_breaker_holds_back_its_downstream_until_it_is_closed() {
    let shop = service(json(200, json!({ "outcome": "RELEASED" }))).await;
    let calls = Calls::to(&shop.uri(), |_| {});
    calls.set("stock", None, Setting::ForceOpen).await.unwrap();
    assert_eq!(
        calls.call("release-stock", crate::harness::release()).await.unwrap_err().parked_by.as_deref(),
        Some("breaker of stock")
    );
    calls.set("stock", None, Setting::Close).await.unwrap();
    assert!(calls.call("release-stock", crate::harness::release()).await.is_ok());
    assert!(calls.set("billing", None, Setting::Close).await.is_err());
}

#[tokio::test]
async fn a_token_that_would_change_the_path_is_never_sent() {
    let shop = service(json(200, json!({ "outcome": "RELEASED" }))).await;
    let calls = Calls::to(&shop.uri(), |_| {});
    for token in [".", "..", ""] {
        let failure = calls.call("release-stock", json!({ "stockToken": token, "orderId": "o" })).await.unwrap_err();
        assert_eq!(failure.failure.error_type, "input");
    }
    assert!(received(&shop).await.is_empty());
    calls.call("release-stock", json!({ "stockToken": "../../x?y#z", "orderId": "o" })).await.unwrap();
    assert_eq!(received(&shop).await[0].url.path(), "/reservations/..%2F..%2Fx%3Fy%23z/release");
}

#[tokio::test]
async fn the_options_come_from_the_configuration() {
    let calls = Calls::to("http://127.0.0.1:1/", |config| {
        config.retry.attempts = Some(5);
        config.concurrency = 8;
        config.timeout = "1m".parse().unwrap();
    });
    use overdue_runtime::activity::Exhausted::{Fail, NeedsAttention};
    for name in calls.activities.names() {
        let options = calls.activities.get(name).unwrap().options();
        let expected = if name.starts_with("refund") { Fail } else { NeedsAttention };
        assert_eq!((options.exhausted, options.retry.attempts), (expected, Some(5)), "{name}");
        assert_eq!(options.limit.unwrap().concurrency, 8);
        assert!(options.start_to_close > std::time::Duration::from_secs(60));
    }
    assert_eq!(calls.activities.names().count(), 8);
}
