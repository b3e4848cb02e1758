//! Literal histories and small workflows: what replay promises.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Machine;
use crate::history::{Event, EventKind};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;
use crate::workflow::*;

#[derive(Serialize, Deserialize)]
struct Stop {
    why: String,
}

impl Signal for Stop {
    const NAME: &'static str = "stop";
}

/// Waits for a signal or an hour, then calls two activities side by side.
struct Sample;

#[async_trait]
impl Workflow for Sample {
    const TYPE: &'static str = "sample";
    type Input = u32;
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, _input: u32) -> Result<String, WorkflowError> {
        let won = match race(ctx.signal::<Stop>(), ctx.sleep(Duration::from_secs(3600)).named("hour")).await {
            Either::Left(stop) => stop?.into_value().why,
            Either::Right(fired) => {
                fired?;
                "time".to_owned()
            }
        };
        let (a, b) = join(ctx.activity_named::<u32>("a", &1), ctx.activity_named::<u32>("b", &2)).await;
        Ok(format!("{won} {} {}", a?, b?))
    }
}

/// Runs a closure's worth of code that tests change between recording and replay.
struct Scripted<F>(F);

#[async_trait]
impl<F, R> Workflow for Scripted<F>
where
    F: Fn(WorkflowContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, WorkflowError>> + Send,
{
    const TYPE: &'static str = "scripted";
    type Input = ();
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        (self.0)(ctx).await
    }
}

/// Feeds inputs to a live machine and keeps the history that results.
struct Recorder {
    machine: Machine,
    events: Vec<Event>,
}

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn run_id() -> RunId {
    RunId::new(1_700_000_000_000, [3; 10])
}

fn registry<W: Workflow>(workflow: W) -> (WorkflowRegistry, WorkflowKey) {
    let mut workflows = WorkflowRegistry::default();
    workflows.register(workflow);
    (workflows, WorkflowKey::new(W::TYPE, "4711"))
}

impl Recorder {
    fn start<W: Workflow>(workflow: W, input: &str) -> Self {
        let (workflows, key) = registry(workflow);
        let machine = Machine::new(&workflows, &key, run_id()).unwrap();
        let mut recorder = Self { machine, events: Vec::new() };
        let input = Payload::from_json(input).unwrap();
        recorder
            .feed(EventKind::WorkflowStarted { input, start_at: None, attributes: Default::default(), traceparent: None })
            .unwrap();
        recorder
    }

    fn feed(&mut self, kind: EventKind) -> Result<Vec<&'static str>, ReplayFault> {
        let number = self.events.len() as u64 + 1;
        let event = Event { number, at: START, kind };
        let commands = self.machine.feed(&event)?;
        self.events.push(event);
        let names = commands.iter().map(EventKind::name).collect();
        for (kind, number) in commands.into_iter().zip(number + 1..) {
            self.events.push(Event { number, at: START, kind });
        }
        Ok(names)
    }

    fn signal(&mut self, why: &str) -> Vec<&'static str> {
        let payload = Payload::of(&Stop { why: why.into() }).unwrap();
        self.feed(EventKind::SignalReceived { name: "stop".into(), signal_id: why.into(), payload }).unwrap()
    }

    fn complete(&mut self, activity: u64, result: u32) -> Vec<&'static str> {
        let result = Payload::of(&result).unwrap();
        self.feed(EventKind::ActivityCompleted { activity, result, attempts: 1, sends: 1 }).unwrap()
    }

    fn result(&self) -> &str {
        match &self.events.last().unwrap().kind {
            EventKind::WorkflowCompleted { result } => result.as_str(),
            other => panic!("not completed: {other:?}"),
        }
    }
}

#[test]
fn the_loser_of_a_race_is_cancelled_in_the_same_transition() {
    let mut run = Recorder::start(Sample, "1");
    assert_eq!(run.signal("user"), ["TimerCancelled", "ActivityScheduled", "ActivityScheduled"]);
    assert!(run.complete(6, 2).is_empty());
    assert_eq!(run.complete(5, 1), ["WorkflowCompleted"]);
    assert_eq!(run.result(), "\"user 1 2\"");
}

#[test]
fn a_history_replays_to_the_same_state_from_every_prefix() {
    let mut run = Recorder::start(Sample, "1");
    run.feed(EventKind::TimerFired { timer: 2 }).unwrap();
    run.complete(5, 7);
    run.signal("too late");
    run.complete(4, 8);
    let (workflows, key) = registry(Sample);
    let inputs: Vec<usize> = (0..run.events.len()).filter(|i| !run.events[*i].kind.is_command()).collect();
    for (position, input) in inputs.iter().enumerate().skip(1) {
        let mut machine = Machine::replay(&workflows, &key, run_id(), &run.events[..*input]).unwrap();
        let commands = machine.feed(&run.events[*input]).unwrap();
        let end = inputs.get(position + 1).copied().unwrap_or(run.events.len());
        let recorded: Vec<_> = run.events[input + 1..end].iter().map(|event| event.kind.clone()).collect();
        assert_eq!(commands, recorded, "behind event {}", input + 1);
    }
}

#[test]
fn a_signal_that_nobody_took_is_known_at_the_end() {
    let mut run = Recorder::start(Sample, "1");
    run.signal("first");
    run.signal("second");
    run.complete(5, 1);
    run.complete(6, 1);
    let unread = run.machine.unread_signals();
    assert_eq!(unread.iter().map(|signal| signal.signal_id.as_str()).collect::<Vec<_>>(), ["second"]);
}

#[test]
fn code_that_asks_for_something_else_is_told_what_was_expected_and_where() {
    let run = Recorder::start(Sample, "1");
    let (workflows, _) = registry(Scripted(|ctx: WorkflowContext| async move {
        ctx.sleep(Duration::from_secs(60)).await?;
        Ok(String::new())
    }));
    let mut events = run.events.clone();
    events[0].kind =
        EventKind::WorkflowStarted { input: Payload::null(), start_at: None, attributes: Default::default(), traceparent: None };
    let fault = Machine::replay(&workflows, &WorkflowKey::new("scripted", "4711"), run_id(), &events).err().unwrap();
    assert_eq!(fault.error_type(), "nondeterminism");
    let text = fault.to_string();
    assert!(text.contains("event 2") && text.contains("\"hour\"") && text.contains("2023-11-14T22:14:20.000Z"), "{text}");
}

#[test]
fn code_that_no_longer_asks_for_a_recorded_command_is_nondeterministic() {
    let run = Recorder::start(Scripted(|ctx: WorkflowContext| async move { Ok(ctx.activity_named("a", &1).await?) }), "null");
    let (workflows, key) = registry(Scripted(|_: WorkflowContext| std::future::pending()));
    let fault = Machine::replay(&workflows, &key, run_id(), &run.events).err().unwrap();
    assert!(fault.to_string().contains("the workflow asks for nothing"), "{fault}");
}

#[test]
fn a_panic_is_a_fault_of_that_execution_only() {
    let (workflows, key) = registry(Scripted(|ctx: WorkflowContext| async move {
        ctx.sleep(Duration::from_secs(1)).await?;
        panic!("boom")
    }));
    let run = Recorder::start(
        Scripted(|ctx: WorkflowContext| async move { Ok(ctx.sleep(Duration::from_secs(1)).await.map(|()| String::new())?) }),
        "null",
    );
    let mut machine = Machine::replay(&workflows, &key, run_id(), &run.events).unwrap();
    let fired = Event { number: 3, at: START, kind: EventKind::TimerFired { timer: 2 } };
    assert_eq!(machine.feed(&fired), Err(ReplayFault::Panic("boom".into())));
}

#[test]
fn a_workflow_that_neither_waits_nor_ends_is_stopped() {
    let (workflows, key) = registry(Scripted(|_: WorkflowContext| async move {
        loop {
            let mut yielded = false;
            std::future::poll_fn(|cx| {
                if yielded {
                    return std::task::Poll::Ready(());
                }
                yielded = true;
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await;
        }
    }));
    let mut machine = Machine::new(&workflows, &key, run_id()).unwrap();
    let started =
        EventKind::WorkflowStarted { input: Payload::null(), start_at: None, attributes: Default::default(), traceparent: None };
    let fault = machine.feed(&Event { number: 1, at: START, kind: started }).unwrap_err();
    assert_eq!(fault.error_type(), "endless");
}

#[test]
fn a_side_effect_runs_once_and_its_value_is_replayed() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let script = || {
        Scripted(|ctx: WorkflowContext| async move {
            let value = ctx.side_effect(|| RUNS.fetch_add(1, Ordering::SeqCst) + 41);
            ctx.sleep(Duration::from_secs(1)).await?;
            Ok(value.to_string())
        })
    };
    let mut run = Recorder::start(script(), "null");
    let (workflows, key) = registry(script());
    Machine::replay(&workflows, &key, run_id(), &run.events).unwrap();
    run.feed(EventKind::TimerFired { timer: 3 }).unwrap();
    assert_eq!((run.result(), RUNS.load(Ordering::SeqCst)), ("\"41\"", 1));
}

#[test]
fn old_executions_keep_the_old_code_and_new_ones_run_the_new() {
    let old = || Scripted(|ctx: WorkflowContext| async move { Ok(ctx.activity_named("old", &1).await?) });
    let new = || {
        Scripted(|ctx: WorkflowContext| async move {
            let name = if ctx.version("rename", 0, 1) == 0 { "old" } else { "new" };
            Ok(ctx.activity_named(name, &1).await?)
        })
    };
    let before = Recorder::start(old(), "null");
    let (workflows, key) = registry(new());
    Machine::replay(&workflows, &key, run_id(), &before.events).unwrap();
    let after = Recorder::start(new(), "null");
    assert_eq!(
        after.events.iter().map(|e| e.kind.name()).collect::<Vec<_>>(),
        ["WorkflowStarted", "VersionMarked", "ActivityScheduled"]
    );
    Machine::replay(&workflows, &key, run_id(), &after.events).unwrap();
}

#[test]
fn an_event_is_a_command_whose_name_is_compared_on_replay_and_whose_data_stay_as_recorded() {
    let script = |name: &'static str, data: u32| {
        Scripted(move |ctx: WorkflowContext| async move {
            ctx.emit(name, &data).unwrap();
            ctx.sleep(Duration::from_secs(1)).await?;
            ctx.emit("it.ended", &data).unwrap();
            Ok(String::new())
        })
    };
    let mut run = Recorder::start(script("it.began", 1), "null");
    let (workflows, key) = registry(script("it.began", 2));
    Machine::replay(&workflows, &key, run_id(), &run.events).unwrap();
    run.feed(EventKind::TimerFired { timer: 3 }).unwrap();
    let emitted = |event: &Event| match &event.kind {
        EventKind::EventEmitted { name, data } => Some((event.number, name.clone(), data.as_str().to_owned())),
        _ => None,
    };
    let told: Vec<_> = run.events.iter().filter_map(emitted).collect();
    assert_eq!(told, [(2, "it.began".into(), "1".into()), (5, "it.ended".into(), "1".into())]);
    let (workflows, key) = registry(script("it.started", 1));
    let fault = Machine::replay(&workflows, &key, run_id(), &run.events).err().unwrap();
    assert_eq!(
        fault,
        ReplayFault::Nondeterminism {
            position: 2,
            expected: "EventEmitted it.began".into(),
            found: "EventEmitted it.started".into()
        }
    );
}

#[test]
fn an_event_that_cannot_be_sent_is_refused_and_leaves_nothing_in_the_history() {
    let script = || {
        Scripted(|ctx: WorkflowContext| async move {
            let name = ctx.emit("Not a name", &1).unwrap_err();
            let data = ctx.emit("it.began", &"x".repeat(EVENT_DATA_BYTES_MAX)).unwrap_err();
            ctx.sleep(Duration::from_secs(1)).await?;
            Ok(format!("{name}; {data}"))
        })
    };
    let run = Recorder::start(script(), "null");
    let kinds: Vec<_> = run.events.iter().map(|event| event.kind.name()).collect();
    assert_eq!(kinds, ["WorkflowStarted", "TimerStarted"]);
    let (workflows, key) = registry(script());
    Machine::replay(&workflows, &key, run_id(), &run.events).unwrap();
}

#[test]
fn a_version_that_is_no_longer_supported_is_named() {
    let script = |min, max| {
        Scripted(move |ctx: WorkflowContext| async move {
            Ok(ctx.activity_named(&format!("v{}", ctx.version("c", min, max)), &1).await?)
        })
    };
    let run = Recorder::start(script(0, 1), "null");
    let (workflows, key) = registry(script(2, 3));
    let fault = Machine::replay(&workflows, &key, run_id(), &run.events).err().unwrap();
    assert_eq!(fault, ReplayFault::UnsupportedVersion { change: "c".into(), found: 1, min: 2, max: 3 });
}

#[test]
fn a_cancel_ends_what_is_waited_for_except_what_is_shielded() {
    let mut run = Recorder::start(
        Scripted(|ctx: WorkflowContext| async move {
            let stopped = ctx.activity_named::<u32>("forward", &1).await;
            assert_eq!(stopped, Err(ActivityError::Cancelled));
            let undone = ctx.shielded(ctx.activity_named::<u32>("undo", &1)).await?;
            assert_eq!(ctx.sleep(Duration::from_secs(1)).await, Err(Cancelled));
            assert_eq!(undone, 5);
            Err(WorkflowError::Cancelled)
        }),
        "null",
    );
    let cancel = EventKind::CancelRequested { reason: "user".into(), actor: "web".into() };
    assert_eq!(run.feed(cancel).unwrap(), ["ActivityCancelled", "ActivityScheduled"]);
    assert_eq!(run.complete(5, 5), ["WorkflowCancelled"]);
    assert!(matches!(&run.events.last().unwrap().kind, EventKind::WorkflowCancelled { reason } if reason == "user"));
}

#[test]
fn what_is_left_behind_at_the_end_is_cancelled_and_nothing_is_ended_twice() {
    let mut run = Recorder::start(
        Scripted(|ctx: WorkflowContext| async move {
            let mut left = Box::pin(ctx.activity_named::<u32>("left", &1));
            let mut timer = Box::pin(ctx.sleep(Duration::from_secs(5)));
            let first = futures::future::select(left.as_mut(), timer.as_mut()).await;
            drop(first);
            ctx.signal::<Stop>().await?;
            std::mem::forget(left);
            Ok(String::new())
        }),
        "null",
    );
    run.feed(EventKind::TimerFired { timer: 3 }).unwrap();
    assert_eq!(run.signal("now"), ["ActivityCancelled", "WorkflowCompleted"]);
}

#[test]
fn compensations_run_in_reverse_for_what_happened_or_may_have_happened() {
    let mut run = Recorder::start(
        Scripted(|ctx: WorkflowContext| async move {
            let mut saga = Saga::new(&ctx);
            for step in ["a", "b", "c"] {
                let forward = ctx.activity_named::<u32>(step, &1);
                let back = ctx.activity_named::<u32>(&format!("undo-{step}"), &1);
                if let Err(error) = saga.step(forward, back).await {
                    saga.compensate().await?;
                    return Err(error.into());
                }
            }
            Ok(String::new())
        }),
        "null",
    );
    run.complete(2, 1);
    run.complete(4, 1);
    let failure = crate::history::Failure::new(crate::history::FailureClass::Transient, "timeout", "no answer");
    run.feed(EventKind::ActivityFailed { activity: 6, failure, attempts: 5, sends: 5 }).unwrap();
    run.complete(8, 1);
    run.complete(10, 1);
    run.complete(12, 1);
    let steps: Vec<_> = run
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ActivityScheduled { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(steps, ["a", "b", "c", "undo-c", "undo-b", "undo-a"]);
    assert_eq!(run.events.last().unwrap().kind.name(), "WorkflowFailed");
}

#[test]
fn a_step_that_is_refused_after_an_attempt_without_answer_may_have_happened_and_is_undone() {
    for (sends, undone) in [(1, vec!["a"]), (2, vec!["a", "undo-a"])] {
        let mut run = Recorder::start(
            Scripted(|ctx: WorkflowContext| async move {
                let mut saga = Saga::new(&ctx);
                let step = saga.step(ctx.activity_named::<u32>("a", &1), ctx.activity_named::<u32>("undo-a", &1)).await;
                saga.compensate().await?;
                Ok(step?.to_string())
            }),
            "null",
        );
        let failure = crate::history::Failure::new(crate::history::FailureClass::Permanent, "http-409", "it is there already");
        run.feed(EventKind::ActivityFailed { activity: 2, failure, attempts: sends, sends }).unwrap();
        let scheduled = |event: &Event| match &event.kind {
            EventKind::ActivityScheduled { name, .. } => Some(name.clone()),
            _ => None,
        };
        assert_eq!(run.events.iter().filter_map(scheduled).collect::<Vec<_>>(), undone, "{sends} sent");
    }
}

#[test]
fn random_values_are_the_same_on_replay_and_differ_from_each_other() {
    let script = || {
        Scripted(|ctx: WorkflowContext| async move {
            let value = format!("{} {} {}", ctx.random(), ctx.uuid(), ctx.uuid());
            Ok(ctx.activity_named(&value, &1).await?)
        })
    };
    let run = Recorder::start(script(), "null");
    let (workflows, key) = registry(script());
    Machine::replay(&workflows, &key, run_id(), &run.events).unwrap();
}

#[test]
fn idempotency_keys_name_the_intent_and_survive_any_id() {
    let (workflows, _) = registry(Scripted(|ctx: WorkflowContext| async move {
        let _ = ctx.activity_named::<u32>("a", &1).await;
        let _ = ctx.activity_named::<u32>("a", &1).await;
        let _ = ctx.activity_named::<u32>("a", &1).intent("a:txn 1").await;
        Ok(String::new())
    }));
    let key = WorkflowKey::new("scripted", "注 1~0011223344556677");
    let mut machine = Machine::new(&workflows, &key, run_id()).unwrap();
    let started =
        EventKind::WorkflowStarted { input: Payload::null(), start_at: None, attributes: Default::default(), traceparent: None };
    let mut keys = Vec::new();
    let mut input = started;
    for number in [1, 3, 5] {
        let commands = machine.feed(&Event { number, at: START, kind: input }).unwrap();
        let EventKind::ActivityScheduled { idempotency_key, .. } = &commands[0] else { panic!("{commands:?}") };
        keys.push(idempotency_key.clone());
        input = EventKind::ActivityCompleted { activity: number + 1, result: Payload::of(&1).unwrap(), attempts: 1, sends: 1 };
    }
    assert_eq!(keys, ["scripted/%E6%B3%A8%201/a", "scripted/%E6%B3%A8%201/a#2", "scripted/%E6%B3%A8%201/a:txn%201"]);
}
