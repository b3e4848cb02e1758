//! Asking the order service to give an order up. Its answer is the decision.

use std::time::Duration;

use overdue_activities::{CancelOrderInput, CancelOrderOutcome, Capture};
use overdue_runtime::activity::Exhausted;
use overdue_runtime::workflow::{ActivityError, WorkflowContext, WorkflowError};

use super::Verdict;
use super::attend::OrderRun;
use super::paying::{Settled, numbered};
use super::progress::Reason;

/// The shortest time until the order service is asked again.
pub(super) const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
/// The longest gap that repeated answers "not ready", or "not due" at a deadline that has passed, grow to.
const ASK_AGAIN_CAP: Duration = Duration::from_secs(300);

impl OrderRun {
    /// Cancels the order; `None` when the order service knows a later deadline.
    pub(super) async fn cancel(&mut self, reason: Reason) -> Result<Option<Verdict>, WorkflowError> {
        let input =
            CancelOrderInput { order_id: self.order.order_id.clone(), reason: reason.into(), pay_deadline: self.deadline };
        let mut gap = ASK_AGAIN_MIN;
        loop {
            let intent = numbered("cancel-order", self.cancel_asks + 1);
            let call = self.ctx.activity_named("cancel-order", &input).intent(intent).exhausted(Exhausted::NeedsAttention);
            let outcome = match self.finish(call).await? {
                Ok(outcome) => outcome,
                Err(ActivityError::Skipped { .. }) => return Ok(Some(Verdict::LeftAlone)),
                Err(error) => return Err(error.into()),
            };
            match outcome {
                CancelOrderOutcome::Cancelled | CancelOrderOutcome::AlreadyCancelled => {
                    return Ok(Some(Verdict::Cancelled(reason)));
                }
                CancelOrderOutcome::AlreadyPaid { transaction_id } => {
                    self.paid_by = transaction_id;
                    return Ok(Some(Verdict::Paid));
                }
                CancelOrderOutcome::NotFound => return Ok(Some(Verdict::NotFound)),
                CancelOrderOutcome::NotDue { pay_deadline } => {
                    self.cancel_asks += 1;
                    self.reopen_close();
                    // One that has passed already would have us ask in a loop.
                    let now = self.ctx.now();
                    let wait = if pay_deadline > now { ASK_AGAIN_MIN } else { self.not_due_gap };
                    self.not_due_gap = if pay_deadline > now { ASK_AGAIN_MIN } else { (wait * 2).min(ASK_AGAIN_CAP) };
                    self.deadline = pay_deadline.max(now.saturating_add(wait));
                    return Ok(None);
                }
                CancelOrderOutcome::NotReady { retry_after } => {
                    self.cancel_asks += 1;
                    let wait = Duration::from_secs(retry_after).max(gap);
                    gap = (gap * 2).min(ASK_AGAIN_CAP);
                    let timer = self.ctx.sleep(wait).named("cancelAgain");
                    self.finish(timer).await??;
                }
            }
        }
    }
}

/// Gives up an order whose payment the order service refused as too late, and which nobody else is giving up.
pub(super) async fn cancel_expired(ctx: &WorkflowContext, order_id: &str, capture: &Capture) -> Result<Settled, WorkflowError> {
    let input = CancelOrderInput { order_id: order_id.to_owned(), reason: Reason::Timeout.into(), pay_deadline: capture.paid_at };
    let intent = format!("cancel-order:{}", capture.transaction_id);
    let call = ctx.activity_named("cancel-order", &input).intent(intent).exhausted(Exhausted::NeedsAttention);
    match call.await {
        Ok(CancelOrderOutcome::AlreadyPaid { transaction_id }) if transaction_id.as_ref() == Some(&capture.transaction_id) => {
            Ok(Settled::Kept)
        }
        Ok(CancelOrderOutcome::AlreadyPaid { .. }) => Ok(Settled::PaidTwice),
        Ok(CancelOrderOutcome::NotFound) => Ok(Settled::NotFound),
        // Whatever becomes of the order, it is not kept by this payment.
        Ok(_) | Err(ActivityError::Skipped { .. }) => Ok(Settled::Cancelled),
        Err(error) => Err(error.into()),
    }
}
