//! How long one send may take, its answer read.

use std::sync::Arc;
use std::time::Duration;

use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Clock;
use tower::ServiceExt;

use super::{Around, Next, Reply};
use crate::call::Request;

pub(crate) struct Timeout {
    pub(crate) limit: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Around for Timeout {
    async fn around<S: Next>(&self, request: Request, next: S) -> Reply {
        let (name, downstream) = (request.call.definition.name, request.call.downstream);
        tokio::select! {
            biased;
            reply = next.oneshot(request) => reply,
            () = self.clock.sleep(self.limit) => {
                let limit_ms = self.limit.as_millis();
                Err(ActivityFailure::transient("timeout", format!("{name} of {downstream}: no answer within {limit_ms} ms")))
            }
        }
    }
}
