//! What an answer without an outcome means, and what `Retry-After` says.

use overdue_runtime::history::FailureClass::{self, Neutral, Permanent, Transient};
use serde_json::json;
use wiremock::{MockServer, ResponseTemplate};

use crate::harness::{Calls, json, raw, received, release, service};

async fn failure(answer: ResponseTemplate) -> (FailureClass, String, Option<u128>) {
    let shop = service(answer).await;
    let failure = Calls::to(&shop.uri(), |_| {}).failure().await;
    assert_eq!(received(&shop).await.len(), 1, "one attempt is one send");
    failure
}

#[tokio::test]
async fn the_status_decides_the_class() {
    for (status, class) in [
        (400, Permanent),
        (401, Permanent),
        (403, Permanent),
        (404, Permanent),
        (409, Permanent),
        (410, Permanent),
        (422, Permanent),
        (408, Transient),
        (425, Transient),
        (500, Transient),
        (502, Transient),
        (503, Transient),
        (504, Transient),
    ] {
        let expected = (class, format!("http-{status}"), None);
        assert_eq!(failure(json(status, json!({ "title": "no" }))).await, expected);
    }
}

#[tokio::test]
async fn an_outcome_counts_on_2xx_404_and_409_and_on_nothing_else() {
    for (status, counts) in
        [(200, true), (201, true), (202, true), (404, true), (409, true), (410, false), (422, false), (500, false)]
    {
        let shop = service(json(status, json!({ "outcome": "RELEASED" }))).await;
        let read = Calls::to(&shop.uri(), |_| {}).call("release-stock", release()).await;
        assert_eq!(read.is_ok(), counts, "{status}");
    }
}

#[tokio::test]
async fn throttling_waits_and_costs_no_attempt() {
    let throttled = || "throttled".to_owned();
    assert_eq!(failure(ResponseTemplate::new(429)).await, (Neutral, throttled(), None));
    for status in [403, 429, 500, 503] {
        let answer = ResponseTemplate::new(status).insert_header("retry-after", "3");
        assert_eq!(failure(answer).await, (Neutral, throttled(), Some(3000)), "{status}");
    }
}

#[tokio::test]
async fn a_retry_after_is_honoured_only_if_it_is_a_wait() {
    let busy =
        |value: &str, date: &str| ResponseTemplate::new(503).insert_header("retry-after", value).insert_header("date", date);
    let now = "Mon, 30 Nov 2026 18:00:00 GMT";
    for (value, date) in
        [("3", now), ("Mon, 30 Nov 2026 18:00:03 GMT", now), ("Mon, 30 Nov 2026 06:00:03 GMT", "Mon, 30 Nov 2026 06:00:00 GMT")]
    {
        assert_eq!(failure(busy(value, date)).await, (Neutral, "throttled".to_owned(), Some(3000)), "{value}");
    }
    assert_eq!(failure(busy("999999", now)).await, (Neutral, "throttled".to_owned(), Some(3_600_000)));
    for ignored in ["Mon, 30 Nov 2026 17:59:00 GMT", "-5", "1.5", "abc", "", "0"] {
        assert_eq!(failure(busy(ignored, now)).await, (Transient, "http-503".to_owned(), None), "{ignored}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = service(json(200, json!({ "outcome": "RELEASED" }))).await;
    for status in [301, 302, 303, 307, 308] {
        for location in [target.uri(), "http://169.254.169.254/".to_owned()] {
            let answer = ResponseTemplate::new(status).insert_header("location", location.as_str());
            assert_eq!(failure(answer).await, (Permanent, "redirect".to_owned(), None));
        }
    }
    assert!(received(&target).await.is_empty());
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_leaves_it_open_what_happened() {
    for body in ["", "OK", "<html>", "{\"outcome\":", "[]", "\"RELEASED\"", "{\"outcome\":\"REL\u{0}\"}"] {
        assert_eq!(failure(raw(200, body)).await, (Transient, "unreadable".to_owned(), None), "{body}");
    }
    assert_eq!(failure(ResponseTemplate::new(204)).await.1, "unreadable");
}

#[tokio::test]
async fn without_a_connection_the_failure_is_transient() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    for url in [closed.as_str(), "http://no-such-host.invalid"] {
        let (class, error_type, _) = Calls::to(url, |_| {}).failure().await;
        assert_eq!((class, error_type.as_str()), (Transient, "connect"), "{url}");
    }
}

#[tokio::test]
async fn a_service_that_does_not_speak_tls_is_no_connection() {
    let plain = MockServer::start().await;
    let url = plain.uri().replace("http://", "https://");
    assert_eq!(Calls::to(&url, |_| {}).failure().await.1, "connect");
}
