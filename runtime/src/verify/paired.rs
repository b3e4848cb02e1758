//! I17: what was begun ends at most once, after it, and has ended when the execution has. I18: nothing follows the end.

use std::collections::BTreeMap;

use super::Subject;
use crate::history::EventKind;

/// What a history can begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Timer,
    Call,
    /// A step that a person does: it also ends when it is tried again.
    ByHand,
}

/// What an event does to what was begun.
enum Effect {
    Begins(Begun),
    /// Ends one of this number, a timer or not.
    Ends {
        number: u64,
        timer: bool,
    },
    /// Is about an activity of this number that goes on.
    Concerns(u64),
    /// Has a person's step or call tried again.
    Retries(u64),
    None,
}

fn effect(kind: &EventKind) -> Effect {
    match kind {
        EventKind::TimerStarted { .. } => Effect::Begins(Begun::Timer),
        EventKind::ActivityScheduled { by_hand: None, .. } => Effect::Begins(Begun::Call),
        EventKind::ActivityScheduled { by_hand: Some(_), .. } => Effect::Begins(Begun::ByHand),
        EventKind::TimerFired { timer } | EventKind::TimerCancelled { timer } => Effect::Ends { number: *timer, timer: true },
        EventKind::ActivityCompleted { activity, .. }
        | EventKind::ActivityFailed { activity, .. }
        | EventKind::ActivityCancelled { activity }
        | EventKind::ActivityResolved { activity, .. }
        | EventKind::ActivitySkipped { activity, .. } => Effect::Ends { number: *activity, timer: false },
        EventKind::AttentionRequested { activity, .. } => Effect::Concerns(*activity),
        EventKind::ActivityRetried { activity, .. } => Effect::Retries(*activity),
        _ => Effect::None,
    }
}

/// Ends of what is not there, or has ended; and what is still pending behind the end. What a person ended from outside
/// leaves what was pending as it was.
pub(super) fn unpaired(subject: &Subject<'_>) -> Option<Vec<String>> {
    let mut pending: BTreeMap<u64, Begun> = BTreeMap::new();
    let mut found = Vec::new();
    let mut closed = false;
    for event in &subject.events {
        let (number, is_timer, ends) = match effect(&event.kind) {
            Effect::Begins(begun) => {
                pending.insert(event.number, begun);
                continue;
            }
            Effect::Ends { number, timer } => (number, timer, true),
            Effect::Concerns(number) => (number, false, false),
            Effect::Retries(number) => (number, false, pending.get(&number) == Some(&Begun::ByHand)),
            Effect::None => {
                closed |= event.kind.is_closing() && !matches!(event.kind, EventKind::WorkflowTerminated { .. });
                continue;
            }
        };
        let is_pending = pending.get(&number).is_some_and(|begun| (*begun == Begun::Timer) == is_timer);
        if !is_pending {
            let what = if is_timer { "timer" } else { "activity" };
            found.push(format!("event {} is {} of {what} {number}, which is not pending", event.number, event.kind.name()));
        } else if ends {
            pending.remove(&number);
        }
    }
    if closed {
        found.extend(pending.iter().map(|(number, begun)| match begun {
            Begun::Timer => format!("it has ended, and timer {number} has neither fired nor been cancelled"),
            Begun::Call | Begun::ByHand => format!("it has ended, and activity {number} has no outcome"),
        }));
    }
    Some(found)
}

/// I18: events behind the end.
pub(super) fn after_the_end(subject: &Subject<'_>) -> Option<Vec<String>> {
    let end = subject.events.iter().position(|event| event.kind.is_closing())?;
    let behind = &subject.events[end + 1..];
    Some(behind.iter().map(|event| format!("event {} ({}) follows the end", event.number, event.kind.name())).collect())
}
