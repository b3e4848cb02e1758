//! The HTTP API: routes, who may call them, and how the server begins and ends.
//!
//! What each route does is the client's business; here requests are read, and answers written. The OpenAPI description
//! is generated from the handlers.

mod access;
#[cfg(feature = "fault-injection")]
mod answered;
mod attention;
mod breakers;
mod bulk;
mod deadlines;
mod docs;
mod health;
mod history;
mod jobs;
mod list;
mod operate;
mod outbox;
mod peer;
mod problem;
mod request;
mod server;
mod signal;
mod start;
mod tokens;
mod workflow;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use access::{Need, ROUTES, Reach, Scope};
pub use server::{Listener, ServeError, Server};

use crate::client::Client;

/// The largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The largest body of a bulk request, in bytes. Each of its lines is bound by [`BODY_BYTES_MAX`].
pub const BULK_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(OpenApi)]
#[openapi(info(
    title = "Overdue",
    description = "Durable workflows that wait for deadlines. Every 2xx is given after the commit that holds what was asked.",
    license(name = "MIT OR Apache-2.0")
), servers((url = "/", description = "this node")))]
struct Description;

/// What every handler shares.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: Client,
    access: access::Access,
}

fn documented() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(start::start, workflow::describe))
        .routes(routes!(bulk::start_many))
        .routes(routes!(list::list))
        .routes(routes!(signal::signal))
        .routes(routes!(workflow::explain))
        .routes(routes!(history::history))
        .routes(routes!(operate::cancel))
        .routes(routes!(operate::terminate))
        .routes(routes!(operate::retry))
        .routes(routes!(operate::resolve))
        .routes(routes!(operate::skip))
        .routes(routes!(deadlines::list))
        .routes(routes!(deadlines::forecast))
        .routes(routes!(deadlines::set))
        .routes(routes!(attention::list))
        .routes(routes!(jobs::start, jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs::items))
        .routes(routes!(jobs::cancel))
        .routes(routes!(breakers::list))
        .routes(routes!(breakers::open))
        .routes(routes!(breakers::close))
        .routes(routes!(breakers::force_close))
        .routes(routes!(outbox::list))
        .routes(routes!(outbox::retry))
        .routes(routes!(outbox::skip))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
}

/// The OpenAPI description, as JSON.
pub fn openapi() -> String {
    let (_, openapi) = documented().split_for_parts();
    openapi.to_pretty_json().unwrap_or_default()
}

/// The whole API over `client`, for a listener that can be reached from `reach`.
pub fn router(client: Client, reach: Reach) -> Router {
    let api = Api { access: access::Access::new(&client, reach), client };
    let (router, _) = documented().split_for_parts();
    router
        .merge(docs::router())
        .merge(peer::router())
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::no_method)
        .layer(from_fn_with_state(api.clone(), access::check))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(api)
}
