//! How the demo talks to the engine: as a careful order service would, repeating until there is an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

/// One request's own limit; the engine may be killed while it waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A caller that got no answer for so long gives up: the engine does not come back.
const PATIENCE: Duration = Duration::from_secs(40);
/// Pauses between repeats grow up to this.
const PAUSE_MAX: Duration = Duration::from_millis(400);
/// Executions or events in one page.
const PAGE: usize = 1000;

/// A client of the engines, wherever they listen after their last restart. Each request goes to the next of them, as a
/// balancer would have it.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    urls: Vec<watch::Receiver<String>>,
    turn: Arc<AtomicUsize>,
}

/// A definite answer: neither a 5xx nor silence.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Client {
    pub(super) fn new(urls: Vec<watch::Receiver<String>>) -> anyhow::Result<Client> {
        let http =
            reqwest::Client::builder().timeout(REQUEST_TIMEOUT).pool_max_idle_per_host(64).build().context("no HTTP client")?;
        Ok(Client { http, urls, turn: Arc::default() })
    }

    /// Where the engine listens whose turn it is.
    pub(super) fn url(&self) -> String {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.urls.len().max(1);
        self.urls.get(turn).map(|url| url.borrow().clone()).unwrap_or_default()
    }

    /// Starts an order's workflow.
    pub(super) async fn start(&self, order_id: &str, input: &Value) -> anyhow::Result<Answer> {
        let path = format!("/v1/workflows/order-timeout/{order_id}");
        self.request(Method::POST, &path, Some(&json!({ "input": input }))).await
    }

    /// Sends a signal to an order's workflow; the id makes repeats harmless.
    pub(super) async fn signal(&self, order_id: &str, name: &str, id: &str, payload: &Value) -> anyhow::Result<Answer> {
        let path = format!("/v1/workflows/order-timeout/{order_id}/signals/{name}");
        self.request(Method::POST, &path, Some(&json!({ "signalId": id, "payload": payload }))).await
    }

    /// Resolves a step that waits for a person.
    pub(super) async fn resolve(&self, order_id: &str, number: u64, body: &Value) -> anyhow::Result<Answer> {
        let path = format!("/v1/workflows/order-timeout/{order_id}/activities/{number}/resolve");
        self.request(Method::POST, &path, Some(body)).await
    }

    /// Describes an execution.
    pub(super) async fn describe(&self, kind: &str, id: &str) -> anyhow::Result<Value> {
        self.get(&format!("/v1/workflows/{kind}/{id}")).await
    }

    /// All events of an execution.
    pub(super) async fn history(&self, kind: &str, id: &str) -> anyhow::Result<Vec<Value>> {
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let page = self.get(&format!("/v1/workflows/{kind}/{id}/history?after={after}&limit={PAGE}")).await?;
            events.extend(page["events"].as_array().cloned().unwrap_or_default());
            match page["next"].as_u64() {
                Some(next) if next > after => after = next,
                _ => return Ok(events),
            }
        }
    }

    /// The executions of a type that are still open.
    pub(super) async fn running(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/workflows?type={kind}&status=running&limit={PAGE}{cursor}");
            let page = self.get(&path).await?;
            found.extend(page["workflows"].as_array().cloned().unwrap_or_default());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={}", percent_encoded(next)),
                None => return Ok(found),
            }
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.request(Method::GET, path, None).await?;
        if !answer.is_success() {
            bail!("GET {path} was answered {}: {}", answer.status, answer.body);
        }
        Ok(answer.body)
    }

    /// Repeats the request until there is a definite answer.
    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(25);
        loop {
            let failure = match self.send(&method, path, body).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if begun.elapsed() > PATIENCE {
                return Err(failure.context(format!("{method} {path} has had no answer for {PATIENCE:?}")));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn send(&self, method: &Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.url()));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.header("X-Actor", "demo").send().await?;
        let status = response.status();
        let bytes = response.bytes().await?;
        if status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) {
            bail!("answered {status}");
        }
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Answer { status: status.as_u16(), body })
    }
}

/// A cursor is opaque: anything but letters and digits is encoded.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
