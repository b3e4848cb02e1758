//! Who may call what: tokens, scopes, and one table of routes.
//!
//! While the store has no token, everybody who reaches a listener on loopback may do everything; a listener beyond it
//! then refuses everybody. A route that is not in the table is refused.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Api;
use super::problem::Problem;
use super::request::header as header_text;
use crate::client::{Client, NODE_SCHEME};
use crate::store::{StoreError, Token};
use crate::time::Timestamp;

/// How long tokens are remembered before they are read again: a revoked one is refused after this at the latest.
const TOKENS_KEPT: Duration = Duration::from_secs(1);
/// The longest `X-Actor` that is recorded, in bytes.
const ACTOR_BYTES_MAX: usize = 200;

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Start workflows.
    Start,
    /// Send signals.
    Signal,
    /// Look.
    Read,
    /// Cancel, terminate, retry, resolve, skip, move deadlines, one or many.
    Operate,
    /// Make and revoke tokens.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 5] = [Self::Start, Self::Signal, Self::Read, Self::Operate, Self::Admin];

    /// The word of the scope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Signal => "signal",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// What a route needs: a scope, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: anybody may ask.
    Nothing,
    /// A token with this scope, once there is any token.
    Scope(Scope),
    /// The secret that this node shares with the others through the store.
    Peer,
}

/// Every route and what it needs: method, path, need.
pub const ROUTES: &[(&str, &str, Need)] = &[
    ("POST", "/v1/workflows/{type}/{id}", Need::Scope(Scope::Start)),
    ("POST", "/v1/workflows/{type}", Need::Scope(Scope::Start)),
    ("POST", "/v1/workflows/{type}/{id}/signals/{name}", Need::Scope(Scope::Signal)),
    ("GET", "/v1/workflows/{type}/{id}", Need::Scope(Scope::Read)),
    ("GET", "/v1/workflows", Need::Scope(Scope::Read)),
    ("GET", "/v1/workflows/{type}/{id}/explain", Need::Scope(Scope::Read)),
    ("GET", "/v1/workflows/{type}/{id}/history", Need::Scope(Scope::Read)),
    ("POST", "/v1/workflows/{type}/{id}/cancel", Need::Scope(Scope::Operate)),
    ("POST", "/v1/workflows/{type}/{id}/terminate", Need::Scope(Scope::Operate)),
    ("POST", "/v1/workflows/{type}/{id}/activities/{number}/retry", Need::Scope(Scope::Operate)),
    ("POST", "/v1/workflows/{type}/{id}/activities/{number}/resolve", Need::Scope(Scope::Operate)),
    ("POST", "/v1/workflows/{type}/{id}/activities/{number}/skip", Need::Scope(Scope::Operate)),
    ("GET", "/v1/deadlines", Need::Scope(Scope::Read)),
    ("GET", "/v1/deadlines/forecast", Need::Scope(Scope::Read)),
    ("POST", "/v1/workflows/{type}/{id}/deadline", Need::Scope(Scope::Operate)),
    ("GET", "/v1/attention", Need::Scope(Scope::Read)),
    ("POST", "/v1/jobs", Need::Scope(Scope::Operate)),
    ("GET", "/v1/jobs", Need::Scope(Scope::Read)),
    ("GET", "/v1/jobs/{id}", Need::Scope(Scope::Read)),
    ("GET", "/v1/jobs/{id}/items", Need::Scope(Scope::Read)),
    ("POST", "/v1/jobs/{id}/cancel", Need::Scope(Scope::Operate)),
    ("GET", "/v1/breakers", Need::Scope(Scope::Read)),
    ("POST", "/v1/breakers/{downstream}/open", Need::Scope(Scope::Operate)),
    ("POST", "/v1/breakers/{downstream}/close", Need::Scope(Scope::Operate)),
    ("POST", "/v1/breakers/{downstream}/force-close", Need::Scope(Scope::Operate)),
    ("GET", "/v1/outbox", Need::Scope(Scope::Read)),
    ("POST", "/v1/outbox/{id}/retry", Need::Scope(Scope::Operate)),
    ("POST", "/v1/outbox/{id}/skip", Need::Scope(Scope::Operate)),
    ("POST", "/v1/tokens", Need::Scope(Scope::Admin)),
    ("GET", "/v1/tokens", Need::Scope(Scope::Admin)),
    ("DELETE", "/v1/tokens/{name}", Need::Scope(Scope::Admin)),
    ("POST", "/v1/peer/asks", Need::Peer),
    ("POST", "/v1/peer/nudges", Need::Peer),
    ("POST", "/v1/peer/outbox", Need::Peer),
    ("POST", "/v1/peer/membership", Need::Peer),
    ("GET", "/livez", Need::Nothing),
    ("GET", "/readyz", Need::Nothing),
    ("GET", "/openapi.json", Need::Nothing),
    ("GET", "/docs", Need::Nothing),
    ("GET", "/docs/{file}", Need::Nothing),
];

/// From where the listener can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From this machine only.
    Loopback,
    /// From elsewhere too.
    Network,
}

/// Who calls.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    actor: String,
    /// The workflow types it may touch; `None` for all.
    types: Option<Vec<String>>,
}

impl Caller {
    /// Who is recorded as having acted.
    pub(super) fn actor(&self) -> &str {
        &self.actor
    }

    /// The workflow types that it may see; `None` for all.
    pub(super) fn types(&self) -> Option<&Vec<String>> {
        self.types.as_ref()
    }

    /// Whether it may touch this workflow type.
    pub(super) fn may_touch(&self, workflow_type: &str) -> Result<(), Problem> {
        let allowed = self.types.as_ref().is_none_or(|types| types.iter().any(|allowed| allowed == workflow_type));
        if allowed { Ok(()) } else { Err(forbidden(format!("the token is not for workflows of type {workflow_type:?}"))) }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| forbidden("nobody is known to call"))
    }
}

/// The tokens, remembered for a moment.
#[derive(Clone)]
pub(super) struct Access {
    client: Client,
    reach: Reach,
    known: Arc<RwLock<Known>>,
}

#[derive(Default)]
struct Known {
    /// By the monotonic clock.
    read_at: Option<Duration>,
    tokens: Arc<HashMap<[u8; 32], Token>>,
}

impl Access {
    pub(super) fn new(client: &Client, reach: Reach) -> Self {
        Self { client: client.clone(), reach, known: Arc::default() }
    }

    /// Forgets the tokens, so that a change counts at once on this node.
    pub(super) fn forget(&self) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).read_at = None;
    }

    async fn tokens(&self) -> Result<Arc<HashMap<[u8; 32], Token>>, StoreError> {
        let engine = self.client.engine();
        let now = engine.environment().clock.monotonic();
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if known.read_at.is_some_and(|read_at| now.saturating_sub(read_at) < TOKENS_KEPT) {
                return Ok(Arc::clone(&known.tokens));
            }
        }
        let tokens = engine.store().tokens().await?;
        let tokens: Arc<HashMap<_, _>> = Arc::new(tokens.into_iter().map(|token| (token.secret_hash, token)).collect());
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Known { read_at: Some(now), tokens: Arc::clone(&tokens) };
        Ok(tokens)
    }

    /// Another node: it knows this one's secret from the store.
    fn peer(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let own = self.client.engine().secret();
        let shown = credential(headers, NODE_SCHEME).unwrap_or_default();
        if bool::from(shown.as_bytes().ct_eq(own.as_bytes())) {
            Ok(Caller { actor: "another node".into(), types: None })
        } else {
            Err(unauthorized("this is between nodes"))
        }
    }

    async fn caller(&self, need: Need, headers: &HeaderMap) -> Result<Caller, Problem> {
        let scope = match need {
            Need::Nothing => return Ok(anonymous(headers)),
            Need::Peer => return self.peer(headers),
            Need::Scope(scope) => scope,
        };
        let tokens = self.tokens().await.map_err(crate::client::ClientError::from)?;
        match self.reach {
            Reach::Loopback if tokens.is_empty() => return Ok(anonymous(headers)),
            Reach::Network if tokens.is_empty() => {
                return Err(unauthorized("this server has no token any more; make one on its store"));
            }
            Reach::Loopback | Reach::Network => {}
        }
        let Some(secret) = credential(headers, "Bearer") else {
            return Err(unauthorized("send a token: Authorization: Bearer …"));
        };
        let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        let now = self.client.engine().environment().clock.now();
        match tokens.get(&hash).filter(|token| bool::from(token.secret_hash.ct_eq(&hash))) {
            Some(token) if is_expired(token, now) => Err(unauthorized("the token has expired")),
            Some(token) if token.scopes.split(',').any(|allowed| allowed == scope.as_str()) => Ok(Caller {
                actor: token.name.clone(),
                types: (!token.types.is_empty()).then(|| token.types.split(',').map(str::to_owned).collect()),
            }),
            Some(_) => Err(forbidden(format!("the token does not have the scope {:?}", scope.as_str()))),
            None => Err(unauthorized("the token is unknown or was revoked")),
        }
    }
}

/// What the caller shows under this scheme.
fn credential<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let (found, secret) = header_text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then(|| secret.trim())
}

fn is_expired(token: &Token, now: Timestamp) -> bool {
    token.expires_at.is_some_and(|expires_at| expires_at <= now)
}

fn anonymous(headers: &HeaderMap) -> Caller {
    let actor = header_text(headers, "x-actor").filter(|actor| actor.len() <= ACTOR_BYTES_MAX);
    Caller { actor: actor.unwrap_or("anonymous").to_owned(), types: None }
}

/// Lets a request through when its caller may make it.
pub(super) async fn check(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // Without a route there is nothing to protect; the answer is that there is none.
    let Some(path) = path else { return next.run(request).await };
    let Some(need) = need(request.method(), &path) else {
        return Problem::new(StatusCode::METHOD_NOT_ALLOWED, "urn:overdue:no-method", "No such method", "see /docs")
            .into_response();
    };
    if is_cross_site(request.method(), request.headers()) {
        return forbidden("a page of another site must not change anything here").into_response();
    }
    match api.access.caller(need, request.headers()).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Whether a browser sends a change on behalf of another site's page: such a page can reach loopback, too.
fn is_cross_site(method: &Method, headers: &HeaderMap) -> bool {
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    let site = header_text(headers, "sec-fetch-site");
    let origin = header_text(headers, "origin").and_then(|origin| origin.split_once("://"));
    let host = header_text(headers, "host");
    changes && (site == Some("cross-site") || origin.is_some_and(|(_, authority)| Some(authority) != host))
}

fn need(method: &Method, path: &str) -> Option<Need> {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    ROUTES.iter().find(|(allowed, route, _)| *allowed == method && *route == path).map(|(_, _, need)| *need)
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "urn:overdue:unauthorized", "Who are you?", detail)
}

fn forbidden(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "urn:overdue:forbidden", "Not allowed", detail)
}
