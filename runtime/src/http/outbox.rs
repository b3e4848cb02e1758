//! Events that those outside do not have yet.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use super::Api;
use super::access::Caller;
use super::operate::ReasonBody;
use super::problem::Problem;
use super::request::{Body, Target, malformed};
use crate::client::{OutboxAction, OutboxPage, OutboxQuery};

/// How many events a page has unless the caller says otherwise.
const PAGE_DEFAULT: usize = 100;

/// Lists events that sinks do not have yet, one for each sink.
#[utoipa::path(
    get, path = "/v1/outbox", tag = "outbox",
    params(
        ("sink" = Option<String>, Query, description = "for this sink"),
        ("state" = Option<String>, Query, description = "waiting, failing or needs-attention"),
        ("limit" = Option<usize>, Query, description = "1 to 1000, default 100"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
    ),
    responses((status = 200, body = OutboxPage), (status = 400, body = Problem))
)]
pub(super) async fn list(State(api): State<Api>, caller: Caller, RawQuery(query): RawQuery) -> Result<Json<OutboxPage>, Problem> {
    let mut list = parse(query.as_deref().unwrap_or_default())?;
    list.visible_types = caller.types().cloned();
    Ok(Json(api.client.outbox(&list).await?))
}

/// Sends an event to its sink now, whatever it waits for but one before it. Attempts and time count from the beginning.
#[utoipa::path(
    post, path = "/v1/outbox/{id}/retry", tag = "outbox", request_body = ReasonBody,
    params(("id" = String, Path, description = "`id` of the list")),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn retry(
    State(api): State<Api>,
    caller: Caller,
    Target(id): Target<String>,
    Body(body): Body<ReasonBody>,
) -> Result<StatusCode, Problem> {
    decide(&api, &caller, &id, OutboxAction::Retry, &body.reason).await
}

/// Decides that a sink is not to have an event; the next one of the same workflow follows.
#[utoipa::path(
    post, path = "/v1/outbox/{id}/skip", tag = "outbox", request_body = ReasonBody,
    params(("id" = String, Path, description = "`id` of the list")),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn skip(
    State(api): State<Api>,
    caller: Caller,
    Target(id): Target<String>,
    Body(body): Body<ReasonBody>,
) -> Result<StatusCode, Problem> {
    decide(&api, &caller, &id, OutboxAction::Skip, &body.reason).await
}

async fn decide(api: &Api, caller: &Caller, id: &str, action: OutboxAction, reason: &str) -> Result<StatusCode, Problem> {
    caller.may_touch(&api.client.outbox_type(id).await?)?;
    api.client.outbox_decide(id, action, reason, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn parse(query: &str) -> Result<OutboxQuery, Problem> {
    let mut list = OutboxQuery { limit: PAGE_DEFAULT, ..OutboxQuery::default() };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "sink" => list.sink = Some(value.into_owned()),
            "state" => {
                let known = "waiting, failing or needs-attention";
                list.state = Some(value.parse().map_err(|()| malformed("state", known))?);
            }
            "limit" => list.limit = value.parse().map_err(|_| malformed("limit", "a number from 1 to 1000"))?,
            "cursor" => list.cursor = Some(value.into_owned()),
            other => return Err(malformed(other, "no such filter; see /docs")),
        }
    }
    Ok(list)
}
