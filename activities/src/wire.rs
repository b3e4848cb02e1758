//! Another way to the services than HTTP: what a simulation of a whole shop puts in the place of the network.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Environment;
use tower::Service;

use crate::answer::{self, Answer, Body};
use crate::call::Request;
use crate::retry_after::retry_after;
use crate::trace;

/// A request as it goes out.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// The whole URL.
    pub url: String,
    /// The headers, the idempotency key and the trace context among them.
    pub headers: HeaderMap,
    /// The body: JSON, or empty.
    pub body: Bytes,
}

/// An answer as it comes in.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, and `None` in its place when the connection broke in the middle of it.
    pub body: Option<Bytes>,
}

/// Why there is no answer; the request may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// No connection came about: the request did not arrive.
    Connect,
    /// The connection broke before the answer.
    Broken,
}

/// Carries requests to the services. What it takes longer for than the service's timeout is given up by the caller.
#[async_trait]
pub trait Wire: Send + Sync + 'static {
    /// Sends one request, once.
    async fn send(&self, request: Outgoing) -> Result<Incoming, NoAnswer>;
}

/// The innermost service of a stack over a [`Wire`].
#[derive(Clone)]
pub(crate) struct WireClient {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) environment: Environment,
}

impl WireClient {
    async fn send(self, request: Request) -> Result<Answer, ActivityFailure> {
        let mut headers = request.headers;
        trace::inject(request.ctx.traceparent(), self.environment.random.as_ref(), &mut headers);
        request.ctx.record_send();
        let outgoing = Outgoing { method: request.call.method.clone(), url: request.url, headers, body: request.body };
        let incoming = self.wire.send(outgoing).await.map_err(|error| {
            let (error_type, what) = match error {
                NoAnswer::Connect => ("connect", "no connection"),
                NoAnswer::Broken => ("broken", "the connection broke before the answer"),
            };
            ActivityFailure::transient(
                error_type,
                format!("{} of {}: {what}", request.call.definition.name, request.call.downstream),
            )
        })?;
        let now = self.environment.clock.now();
        let wait = retry_after(&incoming.headers, now, request.call.reading.retry_after_max);
        let body = incoming.body.map_or_else(|| Body::Broken(Bytes::new(), "cut off".into()), Body::Whole);
        answer::read(&request.call, incoming.status, wait, &body)
    }
}

impl Service<Request> for WireClient {
    type Response = Answer;
    type Error = ActivityFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, ActivityFailure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ActivityFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
