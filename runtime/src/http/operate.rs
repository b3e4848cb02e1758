//! What a person does to one workflow.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::{Body, Target, malformed};
use crate::client::ActionOutcome;
use crate::engine::OperatorAction;
use crate::payload::Payload;

/// Why a person acts.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReasonBody {
    /// Why; recorded with who.
    pub(super) reason: String,
}

/// Why a person acts on an activity, and its result where one is given.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ActivityBody {
    /// Why; recorded with who.
    reason: String,
    /// The activity's result, for `resolve`.
    #[schema(value_type = Option<Object>)]
    result: Option<Payload>,
}

/// What became of it.
#[derive(Serialize, ToSchema)]
pub(super) struct Acted {
    pub(super) outcome: ActionOutcome,
}

/// Asks a workflow to stop; what that means is the workflow's decision.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}/cancel", tag = "operate",
    params(("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id")),
    request_body = ReasonBody,
    responses((status = 200, body = Acted), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id)): Target<(String, String)>,
    Body(body): Body<ReasonBody>,
) -> Result<Json<Acted>, Problem> {
    caller.may_touch(&workflow_type)?;
    let outcome = api.client.cancel(&workflow_type, &id, &body.reason, caller.actor()).await?;
    Ok(Json(Acted { outcome }))
}

/// Ends a workflow at once, without asking it. What it had under way is left as it is.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}/terminate", tag = "operate",
    params(("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id")),
    request_body = ReasonBody,
    responses((status = 200, body = Acted), (status = 404, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn terminate(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id)): Target<(String, String)>,
    Body(body): Body<ReasonBody>,
) -> Result<Json<Acted>, Problem> {
    caller.may_touch(&workflow_type)?;
    let outcome = api.client.terminate(&workflow_type, &id, &body.reason, caller.actor()).await?;
    Ok(Json(Acted { outcome }))
}

/// Tries an activity again now, under the same key.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}/activities/{number}/retry", tag = "operate",
    params(
        ("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id"),
        ("number" = u64, Path, description = "number of its ActivityScheduled"),
    ),
    request_body = ActivityBody,
    responses((status = 200, body = Acted), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn retry(
    State(api): State<Api>,
    caller: Caller,
    Target(target): Target<(String, String, u64)>,
    Body(body): Body<ActivityBody>,
) -> Result<Json<Acted>, Problem> {
    act(&api, &caller, target, OperatorAction::Retry, &body.reason).await
}

/// Gives an activity's result, as if it had answered it.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}/activities/{number}/resolve", tag = "operate",
    params(
        ("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id"),
        ("number" = u64, Path, description = "number of its ActivityScheduled"),
    ),
    request_body = ActivityBody,
    responses((status = 200, body = Acted), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn resolve(
    State(api): State<Api>,
    caller: Caller,
    Target(target): Target<(String, String, u64)>,
    Body(body): Body<ActivityBody>,
) -> Result<Json<Acted>, Problem> {
    let Some(result) = body.result else { return Err(malformed("result", "missing: the result that the activity is to have")) };
    act(&api, &caller, target, OperatorAction::Resolve(result), &body.reason).await
}

/// Decides that an activity is not to be done.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}/activities/{number}/skip", tag = "operate",
    params(
        ("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id"),
        ("number" = u64, Path, description = "number of its ActivityScheduled"),
    ),
    request_body = ActivityBody,
    responses((status = 200, body = Acted), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn skip(
    State(api): State<Api>,
    caller: Caller,
    Target(target): Target<(String, String, u64)>,
    Body(body): Body<ActivityBody>,
) -> Result<Json<Acted>, Problem> {
    act(&api, &caller, target, OperatorAction::Skip, &body.reason).await
}

async fn act(
    api: &Api,
    caller: &Caller,
    (workflow_type, id, number): (String, String, u64),
    action: OperatorAction,
    reason: &str,
) -> Result<Json<Acted>, Problem> {
    caller.may_touch(&workflow_type)?;
    let outcome = api.client.operate(&workflow_type, &id, number, action, reason, caller.actor()).await?;
    Ok(Json(Acted { outcome }))
}
