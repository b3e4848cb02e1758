//! Making, listing and revoking tokens.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::problem::Problem;
use super::request::{Body, Target};
use crate::client::{ClientError, NewToken};
use crate::store::Token;
use crate::time::Timestamp;

/// What a new token is for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TokenBody {
    /// Its name: who acts.
    name: String,
    /// Any of start, signal, read, operate, admin.
    scopes: Vec<String>,
    /// The workflow types that it may touch; all, if left out.
    #[serde(default)]
    types: Vec<String>,
    /// From when on it is refused.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// A new token.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Created {
    /// Its name.
    name: String,
    /// The secret; shown only now.
    secret: String,
}

/// All tokens, without their secrets.
#[derive(Serialize, ToSchema)]
pub(super) struct Tokens {
    tokens: Vec<Token>,
}

/// Makes a token and shows its secret, once. From the first token on, every request needs one.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens", request_body = TokenBody,
    responses((status = 201, body = Created), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn create(State(api): State<Api>, Body(body): Body<TokenBody>) -> Result<(StatusCode, Json<Created>), Problem> {
    let TokenBody { name, scopes, types, expires_at } = body;
    let secret = api.client.create_token(NewToken { name: name.clone(), scopes, types, expires_at }).await?;
    api.access.forget();
    Ok((StatusCode::CREATED, Json(Created { name, secret })))
}

/// Lists the tokens.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", responses((status = 200, body = Tokens)))]
pub(super) async fn list(State(api): State<Api>) -> Result<Json<Tokens>, Problem> {
    let tokens = api.client.engine().store().tokens().await.map_err(ClientError::from)?;
    Ok(Json(Tokens { tokens }))
}

/// Revokes a token.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", tag = "tokens", params(("name" = String, Path, description = "its name")),
    responses((status = 204), (status = 404, body = Problem))
)]
pub(super) async fn revoke(State(api): State<Api>, Target(name): Target<String>) -> Result<StatusCode, Problem> {
    let revoked = api.client.engine().store().revoke_token(&name).await.map_err(ClientError::from)?;
    api.access.forget();
    if revoked { Ok(StatusCode::NO_CONTENT) } else { Err(ClientError::NotFound(format!("there is no token {name:?}")).into()) }
}
