//! One call as it is really made: its definition with what the configuration says otherwise, and the request of one
//! attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use overdue_runtime::activity::{ActivityContext, ActivityFailure};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::CallConfig;
use crate::definition::{Definition, IDEMPOTENCY_KEY_FIELD};
use crate::error::ConfigError;
use crate::path::{check_path_segment, encode_path_segment};
use crate::reading::Reading;
use crate::settings::{Keys, Settings};

/// How one call is made and read.
pub(crate) struct Call {
    pub(crate) definition: &'static Definition,
    pub(crate) downstream: &'static str,
    pub(crate) method: Method,
    url: Vec<Piece>,
    headers: HeaderMap,
    /// Our field and its name in the body.
    body: Vec<(&'static str, String)>,
    pub(crate) reading: Reading,
    pub(crate) secret: Option<String>,
}

/// A piece of a URL.
enum Piece {
    Literal(String),
    Field(&'static str),
}

/// A request, ready to be sent any number of times.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) call: Arc<Call>,
    pub(crate) ctx: ActivityContext,
    /// Not to be shown: it may hold tokens.
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The input's fields as they were written, for those who do not go by URL and body.
    pub(crate) fields: Arc<BTreeMap<String, Box<RawValue>>>,
    /// The payment channel whose breaker also counts.
    pub(crate) channel: Option<String>,
}

impl Call {
    pub(crate) fn new(definition: &'static Definition, settings: &Settings, config: &CallConfig) -> Result<Self, ConfigError> {
        let keys = Keys(format!("downstreams.{}.calls.{}", settings.name, definition.name));
        let method = match config.method.as_deref() {
            None => definition.method.clone(),
            Some("GET") => Method::GET,
            Some("POST") => Method::POST,
            Some("PUT") => Method::PUT,
            Some("PATCH") => Method::PATCH,
            Some("DELETE") => Method::DELETE,
            Some(_) => return keys.refuse("method", "must be GET, POST, PUT, PATCH or DELETE"),
        };
        if matches!(method, Method::GET | Method::DELETE) && !config.body.is_empty() {
            return keys.refuse("body", format!("cannot be sent with {method}: put fields into `path`"));
        }
        let mut headers = settings.headers.clone();
        headers.extend(keys.headers("headers", &config.headers)?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut url = vec![Piece::Literal(settings.base.clone())];
        url.extend(path(&keys, definition, config.path.as_ref().map_or(definition.path, |path| path.0.as_str()))?);
        Ok(Self {
            definition,
            downstream: settings.name,
            url,
            headers,
            body: body(&keys, definition, &config.body)?,
            reading: Reading::new(&keys, definition, &config.outcome, settings.retry_after_max)?,
            secret: settings.secret.clone(),
            method,
        })
    }

    /// The request for an attempt with this input; `channel` is the payment channel whose breaker also counts.
    pub(crate) fn request(
        self: &Arc<Self>,
        ctx: &ActivityContext,
        input: &impl Serialize,
        channel: Option<&str>,
    ) -> Result<Request, ActivityFailure> {
        let fields = fields(input, ctx.idempotency_key())
            .map_err(|error| ActivityFailure::permanent("input", format!("the input cannot be written as JSON: {error}")))?;
        let mut url = String::new();
        for piece in &self.url {
            match piece {
                Piece::Literal(text) => url.push_str(text),
                Piece::Field(name) => url.push_str(&segment(&fields, name)?),
            }
        }
        let mut headers = self.headers.clone();
        headers.insert("idempotency-key", idempotency_header(ctx.idempotency_key()));
        let body = match self.method {
            Method::GET | Method::DELETE => Bytes::new(),
            _ => Bytes::from(self.write_body(&fields)),
        };
        let channel = channel.map(str::to_owned);
        Ok(Request { call: self.clone(), ctx: ctx.clone(), url, headers, body, fields: Arc::new(fields), channel })
    }

    /// Always the same bytes for the same input: the fields in the definition's order, each value as it was written.
    fn write_body(&self, fields: &BTreeMap<String, Box<RawValue>>) -> String {
        let members = self.body.iter().filter_map(|(field, name)| {
            let value = fields.get(*field)?;
            Some(format!("{}:{}", serde_json::Value::from(name.as_str()), value.get()))
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

fn fields(input: &impl Serialize, idempotency_key: &str) -> Result<BTreeMap<String, Box<RawValue>>, serde_json::Error> {
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&serde_json::to_string(input)?)?;
    fields.insert(IDEMPOTENCY_KEY_FIELD.to_owned(), serde_json::value::to_raw_value(idempotency_key)?);
    Ok(fields)
}

fn segment(fields: &BTreeMap<String, Box<RawValue>>, name: &str) -> Result<String, ActivityFailure> {
    let refuse = |why: &str| ActivityFailure::permanent("input", format!("{name} {why}"));
    let raw = fields.get(name).ok_or_else(|| refuse("is needed for the path"))?.get();
    let value = serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned());
    check_path_segment(&value).map_err(|error| refuse(&error.to_string()))?;
    Ok(encode_path_segment(&value))
}

/// The key as a header can carry it: what is not visible ASCII is percent-encoded, the same way on every attempt.
fn idempotency_header(key: &str) -> HeaderValue {
    HeaderValue::from_str(key)
        .or_else(|_| HeaderValue::from_str(&encode_path_segment(key)))
        .expect("percent-encoded text is visible ASCII")
}

fn path(keys: &Keys, definition: &'static Definition, path: &str) -> Result<Vec<Piece>, ConfigError> {
    let literal_dots = path.split(['/', '?']).any(|segment| segment == "." || segment == "..");
    if !path.starts_with('/') || path.contains('#') || literal_dots || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return keys.refuse("path", "must begin with '/' and be visible ASCII without '#', '.' and '..' segments");
    }
    let mut pieces = Vec::new();
    let mut rest = path;
    while let Some((literal, tail)) = rest.split_once('{') {
        let field = tail.split_once('}').and_then(|(name, tail)| Some((known_field(definition, name)?, tail)));
        let Some((field, tail)) = field else {
            return keys.refuse("path", format!("may only name these fields in braces: {}", definition.fields()));
        };
        pieces.extend([Piece::Literal(literal.to_owned()), Piece::Field(field)]);
        rest = tail;
    }
    pieces.push(Piece::Literal(rest.to_owned()));
    Ok(pieces)
}

fn body(
    keys: &Keys,
    definition: &'static Definition,
    names: &BTreeMap<String, String>,
) -> Result<Vec<(&'static str, String)>, ConfigError> {
    if let Some(unknown) = names.keys().find(|field| !definition.has_field(field)) {
        return keys.refuse(&format!("body.{unknown}"), format!("is no field of this call: it has {}", definition.fields()));
    }
    let by_default = definition.body.iter().map(|field| (*field, names.get(*field).map_or(*field, String::as_str)));
    let added = names.iter().filter(|(field, _)| !definition.body.contains(&field.as_str()));
    let added = added.filter_map(|(field, name)| Some((known_field(definition, field)?, name.as_str())));
    let sent = by_default.chain(added).filter(|(_, name)| !name.is_empty());
    Ok(sent.map(|(field, name)| (field, name.to_owned())).collect())
}

fn known_field(definition: &'static Definition, name: &str) -> Option<&'static str> {
    let mut fields = definition.body.iter().chain(definition.others).chain(&[IDEMPOTENCY_KEY_FIELD]);
    fields.find(|field| **field == name).copied()
}
