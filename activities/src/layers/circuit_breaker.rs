//! The circuit breaker around a downstream's sends, and around those to a payment channel that rejected us.
//!
//! Only transient failures count, and only a 2xx heals: an answer of 4xx says nothing of the service's health. A call
//! that may not go is parked and costs no attempt. Unless channels count for themselves, the breaker of one opens only by force.

use overdue_runtime::engine::breaker::{Breaker, Verdict};
use overdue_runtime::history::FailureClass;
use tower::ServiceExt;

use super::{Around, Next, Reply};
use crate::call::Request;

pub(crate) struct CircuitBreaker(pub(crate) Breaker);

impl Around for CircuitBreaker {
    async fn around<S: Next>(&self, request: Request, next: S) -> Reply {
        let mut permit = self.0.admit(request.channel.as_deref()).await?;
        let reply = next.oneshot(request).await;
        permit.settle(verdict(&reply));
        reply
    }
}

fn verdict(reply: &Reply) -> Verdict {
    match reply {
        Ok(answer) if answer.status.is_success() => Verdict::Healthy,
        Err(failure) if failure.failure.class == FailureClass::Transient => Verdict::Failed,
        _ => Verdict::Neutral,
    }
}
