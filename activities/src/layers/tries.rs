//! Sends inside one attempt: only after a transient failure, and after a short pause. The attempts themselves are
//! durable and belong to the engine.

use std::sync::Arc;
use std::time::Duration;

use overdue_runtime::engine::Clock;
use overdue_runtime::history::FailureClass;
use tower::ServiceExt;

use super::{Around, Next, Reply};
use crate::call::Request;

const PAUSE_INITIAL: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Tries {
    pub(crate) limit: u32,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The pauses between so many tries: each twice the one before, up to a second.
pub(crate) fn pauses(tries: u32) -> impl Iterator<Item = Duration> {
    (1..tries).map(|try_number| PAUSE_INITIAL.saturating_mul(1 << (try_number - 1).min(10)).min(PAUSE_MAX))
}

impl Around for Tries {
    async fn around<S: Next>(&self, request: Request, next: S) -> Reply {
        let mut reply = next.clone().oneshot(request.clone()).await;
        for pause in pauses(self.limit) {
            let Err(failure) = &reply else { return reply };
            if failure.failure.class != FailureClass::Transient {
                return reply;
            }
            self.clock.sleep(pause).await;
            let again = next.clone().oneshot(request.clone()).await;
            // Held back by a breaker or limit: what counts is the try that was sent, for it may have taken effect.
            if again.as_ref().is_err_and(|failure| failure.parked_by.is_some()) {
                return reply;
            }
            reply = again;
        }
        reply
    }
}
