//! How long an attempt may take in all, its waits and its tries included.

use std::sync::Arc;
use std::time::Duration;

use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Clock;
use tower::ServiceExt;

use super::{Around, Next, Reply};
use crate::call::Request;

pub(crate) struct Deadline {
    pub(crate) limit: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Around for Deadline {
    async fn around<S: Next>(&self, request: Request, next: S) -> Reply {
        let (name, downstream) = (request.call.definition.name, request.call.downstream);
        let ctx = request.ctx.clone();
        let sent_before = ctx.sends();
        tokio::select! {
            biased;
            reply = next.oneshot(request) => reply,
            () = self.clock.sleep(self.limit) => {
                if ctx.sends() == sent_before {
                    // Nothing was sent: our own limits held it back, and that costs no attempt.
                    return Err(ActivityFailure::parked(format!("concurrency limit of {downstream}"), self.limit));
                }
                let limit_ms = self.limit.as_millis();
                Err(ActivityFailure::transient("timeout", format!("{name} of {downstream}: not done within {limit_ms} ms")))
            }
        }
    }
}
