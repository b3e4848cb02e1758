//! One webhook: an event as a signed request, and what its answer means.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use overdue_runtime::engine::Clock;
use overdue_runtime::outbox::{DeliveryFailure, Envelope, Sink, SinkOptions};

use super::config::Settings;
use super::signature::signatures;
use crate::excerpt::excerpt;
use crate::retry_after::retry_after;
use crate::wire::{NoAnswer, Outgoing, Wire};

/// Answers that are about this very event, or final by the specification: repeating it is of no use. Every other one may be
/// mended at the receiver (a wrong path, a wrong secret, a redirect), and then all that waits goes through by itself.
const PERMANENT: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::GONE,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
];

pub(super) struct Webhook {
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wire: Arc<dyn Wire>,
}

#[async_trait]
impl Sink for Webhook {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn takes(&self, event: &str) -> bool {
        self.settings.events.iter().any(|pattern| pattern.takes(event))
    }

    fn options(&self) -> SinkOptions {
        self.settings.options.clone()
    }

    async fn deliver(&self, envelope: &Envelope) -> Result<(), DeliveryFailure> {
        let body = body(envelope);
        let outgoing = Outgoing {
            method: Method::POST,
            url: self.settings.url.clone(),
            headers: self.headers(&envelope.id, &body),
            body: body.into(),
        };
        let incoming = self.wire.send(outgoing).await.map_err(|error| match error {
            NoAnswer::Connect => DeliveryFailure::transient("connect", "no connection"),
            NoAnswer::Broken => DeliveryFailure::transient("broken", "the connection broke before the answer"),
        })?;
        if incoming.status.is_success() {
            return Ok(());
        }
        let wait = retry_after(&incoming.headers, self.clock.now(), self.settings.retry_after_max);
        Err(failure(incoming.status, &incoming.body.unwrap_or_default(), wait))
    }
}

impl Webhook {
    /// The time is that of the attempt: receivers refuse old ones.
    fn headers(&self, id: &str, body: &str) -> HeaderMap {
        let timestamp = self.clock.now().as_micros().div_euclid(1_000_000).to_string();
        let signature = signatures(&self.settings.keys, id, &timestamp, body.as_bytes());
        let mut headers = self.settings.headers.clone();
        for (name, value) in [("webhook-id", id), ("webhook-timestamp", &timestamp), ("webhook-signature", &signature)] {
            let value = HeaderValue::from_str(value).expect("ids, numbers and base64 are visible ASCII");
            headers.insert(HeaderName::from_static(name), value);
        }
        headers
    }
}

/// The same bytes on every attempt; the data as they were written.
fn body(envelope: &Envelope) -> String {
    let name = serde_json::Value::from(envelope.name.as_str());
    format!(r#"{{"type":{name},"timestamp":"{}","data":{}}}"#, envelope.emitted_at, envelope.data.as_str())
}

fn failure(status: StatusCode, body: &Bytes, wait: Option<std::time::Duration>) -> DeliveryFailure {
    let error_type = format!("http-{}", status.as_u16());
    let said = excerpt(body, None);
    let message = if said.is_empty() { "the receiver did not take it".to_owned() } else { format!("the receiver said: {said}") };
    if PERMANENT.contains(&status) {
        return DeliveryFailure::permanent(&error_type, message);
    }
    if status == StatusCode::TOO_MANY_REQUESTS || wait.is_some() {
        return DeliveryFailure::neutral(&error_type, message).after(wait);
    }
    DeliveryFailure::transient(&error_type, message)
}
