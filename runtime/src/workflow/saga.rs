//! Steps with their way back.
//!
//! Each forward step is noted with its compensation before it is called; when a later one fails, or the workflow is asked
//! to stop, the compensations of all steps that happened or may have happened run in reverse order, shielded, and never
//! give up silently: one that cannot be done waits for a person, and the ones behind it wait with it.

use futures::future::BoxFuture;

use super::calls::ActivityCall;
use super::context::WorkflowContext;
use super::error::{ActivityError, Cancelled};
use crate::activity::Exhausted;
use serde::de::DeserializeOwned;

type Compensation = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), ActivityError>> + Send>;

/// The steps done so far, with their compensations.
pub struct Saga {
    ctx: WorkflowContext,
    compensations: Vec<Compensation>,
}

impl Saga {
    /// A saga without steps.
    pub fn new(ctx: &WorkflowContext) -> Self {
        Self { ctx: ctx.clone(), compensations: Vec::new() }
    }

    /// Calls `forward` and remembers `compensation` for it, unless it certainly had no effect.
    ///
    /// # Errors
    /// What the forward call failed with; the caller then calls [`compensate`](Self::compensate).
    pub async fn step<T, C>(&mut self, mut forward: ActivityCall<T>, compensation: ActivityCall<C>) -> Result<T, ActivityError>
    where
        T: DeserializeOwned,
        C: DeserializeOwned + 'static,
    {
        let compensation = compensation.exhausted(Exhausted::NeedsAttention);
        self.compensations.push(Box::new(move || {
            Box::pin(async move {
                match compensation.await {
                    Ok(_) | Err(ActivityError::Skipped { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            })
        }));
        let result = (&mut forward).await;
        if let Err(error) = &result
            && !forward.maybe_done(error)
        {
            self.compensations.pop();
        }
        result
    }

    /// Runs the compensations, the last step's first. A compensation that a person skips counts as done.
    ///
    /// # Errors
    /// Only when a compensation can neither be done nor left to a person.
    pub async fn compensate(mut self) -> Result<(), ActivityError> {
        let ctx = self.ctx.clone();
        ctx.shielded(async move {
            while let Some(compensation) = self.compensations.pop() {
                compensation().await?;
            }
            Ok(())
        })
        .await
    }

    /// Whether the workflow was asked to stop.
    ///
    /// # Errors
    /// [`Cancelled`] when it was.
    pub fn check_cancelled(&self) -> Result<(), Cancelled> {
        match self.ctx.cancel_reason() {
            Some(_) => Err(Cancelled),
            None => Ok(()),
        }
    }
}
