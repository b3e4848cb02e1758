//! Sending a signal.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::{Body, Target, header};
use crate::client::{SignalRequest, SignalResponse};
use crate::payload::Payload;

/// What a signal says.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SignalBody {
    /// Identifies the delivery; the `Idempotency-Key` header serves too.
    signal_id: Option<String>,
    /// The signal's content, as its name wants it.
    #[schema(value_type = Object)]
    payload: Payload,
}

/// Sends a signal. A 2xx means that it is durable and certain to be acted on; on 5xx repeat it with the same signal id.
#[utoipa::path(
    post, path = "/v1/workflows/{type}/{id}/signals/{name}", tag = "workflows",
    params(
        ("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id, started or not"),
        ("name" = String, Path, description = "a signal that the workflow type declares"),
        ("Idempotency-Key" = Option<String>, Header, description = "the signal id, if the body has none"),
    ),
    request_body = SignalBody,
    responses(
        (status = 200, body = SignalResponse), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "The same signal id was received with another body"),
        (status = 413, body = Problem), (status = 422, body = Problem), (status = 429, body = Problem), (status = 503, body = Problem),
    )
)]
pub(super) async fn signal(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id, name)): Target<(String, String, String)>,
    headers: HeaderMap,
    Body(body): Body<SignalBody>,
) -> Result<Json<SignalResponse>, Problem> {
    caller.may_touch(&workflow_type)?;
    let signal_id = body.signal_id.or_else(|| header(&headers, "idempotency-key").map(str::to_owned));
    let request = SignalRequest { workflow_type, id, name, signal_id, payload: body.payload };
    Ok(Json(api.client.signal(request).await?))
}
