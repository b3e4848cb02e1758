//! What an activity author sees: the trait, its context, its failures and its options.
//!
//! An activity is called at least once, always with the same input and the same idempotency key. It is the only place
//! where a workflow touches the world.

mod failure;
mod options;
mod registry;
mod retry;
mod start_check;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use failure::ActivityFailure;
pub use options::{ActivityOptions, DispatchLimit, Exhausted};
pub use registry::{ActivityRegistry, ErasedActivity};
pub use retry::{InvalidRetryPolicy, RetryPolicy};
pub use start_check::StartCheck;

use crate::id::{RunId, WorkflowKey};
use crate::time::Timestamp;

/// A call to the world on behalf of a workflow.
#[async_trait]
pub trait Activity: Send + Sync + 'static {
    /// Its name in histories, such as `cancel-order`.
    const NAME: &'static str;
    /// What it is given: the same on every attempt.
    type Input: Serialize + DeserializeOwned + Send + Sync;
    /// What it answers.
    type Output: Serialize + DeserializeOwned + Send;

    /// How often, how long and how many at once.
    fn options(&self) -> ActivityOptions {
        ActivityOptions::default()
    }

    /// Makes one attempt. It may be dropped when its time is up, and it may run again although it succeeded (a crash
    /// in between): whoever receives the call deduplicates by [`ActivityContext::idempotency_key`].
    ///
    /// # Errors
    /// An [`ActivityFailure`], whose class decides what happens next.
    async fn execute(&self, ctx: &ActivityContext, input: Self::Input) -> Result<Self::Output, ActivityFailure>;
}

/// What an attempt knows of itself.
#[derive(Clone, Debug)]
pub struct ActivityContext {
    pub(crate) workflow: WorkflowKey,
    pub(crate) run_id: RunId,
    pub(crate) number: u64,
    pub(crate) attempt: u32,
    pub(crate) idempotency_key: String,
    pub(crate) traceparent: Option<String>,
    pub(crate) scheduled_at: Timestamp,
    pub(crate) sends: Arc<AtomicU32>,
}

impl ActivityContext {
    /// A context for calling an activity outside an engine, as its own tests do.
    pub fn detached(workflow: WorkflowKey, idempotency_key: impl Into<String>) -> Self {
        Self {
            workflow,
            run_id: RunId::new(0, [0; 10]),
            number: 0,
            attempt: 1,
            idempotency_key: idempotency_key.into(),
            traceparent: None,
            scheduled_at: Timestamp::default(),
            sends: Arc::default(),
        }
    }

    /// The same context with the caller's W3C trace context.
    #[must_use]
    pub fn with_traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// The execution on whose behalf the call is made.
    pub fn workflow(&self) -> &WorkflowKey {
        &self.workflow
    }

    /// The run on whose behalf the call is made.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// Number of the activity in its history.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The key under which the receiver deduplicates: the same on every attempt.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// The W3C trace context of the request that started the workflow, if it had one.
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// When the workflow asked for the activity.
    pub fn scheduled_at(&self) -> Timestamp {
        self.scheduled_at
    }

    /// To be called for each request that is sent, so that the history counts every one.
    pub fn record_send(&self) {
        self.sends.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests sent by this attempt so far.
    pub fn sends(&self) -> u32 {
        self.sends.load(Ordering::Relaxed)
    }
}
