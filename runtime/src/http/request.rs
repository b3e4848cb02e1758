//! Reading requests: bodies within their limits, errors that name the field.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::BODY_BYTES_MAX;
use super::problem::Problem;
use crate::payload::{InvalidField, InvalidPayload, Payload};

/// A JSON body. Its depth is checked before anything recursive reads it.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| unreadable(&rejection))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed("", "the body is not UTF-8"))?;
        read_json(text).map(Self)
    }
}

/// Reads a JSON text as a `T`.
pub(super) fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let payload = Payload::from_json(text).map_err(|error| match error {
        InvalidPayload::Nul => malformed("", &error.to_string()),
        other => malformed("", &format!("the body is {other}")),
    })?;
    payload.parse().map_err(|error| Problem::malformed(vec![error]))
}

fn unreadable(rejection: &BytesRejection) -> Problem {
    if rejection.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::too_large(format!("the body is over {BODY_BYTES_MAX} bytes"));
    }
    malformed("", "the body could not be read to its end")
}

/// The path's parts.
pub(super) struct Target<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Target<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(target)) => Ok(Self(target)),
            Err(error) => Err(malformed("path", &error.body_text())),
        }
    }
}

/// The query's parameters.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(error) => Err(malformed("query", &error.body_text())),
        }
    }
}

/// A header as text, if it is there and readable.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty())
}

pub(super) fn malformed(field: &str, message: &str) -> Problem {
    Problem::malformed(vec![InvalidField::new(field, message)])
}
