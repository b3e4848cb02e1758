//! Webhooks: what a receiver gets, how it can tell that it is from us, and what its answers mean.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use overdue_activities::{WebhooksConfig, init_crypto, register_webhooks};
use overdue_runtime::history::FailureClass;
use overdue_runtime::outbox::{DeliveryFailure, Envelope, Sink, SinkRegistry, event_id};
use overdue_runtime::testing::manual_environment;
use overdue_runtime::{Payload, RunId, WorkflowKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wiremock::{MockServer, ResponseTemplate};

use crate::harness::{NOW, header, received, service};

/// The bytes behind `whsec_`, in two secrets.
const KEYS: [&[u8]; 2] = [b"a key of twenty-four byt", b"another key of thirty-two bytes."];

/// `[webhooks.crm]` with its secrets in files, and whatever `more` says.
fn sinks(url: &str, more: Value) -> Result<SinkRegistry, String> {
    init_crypto();
    let folder = tempfile::tempdir().unwrap();
    let secrets: Vec<Value> = KEYS
        .iter()
        .enumerate()
        .map(|(place, key)| {
            let file = folder.path().join(place.to_string());
            std::fs::write(&file, format!("whsec_{}\n", STANDARD.encode(key))).unwrap();
            json!({ "file": file })
        })
        .collect();
    let mut config = json!({ "url": url, "events": ["order.*"], "secrets": secrets });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let config: WebhooksConfig = serde_json::from_value(json!({ "crm": config })).map_err(|error| error.to_string())?;
    let (environment, _) = manual_environment(NOW.parse().unwrap(), 7);
    let mut sinks = SinkRegistry::default();
    register_webhooks(&mut sinks, &config, &environment).map_err(|error| error.to_string())?;
    Ok(sinks)
}

fn sink(url: &str, more: Value) -> Arc<dyn Sink> {
    sinks(url, more).unwrap().all().next().unwrap().clone()
}

fn envelope() -> Envelope {
    let run_id = RunId::new(1_700_000_000_000, [7; 10]);
    Envelope {
        id: event_id(run_id, 12),
        key: WorkflowKey::new("order-timeout", "o-1"),
        run_id,
        number: 12,
        name: "order.paid".into(),
        data: Payload::from_json(r#"{"b" : 9007199254740993.10,"a":"zürich"}"#).unwrap(),
        emitted_at: "2026-11-30T17:00:00.123Z".parse().unwrap(),
        attempt: 3,
    }
}

/// HMAC (RFC 2104) by its definition.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |with: u8| {
        let mut block = [with; 64];
        key.iter().zip(&mut block).for_each(|(key, block)| *block ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

async fn failure(answer: ResponseTemplate) -> DeliveryFailure {
    let server = service(answer).await;
    sink(&server.uri(), json!({})).deliver(&envelope()).await.unwrap_err()
}

#[tokio::test]
async fn the_body_is_type_time_and_data_as_they_were_written_and_the_signature_of_each_secret_holds_over_it() {
    let server = service(ResponseTemplate::new(204)).await;
    let sink = sink(&format!("{}/hooks", server.uri()), json!({ "headers": { "X-Shop": "7" } }));
    sink.deliver(&envelope()).await.unwrap();
    let requests = received(&server).await;
    let request = &requests[0];
    let body = String::from_utf8(request.body.clone()).unwrap();
    let data = r#"{"b" : 9007199254740993.10,"a":"zürich"}"#;
    assert_eq!(body, format!(r#"{{"type":"order.paid","timestamp":"2026-11-30T17:00:00.123Z","data":{data}}}"#));
    assert_eq!((request.method.as_str(), request.url.path(), header(request, "x-shop")), ("POST", "/hooks", "7"));
    assert_eq!(header(request, "content-type"), "application/json");
    assert_eq!(header(request, "webhook-id"), envelope().id);
    assert!(!envelope().id.contains('.'));
    // 2026-11-30T18:00:00Z: when it is sent, not when it happened.
    assert_eq!(header(request, "webhook-timestamp"), "1796061600");
    let signed = format!("{}.1796061600.{body}", envelope().id);
    let expected: Vec<String> = KEYS.iter().map(|key| format!("v1,{}", STANDARD.encode(hmac(key, signed.as_bytes())))).collect();
    assert_eq!(header(request, "webhook-signature"), expected.join(" "));
}

#[tokio::test]
async fn a_repeat_has_the_same_id_and_the_same_bytes() {
    let server = service(ResponseTemplate::new(200)).await;
    let sink = sink(&server.uri(), json!({}));
    sink.deliver(&envelope()).await.unwrap();
    sink.deliver(&Envelope { attempt: 4, ..envelope() }).await.unwrap();
    let requests = received(&server).await;
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(header(&requests[0], "webhook-id"), header(&requests[1], "webhook-id"));
}

#[tokio::test]
async fn what_is_about_this_very_event_or_gone_waits_for_a_person_and_what_may_be_mended_is_repeated() {
    for status in [400, 410, 413, 415, 422] {
        assert_eq!(failure(ResponseTemplate::new(status)).await.failure.class, FailureClass::Permanent, "{status}");
    }
    for status in [301, 401, 403, 404, 405, 408, 500, 502, 503] {
        let failed = failure(ResponseTemplate::new(status)).await;
        assert_eq!((failed.failure.class, failed.retry_after), (FailureClass::Transient, None), "{status}");
        assert_eq!(failed.failure.error_type, format!("http-{status}"));
    }
}

#[tokio::test]
async fn a_receiver_that_asks_to_wait_is_believed_within_the_limit() {
    let wait = |status, seconds: &str| failure(ResponseTemplate::new(status).insert_header("retry-after", seconds));
    let slow = wait(429, "60").await;
    assert_eq!((slow.failure.class, slow.retry_after), (FailureClass::Neutral, Some(Duration::from_secs(60))));
    let busy = wait(503, "1000000").await;
    assert_eq!((busy.failure.class, busy.retry_after), (FailureClass::Neutral, Some(Duration::from_secs(3600))));
    assert_eq!(wait(429, "soon").await.retry_after, None);
}

#[tokio::test]
async fn a_redirect_is_not_followed_so_that_nothing_goes_where_nobody_configured() {
    let elsewhere = service(ResponseTemplate::new(200)).await;
    let failed = failure(ResponseTemplate::new(307).insert_header("location", elsewhere.uri().as_str())).await;
    assert_eq!(failed.failure.error_type, "http-307");
    assert_eq!(received(&elsewhere).await.len(), 0);
}

#[tokio::test]
async fn a_receiver_that_is_not_there_is_tried_again_and_its_address_is_not_told() {
    let server = MockServer::start().await;
    let url = format!("{}/secret-path", server.uri());
    drop(server);
    let failed = sink(&url, json!({})).deliver(&envelope()).await.unwrap_err();
    assert_eq!(failed.failure.class, FailureClass::Transient);
    assert!(!failed.to_string().contains("secret-path"), "{failed}");
}

#[test]
fn a_configuration_that_cannot_be_is_refused_with_its_key_and_without_the_secret() {
    let refused = |url: &str, more: Value| sinks(url, more).err().unwrap();
    for (url, more, key) in [
        ("http://user:hunter2@crm", json!({}), "webhooks.crm.url"),
        ("ftp://crm", json!({}), "webhooks.crm.url"),
        ("http://crm/?token=hunter2", json!({}), "webhooks.crm.url"),
        ("http://crm", json!({ "events": [] }), "webhooks.crm.events"),
        ("http://crm", json!({ "events": ["Order.*"] }), "webhooks.crm.events"),
        ("http://crm", json!({ "secrets": [] }), "webhooks.crm.secrets"),
        ("http://crm", json!({ "secrets": [{ "env": "NO_SUCH_VARIABLE_HERE" }] }), "webhooks.crm.secrets[0].env"),
        ("http://crm", json!({ "headers": { "Webhook-Id": "x" } }), "webhooks.crm.headers.webhook-id"),
        ("http://crm", json!({ "headers": { "Authorization": "hunter2" } }), "webhooks.crm.headers.authorization"),
        ("http://crm", json!({ "concurrency": 0 }), "webhooks.crm.concurrency"),
        ("http://crm", json!({ "timeout": "0s" }), "webhooks.crm.timeout"),
        ("http://crm", json!({ "retry": { "factor": 0.5 } }), "webhooks.crm.retry"),
    ] {
        let error = refused(url, more);
        assert!(error.contains(key) && !error.contains("hunter2"), "{key}: {error}");
    }
    assert!(refused("http://crm", json!({ "retries": 3 })).contains("retries"));
}

#[test]
fn a_sink_takes_the_events_that_it_names() {
    let sink = sink("http://crm", json!({ "events": ["order.paid", "stock.*"] }));
    assert!(sink.takes("order.paid") && sink.takes("stock.low") && !sink.takes("order.cancelled"));
    assert_eq!((sink.options().concurrency, sink.options().timeout), (16, Duration::from_secs(15)));
}
