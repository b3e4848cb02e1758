//! The machine's table, row by row, and what holds for every sequence of its events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const OPEN: Duration = Duration::from_secs(2);
const SPACING: Duration = Duration::from_millis(2);

fn machine(failures: u32) -> Machine {
    Machine::new(BreakerPolicy { failures, open: OPEN, ratio: None, spacing: SPACING, probe_max: OPEN, by_part: false })
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
