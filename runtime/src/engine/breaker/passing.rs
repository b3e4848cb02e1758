//! How calls pass a breaker: they ask for leave, and tell how they ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::machine::{Letting, Moved, Ticket, Verdict};
use super::{BreakerName, BreakerState, Breakers, KEYS_MAX, PARKED_MAX, Setting, State, Told};
use crate::activity::ActivityFailure;
use crate::history::{Failure, FailureClass};

/// The breaker of one downstream, with those of its parts, as its calls use it.
#[derive(Clone)]
pub struct Breaker {
    pub(super) all: Breakers,
    pub(super) downstream: String,
}

impl Breaker {
    /// Leave for one call; `key` is the part of the downstream that it goes to.
    ///
    /// # Errors
    /// A neutral [`ActivityFailure`] that says what holds the call back, and for how long.
    pub async fn admit(&self, key: Option<&str>) -> Result<Permit, ActivityFailure> {
        let whole = BreakerName::new(self.downstream.as_str(), None);
        let part = key.map(|key| BreakerName::new(self.downstream.as_str(), Some(key)));
        let (name, ticket, claimed) = {
            let now = self.all.0.clock.monotonic();
            let mut state = self.all.lock();
            let name = state.counting(whole, part, now)?;
            let ticket = state.admit(&name, now)?;
            let (claim, claimed) = oneshot::channel();
            let asks = ticket.is_probe && state.tell(Told::Claim(name.clone(), claim));
            (name, ticket, asks.then_some(claimed))
        };
        // From here on the place of a probe comes back, whatever becomes of this call.
        let (breaker, began) = (self.clone(), self.all.0.clock.monotonic());
        let permit = Permit { breaker, name: name.clone(), ticket, began, verdict: Verdict::Neutral };
        let may_go = match claimed {
            Some(claimed) => claimed.await.unwrap_or(false),
            None => true,
        };
        if may_go {
            return Ok(permit);
        }
        let mut state = self.all.lock();
        let wait = state.standing(&name).machine.open();
        Err(state.held_back(&name, wait, permit.began))
    }

    /// The part of the fleet's calls that this node makes, above 0 and at most 1: what is limited for the fleet is limited to
    /// this part here.
    pub fn share(&self) -> f64 {
        self.all.lock().share
    }

    /// Opens the breaker of a part, or of all of it where no part is named, until a person closes it: the service refuses us
    /// in a way that only a person can mend.
    pub fn refused(&self, key: Option<&str>, reason: &str) {
        let name = BreakerName::new(self.downstream.as_str(), key);
        let mut state = self.all.lock();
        let name = state.set(&name, Setting::ForceOpen, reason, &self.downstream);
        let (done, _) = oneshot::channel();
        let actor = self.downstream.clone();
        state.tell(Told::Set { name, setting: Setting::ForceOpen, reason: reason.to_owned(), actor, done });
    }
}

impl State {
    /// The breaker that a call counts for: that of its part where parts count for themselves, as long as that of the whole lets
    /// everybody go. Whatever holds the other one back holds the call back.
    fn counting(&mut self, whole: BreakerName, part: Option<BreakerName>, now: Duration) -> Result<BreakerName, ActivityFailure> {
        let Some(part) = part.filter(|part| self.has_breaker(part)) else { return Ok(whole) };
        let is_whole_closed = self.standing(&whole).machine.letting(now) == Letting::Everybody;
        if self.counts_by_part(&whole) && is_whole_closed {
            return Ok(part);
        }
        match self.standing(&part).machine.letting(now) {
            Letting::Everybody => Ok(whole),
            Letting::Nobody(_) => self.admit(&part, now).map(|_| whole),
            // The whole is probed first.
            Letting::One => {
                let wait = self.standing(&part).machine.open();
                Err(self.held_back(&part, wait, now))
            }
        }
    }

    /// Whether a part has a breaker of its own; where parts count for themselves each gets one, up to the bound.
    fn has_breaker(&self, part: &BreakerName) -> bool {
        let has_room = || self.machines.keys().filter(|known| known.downstream == part.downstream).count() <= KEYS_MAX;
        self.machines.contains_key(part) || (self.counts_by_part(part) && has_room())
    }

    fn counts_by_part(&self, name: &BreakerName) -> bool {
        self.downstreams.get(&name.downstream).is_some_and(|policy| policy.by_part)
    }

    fn admit(&mut self, name: &BreakerName, now: Duration) -> Result<Ticket, ActivityFailure> {
        let admitted = self.standing(name).machine.admit(now);
        admitted.map_err(|wait| self.held_back(name, wait, now))
    }

    /// Nothing was sent; where only a person can change that, the failure says so. Where a node runs, the call waits in the store
    /// until the breaker lets it go.
    fn held_back(&mut self, name: &BreakerName, wait: Duration, now: Duration) -> ActivityFailure {
        let (is_kept, news) = (self.keeper.is_some(), Arc::clone(&self.news));
        let standing = self.standing(name);
        let wait = if is_kept { wait.max(PARKED_MAX) } else { wait };
        let mut failure = ActivityFailure::parked(format!("breaker of {name}"), wait);
        if let (BreakerState::ForcedOpen, Some(reason)) = (standing.machine.state(Duration::ZERO), &standing.reason) {
            let message = format!("held back by the breaker of {name} until a person closes it: {reason}");
            failure.failure = Failure::new(FailureClass::Neutral, "parked", message);
        }
        if is_kept {
            if standing.parked_at.replace(now).is_none() {
                news.notify_one();
            }
            failure.gate = Some(name.to_string());
        }
        failure
    }
}

/// A call's leave; it comes back when it is dropped, and so also when the call is.
pub struct Permit {
    breaker: Breaker,
    /// The one that it counts for.
    name: BreakerName,
    ticket: Ticket,
    began: Duration,
    verdict: Verdict,
}

impl Permit {
    /// What the call came to; without it, nothing is known.
    pub fn settle(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.breaker.all.0.clock.monotonic();
        let mut state = self.breaker.all.lock();
        let took = now.saturating_sub(self.began);
        let Some(moved) = state.standing(&self.name).machine.settle(self.ticket, self.verdict, took, now) else { return };
        state.tell(Told::Moved(self.name.clone(), moved));
        drop(state);
        self.breaker.all.0.news.notify_one();
        let breaker = tracing::field::display(&self.name);
        match moved {
            Moved::Opened(_) => tracing::warn!(breaker, "the circuit breaker opened: the downstream fails"),
            Moved::Closed => tracing::info!(breaker, "the circuit breaker closed: the downstream answers"),
            Moved::ProbeReturned => {}
        }
    }
}
