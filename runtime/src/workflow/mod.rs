//! What a workflow author sees.
//!
//! A workflow is an `async fn` over a [`WorkflowContext`]. It is run again from its history whenever it is needed, so
//! it must be a function of what the context gives it: no clock, no random numbers, no input or output of its own.

mod calls;
mod combine;
mod context;
mod declare;
mod emit;
mod error;
mod late_signal;
mod registry;
mod saga;
mod signals;
mod state;
mod timer;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use calls::{ActivityCall, ByHandCall, ByHandOutcome, CallOptions};
pub use combine::{Either, join, join_all, race};
pub use context::{Shielded, WorkflowContext};
pub use declare::{
    ByHandStep, CheckedSignal, DeadlineDeclaration, LateStart, Lateness, NewDeadline, Signal, SignalDeclaration, SignalView,
    StepInTrouble,
};
pub use emit::{EVENT_DATA_BYTES_MAX, EVENT_NAME_BYTES_MAX, EmitRefused, Emitted, InvalidEventName, check_event_name};
pub use error::{ActivityError, Cancelled, WorkflowError};
pub use late_signal::LATE_SIGNAL_TYPE;
pub use registry::{ErasedWorkflow, RunContext, WorkflowRegistry};
pub use saga::Saga;
pub use signals::{AnySignal, NextSignal, Received};
pub use timer::Timer;

pub use state::ReplayFault;
pub(crate) use state::{ActivityOutcome, Delivered, Shared, State};

use crate::id::WorkflowKey;
use crate::payload::{InvalidField, Payload};

/// A durable function that waits for deadlines, signals and activities.
#[async_trait]
pub trait Workflow: Send + Sync + 'static {
    /// Its name in the API, such as `order-timeout`.
    const TYPE: &'static str;
    /// What a start gives it.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What it returns.
    type Output: Serialize + Send;

    /// The workflow itself. It may run many times over the same history and must then ask for the same things in the
    /// same order.
    ///
    /// # Errors
    /// [`WorkflowError`] closes the execution as failed or cancelled.
    async fn run(&self, ctx: WorkflowContext, input: Self::Input) -> Result<Self::Output, WorkflowError>;

    /// Checks what the types of `Input` cannot say, before anything is stored.
    ///
    /// # Errors
    /// The fields that are not as they must be; the request is then refused with 422.
    fn check(&self, _key: &WorkflowKey, _input: &Self::Input) -> Result<(), Vec<InvalidField>> {
        Ok(())
    }

    /// The signals that it takes; any other name is refused at the door.
    fn signals(&self) -> Vec<SignalDeclaration> {
        Vec::new()
    }

    /// Whether callers may start it. One that only the program itself starts is refused at every door.
    fn is_open_to_callers(&self) -> bool {
        true
    }

    /// The steps that it leaves to a person, with the results that they may give.
    fn by_hand_steps(&self) -> Vec<ByHandStep> {
        Vec::new()
    }

    /// What those outside are told when a step of it needs a person: an event's name and its data, delivered like those
    /// of [`WorkflowContext::emit`]. The engine asks in the transition in which the person is asked for; nothing is
    /// recorded besides. It must depend on its arguments alone. Nobody is told by default.
    fn attention_event(&self, _key: &WorkflowKey, _input: &Payload, _step: &StepInTrouble<'_>) -> Option<Emitted> {
        None
    }

    /// The first part of its idempotency keys. Workflows that act for the same order share it.
    fn key_namespace(&self) -> &str {
        Self::TYPE
    }

    /// The signal that a cancel request is turned into; without one, the context's futures are cancelled.
    fn cancel_signal(&self, _reason: &str, _actor: &str) -> Option<(&'static str, Payload)> {
        None
    }

    /// The deadline that it waits for, and the signal by which a person moves it; without one, nobody can.
    fn deadline(&self) -> Option<DeadlineDeclaration> {
        None
    }

    /// The execution that acts on a signal which came after the end, or for an execution that was never started.
    /// Without one, the signal is kept as an execution of type [`LATE_SIGNAL_TYPE`].
    fn late_signal(&self, _key: &WorkflowKey, _signal: &SignalView<'_>) -> Option<LateStart> {
        None
    }
}
