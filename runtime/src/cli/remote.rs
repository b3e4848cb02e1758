//! Talking to a server.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::args::{Connection, Target};
use super::program::Failure;
use crate::payload::Payload;

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A server and how it is asked.
pub(super) struct Remote {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

/// An answer: its status and its JSON text, as it came.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

impl Answer {
    /// The answer as a value. A number that this machine has no type for is a text by its spelling: it is only shown.
    pub(super) fn value(&self) -> Result<Value, Failure> {
        Ok(read_value(serde_json::from_str(&self.body)?))
    }
}

/// A JSON text as a value, as [`Answer::value`] reads it.
pub(super) fn read_value(raw: &RawValue) -> Value {
    let text = raw.get();
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
        return members.into_iter().map(|(name, raw)| (name, read_value(raw))).collect();
    }
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(items) => items.into_iter().map(read_value).collect(),
        Err(_) => Value::String(text.to_owned()),
    }
}

impl Remote {
    pub(super) fn new(connection: &Connection) -> Result<Self, Failure> {
        if !connection.url.starts_with("http://") && !connection.url.starts_with("https://") {
            return Err(format!("--url {:?}: write a URL such as http://127.0.0.1:7070", connection.url).into());
        }
        // Another part of the program may have chosen a provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { http, url: connection.url.trim_end_matches('/').to_owned(), token: connection.token.clone() })
    }

    /// Asks, and gives the answer if it is a 2xx.
    pub(super) async fn ask(&self, method: Method, path: &str, body: Option<&str>) -> Result<Answer, Failure> {
        self.ask_keyed(method, path, body, None).await
    }

    /// The same, under an `Idempotency-Key`.
    pub(super) async fn ask_keyed(
        &self,
        method: Method,
        path: &str,
        body: Option<&str>,
        key: Option<&str>,
    ) -> Result<Answer, Failure> {
        let mut request = self.request(method, path, body, Some(ANSWER_MAX));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = self.answered(request).await?;
        let status = response.status();
        let body = response.text().await?;
        if status.is_success() { Ok(Answer { status, body }) } else { Err(problem(status, &body)) }
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Response, Failure> {
        self.answered(self.request(method, path, body, timeout)).await
    }

    fn request(&self, method: Method, path: &str, body: Option<&str>, timeout: Option<Duration>) -> RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Ok(user) = std::env::var("USER") {
            request = request.header("x-actor", user);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        request
    }

    async fn answered(&self, request: RequestBuilder) -> Result<Response, Failure> {
        request.send().await.map_err(|error| {
            let why = if error.is_timeout() { "it does not answer" } else { "it cannot be reached" };
            format!("{}: {why}; is a server running there? (--url, or OVERDUE_URL)", self.url).into()
        })
    }
}

/// Why the server refused, with its fields.
pub(super) fn problem(status: StatusCode, body: &str) -> Failure {
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    match problem["detail"].as_str() {
        Some(detail) if status == StatusCode::UNAUTHORIZED => format!("{detail} (here: --token, or OVERDUE_TOKEN)").into(),
        Some(detail) => format!("{detail} ({status})").into(),
        None => format!("the server answered {status}").into(),
    }
}

/// The path of a workflow.
pub(super) fn path(target: &Target) -> String {
    format!("/v1/workflows/{}/{}", segment(&target.workflow_type), segment(&target.id))
}

/// The text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// JSON given on the command line: as it is, from a file, or from standard input.
pub(super) fn read_json(argument: &str, what: &str) -> Result<Payload, Failure> {
    let text = match argument.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?,
        None if argument == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        None => argument.to_owned(),
    };
    Payload::from_json(&text).map_err(|error| format!("{what}: {error}").into())
}

/// A request's body.
pub(super) fn body(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_every_type_spoils_no_answer() {
        let body = r#"{"id":"o-1","input":{"size":1e400,"count":3},"steps":[{"n":1e999,"name":"a"}]}"#.to_owned();
        let value = Answer { status: StatusCode::OK, body }.value().unwrap();
        assert_eq!(value["input"], serde_json::json!({ "size": "1e400", "count": 3 }));
        assert_eq!((&value["id"], &value["steps"][0]["name"]), (&Value::from("o-1"), &Value::from("a")));
    }
}
