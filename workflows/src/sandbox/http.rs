//! The HTTP edge of the four services: routes, headers, and faults as the caller feels them.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};

use super::book::Book;
use super::coupons::Coupons;
use super::desk::{Answered, Arrival, Desk};
use super::orders::Orders;
use super::payments::Payments;
use super::stock::Stock;
use super::{Call, Fault};

pub(super) fn orders(desk: Arc<Desk<Orders>>) -> Router {
    Router::new()
        .route("/orders", get(list_orders))
        .route("/orders/{id}/cancel", on(Call::CancelOrder))
        .route("/orders/{id}/confirm-paid", on(Call::ConfirmPaid))
        .with_state(desk)
}

pub(super) fn stock(desk: Arc<Desk<Stock>>) -> Router {
    Router::new().route("/reservations/{id}/release", on(Call::ReleaseStock)).with_state(desk)
}

pub(super) fn coupons(desk: Arc<Desk<Coupons>>) -> Router {
    Router::new().route("/coupons/{id}/return", on(Call::ReturnCoupon)).with_state(desk)
}

pub(super) fn payments(desk: Arc<Desk<Payments>>) -> Router {
    Router::new()
        .route("/payments/{id}/close", on(Call::ClosePayment))
        .route("/payments/{id}/void", on(Call::VoidPayment))
        .route("/payments/{id}/refunds", on(Call::RefundPayment))
        .route("/payments/{id}/refunds/{refund_id}", get(refund_status))
        .with_state(desk)
}

/// A call whose subject is in the path and whose body is JSON.
fn on<B: Book>(call: Call) -> axum::routing::MethodRouter<Arc<Desk<B>>> {
    post(move |State(desk): State<Arc<Desk<B>>>, Path(subject): Path<String>, headers: HeaderMap, bytes: Bytes| {
        let digest = Arrival::digest(call, &subject, &bytes);
        let body = serde_json::from_slice(&bytes).ok();
        answer(desk, Arrival { call, subject, key: key(&headers), body, digest })
    })
}

async fn list_orders(
    State(desk): State<Arc<Desk<Orders>>>,
    Query(query): Query<Map<String, Value>>,
    headers: HeaderMap,
) -> Response {
    let (call, subject) = (Call::ListOrders, "*".to_owned());
    let body = Value::Object(query);
    let digest = Arrival::digest(call, &subject, body.to_string().as_bytes());
    answer(desk, Arrival { call, subject, key: key(&headers), body: Some(body), digest }).await
}

async fn refund_status(
    State(desk): State<Arc<Desk<Payments>>>,
    Path((subject, refund_id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let call = Call::RefundStatus;
    let digest = Arrival::digest(call, &subject, refund_id.as_bytes());
    let body = Some(json!({ "refundId": refund_id }));
    answer(desk, Arrival { call, subject, key: key(&headers), body, digest }).await
}

fn key(headers: &HeaderMap) -> Option<String> {
    headers.get("idempotency-key").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn answer<B: Book>(desk: Arc<Desk<B>>, arrival: Arrival) -> Response {
    let Answered { status, answer, fault, receipt } = desk.arrive(arrival);
    if let Err(error) = receipt.durable().await {
        let answer = json!({ "title": error.to_string() });
        return (StatusCode::INTERNAL_SERVER_ERROR, axum::Json(answer)).into_response();
    }
    let status = StatusCode::from_u16(status).expect("services answer with known statuses");
    let response = (status, axum::Json(answer)).into_response();
    match fault {
        Some(Fault::TimeoutAfterEffect) => {
            tokio::time::sleep(desk.plan().withhold()).await;
            response
        }
        Some(Fault::ConnectionClosed) => broken(status),
        Some(Fault::Throttled { retry_after }) => ([(header::RETRY_AFTER, retry_after.to_string())], response).into_response(),
        Some(Fault::Unavailable | Fault::ServerError) | None => response,
    }
}

/// Promises a body and breaks the connection instead of sending it.
fn broken(status: StatusCode) -> Response {
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let body = Body::from_stream(futures::stream::iter([Err::<Bytes, _>(reset)]));
    (status, [(header::CONTENT_LENGTH, "64")], body).into_response()
}
