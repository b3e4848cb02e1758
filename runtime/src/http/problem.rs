//! Errors as `application/problem+json` (RFC 9457).

use std::any::Any;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::client::ClientError;
use crate::id::RunId;
use crate::payload::InvalidField;

/// After how many seconds a refused request is worth repeating.
const RETRY_AFTER_SECONDS: u64 = 1;

/// Why a request was not granted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// A constant name for the kind of problem.
    r#type: &'static str,
    /// The kind of problem in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What happened this time, and what to do.
    detail: String,
    /// The fields that are not as they must be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<FieldProblem>)]
    errors: Vec<InvalidField>,
    /// The run that the request contradicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    run_id: Option<RunId>,
}

/// A field that is not as it must be.
#[derive(Serialize, ToSchema)]
pub(crate) struct FieldProblem {
    /// Path of the field in the request.
    field: String,
    /// What is wrong and what to write instead.
    message: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, r#type: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { r#type, title, status: status.as_u16(), detail: detail.into(), errors: Vec::new(), run_id: None }
    }

    pub(crate) fn malformed(errors: Vec<InvalidField>) -> Self {
        ClientError::Malformed(errors).into()
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "urn:overdue:too-large", "A part of the request is over its limit", detail)
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let detail = error.to_string();
        let problem = |status, r#type, title| Self::new(status, r#type, title, detail.clone());
        match error {
            ClientError::Malformed(errors) => {
                Self { errors, ..problem(StatusCode::BAD_REQUEST, "urn:overdue:malformed", "The request is malformed") }
            }
            ClientError::Invalid(errors) => {
                Self { errors, ..problem(StatusCode::UNPROCESSABLE_ENTITY, "urn:overdue:invalid", "The request is not valid") }
            }
            ClientError::UnknownType { .. } => {
                problem(StatusCode::NOT_FOUND, "urn:overdue:unknown-type", "Unknown workflow type")
            }
            ClientError::NotFound(_) => problem(StatusCode::NOT_FOUND, "urn:overdue:not-found", "Not found"),
            ClientError::Conflict { run_id, .. } => {
                Self { run_id, ..problem(StatusCode::CONFLICT, "urn:overdue:conflict", "The request contradicts what is stored") }
            }
            ClientError::TooLarge(_) => Self::too_large(detail),
            ClientError::TooMany(_) => problem(StatusCode::TOO_MANY_REQUESTS, "urn:overdue:too-many", "A limit is reached"),
            ClientError::Unavailable | ClientError::Store(_) => {
                // The store's own words may name files; they are in the log.
                if let ClientError::Store(error) = &error {
                    tracing::error!(error = %error, "request failed at the store");
                }
                let detail = "the node cannot take the request now; repeat it with the same ids";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "urn:overdue:unavailable", "Not available now", detail)
            }
            ClientError::Rejected => problem(StatusCode::INTERNAL_SERVER_ERROR, "urn:overdue:rejected", "It could not be stored"),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/problem+json"));
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer realm=\"overdue\""));
            }
            _ => {}
        }
        response
    }
}

pub(super) async fn no_route() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "urn:overdue:no-route", "No such route", "there is nothing here; see /docs")
}

pub(super) async fn no_method() -> Problem {
    let detail = "this route does not take that method; see /docs";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "urn:overdue:no-method", "No such method", detail)
}

/// A panic of a handler: its message is in the log, not in the answer.
pub(super) fn panicked(_: Box<dyn Any + Send>) -> Response {
    let detail = "the node met an error of its own; its log says more";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "urn:overdue:internal", "Internal error", detail).into_response()
}
