//! Answers that are too large, too deep, or not text.

use overdue_runtime::history::FAILURE_MESSAGE_BYTES_MAX;
use overdue_runtime::history::FailureClass::Transient;
use serde_json::json;
use wiremock::ResponseTemplate;

use crate::harness::{Calls, json, raw, release, service};

async fn failure(answer: ResponseTemplate) -> overdue_runtime::history::Failure {
    let shop = service(answer).await;
    Calls::to(&shop.uri(), |_| {}).call("release-stock", release()).await.unwrap_err().failure
}

#[tokio::test]
async fn a_huge_answer_fails_with_an_excerpt_only() {
    let mut body = b"{\"outcome\":\"RELEASED\",\"x\":\"".to_vec();
    body.resize(10 * 1024 * 1024, b'a');
    body.extend(b"\"}");
    for (status, error_type) in [(200, "too-large"), (500, "http-500"), (422, "http-422")] {
        let failure = failure(raw(status, body.clone())).await;
        assert_eq!(failure.error_type, error_type);
        assert!(failure.message.len() < 400, "{} bytes", failure.message.len());
        assert!(failure.message.contains("RELEASED"));
    }
}

#[tokio::test]
async fn an_answer_at_the_limit_is_read_and_one_byte_more_is_not() {
    let of = |bytes: usize| {
        let mut body = b"{\"outcome\":\"RELEASED\",\"x\":\"".to_vec();
        body.resize(bytes - 2, b'a');
        body.extend(b"\"}");
        raw(200, body)
    };
    let shop = service(of(1024 * 1024)).await;
    assert!(Calls::to(&shop.uri(), |_| {}).call("release-stock", release()).await.is_ok());
    assert_eq!(failure(of(1024 * 1024 + 1)).await.error_type, "too-large");
}

#[tokio::test]
async fn a_deep_answer_fails_and_harms_nobody() {
    for depth in [129, 100_000] {
        let body = format!("{{\"outcome\":\"RELEASED\",\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let failure = failure(raw(200, body)).await;
        assert_eq!((failure.class, failure.error_type.as_str()), (Transient, "unreadable"));
    }
    let unclosed = "[".repeat(100_000);
    assert_eq!(failure(raw(200, unclosed)).await.error_type, "unreadable");
    let fine = format!("{{\"outcome\":\"RELEASED\",\"x\":{}{}}}", "[".repeat(100), "]".repeat(100));
    let shop = service(raw(200, fine)).await;
    assert!(Calls::to(&shop.uri(), |_| {}).call("release-stock", release()).await.is_ok());
}

#[tokio::test]
async fn text_that_no_store_can_keep_is_recorded_with_visible_replacements() {
    let mut body = br#"{"title":"a\u0000b\ud800c"#.to_vec();
    body.extend(b"\0\xff\"}");
    let failure = failure(raw(500, body)).await;
    assert_eq!((failure.class, failure.error_type.as_str()), (Transient, "http-500"));
    assert!(failure.message.contains("a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}"), "{}", failure.message);
    assert!(!failure.message.contains('\0') && !failure.message.contains("\\u0000"));
    assert!(failure.message.len() <= FAILURE_MESSAGE_BYTES_MAX);
}

#[tokio::test]
async fn strange_text_beside_the_outcome_does_no_harm_and_inside_an_id_is_refused() {
    let mut body = br#"{"outcome":"RELEASED","note":"a\u0000\ud800"#.to_vec();
    body.extend(b"\xff\"}");
    let shop = service(raw(200, body)).await;
    let read = Calls::to(&shop.uri(), |_| {}).call("release-stock", release()).await;
    assert_eq!(read.unwrap(), json!({ "outcome": "RELEASED" }));

    let paid = json(409, json!({ "outcome": "ALREADY_PAID", "transactionId": "a\0b" }));
    let shop = service(paid).await;
    let confirm = json!({
        "orderId": "o", "transactionId": "x", "amount": "1", "currency": "USD", "paidAt": "2026-11-30T17:00:00Z",
    });
    let failure = Calls::to(&shop.uri(), |_| {}).call("confirm-paid", confirm).await.unwrap_err();
    assert_eq!(failure.failure.error_type, "http-409");
}

#[tokio::test]
async fn a_reason_is_shortened_and_cleaned() {
    let shop = service(json(409, json!({ "outcome": "REJECTED", "reason": format!("a\0{}", "b".repeat(1000)) }))).await;
    let input = json!({
        "paymentId": "p", "refundId": "f", "transactionId": "x", "amount": "1", "currency": "USD", "reason": "LATE",
    });
    let read = Calls::to(&shop.uri(), |_| {}).call("refund-payment", input).await.unwrap();
    let reason = read["reason"].as_str().unwrap();
    assert!(reason.len() <= 200 && reason.starts_with("a\u{fffd}b"), "{reason}");
}
