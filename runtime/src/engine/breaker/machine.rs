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
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const OPEN: Duration = Duration::from_secs(2);
    const SPACING: Duration = Duration::from_millis(2);

    fn machine(failures: u32) -> Machine {
        Machine::new(BreakerPolicy { failures, open: OPEN, ratio: None, spacing: SPACING, probe_max: OPEN })
    }

    fn tripped() -> Machine {
        let mut machine = machine(2);
        for _ in 0..2 {
            let ticket = machine.admit(Duration::ZERO).unwrap();
            machine.settle(ticket, Verdict::Failed, Duration::ZERO, Duration::ZERO);
        }
        machine
    }

    #[test]
    fn it_opens_after_so_many_failures_in_a_row_and_not_before() {
        let mut machine = machine(2);
        for verdict in [Verdict::Failed, Verdict::Healthy, Verdict::Failed, Verdict::Neutral] {
            let ticket = machine.admit(Duration::ZERO).unwrap();
            machine.settle(ticket, verdict, Duration::ZERO, Duration::ZERO);
        }
        assert_eq!(machine.state(Duration::ZERO), BreakerState::Closed { failures: 1 });
        assert_eq!(tripped().state(Duration::ZERO), BreakerState::Open { remaining: OPEN });
    }

    #[test]
    fn those_parked_come_back_one_behind_the_other() {
        let mut machine = tripped();
        let waits: Vec<_> = (0..3).map(|_| machine.admit(Duration::from_millis(500)).unwrap_err()).collect();
        let first = Duration::from_millis(1500);
        assert_eq!(waits, [first, first + SPACING, first + SPACING * 2]);
    }

    #[test]
    fn one_probe_goes_and_its_answer_decides() {
        let mut machine = tripped();
        let probe = machine.admit(OPEN).unwrap();
        assert!(machine.admit(OPEN).is_err(), "a second call went beside the probe");
        machine.settle(probe, Verdict::Failed, Duration::ZERO, OPEN);
        assert_eq!(machine.state(OPEN), BreakerState::Open { remaining: OPEN });
        let probe = machine.admit(OPEN * 2).unwrap();
        machine.settle(probe, Verdict::Healthy, Duration::ZERO, OPEN * 2);
        assert_eq!(machine.state(OPEN * 2), BreakerState::Closed { failures: 0 });
    }

    #[test]
    fn a_probe_that_says_nothing_gives_its_place_to_the_next_call() {
        let mut machine = tripped();
        let probe = machine.admit(OPEN).unwrap();
        machine.settle(probe, Verdict::Neutral, Duration::ZERO, OPEN);
        assert_eq!(machine.state(OPEN), BreakerState::HalfOpen);
        assert!(machine.admit(OPEN).is_ok());
    }

    #[test]
    fn an_answer_to_a_call_of_before_does_not_count() {
        let mut machine = machine(1);
        let (slow, failing) = (machine.admit(Duration::ZERO).unwrap(), machine.admit(Duration::ZERO).unwrap());
        machine.settle(failing, Verdict::Failed, Duration::ZERO, Duration::ZERO);
        machine.settle(slow, Verdict::Healthy, Duration::ZERO, Duration::ZERO);
        assert!(matches!(machine.state(Duration::ZERO), BreakerState::Open { .. }));
    }

    #[test]
    fn an_old_failure_does_not_count_after_a_person_closed_it() {
        let mut machine = machine(1);
        let old = machine.admit(Duration::ZERO).unwrap();
        machine.force_open();
        machine.close();
        machine.settle(old, Verdict::Failed, Duration::ZERO, Duration::ZERO);
        assert_eq!(machine.state(Duration::ZERO), BreakerState::Closed { failures: 0 });
    }

    #[test]
    fn an_old_probe_does_not_give_away_the_place_of_a_new_one() {
        let mut machine = machine(1);
        let trip = |machine: &mut Machine, now| {
            let ticket = machine.admit(now).unwrap();
            machine.settle(ticket, Verdict::Failed, Duration::ZERO, now);
        };
        trip(&mut machine, Duration::ZERO);
        let old = machine.admit(OPEN).unwrap();
        machine.close();
        trip(&mut machine, OPEN);
        machine.admit(OPEN * 2).unwrap();
        machine.settle(old, Verdict::Neutral, Duration::ZERO, OPEN * 2);
        assert!(machine.admit(OPEN * 2).is_err(), "a second call went beside the probe");
    }

    #[test]
    fn a_forced_breaker_stays_open_until_a_person_closes_it() {
        let mut machine = machine(1);
        let before = machine.admit(Duration::ZERO).unwrap();
        machine.force_open();
        machine.settle(before, Verdict::Healthy, Duration::ZERO, Duration::ZERO);
        assert_eq!(machine.admit(Duration::from_secs(86_400)), Err(FORCED_AGAIN));
        machine.close();
        assert!(machine.admit(Duration::ZERO).is_ok());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask,
        Settle(usize, Verdict),
        Pass(u64),
        Force,
        Close,
    }

    fn step() -> impl Strategy<Value = Step> {
        let verdict = prop_oneof![Just(Verdict::Healthy), Just(Verdict::Failed), Just(Verdict::Neutral)];
        prop_oneof![
            6 => Just(Step::Ask),
            6 => (any::<usize>(), verdict).prop_map(|(which, verdict)| Step::Settle(which, verdict)),
            3 => (0u64..3000).prop_map(Step::Pass),
            1 => Just(Step::Force),
            1 => Just(Step::Close),
        ]
    }

    proptest! {
        #[test]
        fn there_is_never_more_than_one_probe_and_its_place_always_comes_back(steps in prop::collection::vec(step(), 1..200)) {
            let mut machine = machine(2);
            let (mut now, mut under_way, mut next) = (Duration::ZERO, BTreeMap::new(), 0u64);
            for step in steps {
                match step {
                    Step::Ask => {
                        if let Ok(ticket) = machine.admit(now) {
                            under_way.insert(next, ticket);
                            next += 1;
                        }
                    }
                    Step::Settle(which, verdict) if !under_way.is_empty() => {
                        let key = *under_way.keys().nth(which % under_way.len()).unwrap();
                        let ticket = under_way.remove(&key).unwrap();
                        machine.settle(ticket, verdict, Duration::ZERO, now);
                    }
                    Step::Settle(..) => {}
                    Step::Pass(ms) => now += Duration::from_millis(ms),
                    Step::Force => machine.force_open(),
                    Step::Close => machine.close(),
                }
                let probes = under_way.values().filter(|t| t.is_probe && t.generation == machine.generation).count();
                prop_assert!(probes <= 1);
                if let State::HalfOpen { probing } = machine.state {
                    prop_assert_eq!(probing, probes == 1);
                }
            }
            // Once every call has ended, the service can be reached again: it is never shut out for good.
            for ticket in under_way.into_values() {
                machine.settle(ticket, Verdict::Neutral, Duration::ZERO, now);
            }
            if !matches!(machine.state, State::ForcedOpen) {
                prop_assert!(machine.admit(now + OPEN).is_ok());
            }
        }
    }
}
