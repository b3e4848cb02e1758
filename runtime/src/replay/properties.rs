//! Whatever happens to a history, replay ends: in the same state, or in a fault with a name.

use std::time::Duration;

use async_trait::async_trait;
use proptest::prelude::*;

use super::Machine;
use crate::history::{Event, EventKind, Failure, FailureClass, Folded};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;
use crate::workflow::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Nudge(u8);

impl Signal for Nudge {
    const NAME: &'static str = "nudge";
}

/// Waits in every way there is: races, joins, shields, retries by hand, versions.
struct Busy;

#[async_trait]
impl Workflow for Busy {
    const TYPE: &'static str = "busy";
    type Input = u8;
    type Output = u64;

    async fn run(&self, ctx: WorkflowContext, input: u8) -> Result<u64, WorkflowError> {
        let mut sum = u64::from(input) + u64::from(ctx.version("change", 0, 1)) + ctx.side_effect(|| 3u64);
        let first = race(ctx.signal::<Nudge>(), ctx.sleep(Duration::from_secs(60))).await;
        if let Either::Left(nudge) = first {
            sum += u64::from(nudge?.into_value().0);
        }
        let (a, b) = join(ctx.activity_named::<u64>("a", &1), ctx.activity_named::<u64>("b", &2)).await;
        sum += a.unwrap_or(100) + b.unwrap_or(200);
        while let Either::Left(nudge) = race(ctx.any_signal(), ctx.activity_named::<u64>("c", &3)).await {
            nudge?.answer_late();
            sum += 1;
        }
        if let ByHandOutcome::Resolved(more) = ctx.by_hand::<u64>("d", &4, "please").await? {
            sum += more;
        }
        let shielded = ctx.shielded(ctx.activity_named::<u64>("e", &5)).await.unwrap_or(0);
        Ok(sum + shielded)
    }
}

/// Something that may reach an open execution; what does not fit is left out.
#[derive(Clone, Debug)]
enum Step {
    Fire,
    Complete(u8, u8),
    Fail(u8),
    Skip(u8),
    Retry(u8),
    Signal(u8),
    Cancel,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Fire),
        (any::<u8>(), any::<u8>()).prop_map(|(which, value)| Step::Complete(which, value)),
        any::<u8>().prop_map(Step::Fail),
        any::<u8>().prop_map(Step::Skip),
        any::<u8>().prop_map(Step::Retry),
        any::<u8>().prop_map(Step::Signal),
        Just(Step::Cancel),
    ]
}

fn workflows() -> (WorkflowRegistry, WorkflowKey, RunId) {
    let mut workflows = WorkflowRegistry::default();
    workflows.register(Busy);
    (workflows, WorkflowKey::new("busy", "1"), RunId::new(1_700_000_000_000, [1; 10]))
}

fn input(step: &Step, folded: &Folded, signals: &mut u8) -> Option<EventKind> {
    let pending: Vec<u64> = folded.activities.keys().copied().collect();
    let pick = |which: &u8| pending.get(usize::from(*which) % pending.len().max(1)).copied();
    let (reason, actor) = ("why".to_owned(), "who".to_owned());
    Some(match step {
        Step::Fire => EventKind::TimerFired { timer: *folded.timers.keys().next()? },
        Step::Complete(which, value) => {
            EventKind::ActivityCompleted { activity: pick(which)?, result: Payload::of(value).unwrap(), attempts: 1, sends: 1 }
        }
        Step::Fail(which) => {
            let failure = Failure::new(FailureClass::Transient, "timeout", "no answer");
            EventKind::ActivityFailed { activity: pick(which)?, failure, attempts: 1, sends: 1 }
        }
        Step::Skip(which) => EventKind::ActivitySkipped { activity: pick(which)?, reason, actor },
        Step::Retry(which) => EventKind::ActivityRetried { activity: pick(which)?, reason, actor },
        Step::Signal(value) => {
            *signals = signals.wrapping_add(1);
            EventKind::SignalReceived {
                name: "nudge".into(),
                signal_id: signals.to_string(),
                payload: Payload::of(&Nudge(*value)).unwrap(),
            }
        }
        Step::Cancel => EventKind::CancelRequested { reason, actor },
    })
}

/// The history that comes of these steps, and the machine that lived through it.
fn live(steps: &[Step]) -> (Vec<Event>, Machine) {
    let (workflows, key, run_id) = workflows();
    let mut machine = Machine::new(&workflows, &key, run_id).unwrap();
    let mut folded = Folded::default();
    let mut events: Vec<Event> = Vec::new();
    let mut signals = 0;
    let started = EventKind::WorkflowStarted {
        input: Payload::of(&7u8).unwrap(),
        start_at: None,
        attributes: Default::default(),
        traceparent: None,
    };
    let mut next = Some(started);
    let mut steps = steps.iter();
    loop {
        if let Some(kind) = next.take() {
            let number = folded.last_event + 1;
            let at = Timestamp::from_micros(1_700_000_000_000_000 + i64::try_from(number).unwrap() * 1_000_000);
            let event = Event { number, at, kind };
            let commands = machine.feed(&event).unwrap();
            for event in std::iter::once(event.clone())
                .chain(commands.into_iter().zip(number + 1..).map(|(kind, number)| Event { number, at, kind }))
            {
                folded.apply(&event);
                events.push(event);
            }
        }
        let Some(step) = steps.next().filter(|_| folded.closing.is_none()) else { return (events, machine) };
        next = input(step, &folded, &mut signals);
    }
}

proptest! {
    #[test]
    fn what_was_lived_is_replayed_to_the_same_state(steps in prop::collection::vec(step(), 0..40)) {
        let (events, lived) = live(&steps);
        let (workflows, key, run_id) = workflows();
        let replayed = Machine::replay(&workflows, &key, run_id, &events).unwrap();
        let folded = Folded::of(&events);
        prop_assert_eq!(replayed.is_closed(), lived.is_closed());
        prop_assert_eq!(replayed.is_closed(), folded.closing.is_some());
        prop_assert_eq!(replayed.unread_signals(), lived.unread_signals());
        for number in 1..=folded.last_event {
            prop_assert_eq!(replayed.awaits_timer(number), folded.timers.contains_key(&number), "timer {}", number);
            prop_assert_eq!(replayed.awaits_activity(number), folded.activities.contains_key(&number), "activity {}", number);
            prop_assert_eq!(replayed.answered_late(number), lived.answered_late(number));
        }
    }

    #[test]
    fn everything_scheduled_ends_once_and_behind_its_beginning(steps in prop::collection::vec(step(), 0..40)) {
        let (events, _) = live(&steps);
        let closed = events.last().is_some_and(|event| event.kind.is_closing());
        for begun in &events {
            let ends = events.iter().filter(|event| match (&begun.kind, &event.kind) {
                (EventKind::TimerStarted { .. }, EventKind::TimerFired { timer } | EventKind::TimerCancelled { timer }) => {
                    *timer == begun.number
                }
                (
                    EventKind::ActivityScheduled { by_hand, .. },
                    EventKind::ActivityRetried { activity, .. },
                ) => *activity == begun.number && by_hand.is_some(),
                (
                    EventKind::ActivityScheduled { .. },
                    EventKind::ActivityCompleted { activity, .. }
                    | EventKind::ActivityFailed { activity, .. }
                    | EventKind::ActivityCancelled { activity }
                    | EventKind::ActivitySkipped { activity, .. },
                ) => *activity == begun.number,
                _ => false,
            });
            let ends: Vec<u64> = ends.map(|event| event.number).collect();
            let is_begun = matches!(begun.kind, EventKind::TimerStarted { .. } | EventKind::ActivityScheduled { .. });
            prop_assert!(ends.len() <= 1 && ends.iter().all(|end| *end > begun.number), "{:?} ends at {:?}", begun, ends);
            prop_assert!(!(closed && is_begun && ends.is_empty()), "{:?} never ends", begun);
        }
    }

    #[test]
    fn a_damaged_history_ends_in_a_named_fault_or_in_a_replay_and_never_in_a_panic(
        steps in prop::collection::vec(step(), 1..30),
        drop in any::<prop::sample::Index>(),
        swap in any::<prop::sample::Index>(),
        how in 0u8..3,
    ) {
        let (mut events, _) = live(&steps);
        match how {
            0 => {
                let at = drop.index(events.len());
                drop_event(&mut events, at);
            }
            1 => {
                let (a, b) = (drop.index(events.len()), swap.index(events.len()));
                let kind = events[a].kind.clone();
                events[a].kind = std::mem::replace(&mut events[b].kind, kind);
            }
            _ => {
                let kind = events[swap.index(events.len())].kind.clone();
                let at = drop.index(events.len());
                events[at].kind = kind;
            }
        }
        let (workflows, key, run_id) = workflows();
        if let Err(fault) = Machine::replay(&workflows, &key, run_id, &events) {
            prop_assert!(["nondeterminism", "history", "unreadable", "unsupported-version"].contains(&fault.error_type()), "{fault}");
        }
    }
}

fn drop_event(events: &mut Vec<Event>, at: usize) {
    events.remove(at);
    for (event, number) in events.iter_mut().zip(1..) {
        event.number = number;
    }
}
