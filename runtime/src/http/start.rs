//! Starting one workflow.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::{Body, Target, header};
use crate::client::{StartRequest, StartResponse};
use crate::payload::Payload;
use crate::time::Timestamp;

/// What a start says.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StartBody {
    /// The workflow's input, as its type wants it.
    #[schema(value_type = Object)]
    pub(super) input: Payload,
    /// When to begin, if not at once (RFC 3339 with an offset).
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(super) start_at: Option<Timestamp>,
    /// Search attributes: texts, numbers, truth values.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(super) attributes: BTreeMap<String, Payload>,
}

/// Starts a workflow. The same request again is answered 200 with the same run, for ever.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}", tag = "workflows",
    params(("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id")),
    request_body = StartBody,
    responses(
        (status = 201, body = StartResponse, description = "Started"),
        (status = 200, body = StartResponse, description = "Was started before by the same request"),
        (status = 400, body = Problem), (status = 404, body = Problem, description = "Unknown workflow type"),
        (status = 409, body = Problem, description = "Was started before by another request; nothing changed"),
        (status = 413, body = Problem), (status = 422, body = Problem), (status = 503, body = Problem),
    )
)]
pub(super) async fn start(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id)): Target<(String, String)>,
    headers: HeaderMap,
    Body(body): Body<StartBody>,
) -> Result<Response, Problem> {
    caller.may_touch(&workflow_type)?;
    let started = api.client.start(request(workflow_type, id, body, traceparent(&headers))).await?;
    let status = if started.replayed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(started)).into_response())
}

pub(super) fn request(workflow_type: String, id: String, body: StartBody, traceparent: Option<String>) -> StartRequest {
    let StartBody { input, start_at, attributes } = body;
    StartRequest { workflow_type, id, input, start_at, attributes, traceparent }
}

/// The caller's W3C trace context, if it is one (version 00: 55 characters).
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = header(headers, "traceparent")?;
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str, length: usize| part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit());
    let valid = matches!(parts[..], [version, trace, span, flags]
        if version == "00" && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2) && trace.bytes().any(|b| b != b'0'));
    valid.then(|| text.to_owned())
}
