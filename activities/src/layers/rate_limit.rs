//! How many sends go to a downstream in a time, tries and attempts included: each passes here.
//!
//! The limiter alone (GCRA, by governor) decides who may send. Whoever may not gets the next free slot of a virtual
//! queue as the time to ask again, so that those who wait do not all come at once: a short wait is spent here, a long
//! one parked in the engine. A slot is a hint and not a claim; a freed one is taken by whoever comes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Clock;
use tower::ServiceExt;

use super::{Around, Next, Reply};
use crate::call::Request;
use crate::settings::Rate;

/// The longest wait spent here, all its parts together.
pub(crate) const IN_PLACE_MAX: Duration = Duration::from_secs(1);

pub(crate) struct RateLimit {
    /// None where there is no limit.
    limit: Option<Limit>,
}

struct Limit {
    limiter: RateLimiter<NotKeyed, InMemoryState, Monotonic, NoOpMiddleware<Duration>>,
    clock: Arc<dyn Clock>,
    period: Duration,
    /// When the next slot is free.
    next_slot: Mutex<Duration>,
    parked_by: String,
}

/// The engine's clock as governor wants it.
#[derive(Clone)]
struct Monotonic(Arc<dyn Clock>);

impl GovernorClock for Monotonic {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

impl RateLimit {
    pub(crate) fn new(downstream: &str, rate: Option<Rate>, clock: &Arc<dyn Clock>) -> Self {
        let limit = rate.map(|rate| {
            let quota = Quota::with_period(rate.period).expect("a checked rate has a period above zero");
            let burst = rate.burst.try_into().expect("a checked burst is above zero");
            Limit {
                limiter: RateLimiter::direct_with_clock(quota.allow_burst(burst), Monotonic(clock.clone())),
                clock: clock.clone(),
                period: rate.period,
                next_slot: Mutex::new(Duration::ZERO),
                parked_by: format!("rate limit of {downstream}"),
            }
        });
        Self { limit }
    }
}

impl Limit {
    /// Takes a send, or says how long to wait before asking again.
    fn take(&self) -> Result<(), Duration> {
        let now = self.clock.monotonic();
        let Err(refused) = self.limiter.check() else { return Ok(()) };
        let free_at = now.saturating_add(refused.wait_time_from(now));
        let mut next_slot = self.next_slot.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = free_at.max(*next_slot);
        *next_slot = slot.saturating_add(self.period);
        Err(slot.saturating_sub(now))
    }
}

impl Around for RateLimit {
    async fn around<S: Next>(&self, request: Request, next: S) -> Reply {
        if let Some(limit) = &self.limit {
            let mut waited = Duration::ZERO;
            while let Err(wait) = limit.take() {
                waited = waited.saturating_add(wait);
                if waited > IN_PLACE_MAX {
                    return Err(ActivityFailure::parked(limit.parked_by.clone(), wait));
                }
                limit.clock.sleep(wait).await;
            }
        }
        next.oneshot(request).await
    }
}
