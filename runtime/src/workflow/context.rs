//! The context: everything that a workflow may know and do.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::calls::{ActivityCall, ByHandCall};
use super::declare::Signal;
use super::emit::{EmitRefused, Emitted};
use super::signals::{AnySignal, NextSignal};
use super::state::{ReplayFault, Shared};
use super::timer::Timer;
use crate::activity::Activity;
use crate::history::EventKind;
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;

/// A workflow's only door to the world. Cloning it is cheap and gives the same context.
#[derive(Clone)]
pub struct WorkflowContext {
    shared: Shared,
}

impl WorkflowContext {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }

    /// The execution.
    pub fn key(&self) -> WorkflowKey {
        self.shared.lock().key.clone()
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.shared.lock().run_id
    }

    /// The recorded time of what the workflow is being told; the same on replay, and never going back.
    pub fn now(&self) -> Timestamp {
        self.shared.lock().now
    }

    /// Waits until an instant; one in the past is due at once.
    pub fn sleep_until(&self, instant: Timestamp) -> Timer {
        Timer::new(self.shared.clone(), instant)
    }

    /// Waits for a duration from [`now`](Self::now).
    pub fn sleep(&self, duration: Duration) -> Timer {
        self.sleep_until(self.now().saturating_add(duration))
    }

    /// Calls an activity.
    pub fn activity<A: Activity>(&self, input: &A::Input) -> ActivityCall<A::Output> {
        self.activity_named(A::NAME, input)
    }

    /// Calls an activity by a name that is only known at run time.
    pub fn activity_named<T>(&self, name: &str, input: &impl Serialize) -> ActivityCall<T> {
        ActivityCall::new(self.shared.clone(), name, input)
    }

    /// Leaves a step to a person, who resolves it with a `T`, skips it or has what led to it tried again. The step must
    /// be declared by [`super::Workflow::by_hand_steps`]; it is shown as needing attention, with `why`.
    pub fn by_hand<T>(&self, name: &str, details: &impl Serialize, why: impl Into<String>) -> ByHandCall<T> {
        ByHandCall::new(self.shared.clone(), name, details, why.into())
    }

    /// Waits for the next signal `S`.
    pub fn signal<S: Signal>(&self) -> NextSignal<S> {
        NextSignal::new(self.shared.clone())
    }

    /// Waits for the next signal of any name.
    pub fn any_signal(&self) -> AnySignal {
        AnySignal::new(self.shared.clone())
    }

    /// Lets `future` go on although the workflow is asked to stop.
    pub fn shielded<F: Future>(&self, future: F) -> Shielded<F> {
        Shielded { shared: self.shared.clone(), future: Box::pin(future) }
    }

    /// Why the workflow was asked to stop, if it was.
    pub fn cancel_reason(&self) -> Option<String> {
        self.shared.lock().cancel_reason.clone()
    }

    /// Computes a value once and gives the recorded one on replay. The function runs before its value is durable, so it
    /// must not change the world.
    pub fn side_effect<T: Serialize + DeserializeOwned>(&self, compute: impl FnOnce() -> T) -> T {
        let recorded = match self.shared.lock().next_recorded() {
            Some(Some(EventKind::SideEffectRecorded { value })) => Some(value.clone()),
            _ => None,
        };
        let Some(value) = recorded else {
            let computed = compute();
            match Payload::of(&computed) {
                Ok(value) => {
                    self.shared.lock().command(EventKind::SideEffectRecorded { value });
                }
                Err(error) => self.unreadable("the value of a side effect", error.to_string()),
            }
            return computed;
        };
        let parsed = value.parse();
        self.shared.lock().command(EventKind::SideEffectRecorded { value });
        parsed.unwrap_or_else(|error| {
            self.unreadable("the value of a side effect", error.to_string());
            compute()
        })
    }

    /// The version of a changed piece of code that this execution runs: `max` where it is met for the first time live,
    /// the recorded one on replay, and `min` for executions that passed here before the change existed.
    pub fn version(&self, change: &str, min: u32, max: u32) -> u32 {
        let mut state = self.shared.lock();
        let version = match state.versions.get(change) {
            Some(version) => *version,
            None => {
                let version = match state.next_recorded() {
                    None => Some(max),
                    Some(Some(EventKind::VersionMarked { change: recorded, version })) if recorded == change => Some(*version),
                    Some(_) => None,
                };
                if let Some(version) = version {
                    state.command(EventKind::VersionMarked { change: change.to_owned(), version });
                }
                let version = version.unwrap_or(min);
                state.versions.insert(change.to_owned(), version);
                version
            }
        };
        if version < min || version > max {
            state.fail(ReplayFault::UnsupportedVersion { change: change.to_owned(), found: version, min, max });
        }
        version
    }

    /// Tells those outside who listen that something happened: written in the transition's own commit, delivered at least
    /// once, in the order of this execution, to every sink that takes events of this name. `event` is
    /// dotted and in lower case, such as `shipment.sent`; `data` is what the receiver is given, at most
    /// [`EVENT_DATA_BYTES_MAX`](super::EVENT_DATA_BYTES_MAX) bytes of JSON. On replay nothing is sent, and the recorded data stay.
    ///
    /// # Errors
    /// [`EmitRefused`], when the name or the data cannot be sent; nothing is recorded then.
    pub fn emit(&self, event: &str, data: &impl Serialize) -> Result<(), EmitRefused> {
        let mut state = self.shared.lock();
        let is_recorded = matches!(state.next_recorded(), Some(Some(EventKind::EventEmitted { name, .. })) if name == event);
        let emitted = Emitted::new(event, data);
        let emitted = match emitted {
            // What was let through once stays, whatever today's limits are.
            Err(_) if is_recorded => Emitted { name: event.to_owned(), data: Payload::null() },
            emitted => emitted?,
        };
        state.command(EventKind::EventEmitted { name: emitted.name, data: emitted.data });
        Ok(())
    }

    /// A random number, the same on replay.
    pub fn random(&self) -> u64 {
        let bytes = self.draw();
        u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
    }

    /// A random UUID (version 4), the same on replay.
    pub fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.draw()).into_uuid()
    }

    /// What operators see of the workflow's own state. Only the last value counts; it is not recorded but recomputed.
    pub fn set_progress(&self, progress: &impl Serialize) {
        match Payload::of(progress) {
            Ok(progress) => self.shared.lock().progress = Some(progress),
            Err(error) => self.unreadable("the progress", error.to_string()),
        }
    }

    fn draw(&self) -> [u8; 16] {
        let mut state = self.shared.lock();
        state.draws += 1;
        let digest = Sha256::new().chain_update(state.run_id.as_bytes()).chain_update(state.draws.to_le_bytes()).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes
    }

    fn unreadable(&self, what: &str, reason: String) {
        self.shared.lock().fail(ReplayFault::Unreadable { what: what.to_owned(), reason });
    }
}

/// A future that goes on although the workflow is asked to stop.
pub struct Shielded<F> {
    shared: Shared,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Shielded<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        this.shared.lock().shield_depth += 1;
        let result = this.future.as_mut().poll(cx);
        this.shared.lock().shield_depth -= 1;
        result
    }
}
