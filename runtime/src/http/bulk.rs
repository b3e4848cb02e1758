//! Starting many workflows in one request: NDJSON in, NDJSON out, in the same order.

use std::collections::BTreeMap;

use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::Caller;
use super::problem::Problem;
use super::request::{Target, malformed, read_json};
use super::start::{StartBody, request, traceparent};
use super::{Api, BODY_BYTES_MAX, BULK_BYTES_MAX};
use crate::client::StartResponse;
use crate::payload::Payload;
use crate::time::Timestamp;

/// The most lines of one request.
const LINES_MAX: usize = 10_000;
/// How many starts of one request wait for their commit at once.
const STARTS_AT_ONCE: usize = 500;

/// A line of the request.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    id: String,
    #[schema(value_type = Object)]
    input: Payload,
    #[schema(value_type = Option<String>, format = DateTime)]
    start_at: Option<Timestamp>,
    #[serde(default)]
    #[schema(value_type = Object)]
    attributes: BTreeMap<String, Payload>,
}

/// A line of the answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    id: Option<String>,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<StartResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// Starts many workflows. Each line is answered on its own: one that is refused does not hold back the others.
#[utoipa::path(
    post, path = "/v1/workflows/{type}", tag = "workflows",
    params(("type" = String, Path, description = "workflow type")),
    request_body(content = String, content_type = "application/x-ndjson", description = "A line `{\"id\", \"input\", \"startAt\"?, \"attributes\"?}` each"),
    responses(
        (status = 200, content_type = "application/x-ndjson", body = String, description = "A line `{\"id\", \"status\", …}` each, in the same order"),
        (status = 400, body = Problem), (status = 413, body = Problem),
    )
)]
pub(super) async fn start_many(
    State(api): State<Api>,
    caller: Caller,
    Target(workflow_type): Target<String>,
    incoming: Request,
) -> Result<Response, Problem> {
    caller.may_touch(&workflow_type)?;
    let trace = traceparent(incoming.headers());
    let body: Bytes = to_bytes(incoming.into_body(), BULK_BYTES_MAX)
        .await
        .map_err(|_| Problem::too_large(format!("the body is over {BULK_BYTES_MAX} bytes; send it in parts")))?;
    let text = std::str::from_utf8(&body).map_err(|_| malformed("", "the body is not UTF-8"))?;
    let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if lines.len() > LINES_MAX {
        return Err(Problem::too_large(format!(
            "the body has {} lines, the limit is {LINES_MAX}; send it in parts",
            lines.len()
        )));
    }
    let starts = lines.into_iter().map(|line| start_line(api.clone(), workflow_type.clone(), line, trace.clone()));
    let answers: Vec<Answer> = stream::iter(starts).buffered(STARTS_AT_ONCE).collect().await;
    let mut text = String::new();
    for answer in answers {
        text.push_str(&serde_json::to_string(&answer).unwrap_or_default());
        text.push('\n');
    }
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], text).into_response())
}

async fn start_line(api: Api, workflow_type: String, line: String, trace: Option<String>) -> Answer {
    let refused =
        |id: Option<String>, problem: Problem| Answer { id, status: problem.status(), workflow: None, problem: Some(problem) };
    if line.len() > BODY_BYTES_MAX {
        return refused(None, Problem::too_large(format!("the line is over {BODY_BYTES_MAX} bytes")));
    }
    let Line { id, input, start_at, attributes } = match read_json(&line) {
        Ok(line) => line,
        Err(problem) => return refused(id_of(&line), problem),
    };
    let body = StartBody { input, start_at, attributes };
    match api.client.start(request(workflow_type, id.clone(), body, trace)).await {
        Ok(started) => {
            let status = if started.replayed { 200 } else { 201 };
            Answer { id: Some(id), status, workflow: Some(started), problem: None }
        }
        Err(error) => refused(Some(id), error.into()),
    }
}

/// The id of a line that is otherwise not as it must be.
fn id_of(line: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: String,
    }
    read_json::<OnlyId>(line).ok().map(|line| line.id)
}
