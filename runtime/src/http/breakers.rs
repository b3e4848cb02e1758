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
use crate::client::{ClientError, check_reason};
use crate::engine::breaker::{BreakerError, BreakerName, BreakerView, Setting};

/// Which breaker, and why.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BreakerBody {
    /// The part of the downstream, such as a payment channel; all of it, if left out.
    key: Option<String>,
    /// Why; kept with who, and logged.
    reason: String,
}

/// The breakers as this node sees them.
#[derive(Serialize, ToSchema)]
pub(super) struct Breakers {
    breakers: Vec<BreakerView>,
}

/// Lists the circuit breakers.
#[utoipa::path(get, path = "/v1/breakers", tag = "operate", responses((status = 200, body = Breakers)))]
pub(super) async fn list(State(api): State<Api>) -> Json<Breakers> {
    let breakers = api.client.engine().code().breakers.as_ref().map(|breakers| breakers.views()).unwrap_or_default();
    Json(Breakers { breakers })
}

/// Opens a breaker on all nodes until it is closed by hand; what it protects is then not called.
#[utoipa::path(
    post, path = "/v1/breakers/{downstream}/open", tag = "operate", request_body = BreakerBody,
    params(("downstream" = String, Path, description = "what it protects")),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem), (status = 503, body = Problem))
)]
pub(super) async fn open(
    State(api): State<Api>,
    caller: Caller,
    Target(downstream): Target<String>,
    Body(body): Body<BreakerBody>,
) -> Result<StatusCode, Problem> {
    set(&api, &caller, downstream, body, Setting::ForceOpen).await
}

/// Closes a breaker on all nodes, whatever opened it, and leaves it to itself again.
#[utoipa::path(
    post, path = "/v1/breakers/{downstream}/close", tag = "operate", request_body = BreakerBody,
    params(("downstream" = String, Path, description = "what it protects")),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem), (status = 503, body = Problem))
)]
pub(super) async fn close(
    State(api): State<Api>,
    caller: Caller,
    Target(downstream): Target<String>,
    Body(body): Body<BreakerBody>,
) -> Result<StatusCode, Problem> {
    set(&api, &caller, downstream, body, Setting::Close).await
}

/// Keeps a breaker closed on all nodes until it is closed by hand: every call goes, whatever comes of it.
#[utoipa::path(
    post, path = "/v1/breakers/{downstream}/force-close", tag = "operate", request_body = BreakerBody,
    params(("downstream" = String, Path, description = "what it protects")),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem), (status = 503, body = Problem))
)]
pub(super) async fn force_close(
    State(api): State<Api>,
    caller: Caller,
    Target(downstream): Target<String>,
    Body(body): Body<BreakerBody>,
) -> Result<StatusCode, Problem> {
    set(&api, &caller, downstream, body, Setting::ForceClosed).await
}

async fn set(api: &Api, caller: &Caller, downstream: String, body: BreakerBody, setting: Setting) -> Result<StatusCode, Problem> {
    check_reason(&body.reason)?;
    let not_found = |message: String| Problem::from(ClientError::NotFound(message));
    let breakers = api.client.engine().code().breakers.clone();
    let breakers = breakers.ok_or_else(|| not_found(format!("there is no breaker {downstream:?}")))?;
    let name = BreakerName { downstream, key: body.key };
    breakers.set(&name, setting, &body.reason, caller.actor()).await.map_err(|error| match error {
        BreakerError::Unknown { .. } => not_found(error.to_string()),
        BreakerError::Store(error) => Problem::from(ClientError::from(error)),
    })?;
    tracing::warn!(breaker = %name, actor = caller.actor(), reason = body.reason, setting = ?setting, "breaker set by hand");
    Ok(StatusCode::NO_CONTENT)
}
