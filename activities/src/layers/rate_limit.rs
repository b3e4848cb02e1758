//! How many sends go to a downstream in a time, tries and attempts included: each passes here.
//!
//! The limiter alone (GCRA, by governor) decides who may send. Whoever may not gets the next free slot of a virtual
//! queue as the time to ask again, so that those who wait do not all come at once: a short wait is spent here, a long
//! one parked in the engine. A slot is a hint and not a claim; a freed one is taken by whoever comes.
//!
//! The rate is that of the whole fleet: each node keeps to the share of it that it has of the shards.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Clock;
use overdue_runtime::engine::breaker::Breaker;
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
    rate: Rate,
    /// Knows the share of it that is this node's.
    breaker: Breaker,
    clock: Arc<dyn Clock>,
    paced: Mutex<Paced>,
    parked_by: String,
}

/// The limit of this node's share.
struct Paced {
    share: f64,
    limiter: RateLimiter<NotKeyed, InMemoryState, Monotonic, NoOpMiddleware<Duration>>,
    period: Duration,
    /// When the next slot is free.
    next_slot: Duration,
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
    pub(crate) fn new(downstream: &str, rate: Option<Rate>, breaker: &Breaker, clock: &Arc<dyn Clock>) -> Self {
        let limit = rate.map(|rate| Limit {
            rate,
            breaker: breaker.clone(),
            clock: clock.clone(),
            paced: Mutex::new(Paced::new(rate, breaker.share(), clock)),
            parked_by: format!("rate limit of {downstream}"),
        });
        Self { limit }
    }
}

impl Paced {
    fn new(rate: Rate, share: f64, clock: &Arc<dyn Clock>) -> Self {
        let period = rate.period.div_f64(share);
        let burst = (f64::from(rate.burst) * share) as u32;
        let quota = Quota::with_period(period).expect("a checked rate has a period above zero");
        let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota, Monotonic(clock.clone()));
        Self { share, limiter, period, next_slot: Duration::ZERO }
    }
}

impl Limit {
    /// Takes a send, or says how long to wait before asking again.
    fn take(&self) -> Result<(), Duration> {
        let (now, share) = (self.clock.monotonic(), self.breaker.share());
        let mut paced = self.paced.lock().unwrap_or_else(PoisonError::into_inner);
        if paced.share != share {
            // Whoever waits keeps the time that it was told: it asks again then.
            *paced = Paced::new(self.rate, share, &self.clock);
        }
        let Err(refused) = paced.limiter.check() else { return Ok(()) };
        let free_at = now.saturating_add(refused.wait_time_from(now));
        let slot = free_at.max(paced.next_slot);
        paced.next_slot = slot.saturating_add(paced.period);
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
