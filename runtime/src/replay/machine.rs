//! The machine: one workflow instance, fed with events.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;

use crate::fault::{Bug, planted, recall, remember};
use crate::history::{Event, EventKind};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;
use crate::workflow::{
    ActivityError, ActivityOutcome, CallOptions, Delivered, ErasedWorkflow, ReplayFault, RunContext, Shared, State,
    WorkflowContext, WorkflowError, WorkflowRegistry,
};

/// How often a workflow may wake itself in answer to one event; more is taken for an endless loop.
const POLLS_PER_EVENT_MAX: usize = 10_000;

/// One workflow instance and what it waits for. Once a method returned a fault, the machine is of no further use.
pub struct Machine {
    workflow: Arc<dyn ErasedWorkflow>,
    shared: Shared,
    future: Option<BoxFuture<'static, Result<Payload, WorkflowError>>>,
    wake: Arc<WakeFlag>,
    closed: bool,
}

/// A signal that a workflow ended without taking.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadSignal {
    /// Its name.
    pub name: String,
    /// Identifies the delivery.
    pub signal_id: String,
    /// What it says.
    pub payload: Payload,
}

#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Machine {
    /// A machine that was fed nothing yet; its first event must be `WorkflowStarted`.
    ///
    /// # Errors
    /// [`ReplayFault::UnknownType`].
    pub fn new(workflows: &WorkflowRegistry, key: &WorkflowKey, run_id: RunId) -> Result<Self, ReplayFault> {
        let Some(workflow) = workflows.get(key.workflow_type()) else {
            return Err(ReplayFault::UnknownType(key.workflow_type().to_owned()));
        };
        let shared = Shared::new(key.clone(), run_id, workflow.key_namespace().to_owned());
        Ok(Self { workflow: Arc::clone(workflow), shared, future: None, wake: Arc::default(), closed: false })
    }

    /// A machine that has seen `history`.
    ///
    /// # Errors
    /// A [`ReplayFault`] when the code does not ask for what the history says it asked for.
    pub fn replay(
        workflows: &WorkflowRegistry,
        key: &WorkflowKey,
        run_id: RunId,
        history: &[Event],
    ) -> Result<Self, ReplayFault> {
        let mut machine = Self::new(workflows, key, run_id)?;
        let mut rest = history;
        while let Some((input, behind)) = rest.split_first() {
            let commands = behind.iter().take_while(|event| event.kind.is_command()).count();
            let recorded = behind[..commands].iter().map(|event| event.kind.clone()).collect();
            machine.step(input, Some(recorded))?;
            rest = &behind[commands..];
        }
        Ok(machine)
    }

    /// Tells the workflow an event and returns the commands to be recorded directly behind it.
    ///
    /// # Errors
    /// A [`ReplayFault`] when the workflow cannot go on.
    pub fn feed(&mut self, input: &Event) -> Result<Vec<EventKind>, ReplayFault> {
        self.step(input, None)
    }

    fn step(&mut self, input: &Event, recorded: Option<VecDeque<EventKind>>) -> Result<Vec<EventKind>, ReplayFault> {
        if self.closed {
            return Err(ReplayFault::History(format!("event {} comes after the end", input.number)));
        }
        if input.kind.is_command() {
            return Err(ReplayFault::History(format!("event {} is a command that no event led to", input.number)));
        }
        let is_live = recorded.is_none();
        self.shared.lock().begin(input.number, input.at, recorded);
        self.apply(input)?;
        if is_live && planted(Bug::OnePollForTwo) && recall("one poll for two").as_deref() == Some("skip") {
            remember("one poll for two", String::new());
            return self.shared.lock().finish();
        }
        if let EventKind::WorkflowTerminated { .. } = input.kind {
            self.closed = true;
        } else {
            self.poll()?;
        }
        self.shared.lock().finish()
    }

    fn apply(&mut self, input: &Event) -> Result<(), ReplayFault> {
        match &input.kind {
            EventKind::WorkflowStarted { input, start_at, .. } => self.start(input.clone(), *start_at),
            EventKind::TimerFired { timer } => {
                let mut state = self.shared.lock();
                let slot = state.timers.get_mut(timer).ok_or_else(|| unpaired(input, *timer))?;
                slot.outcome = Some(());
                slot.waker.take().inspect(Waker::wake_by_ref);
            }
            EventKind::ActivityCompleted { activity, result, .. } | EventKind::ActivityResolved { activity, result, .. } => {
                self.settle(input, *activity, ActivityOutcome::Completed(result.clone()))?;
            }
            EventKind::ActivityFailed { activity, failure, sends, .. } => {
                if let Some(slot) = self.shared.lock().activities.get_mut(activity) {
                    slot.sent_before = *sends > 1;
                }
                self.settle(input, *activity, ActivityOutcome::Failed(ActivityError::Failed(failure.clone())))?;
            }
            EventKind::ActivitySkipped { activity, reason, .. } => {
                self.settle(input, *activity, ActivityOutcome::Failed(ActivityError::Skipped { reason: reason.clone() }))?;
            }
            EventKind::ActivityRetried { activity, .. } if self.shared.lock().by_hand.contains(activity) => {
                self.settle(input, *activity, ActivityOutcome::Retried)?;
            }
            EventKind::SignalReceived { name, signal_id, payload } => {
                let mut state = self.shared.lock();
                state.signals.push_back(Delivered {
                    number: input.number,
                    name: name.clone(),
                    signal_id: signal_id.clone(),
                    payload: payload.clone(),
                });
                state.signal_wakers.drain(..).for_each(Waker::wake);
            }
            EventKind::CancelRequested { reason, .. } => {
                let mut state = self.shared.lock();
                state.cancel_reason.get_or_insert_with(|| reason.clone());
                wake_all(&mut state);
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, input: Payload, start_at: Option<Timestamp>) {
        let run = self.workflow.run(RunContext(self.shared.clone()), input);
        let ctx = WorkflowContext::new(self.shared.clone());
        self.future = Some(match start_at {
            Some(start_at) => Box::pin(async move {
                ctx.sleep_until(start_at).named("startAt").await?;
                run.await
            }),
            None => run,
        });
        self.wake.0.store(true, Ordering::Relaxed);
    }

    fn settle(&mut self, input: &Event, activity: u64, outcome: ActivityOutcome) -> Result<(), ReplayFault> {
        let mut state = self.shared.lock();
        let slot = state.activities.get_mut(&activity).ok_or_else(|| unpaired(input, activity))?;
        slot.outcome = Some(outcome);
        slot.waker.take().inspect(Waker::wake_by_ref);
        Ok(())
    }

    fn poll(&mut self) -> Result<(), ReplayFault> {
        let waker = Waker::from(Arc::clone(&self.wake));
        let mut polls = 0;
        while self.wake.0.swap(false, Ordering::Relaxed) {
            let Some(future) = self.future.as_mut() else {
                return Err(ReplayFault::History("the first event is not WorkflowStarted".into()));
            };
            polls += 1;
            if polls > POLLS_PER_EVENT_MAX {
                return Err(ReplayFault::Endless(format!("it woke itself {POLLS_PER_EVENT_MAX} times in answer to one event")));
            }
            let poll = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))))
                .map_err(|panic| ReplayFault::Panic(panic_message(panic.as_ref())))?;
            if self.shared.lock().has_failed() {
                return Ok(());
            }
            if let Poll::Ready(result) = poll {
                self.future = None;
                self.close(result);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whatever the workflow left behind is cancelled, then the end is recorded.
    fn close(&mut self, result: Result<Payload, WorkflowError>) {
        self.closed = true;
        let mut state = self.shared.lock();
        for (timer, slot) in std::mem::take(&mut state.timers) {
            if slot.outcome.is_none() {
                state.command(EventKind::TimerCancelled { timer });
            }
        }
        for (activity, slot) in std::mem::take(&mut state.activities) {
            if slot.outcome.is_none() {
                state.command(EventKind::ActivityCancelled { activity });
            }
        }
        let reason = state.cancel_reason.clone().unwrap_or_default();
        state.command(match result {
            Ok(result) => EventKind::WorkflowCompleted { result },
            Err(WorkflowError::Failed(failure)) => EventKind::WorkflowFailed { failure },
            Err(WorkflowError::Cancelled) => EventKind::WorkflowCancelled { reason },
        });
    }

    /// Whether the workflow has ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the workflow waits for this timer.
    pub fn awaits_timer(&self, timer: u64) -> bool {
        self.shared.lock().timers.get(&timer).is_some_and(|slot| slot.outcome.is_none())
    }

    /// Whether the workflow waits for this activity.
    pub fn awaits_activity(&self, activity: u64) -> bool {
        self.shared.lock().activities.get(&activity).is_some_and(|slot| slot.outcome.is_none())
    }

    /// What the workflow said otherwise than the activity's own options.
    pub fn call_options(&self, activity: u64) -> CallOptions {
        self.shared.lock().call_options.get(&activity).cloned().unwrap_or_default()
    }

    /// Whether the workflow said that the signal of this event came too late.
    pub fn answered_late(&self, signal: u64) -> bool {
        self.shared.lock().late_answers.contains(&signal)
    }

    /// The workflow's own account of where it stands.
    pub fn progress(&self) -> Option<Payload> {
        self.shared.lock().progress.clone()
    }

    /// Signals that the workflow did not take, in order.
    pub fn unread_signals(&self) -> Vec<UnreadSignal> {
        let unread = |signal: &Delivered| UnreadSignal {
            name: signal.name.clone(),
            signal_id: signal.signal_id.clone(),
            payload: signal.payload.clone(),
        };
        self.shared.lock().signals.iter().map(unread).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.shared.lock().torn_down = true;
        let future = self.future.take();
        // Dropping workflow code may panic like running it.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
    }
}

fn wake_all(state: &mut State) {
    state.signal_wakers.drain(..).for_each(Waker::wake);
    let timers = state.timers.values_mut().filter_map(|slot| slot.waker.take());
    timers.for_each(Waker::wake);
    let activities = state.activities.values_mut().filter_map(|slot| slot.waker.take());
    activities.for_each(Waker::wake);
}

fn unpaired(input: &Event, number: u64) -> ReplayFault {
    ReplayFault::Nondeterminism {
        position: input.number,
        expected: format!("{} of event {number}", input.kind.name()),
        found: "nothing: the workflow does not wait for it".into(),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
