//! The workflows that a program offers, by type.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::Workflow;
use super::context::WorkflowContext;
use super::declare::{ByHandStep, DeadlineDeclaration, LateStart, SignalDeclaration, SignalView, StepInTrouble};
use super::emit::Emitted;
use super::error::WorkflowError;
use super::late_signal::LateSignal;
use super::state::{ReplayFault, Shared};
use crate::id::WorkflowKey;
use crate::payload::{InvalidField, Payload};

/// A workflow without its types: what the machine runs and the edges ask.
pub trait ErasedWorkflow: Send + Sync + 'static {
    /// The first part of its idempotency keys.
    fn key_namespace(&self) -> &str;
    /// Checks a start's input.
    ///
    /// # Errors
    /// The fields that are not as they must be.
    fn check(&self, key: &WorkflowKey, input: &Payload) -> Result<(), Vec<InvalidField>>;
    /// Whether callers may start it.
    fn is_open_to_callers(&self) -> bool;
    /// The declared signal of this name.
    fn signal(&self, name: &str) -> Option<SignalDeclaration>;
    /// The names of its signals.
    fn signal_names(&self) -> Vec<&'static str>;
    /// The declared step by hand of this name.
    fn by_hand_step(&self, name: &str) -> Option<ByHandStep>;
    /// The signal that a cancel request is turned into.
    fn cancel_signal(&self, reason: &str, actor: &str) -> Option<(&'static str, Payload)>;
    /// The deadline that it waits for, and the signal by which a person moves it.
    fn deadline(&self) -> Option<DeadlineDeclaration>;
    /// What those outside are told when a step needs a person.
    fn attention_event(&self, key: &WorkflowKey, input: &Payload, step: &StepInTrouble<'_>) -> Option<Emitted>;
    /// The execution that acts on a late signal.
    fn late_signal(&self, key: &WorkflowKey, signal: &SignalView<'_>) -> LateStart;
    /// The workflow's future.
    fn run(&self, ctx: RunContext, input: Payload) -> BoxFuture<'static, Result<Payload, WorkflowError>>;
}

/// What the machine hands to a workflow that it starts.
pub struct RunContext(pub(crate) Shared);

struct Erased<W>(Arc<W>);

impl<W: Workflow> ErasedWorkflow for Erased<W> {
    fn key_namespace(&self) -> &str {
        self.0.key_namespace()
    }

    fn check(&self, key: &WorkflowKey, input: &Payload) -> Result<(), Vec<InvalidField>> {
        let input: W::Input = input.parse().map_err(|error| vec![error])?;
        self.0.check(key, &input)
    }

    fn is_open_to_callers(&self) -> bool {
        self.0.is_open_to_callers()
    }

    fn signal(&self, name: &str) -> Option<SignalDeclaration> {
        self.0.signals().into_iter().find(|signal| signal.name == name)
    }

    fn signal_names(&self) -> Vec<&'static str> {
        self.0.signals().iter().map(|signal| signal.name).collect()
    }

    fn by_hand_step(&self, name: &str) -> Option<ByHandStep> {
        self.0.by_hand_steps().into_iter().find(|step| step.name == name)
    }

    fn cancel_signal(&self, reason: &str, actor: &str) -> Option<(&'static str, Payload)> {
        self.0.cancel_signal(reason, actor)
    }

    fn deadline(&self) -> Option<DeadlineDeclaration> {
        self.0.deadline()
    }

    fn attention_event(&self, key: &WorkflowKey, input: &Payload, step: &StepInTrouble<'_>) -> Option<Emitted> {
        self.0.attention_event(key, input, step)
    }

    fn late_signal(&self, key: &WorkflowKey, signal: &SignalView<'_>) -> LateStart {
        self.0.late_signal(key, signal).unwrap_or_else(|| LateSignal::keep(signal))
    }

    fn run(&self, ctx: RunContext, input: Payload) -> BoxFuture<'static, Result<Payload, WorkflowError>> {
        let workflow = Arc::clone(&self.0);
        Box::pin(async move {
            let input: W::Input = match input.parse() {
                Ok(input) => input,
                Err(error) => return unreadable(&ctx.0, "the input", &error).await,
            };
            let output = workflow.run(WorkflowContext::new(ctx.0.clone()), input).await?;
            match Payload::of(&output) {
                Ok(result) => Ok(result),
                Err(error) => unreadable(&ctx.0, "the result", &error).await,
            }
        })
    }
}

/// Blocks the execution: the fault is taken up after the poll, and the future never ends.
async fn unreadable(shared: &Shared, what: &str, error: &(dyn std::error::Error + Sync)) -> Result<Payload, WorkflowError> {
    shared.lock().fail(ReplayFault::Unreadable { what: what.to_owned(), reason: error.to_string() });
    std::future::pending().await
}

/// The workflows of a program.
#[derive(Clone)]
pub struct WorkflowRegistry {
    by_type: BTreeMap<&'static str, Arc<dyn ErasedWorkflow>>,
}

impl Default for WorkflowRegistry {
    /// The registry with the engine's own workflow, the one that keeps late signals.
    fn default() -> Self {
        let mut registry = Self { by_type: BTreeMap::new() };
        registry.register(LateSignal);
        registry
    }
}

impl WorkflowRegistry {
    /// Adds a workflow. A later one of the same type replaces an earlier one.
    pub fn register<W: Workflow>(&mut self, workflow: W) {
        self.by_type.insert(W::TYPE, Arc::new(Erased(Arc::new(workflow))));
    }

    /// The workflow of this type.
    pub fn get(&self, workflow_type: &str) -> Option<&Arc<dyn ErasedWorkflow>> {
        self.by_type.get(workflow_type)
    }

    /// The types that callers may start, in order.
    pub fn open_types(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.by_type.iter().filter(|(_, workflow)| workflow.is_open_to_callers()).map(|(name, _)| *name)
    }

    /// All types, in order.
    pub fn types(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.by_type.keys().copied()
    }
}
