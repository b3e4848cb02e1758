//! Closing a payment, through every answer that a channel gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use overdue_activities::{Capture, ClosePaymentOutcome, EndPaymentInput, VoidPaymentOutcome};
use overdue_runtime::activity::Exhausted;
use overdue_runtime::workflow::{ActivityError, ByHandOutcome, WorkflowContext, WorkflowError};

use super::attend::{Attended, OrderRun};
use super::input::OrderInput;
use super::paying::numbered;

/// While the buyer is paying, the channel is asked again first after this, then at doubling gaps.
const ASK_AGAIN_FIRST: Duration = Duration::from_secs(1);
/// The longest gap between two questions.
const ASK_AGAIN_CAP: Duration = Duration::from_secs(300);
/// After so long of "the buyer is paying", a person is asked.
const IN_PROGRESS_MAX: Duration = Duration::from_secs(24 * 3600);

/// How a payment ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CloseEnd {
    /// Nothing can be paid by it any more.
    Closed,
    /// The channel has no such payment; a pay link may still be out.
    NotCreated,
    /// Money is there.
    Paid(Capture),
    /// A person decided that it is not to be closed.
    Left,
}

/// What a person says about a payment that cannot be closed: what the channel should have answered.
pub(super) type CloseResult = ClosePaymentOutcome;

impl OrderRun {
    /// With `beforeCancel`: closes the payment while the order still waits. The transaction that saves the sale, if there
    /// is one.
    pub(super) async fn close_first(&mut self) -> Result<Option<String>, WorkflowError> {
        if !self.close_before || self.is_closed || self.order.payment_id.is_none() {
            return Ok(None);
        }
        let mut closing = Box::pin(close(self.ctx.clone(), Arc::clone(&self.order), Arc::clone(&self.close_asks)));
        let mut limit = self.ctx.sleep(self.close_before_limit).named("closeBeforeLimit");
        loop {
            if let Some(transaction) = self.payments.next_to_confirm() {
                return Ok(Some(transaction));
            }
            let mut either = futures::future::select(closing.as_mut(), &mut limit);
            match self.attend(&mut either).await? {
                Attended::Done(futures::future::Either::Left((end, _))) => {
                    self.payment_closed(end?);
                    return Ok(self.payments.next_to_confirm());
                }
                // It goes on as if the payment were to be closed afterwards.
                Attended::Done(futures::future::Either::Right((fired, _))) => return fired.map(|()| None).map_err(Into::into),
                Attended::News => {}
            }
        }
    }

    /// The order waits on. A payment that did not exist when it was to be closed may exist at the next deadline: that is a
    /// new question.
    pub(super) fn reopen_close(&mut self) {
        if self.is_closed && self.may_be_created {
            self.is_closed = false;
            self.close_asks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes how the payment ended.
    pub(super) fn payment_closed(&mut self, end: CloseEnd) {
        self.is_closed = true;
        self.may_be_created = end == CloseEnd::NotCreated;
        if let CloseEnd::Paid(capture) = end {
            self.captured(capture, self.order.payment_id.clone());
        }
    }
}

/// Closes the order's payment. A question after an answer that was not final gets a key of its own; `asks` counts them.
pub(super) async fn close(ctx: WorkflowContext, order: Arc<OrderInput>, asks: Arc<AtomicU32>) -> Result<CloseEnd, WorkflowError> {
    let Some(payment_id) = order.payment_id.clone() else { return Ok(CloseEnd::NotCreated) };
    let input = EndPaymentInput { payment_id, order_id: order.order_id.clone(), payment_channel: order.payment_channel.clone() };
    let give_up_at = ctx.now().saturating_add(IN_PROGRESS_MAX);
    let mut gap = ASK_AGAIN_FIRST;
    loop {
        let intent = numbered("close-payment", asks.load(Ordering::Relaxed) + 1);
        let call = ctx.activity_named("close-payment", &input).intent(intent).exhausted(Exhausted::NeedsAttention);
        let mut outcome = match call.await {
            Ok(outcome) => outcome,
            Err(ActivityError::Skipped { .. }) => return Ok(CloseEnd::Left),
            Err(error) => return Err(error.into()),
        };
        let why = match &outcome {
            ClosePaymentOutcome::Rejected { reason } => {
                Some(format!("the channel rejected the close: {}", reason.as_deref().unwrap_or("it says no more")))
            }
            ClosePaymentOutcome::InProgress if ctx.now() >= give_up_at => Some("the buyer has been paying for a day".to_owned()),
            _ => None,
        };
        if let Some(why) = why {
            let why = format!(
                "{why}. Once the cause is mended and its breaker closed (overdue breaker list), retry asks again; resolve with \
                 {{\"outcome\":\"CLOSED\"}} if it was closed by hand; skip leaves it open"
            );
            match ctx.by_hand::<CloseResult>("review-close-payment", &input, why).await? {
                ByHandOutcome::Resolved(given) => outcome = given,
                ByHandOutcome::Skipped { .. } => return Ok(CloseEnd::Left),
                // Asked again by hand: the same intent, the same key, unless there was an answer that is not final.
                ByHandOutcome::Retried => {
                    if outcome == ClosePaymentOutcome::InProgress {
                        asks.fetch_add(1, Ordering::Relaxed);
                    }
                    continue;
                }
            }
        }
        let wait = match outcome {
            ClosePaymentOutcome::Closed | ClosePaymentOutcome::AlreadyClosed => return Ok(CloseEnd::Closed),
            ClosePaymentOutcome::NotCreated => return Ok(CloseEnd::NotCreated),
            ClosePaymentOutcome::AlreadyPaid(capture) => return Ok(CloseEnd::Paid(capture)),
            ClosePaymentOutcome::Authorized => return void(&ctx, &input).await,
            ClosePaymentOutcome::TooEarly { retry_after } => Duration::from_secs(retry_after.max(1)),
            ClosePaymentOutcome::InProgress | ClosePaymentOutcome::Rejected { .. } => {
                let wait = gap;
                gap = (gap * 2).min(ASK_AGAIN_CAP);
                wait
            }
        };
        asks.fetch_add(1, Ordering::Relaxed);
        ctx.sleep(wait).named("closeAgain").await?;
    }
}

/// Gives up a hold.
async fn void(ctx: &WorkflowContext, input: &EndPaymentInput) -> Result<CloseEnd, WorkflowError> {
    let call = ctx.activity_named("void-payment", input).intent("void-payment").exhausted(Exhausted::NeedsAttention);
    match call.await {
        Ok(VoidPaymentOutcome::Voided | VoidPaymentOutcome::AlreadyVoided) => Ok(CloseEnd::Closed),
        Ok(VoidPaymentOutcome::AlreadyPaid(capture)) => Ok(CloseEnd::Paid(capture)),
        Err(ActivityError::Skipped { .. }) => Ok(CloseEnd::Left),
        Err(error) => Err(error.into()),
    }
}
