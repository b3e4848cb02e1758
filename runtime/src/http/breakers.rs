//! Looking at circuit breakers, and setting them by hand.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::{Body, Target};
use crate::activity::{BreakerPanel, BreakerView};
use crate::client::{ClientError, check_reason};

/// Which breaker, and why.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BreakerBody {
    /// The part of the downstream, such as a payment channel; all of it, if left out.
    key: Option<String>,
    /// Why; logged with who.
    reason: String,
}

/// The breakers of this node.
#[derive(Serialize, ToSchema)]
pub(super) struct Breakers {
    breakers: Vec<BreakerView>,
}

/// Lists the circuit breakers of this node.
#[utoipa::path(get, path = "/v1/breakers", tag = "operate", responses((status = 200, body = Breakers)))]
pub(super) async fn list(State(api): State<Api>) -> Json<Breakers> {
    let breakers = api.client.engine().code().breakers.as_ref().map(|panel| panel.breakers()).unwrap_or_default();
    Json(Breakers { breakers })
}

/// Opens a breaker of this node until it is closed by hand; what it protects is then not called.
#[utoipa::path(
    post, path = "/v1/breakers/{downstream}/open", tag = "operate", request_body = BreakerBody,
    params(("downstream" = String, Path, description = "what it protects")),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn open(
    State(api): State<Api>,
    caller: Caller,
    Target(downstream): Target<String>,
    Body(body): Body<BreakerBody>,
) -> Result<StatusCode, Problem> {
    set(&api, &caller, &downstream, &body, "forced open", |panel, key| panel.force_open(&downstream, key, &body.reason))
}

/// Closes a breaker of this node, whatever opened it.
#[utoipa::path(
    post, path = "/v1/breakers/{downstream}/close", tag = "operate", request_body = BreakerBody,
    params(("downstream" = String, Path, description = "what it protects")),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn close(
    State(api): State<Api>,
    caller: Caller,
    Target(downstream): Target<String>,
    Body(body): Body<BreakerBody>,
) -> Result<StatusCode, Problem> {
    set(&api, &caller, &downstream, &body, "closed", |panel, key| panel.close(&downstream, key))
}

fn set(
    api: &Api,
    caller: &Caller,
    downstream: &str,
    body: &BreakerBody,
    how: &str,
    act: impl Fn(&dyn BreakerPanel, Option<&str>) -> Result<(), crate::activity::NoSuchBreaker>,
) -> Result<StatusCode, Problem> {
    check_reason(&body.reason)?;
    let not_found = |message: String| Problem::from(ClientError::NotFound(message));
    let panel = api.client.engine().code().breakers.clone();
    let panel = panel.ok_or_else(|| not_found(format!("there is no breaker {downstream:?}")))?;
    act(panel.as_ref(), body.key.as_deref()).map_err(|error| not_found(error.to_string()))?;
    tracing::warn!(downstream, key = body.key, actor = caller.actor(), reason = body.reason, "breaker {how} by hand");
    Ok(StatusCode::NO_CONTENT)
}
