//! Looking at one workflow.

use axum::Json;
use axum::extract::State;

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::Target;
use crate::client::{Description, Explanation};

/// Describes a workflow: where it stands, what it waits for, what it has decided.
#[utoipa::path(
    get, path = "/v1/workflows/{type}/{id}", tag = "workflows",
    params(("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id")),
    responses((status = 200, body = Description), (status = 404, body = Problem))
)]
pub(super) async fn describe(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id)): Target<(String, String)>,
) -> Result<Json<Description>, Problem> {
    caller.may_touch(&workflow_type)?;
    Ok(Json(api.client.describe(&workflow_type, &id).await?))
}

/// Explains in one paragraph why a workflow stands where it stands, and what a person can do.
#[utoipa::path(
    get, path = "/v1/workflows/{type}/{id}/explain", tag = "workflows",
    params(("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id")),
    responses((status = 200, body = Explanation), (status = 404, body = Problem))
)]
pub(super) async fn explain(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id)): Target<(String, String)>,
) -> Result<Json<Explanation>, Problem> {
    caller.may_touch(&workflow_type)?;
    Ok(Json(api.client.explain(&workflow_type, &id).await?))
}
