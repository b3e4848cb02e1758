//! The circuit breaker as a pure state machine.
//!
//! | state | event | next state |
//! |---|---|---|
//! | closed, n failures | a call may go | closed, n |
//! | closed, n failures | healthy answer | closed, 0 |
//! | closed, n failures | counted failure | closed, n + 1; at the limit, or when too many of the last calls are bad: open |
//! | open | a call asks before the time | open; the call is parked |
//! | open | a call asks at the time or later | half-open; the call is the probe |
//! | half-open, probe out | a call asks | half-open; the call is parked |
//! | half-open, no probe | a call asks | half-open; the call is the probe |
//! | half-open | the probe is healthy | closed, 0 |
//! | half-open | the probe fails, or another node has the probe | open |
//! | half-open | the probe is neutral or dropped | half-open, no probe |
//! | forced open | a call asks | forced open; the call is parked |
//! | forced closed | a call asks, or comes to whatever end | forced closed; the call goes |
//! | any | a person or another node says so | as they say |
//! | any | neutral answer; answer to a call of an earlier state | the same |
//!
//! Those parked get times one behind the other, so that a recovered service meets them one by one. Where a node runs, they wait
//! in the store instead, and are let go as [`Letting`] says.

use std::time::Duration;

use super::window::{RatioPolicy, Window};

/// The longest that staging delays anybody.
const STAGING_MAX: Duration = Duration::from_secs(60);
/// How often a call asks again behind a breaker that waits for a person.
const FORCED_AGAIN: Duration = Duration::from_secs(30);

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerPolicy {
    /// Counted failures in a row.
    pub failures: u32,
    /// How long nothing goes before one call probes.
    pub open: Duration,
    /// A share of the last calls that opens it too; `None` where only failures in a row do.
    pub ratio: Option<RatioPolicy>,
    /// How far apart those parked come back.
    pub spacing: Duration,
    /// How long a probe may take; then another node may send one.
    pub probe_max: Duration,
    /// Whether calls to a part of the downstream (a payment channel) count for that part alone: the others go on when it fails.
    pub by_part: bool,
}

/// Where a breaker stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls go.
    Closed {
        /// Counted failures in a row.
        failures: u32,
    },
    /// Nothing goes.
    Open {
        /// Until a call may probe; zero when the next one will.
        remaining: Duration,
    },
    /// One call at a time probes.
    HalfOpen,
    /// Nothing goes until a person says so.
    ForcedOpen,
    /// Everything goes until a person says so.
    ForcedClosed,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Duration },
    HalfOpen { probing: bool },
    ForcedOpen,
    ForcedClosed,
}

/// Leave for one call, to be settled exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    generation: u64,
    pub(crate) is_probe: bool,
}

/// What a call's end says of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Healthy,
    /// It does not.
    Failed,
    /// Nothing.
    Neutral,
}

/// What the end of a call changed, and the other nodes have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It opened, for so long.
    Opened(Duration),
    /// The probe was healthy.
    Closed,
    /// The probe said nothing: its place is free.
    ProbeReturned,
}

/// Who of those parked may come back now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letting {
    /// Nobody before so much time has passed; `None` where only a person or the probe under way can change that.
    Nobody(Option<Duration>),
    /// One, to be the probe.
    One,
    /// All of them, in stages.
    Everybody,
}

/// The machine; times are the engine's monotonic ones.
#[derive(Debug)]
pub(crate) struct Machine {
    state: State,
    /// Grows with every change of state, so that answers to earlier calls are known as such.
    generation: u64,
    /// Calls parked since it opened.
    parked: u32,
    window: Window,
    policy: BreakerPolicy,
}

impl Machine {
    /// A closed breaker.
    pub(crate) fn new(policy: BreakerPolicy) -> Self {
        Self { state: State::Closed { failures: 0 }, generation: 0, parked: 0, window: Window::default(), policy }
    }

    /// Lets a call go, or says how long it is parked.
    pub(crate) fn admit(&mut self, now: Duration) -> Result<Ticket, Duration> {
        match self.state {
            State::Closed { .. } | State::ForcedClosed => Ok(Ticket { generation: self.generation, is_probe: false }),
            State::Open { until } if now < until => Err(self.park(until.saturating_sub(now))),
            State::Open { .. } => {
                self.enter(State::HalfOpen { probing: true });
                Ok(Ticket { generation: self.generation, is_probe: true })
            }
            State::HalfOpen { probing: true } => Err(self.park(self.policy.open)),
            State::HalfOpen { probing: false } => {
                self.state = State::HalfOpen { probing: true };
                Ok(Ticket { generation: self.generation, is_probe: true })
            }
            State::ForcedOpen => Err(self.park(FORCED_AGAIN)),
        }
    }

    /// Takes a ticket back, after a call that took so long.
    pub(crate) fn settle(&mut self, ticket: Ticket, verdict: Verdict, took: Duration, now: Duration) -> Option<Moved> {
        if ticket.generation != self.generation {
            return None;
        }
        let is_too_bad = self.is_too_bad(verdict, took, now);
        match (&mut self.state, verdict) {
            (State::Closed { failures }, verdict) => {
                match verdict {
                    Verdict::Healthy => *failures = 0,
                    Verdict::Failed => *failures += 1,
                    Verdict::Neutral => {}
                }
                (is_too_bad || *failures >= self.policy.failures).then(|| self.trip(now))
            }
            (State::HalfOpen { .. }, Verdict::Healthy) if ticket.is_probe => {
                self.close();
                Some(Moved::Closed)
            }
            (State::HalfOpen { .. }, Verdict::Failed) if ticket.is_probe => Some(self.trip(now)),
            (State::HalfOpen { probing }, Verdict::Neutral) if ticket.is_probe => {
                *probing = false;
                Some(Moved::ProbeReturned)
            }
            _ => None,
        }
    }

    /// Opens it until a person says otherwise.
    pub(crate) fn force_open(&mut self) {
        self.enter(State::ForcedOpen);
        self.parked = 0;
    }

    /// Lets everything through until a person says otherwise.
    pub(crate) fn force_closed(&mut self) {
        self.enter(State::ForcedClosed);
        self.parked = 0;
    }

    /// Closes it, whatever it was.
    pub(crate) fn close(&mut self) {
        self.enter(State::Closed { failures: 0 });
        self.parked = 0;
        self.window = Window::default();
    }

    /// Another node says that it is open.
    pub(crate) fn open_until(&mut self, until: Duration) {
        match &mut self.state {
            State::Open { until: known } => *known = until,
            _ => self.enter(State::Open { until }),
        }
    }

    /// Where it stands.
    pub(crate) fn state(&self, now: Duration) -> BreakerState {
        match &self.state {
            State::Closed { failures } => BreakerState::Closed { failures: *failures },
            State::Open { until } => BreakerState::Open { remaining: until.saturating_sub(now) },
            State::HalfOpen { .. } => BreakerState::HalfOpen,
            State::ForcedOpen => BreakerState::ForcedOpen,
            State::ForcedClosed => BreakerState::ForcedClosed,
        }
    }

    /// Whether it ever changed.
    pub(crate) fn has_moved(&self) -> bool {
        self.generation > 0
    }

    /// Who may come back now.
    pub(crate) fn letting(&self, now: Duration) -> Letting {
        match self.state {
            State::Closed { .. } | State::ForcedClosed => Letting::Everybody,
            State::Open { until } if now < until => Letting::Nobody(Some(until.saturating_sub(now))),
            State::Open { .. } | State::HalfOpen { probing: false } => Letting::One,
            State::HalfOpen { probing: true } | State::ForcedOpen => Letting::Nobody(None),
        }
    }

    /// How far apart those parked come back at most.
    pub(crate) fn spacing(&self) -> Duration {
        self.policy.spacing
    }

    /// How long it stays open.
    pub(crate) fn open(&self) -> Duration {
        self.policy.open
    }

    /// How long a probe may take.
    pub(crate) fn probe_max(&self) -> Duration {
        self.policy.probe_max
    }

    fn is_too_bad(&mut self, verdict: Verdict, took: Duration, now: Duration) -> bool {
        let (State::Closed { .. }, Some(ratio)) = (&self.state, self.policy.ratio) else { return false };
        let is_slow = ratio.slow_call.is_some_and(|slow| took >= slow);
        verdict != Verdict::Neutral && self.window.count(ratio, is_slow || verdict == Verdict::Failed, now)
    }

    fn trip(&mut self, now: Duration) -> Moved {
        self.enter(State::Open { until: now.saturating_add(self.policy.open) });
        self.parked = 0;
        self.window = Window::default();
        Moved::Opened(self.policy.open)
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }

    fn park(&mut self, wait: Duration) -> Duration {
        let staged = self.policy.spacing.saturating_mul(self.parked).min(STAGING_MAX);
        self.parked = self.parked.saturating_add(1);
        wait.saturating_add(staged)
    }
}

#[cfg(test)]
mod tests;
