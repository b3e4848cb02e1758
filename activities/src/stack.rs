//! The tower stack of one downstream: every request to it passes here, whatever the call.

use std::time::Duration;

use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Environment;
use overdue_runtime::engine::breaker::{Breaker, BreakerPolicy};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};

use crate::answer::Answer;
use crate::call::Request;
use crate::layers::{
    CircuitBreaker, ConcurrencyLimit, Deadline, IN_PLACE_MAX, Next, RateLimit, Reply, Timeout, Tries, around, pauses,
};
use crate::settings::Settings;

/// What an attempt may take beyond its tries and their waits.
const SLACK: Duration = Duration::from_secs(1);

/// How far apart parked calls come back where no rate says it.
const SPACING_DEFAULT: Duration = Duration::from_millis(2);

/// A downstream's stack; clones share its breaker, its limits and its connections.
#[derive(Clone)]
pub(crate) struct Stack {
    service: BoxCloneSyncService<Request, Answer, ActivityFailure>,
}

impl Stack {
    /// Puts the layers around `client`, outermost first.
    pub(crate) fn new(settings: &Settings, environment: &Environment, breaker: &Breaker, client: impl Next) -> Self {
        let clock = || environment.clock.clone();
        let service = ServiceBuilder::new()
            // An attempt ends before the engine gives it up, so that its failure is one that we word.
            .layer(around(Deadline { limit: deadline(settings), clock: clock() }))
            // Outside all that judges single sends: each try passes the breaker and the limits anew.
            .layer(around(Tries { limit: settings.tries, clock: clock() }))
            // Before any wait for a limit: what may not go takes no place in a queue. Outside the timeout: it counts.
            .layer(around(CircuitBreaker(breaker.clone())))
            // Before the concurrency limit: whoever waits for its turn holds no place that another could send in.
            .layer(around(RateLimit::new(settings.name, settings.rate, breaker, &environment.clock)))
            // Bounds what the downstream has in hand from this node.
            .layer(around(ConcurrencyLimit::new(settings.concurrency)))
            // Innermost: only the send and the reading of its answer are timed, no wait of ours.
            .layer(around(Timeout { limit: settings.timeout, clock: clock() }))
            .service(client);
        Self { service: BoxCloneSyncService::new(service) }
    }

    /// Makes one attempt.
    pub(crate) async fn send(&self, request: Request) -> Reply {
        self.service.clone().oneshot(request).await
    }
}

/// How long an attempt may take: its tries with the longest wait for the rate before each, the pauses between them.
pub(crate) fn deadline(settings: &Settings) -> Duration {
    let tries = (settings.timeout + IN_PLACE_MAX).saturating_mul(settings.tries);
    tries + pauses(settings.tries).sum::<Duration>() + SLACK
}

/// When the downstream's breaker opens.
pub(crate) fn breaker_policy(settings: &Settings) -> BreakerPolicy {
    let spacing = settings.rate.map_or(SPACING_DEFAULT, |rate| rate.period);
    BreakerPolicy { spacing, probe_max: start_to_close(settings), ..settings.breaker }
}

/// How long the engine waits for an attempt: the stack's own deadline comes first.
pub(crate) fn start_to_close(settings: &Settings) -> Duration {
    deadline(settings) + SLACK
}

#[cfg(test)]
mod tests;
