//! `wake_at`: the next instant at which somebody must look at an execution.
//!
//! Computed by this one function after every transition and written in its commit when it differs. As long as it is
//! right, an execution is found again whatever happens to the node.

use super::notes::Notes;
use crate::fault::{Bug, planted};
use crate::history::Folded;
use crate::time::Timestamp;

/// When to look at an execution next.
///
/// - Closed: never.
/// - Blocked: when it is tried again.
/// - While a call is under way: an instant not after `now`; `stored` is kept if it already is one.
/// - Otherwise the earliest timer or next attempt; `None` when only a signal or a person can move it.
pub(crate) fn wake_at(folded: &Folded, notes: &Notes, now: Timestamp, stored: Option<Timestamp>) -> Option<Timestamp> {
    if folded.closing.is_some() {
        return None;
    }
    if let Some(blocked) = &notes.blocked {
        return Some(blocked.next_at);
    }
    let mut next = folded.timers.values().map(|timer| timer.fire_at).min();
    for (number, activity) in &folded.activities {
        if activity.by_hand.is_some() || activity.attention.is_some() {
            continue;
        }
        match notes.activities.get(number).and_then(|note| note.next_at) {
            None if planted(Bug::WakeInFuture) => {}
            None => return stored.filter(|stored| *stored <= now).or(Some(now)),
            Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::notes::{AttemptNote, BlockedNote};
    use crate::history::{Event, EventKind, Failure, FailureClass};
    use crate::payload::Payload;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn folded(kinds: Vec<EventKind>) -> Folded {
        let events: Vec<Event> = kinds.into_iter().zip(1..).map(|(kind, number)| Event { number, at: at(0), kind }).collect();
        Folded::of(&events)
    }

    fn timer(second: i64) -> EventKind {
        EventKind::TimerStarted { name: None, fire_at: at(second) }
    }

    fn activity() -> EventKind {
        EventKind::ActivityScheduled { name: "a".into(), input: Payload::null(), idempotency_key: "k".into(), by_hand: None }
    }

    fn waiting(second: i64) -> AttemptNote {
        AttemptNote { next_at: Some(at(second)), attempts: 1, ..AttemptNote::default() }
    }

    #[test]
    fn it_is_the_earliest_of_timers_and_next_attempts() {
        let folded = folded(vec![timer(30), timer(20), activity()]);
        let mut notes = Notes::default();
        notes.activities.insert(3, waiting(25));
        assert_eq!(wake_at(&folded, &notes, at(1), None), Some(at(20)));
        notes.activities.insert(3, waiting(15));
        assert_eq!(wake_at(&folded, &notes, at(1), None), Some(at(15)));
    }

    #[test]
    fn it_is_never_in_the_future_while_a_call_may_be_under_way() {
        let folded = folded(vec![timer(30), activity(), activity()]);
        let mut notes = Notes::default();
        notes.activities.insert(2, waiting(25));
        assert_eq!(wake_at(&folded, &notes, at(5), Some(at(30))), Some(at(5)));
        assert_eq!(
            wake_at(&folded, &notes, at(5), Some(at(3))),
            Some(at(3)),
            "a stored instant in the past need not be rewritten"
        );
        notes.activities.insert(3, AttemptNote { attempts: 2, ..AttemptNote::default() });
        assert_eq!(wake_at(&folded, &notes, at(5), None), Some(at(5)));
    }

    #[test]
    fn what_waits_for_a_person_or_a_signal_wakes_nobody() {
        let by_hand = EventKind::ActivityScheduled {
            name: "review".into(),
            input: Payload::null(),
            idempotency_key: "k".into(),
            by_hand: Some("look".into()),
        };
        let failure = Failure::new(FailureClass::Permanent, "http-422", "no");
        let attention = EventKind::AttentionRequested { activity: 2, failure, attempts: 1, sends: 1 };
        assert_eq!(wake_at(&folded(vec![by_hand, activity(), attention]), &Notes::default(), at(5), Some(at(3))), None);
    }

    #[test]
    fn a_blocked_execution_wakes_when_it_is_tried_again_and_a_closed_one_never() {
        let blocked = BlockedNote {
            failure: Failure::new(FailureClass::Permanent, "panic", "boom"),
            since: at(1),
            tries: 2,
            next_at: at(9),
        };
        let notes = Notes { blocked: Some(blocked), ..Notes::default() };
        assert_eq!(wake_at(&folded(vec![timer(30), activity()]), &notes, at(5), None), Some(at(9)));
        let closed = folded(vec![timer(30), activity(), EventKind::WorkflowCompleted { result: Payload::null() }]);
        assert_eq!(wake_at(&closed, &Notes::default(), at(5), Some(at(3))), None);
    }
}
