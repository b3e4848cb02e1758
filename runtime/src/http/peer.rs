//! What nodes ask of each other. No part of the public API.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};

use super::Api;
use super::request::Body;
use crate::client::{Forwarded, Nudge, OutboxDecision};
use crate::engine::{Answer, RefusedInput};
use crate::id::WorkflowKey;

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/v1/peer/asks", post(ask))
        .route("/v1/peer/nudges", post(nudge))
        .route("/v1/peer/outbox", post(decide))
        .route("/v1/peer/membership", post(membership))
}

/// Asks this node as the owner of an execution. It is not forwarded again.
async fn ask(State(api): State<Api>, Body(forwarded): Body<Forwarded>) -> Json<Answer> {
    let key = WorkflowKey::new(forwarded.r#type, forwarded.id);
    let answer = api.client.ask_here(&key, forwarded.ask).await;
    Json(answer.unwrap_or(Answer::Refused(RefusedInput::Unavailable)))
}

/// Has this node look at an execution.
async fn nudge(State(api): State<Api>, Body(nudge): Body<Nudge>) -> StatusCode {
    api.client.nudged(WorkflowKey::new(nudge.r#type, nudge.id));
    StatusCode::NO_CONTENT
}

/// Decides about an event of this node's shards. It is not forwarded again.
async fn decide(State(api): State<Api>, Body(decision): Body<OutboxDecision>) -> Json<Answer> {
    let answer = api.client.decide_here(&decision).await;
    Json(answer.unwrap_or(Answer::Refused(RefusedInput::Unavailable)))
}

/// Has this node look at who is there.
async fn membership(State(api): State<Api>) -> StatusCode {
    api.client.engine().poke();
    StatusCode::NO_CONTENT
}
