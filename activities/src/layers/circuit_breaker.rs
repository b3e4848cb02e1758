//! The circuit breaker around a downstream's sends, and one more for each payment channel that rejected us.
//!
//! Only transient failures count, and only a 2xx heals: an answer of 4xx says nothing of the service's health. A call
//! that may not go is parked and costs no attempt. The breaker of a channel opens only by force.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Clock;
use overdue_runtime::history::{Failure, FailureClass};
use tower::ServiceExt;

use super::breaker_state::{BreakerState, Machine, Ticket, Verdict};
use super::{Around, Next, Reply};
use crate::call::Request;
use crate::settings::Settings;

/// How far apart parked calls come back where no rate says it.
const SPACING_DEFAULT: Duration = Duration::from_millis(2);
/// Channels that may be shut at once; more are one fault of all, and the downstream's own breaker opens.
const CHANNELS_MAX: usize = 1000;

/// The breakers of one downstream.
#[derive(Clone)]
pub(crate) struct Breakers {
    shared: Arc<Shared>,
}

struct Shared {
    downstream: &'static str,
    clock: Arc<dyn Clock>,
    machines: Mutex<Machines>,
}

struct Machines {
    whole: Machine,
    channels: BTreeMap<String, Machine>,
}

impl Breakers {
    pub(crate) fn new(settings: &Settings, clock: Arc<dyn Clock>) -> Self {
        let spacing = settings.rate.map_or(SPACING_DEFAULT, |rate| rate.period);
        let whole = Machine::new(settings.breaker_failures, settings.breaker_open, spacing);
        let machines = Mutex::new(Machines { whole, channels: BTreeMap::new() });
        Self { shared: Arc::new(Shared { downstream: settings.name, clock, machines }) }
    }

    /// Opens the breaker of a channel, or of the whole downstream, until [`Self::close`].
    pub(crate) fn force_open(&self, channel: Option<&str>, reason: &str) {
        let mut machines = self.shared.lock();
        let channel =
            channel.filter(|channel| machines.channels.len() < CHANNELS_MAX || machines.channels.contains_key(*channel));
        match channel {
            None => machines.whole.force_open(reason),
            Some(channel) => {
                let machine = machines.channels.entry(channel.to_owned());
                machine.or_insert_with(|| Machine::new(u32::MAX, Duration::ZERO, SPACING_DEFAULT)).force_open(reason);
            }
        }
    }

    /// Closes the breaker of a channel, or of the whole downstream.
    pub(crate) fn close(&self, channel: Option<&str>) {
        let mut machines = self.shared.lock();
        match channel {
            None => machines.whole.close(),
            Some(channel) => drop(machines.channels.remove(channel)),
        }
    }

    /// Every breaker, the whole downstream's first: its channel and where it stands.
    pub(crate) fn states(&self) -> Vec<(Option<String>, BreakerState)> {
        let (now, machines) = (self.shared.clock.monotonic(), self.shared.lock());
        let channels = machines.channels.iter().map(|(channel, machine)| (Some(channel.clone()), machine.state(now)));
        std::iter::once((None, machines.whole.state(now))).chain(channels).collect()
    }

    fn admit(&self, channel: Option<&str>) -> Result<Permit, ActivityFailure> {
        let (now, mut machines) = (self.shared.clock.monotonic(), self.shared.lock());
        let downstream = self.shared.downstream;
        if let Some(channel) = channel
            && let Some(machine) = machines.channels.get_mut(channel)
        {
            let shown = crate::excerpt::excerpt(channel.as_bytes(), None);
            let parted = machine.admit(now);
            parted.map_err(|wait| parked(format!("breaker of {downstream}/{shown}"), wait, &machine.state(now)))?;
        }
        let ticket = machines.whole.admit(now);
        let ticket = ticket.map_err(|wait| parked(format!("breaker of {downstream}"), wait, &machines.whole.state(now)))?;
        Ok(Permit { shared: self.shared.clone(), ticket, verdict: Verdict::Neutral })
    }
}

/// Nothing was sent; where only a person can change that, the failure says so.
fn parked(by: String, wait: Duration, state: &BreakerState) -> ActivityFailure {
    let mut failure = ActivityFailure::parked(by, wait);
    if let BreakerState::Forced { reason } = state {
        let message =
            format!("held back by the {} until a person closes it: {reason}", failure.parked_by.as_deref().unwrap_or("breaker"));
        failure.failure = Failure::new(FailureClass::Neutral, "parked", message);
    }
    failure
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machines> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call's leave; it comes back when it is dropped, and so also when the call is.
struct Permit {
    shared: Arc<Shared>,
    ticket: Ticket,
    verdict: Verdict,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.shared.clock.monotonic();
        let mut machines = self.shared.lock();
        let before = std::mem::discriminant(&machines.whole.state(now));
        machines.whole.settle(self.ticket, self.verdict, now);
        let after = machines.whole.state(now);
        drop(machines);
        if std::mem::discriminant(&after) == before {
            return;
        }
        let downstream = self.shared.downstream;
        match after {
            BreakerState::Open { .. } => tracing::warn!(downstream, "the circuit breaker opened: the downstream fails"),
            BreakerState::Closed { .. } => tracing::info!(downstream, "the circuit breaker closed: the downstream answers"),
            BreakerState::HalfOpen | BreakerState::Forced { .. } => {}
        }
    }
}

pub(crate) struct CircuitBreaker(pub(crate) Breakers);

impl Around for CircuitBreaker {
    async fn around<S: Next>(&self, request: Request, next: S) -> Reply {
        let mut permit = self.0.admit(request.channel.as_deref())?;
        let reply = next.oneshot(request).await;
        permit.verdict = verdict(&reply);
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
