//! Bulk jobs: one action on many workflows, dry or not; how far they are, and what became of each item.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::Api;
use super::access::Caller;
use super::list::parse;
use super::operate::{Acted, ReasonBody};
use super::problem::Problem;
use super::request::{Body, Target, header, malformed};
use crate::client::{JOB_PER_SECOND_DEFAULT, JOB_TYPE, JobAction, JobFilter, JobItems, JobRequest, JobView, Shift, WorkflowPage};
use crate::payload::Payload;
use crate::time::Timestamp;

/// How many items a page has unless the caller says otherwise.
const ITEMS_DEFAULT: usize = 100;

/// What a job is to do.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct JobBody {
    /// What is done with each item.
    action: JobAction,
    /// Which items: steps that wait for a person, or deadlines.
    filter: JobFilter,
    /// Why; recorded with who, with each item.
    reason: String,
    /// Whether it only selects, and changes nothing; false if left out.
    #[serde(default)]
    dry_run: bool,
    /// How many items a second at most, 1 to 500; 10 if left out.
    per_second: Option<u32>,
    /// The result that steps get, for `resolve`.
    #[schema(value_type = Option<Object>)]
    result: Option<Payload>,
    /// When workflows are to be due, for `set-deadline`.
    deadline: Option<Timestamp>,
    /// By how much deadlines move, for `move-deadline`: `PT30M` for later, `-PT30M` for earlier.
    #[schema(value_type = Option<String>)]
    by: Option<Shift>,
}

/// Starts a bulk job. It selects its items first, then acts on one after the other; it survives restarts, and acts on no item twice.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", request_body = JobBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "the job's id; the same request again is the same job")),
    responses(
        (status = 201, body = JobView, description = "Started"),
        (status = 200, body = JobView, description = "Was started before by the same request"),
        (status = 400, body = Problem), (status = 409, body = Problem, description = "Another job has this id"),
        (status = 422, body = Problem), (status = 503, body = Problem),
    )
)]
pub(super) async fn start(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Body(body): Body<JobBody>,
) -> Result<Response, Problem> {
    may_touch(&caller, body.filter.workflow_type.as_deref())?;
    let JobBody { action, filter, reason, dry_run, per_second, result, deadline, by } = body;
    let per_second = per_second.unwrap_or(JOB_PER_SECOND_DEFAULT);
    let actor = caller.actor().to_owned();
    let request = JobRequest { action, filter, reason, actor, dry_run, per_second, result, deadline, by };
    let id = header(&headers, "idempotency-key").map(str::to_owned);
    let (job, replayed) = api.client.start_job(id, &request).await?;
    let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(job)).into_response())
}

/// Lists bulk jobs by id.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs",
    params(
        ("type" = Option<String>, Query, description = "of this workflow type"),
        ("status" = Option<String>, Query, description = "running, completed, failed, cancelled, terminated or blocked"),
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
    let of_type = list.workflow_type.replace(JOB_TYPE.to_owned());
    may_touch(&caller, of_type.as_deref())?;
    if let Some(of_type) = of_type {
        list.attributes.insert("type".to_owned(), of_type);
    }
    Ok(Json(api.client.list(&list).await?))
}

/// Shows what a job was asked for and how far it is.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "the job's id")),
    responses((status = 200, body = JobView), (status = 404, body = Problem))
)]
pub(super) async fn show(State(api): State<Api>, caller: Caller, Target(id): Target<String>) -> Result<Json<JobView>, Problem> {
    Ok(Json(job(&api, &caller, &id).await?))
}

/// Lists a job's items, and what became of each.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/items", tag = "jobs",
    params(
        ("id" = String, Path, description = "the job's id"),
        ("after" = Option<usize>, Query, description = "`next` of the page before, default 0"),
        ("limit" = Option<usize>, Query, description = "1 to 1000, default 100"),
    ),
    responses((status = 200, body = JobItems), (status = 400, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn items(
    State(api): State<Api>,
    caller: Caller,
    Target(id): Target<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<JobItems>, Problem> {
    let (mut after, mut limit) = (0, ITEMS_DEFAULT);
    for (name, value) in url::form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()) {
        match name.as_ref() {
            "after" => after = value.parse().map_err(|_| malformed("after", "the number of an item"))?,
            "limit" => limit = value.parse().map_err(|_| malformed("limit", "a number from 1 to 1000"))?,
            other => return Err(malformed(other, "no such parameter; see /docs")),
        }
    }
    job(&api, &caller, &id).await?;
    Ok(Json(api.client.job_items(&id, after, limit).await?))
}

/// Asks a job to stop: it does so before its next item, or within a second. What it did stays done.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "jobs", request_body = ReasonBody,
    params(("id" = String, Path, description = "the job's id")),
    responses((status = 200, body = Acted), (status = 404, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    Target(id): Target<String>,
    Body(body): Body<ReasonBody>,
) -> Result<Json<Acted>, Problem> {
    job(&api, &caller, &id).await?;
    let outcome = api.client.cancel_job(&id, &body.reason, caller.actor()).await?;
    Ok(Json(Acted { outcome }))
}

/// The job, if this caller may see it.
async fn job(api: &Api, caller: &Caller, id: &str) -> Result<JobView, Problem> {
    let job = api.client.job(id).await?;
    let of_type = job.request.as_ref().and_then(|request| request.filter.workflow_type.as_deref());
    may_touch(caller, of_type)?;
    Ok(job)
}

/// A job of no certain type is about all of them.
fn may_touch(caller: &Caller, of_type: Option<&str>) -> Result<(), Problem> {
    match (of_type, caller.types()) {
        (Some(of_type), _) => caller.may_touch(of_type),
        (None, None) => Ok(()),
        (None, Some(types)) => {
            let message = format!("the token is for some workflow types alone: name one of them ({})", types.join(", "));
            Err(Problem::new(StatusCode::FORBIDDEN, "urn:overdue:forbidden", "Not allowed", message))
        }
    }
}
