//! What the end of an attempt leads to: the failure's class decides, not the place.

use std::time::Duration;

use super::notes::AttemptNote;
use crate::activity::{ActivityFailure, ActivityOptions, Exhausted};
use crate::fault::{Bug, planted};
use crate::history::{Failure, FailureClass};
use crate::time::Timestamp;
use crate::workflow::CallOptions;

/// A neutral failure waits at least this long, so that a receiver that says "now" is not asked in a loop.
const NEUTRAL_WAIT_MIN: Duration = Duration::from_millis(20);
/// An attempt that the end of the node cut off this many times in a row needs attention: perhaps it kills the node.
pub(crate) const RECOVERIES_MAX: u32 = 5;

/// What is to be done after an attempt failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AfterFailure {
    /// Wait for the next attempt; the note says until when.
    Wait(AttemptNote),
    /// No attempt is left: tell the workflow.
    Fail(Failure),
    /// No attempt is left: ask for a person.
    NeedAttention(Failure),
}

/// An activity's options with what the workflow says otherwise.
pub(crate) fn effective(mut options: ActivityOptions, call: &CallOptions) -> ActivityOptions {
    if let Some(retry) = &call.retry {
        options.retry = retry.clone();
    }
    options.exhausted = call.exhausted.unwrap_or(options.exhausted);
    options.start_to_close = call.start_to_close.unwrap_or(options.start_to_close);
    options.schedule_to_start = call.schedule_to_start.or(options.schedule_to_start);
    options.schedule_to_close = call.schedule_to_close.or(options.schedule_to_close);
    options
}

/// Decides what follows a failed attempt. `note` counts that attempt; `random` is only used for jitter.
pub(crate) fn after_failure(
    mut note: AttemptNote,
    failure: ActivityFailure,
    options: &ActivityOptions,
    scheduled_at: Timestamp,
    now: Timestamp,
    random: u64,
) -> AfterFailure {
    note.recoveries = 0;
    let class = failure.failure.class;
    let wait = match class {
        FailureClass::Permanent => return exhausted(options, failure.failure),
        FailureClass::Neutral => {
            note.attempts = note.attempts.saturating_sub(u32::from(!planted(Bug::BreakerBurnsAttempts)));
            let wait = failure.retry_after.unwrap_or_else(|| options.retry.delay(1, random)).max(NEUTRAL_WAIT_MIN);
            note.parked_micros = note.parked_micros.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
            wait
        }
        FailureClass::Transient => {
            let wait = options.retry.delay(note.counted(), random).max(failure.retry_after.unwrap_or_default());
            if !options.retry.allows_another(note.counted(), note.tried_for(now).saturating_add(wait)) {
                return exhausted(options, failure.failure);
            }
            note.tried_at = Some(now);
            wait
        }
    };
    let next_at = now.saturating_add(wait);
    let parked = Duration::from_micros(note.parked_micros);
    if options.schedule_to_close.is_some_and(|limit| next_at > scheduled_at.saturating_add(limit).saturating_add(parked)) {
        return exhausted(options, failure.failure);
    }
    note.next_at = Some(next_at);
    note.parked_by = failure.parked_by;
    note.gate = failure.gate;
    note.last_failure = Some(failure.failure);
    AfterFailure::Wait(note)
}

/// Decides what follows an attempt that was cut off by the end of the node: its outcome is unknown.
pub(crate) fn after_recovery(
    mut note: AttemptNote,
    options: &ActivityOptions,
    scheduled_at: Timestamp,
    now: Timestamp,
    random: u64,
) -> AfterFailure {
    let recoveries = note.recoveries + 1;
    let failure = ActivityFailure::transient("node-lost", "the node ended during the attempt; its outcome is unknown");
    if recoveries >= RECOVERIES_MAX {
        return AfterFailure::NeedAttention(failure.failure);
    }
    note.sends = note.sends.saturating_add(1);
    match after_failure(note, failure, options, scheduled_at, now, random) {
        AfterFailure::Wait(note) => AfterFailure::Wait(AttemptNote { recoveries, ..note }),
        end => end,
    }
}

fn exhausted(options: &ActivityOptions, failure: Failure) -> AfterFailure {
    match options.exhausted {
        Exhausted::Fail => AfterFailure::Fail(failure),
        Exhausted::NeedsAttention => AfterFailure::NeedAttention(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::RetryPolicy;

    const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn options() -> ActivityOptions {
        let retry = RetryPolicy { attempts: Some(5), cap: Duration::from_secs(60), jitter: false, ..RetryPolicy::default() };
        ActivityOptions { retry, ..ActivityOptions::default() }
    }

    fn decide(note: AttemptNote, failure: ActivityFailure, options: &ActivityOptions, now: Timestamp) -> AfterFailure {
        after_failure(note, failure, options, START, now, 0)
    }

    fn waits(outcome: AfterFailure) -> AttemptNote {
        match outcome {
            AfterFailure::Wait(note) => note,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_transient_failure_is_tried_again_at_growing_gaps_and_then_given_up() {
        let (mut note, mut now, mut gaps) = (AttemptNote::first(START), START, Vec::new());
        loop {
            match decide(note, ActivityFailure::transient("timeout", "no answer"), &options(), now) {
                AfterFailure::Wait(next) => {
                    let due = next.next_at.unwrap();
                    gaps.push(due.since(now).as_secs());
                    now = due;
                    note = AttemptNote { attempts: next.attempts + 1, next_at: None, ..next };
                }
                AfterFailure::Fail(failure) => break assert_eq!(failure.error_type, "timeout"),
                AfterFailure::NeedAttention(_) => panic!("the option says fail"),
            }
        }
        assert_eq!(gaps, [1, 2, 4, 8]);
    }

    #[test]
    fn no_attempt_is_begun_after_the_time_to_give_up() {
        let retry = RetryPolicy { attempts: None, give_up_after: Some(Duration::from_secs(10)), ..options().retry };
        let options = ActivityOptions { retry, ..options() };
        let failed = || ActivityFailure::transient("timeout", "no answer");
        let begun = |attempts| AttemptNote { attempts, first_at: Some(START), ..AttemptNote::first(START) };
        assert_eq!(waits(decide(begun(3), failed(), &options, START.saturating_add(Duration::from_secs(3)))).attempts, 3);
        let outcome = decide(begun(4), failed(), &options, START.saturating_add(Duration::from_secs(7)));
        assert!(matches!(outcome, AfterFailure::Fail(_)), "the next would begin 15 s after the first");
    }

    #[test]
    fn a_permanent_failure_is_never_tried_again() {
        let attention = ActivityOptions { exhausted: Exhausted::NeedsAttention, ..options() };
        let refused = ActivityFailure::permanent("http-422", "refused");
        assert!(matches!(decide(AttemptNote::first(START), refused.clone(), &options(), START), AfterFailure::Fail(_)));
        assert!(matches!(decide(AttemptNote::first(START), refused, &attention, START), AfterFailure::NeedAttention(_)));
    }

    #[test]
    fn a_neutral_failure_costs_no_attempt_and_no_time() {
        let throttled = ActivityFailure::neutral("http-429", "slow down", Some(Duration::from_secs(90)));
        let note = waits(decide(AttemptNote::first(START), throttled, &options(), START));
        assert_eq!((note.attempts, note.next_at), (0, Some(START.saturating_add(Duration::from_secs(90)))));
        let hasty = RetryPolicy { give_up_after: Some(Duration::from_secs(60)), ..options().retry };
        let later = START.saturating_add(Duration::from_secs(91));
        let note = AttemptNote { attempts: 2, next_at: None, first_at: Some(START), ..note };
        let failed = ActivityFailure::transient("timeout", "no answer");
        let outcome = decide(note, failed, &ActivityOptions { retry: hasty, ..options() }, later);
        assert_eq!(waits(outcome).attempts, 2, "91 s passed, but 90 of them parked");
    }

    #[test]
    fn a_breaker_names_itself_and_an_impatient_receiver_is_not_asked_in_a_loop() {
        let parked = ActivityFailure::parked("breaker of stock", Duration::ZERO);
        let note = waits(decide(AttemptNote::first(START), parked, &options(), START));
        assert_eq!(note.parked_by.as_deref(), Some("breaker of stock"));
        assert!(note.next_at.unwrap() > START);
    }

    #[test]
    fn no_attempt_is_planned_behind_schedule_to_close() {
        let options = ActivityOptions { schedule_to_close: Some(Duration::from_secs(5)), ..options() };
        let failed = || ActivityFailure::transient("timeout", "no answer");
        let note = waits(decide(AttemptNote::first(START), failed(), &options, START));
        let late = AttemptNote { attempts: 3, next_at: None, ..note };
        let now = START.saturating_add(Duration::from_secs(3));
        assert!(matches!(decide(late, failed(), &options, now), AfterFailure::Fail(_)), "the next would come 4 s later");
    }

    #[test]
    fn a_call_that_keeps_ending_the_node_comes_to_a_person() {
        let endless = ActivityOptions { retry: RetryPolicy::default(), ..options() };
        let mut note = AttemptNote::first(START);
        for recovery in 1..RECOVERIES_MAX {
            note = waits(after_recovery(note, &endless, START, START, 0));
            assert_eq!(note.recoveries, recovery);
            note = AttemptNote { attempts: note.attempts + 1, next_at: None, ..note };
        }
        assert!(matches!(after_recovery(note, &endless, START, START, 0), AfterFailure::NeedAttention(_)));
    }
}
