//! Deadlines: what is due when, how much of it, and moving one.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Api;
use super::access::Caller;
use super::list::{instant, page, parse};
use super::operate::Acted;
use super::problem::Problem;
use super::request::{Body, Target, header, malformed};
use crate::client::{DeadlineForecast, DeadlineRequest, END_OF_TIME, ForecastQuery, WorkflowPage};
use crate::time::Timestamp;

/// How many minutes a forecast has unless the caller says otherwise.
const MINUTES_DEFAULT: usize = 60;

/// When a workflow is to be due, and why.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeadlineBody {
    /// Later than it is now, or earlier; an instant in the past is due at once.
    deadline: Timestamp,
    /// Why; recorded with who.
    reason: String,
}

/// Lists open workflows by the time they are due, the earliest first.
#[utoipa::path(
    get, path = "/v1/deadlines", tag = "deadlines",
    params(
        ("due_after" = Option<String>, Query, description = "due at this time (RFC 3339) or later"),
        ("due_before" = Option<String>, Query, description = "due before this time (RFC 3339)"),
        ("type" = Option<String>, Query, description = "workflow type"),
        ("status" = Option<String>, Query, description = "running or blocked"),
        ("needs_attention" = Option<bool>, Query, description = "with, or without, a step that waits for a person"),
        ("attr.NAME" = Option<String>, Query, description = "with this value of the search attribute NAME"),
        ("limit" = Option<usize>, Query, description = "1 to 1000, default 100"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before, with the same filter and limit"),
    ),
    responses((status = 200, body = WorkflowPage), (status = 400, body = Problem))
)]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<WorkflowPage>, Problem> {
    let mut list = parse(query.as_deref().unwrap_or_default())?;
    list.due_before.get_or_insert(END_OF_TIME);
    Ok(Json(page(&api, &caller, list).await?))
}

/// Counts how many open workflows become due in each minute.
#[utoipa::path(
    get, path = "/v1/deadlines/forecast", tag = "deadlines",
    params(
        ("from" = Option<String>, Query, description = "where the first minute begins (RFC 3339), default where the present one began"),
        ("minutes" = Option<usize>, Query, description = "1 to 1440, default 60"),
        ("type" = Option<String>, Query, description = "workflow type"),
    ),
    responses((status = 200, body = DeadlineForecast), (status = 400, body = Problem))
)]
pub(super) async fn forecast(
    State(api): State<Api>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<DeadlineForecast>, Problem> {
    let mut forecast = ForecastQuery { minutes: MINUTES_DEFAULT, ..ForecastQuery::default() };
    for (name, value) in url::form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()) {
        match name.as_ref() {
            "from" => forecast.from = Some(instant("from", &value)?),
            "minutes" => forecast.minutes = value.parse().map_err(|_| malformed("minutes", "a number from 1 to 1440"))?,
            "type" => forecast.workflow_type = Some(value.into_owned()),
            other => return Err(malformed(other, "no such parameter; see /docs")),
        }
    }
    if let Some(workflow_type) = &forecast.workflow_type {
        caller.may_touch(workflow_type)?;
    }
    forecast.visible_types = caller.types().cloned();
    Ok(Json(api.client.forecast(&forecast).await?))
}

/// Moves a workflow's deadline, later or earlier, by the signal that its type declares for it; `late` when it is too late for that.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}/deadline", tag = "deadlines",
    params(
        ("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id"),
        ("Idempotency-Key" = Option<String>, Header, description = "a second request with the same one is a duplicate"),
    ),
    request_body = DeadlineBody,
    responses((status = 200, body = Acted), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn set(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id)): Target<(String, String)>,
    headers: HeaderMap,
    Body(body): Body<DeadlineBody>,
) -> Result<Json<Acted>, Problem> {
    caller.may_touch(&workflow_type)?;
    let signal_id = header(&headers, "idempotency-key").map(str::to_owned);
    let (deadline, reason, actor) = (body.deadline, body.reason, caller.actor().to_owned());
    let outcome = api.client.set_deadline(DeadlineRequest { workflow_type, id, deadline, reason, actor, signal_id }).await?;
    Ok(Json(Acted { outcome }))
}
