//! The layers of a downstream's stack, a concept a file, and the one adapter that makes each a tower layer.

mod circuit_breaker;
mod concurrency;
mod deadline;
mod rate_limit;
mod timeout;
mod tries;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use overdue_runtime::activity::ActivityFailure;
use tower::{Layer, Service};

pub(crate) use circuit_breaker::CircuitBreaker;
pub(crate) use concurrency::ConcurrencyLimit;
pub(crate) use deadline::Deadline;
pub(crate) use rate_limit::{IN_PLACE_MAX, RateLimit};
pub(crate) use timeout::Timeout;
pub(crate) use tries::{Tries, pauses};

use crate::answer::Answer;
use crate::call::Request;

/// What comes back through the stack.
pub(crate) type Reply = Result<Answer, ActivityFailure>;

/// What a layer wraps.
pub(crate) trait Next:
    Service<Request, Response = Answer, Error = ActivityFailure, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> Next for S where
    S: Service<Request, Response = Answer, Error = ActivityFailure, Future: Send> + Clone + Send + Sync + 'static
{
}

/// Something done around each request.
pub(crate) trait Around: Send + Sync + 'static {
    /// Handles one request. Whoever waits does so here and never in `poll_ready`, where the layers inside would have
    /// given away their permits already; so `next` is made ready by `oneshot`, after the wait.
    fn around<S: Next>(&self, request: Request, next: S) -> impl Future<Output = Reply> + Send;
}

/// Makes a tower layer of it.
pub(crate) fn around<A: Around>(what: A) -> AroundLayer<A> {
    AroundLayer(Arc::new(what))
}

pub(crate) struct AroundLayer<A>(Arc<A>);

impl<A, S> Layer<S> for AroundLayer<A> {
    type Service = AroundService<A, S>;

    fn layer(&self, next: S) -> Self::Service {
        AroundService { what: self.0.clone(), next }
    }
}

pub(crate) struct AroundService<A, S> {
    what: Arc<A>,
    next: S,
}

impl<A, S: Clone> Clone for AroundService<A, S> {
    fn clone(&self) -> Self {
        Self { what: self.what.clone(), next: self.next.clone() }
    }
}

impl<A: Around, S: Next> Service<Request> for AroundService<A, S> {
    type Response = Answer;
    type Error = ActivityFailure;
    type Future = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ActivityFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (what, next) = (self.what.clone(), self.next.clone());
        Box::pin(async move { what.around(request, next).await })
    }
}
