//! Whether the node lives, and whether it should get requests.

use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::problem::Problem;

/// The process answers.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = String)))]
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// The node takes requests; 503 with the reason when it does not.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = String), (status = 503, body = Problem)))]
pub(super) async fn readyz(State(api): State<Api>) -> Result<&'static str, Problem> {
    match api.client.engine().unready_reason() {
        None => Ok("ok\n"),
        Some(reason) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "urn:overdue:unready", "Not ready", reason)),
    }
}
