//! Refunds: one for each order and transaction, never dropped.

use std::sync::Arc;
use std::time::Duration;

use overdue_activities::{Capture, RefundPaymentInput, RefundPaymentOutcome, RefundStatusInput, RefundStatusOutcome};
use overdue_runtime::activity::Exhausted;
use overdue_runtime::fault::{Bug, planted};
use overdue_runtime::workflow::{ActivityError, ByHandOutcome, Either, WorkflowContext, WorkflowError, race};
use serde::{Deserialize, Serialize};

use super::attend::{OrderRun, Side};
use super::paying::numbered;
use super::progress::{Account, RefundStatus};
use super::telling;

/// A refund that was refused is tried again by itself this often.
const REFUSED_RETRY: Duration = Duration::from_secs(3600);
/// The status of an accepted refund is asked first after this, then at doubling gaps.
const STATUS_FIRST: Duration = Duration::from_secs(1);
/// The longest gap between two questions for the status.
const STATUS_CAP: Duration = Duration::from_secs(3600);

/// Money that goes back.
pub(crate) struct Refund {
    pub(crate) order_id: String,
    pub(crate) capture: Capture,
    pub(crate) payment_id: Option<String>,
    pub(crate) payment_channel: Option<String>,
}

/// What a person says about a refund: it was done by hand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RefundByHand {}

/// What the person sees.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RefundDetails<'a> {
    transaction_id: &'a str,
    amount: &'a str,
    currency: &'a str,
    payment_id: Option<&'a str>,
}

/// Why a refund did not go through.
enum Refused {
    Because(String),
    /// A person decided that it is not to be done.
    Left,
}

impl OrderRun {
    /// Sends money back beside everything else.
    pub(super) fn refund(&mut self, capture: Capture, payment_id: Option<String>) {
        let order = Arc::clone(&self.order);
        let (ctx, account) = (self.ctx.clone(), self.account.clone());
        let payment_id = payment_id.or_else(|| order.payment_id.clone());
        self.account.set_refund(&capture, RefundStatus::Requested);
        self.beside(format!("refund:{}", capture.transaction_id), async move {
            let (order_id, payment_channel) = (order.order_id.clone(), order.payment_channel.clone());
            refund(&ctx, &account, Refund { order_id, capture, payment_id, payment_channel }).await?;
            Ok(Side::Refunded)
        });
    }
}

/// Sends money back and waits until it has gone for good, or a person has seen to it.
pub(crate) async fn refund(ctx: &WorkflowContext, account: &Account, refund: Refund) -> Result<(), WorkflowError> {
    let capture = &refund.capture;
    let mut status_asks = 0;
    loop {
        account.set_refund(capture, RefundStatus::Requested);
        let why = match request(ctx, account, &refund, &mut status_asks).await? {
            Ok(()) => {
                account.set_refund(capture, RefundStatus::Refunded);
                telling::refunded(ctx, &refund.order_id, capture);
                return Ok(());
            }
            Err(Refused::Left) => {
                account.set_refund(capture, RefundStatus::NeedsAttention);
                return Ok(());
            }
            Err(Refused::Because(why)) => why,
        };
        account.set_refund(capture, RefundStatus::NeedsAttention);
        let details = RefundDetails {
            transaction_id: &capture.transaction_id,
            amount: capture.money.amount(),
            currency: capture.money.currency(),
            payment_id: refund.payment_id.as_deref(),
        };
        let why = format!(
            "{why}. It is asked for again within the hour, or now with retry; resolve with {{}} if it was refunded by hand; skip leaves it unrefunded"
        );
        let person = ctx.by_hand::<RefundByHand>("review-refund", &details, why);
        match race(person, ctx.sleep(REFUSED_RETRY).named("refundAgain")).await {
            Either::Left(outcome) => match outcome? {
                ByHandOutcome::Resolved(_) => {
                    account.set_refund(capture, RefundStatus::Refunded);
                    telling::refunded(ctx, &refund.order_id, capture);
                    return Ok(());
                }
                ByHandOutcome::Skipped { .. } => return Ok(()),
                ByHandOutcome::Retried => {}
            },
            Either::Right(fired) => fired?,
        }
    }
}

/// Asks for the refund, under the one key that it has, and for its status until that is final; `status_asks` counts how
/// often the status was asked for.
async fn request(
    ctx: &WorkflowContext,
    account: &Account,
    refund: &Refund,
    status_asks: &mut u32,
) -> Result<Result<(), Refused>, WorkflowError> {
    let Refund { order_id, capture, payment_id, payment_channel } = refund;
    let Some(payment_id) = payment_id else {
        return Ok(Err(Refused::Because("no paymentId is known for this transaction".into())));
    };
    let transaction = &capture.transaction_id;
    let input = RefundPaymentInput {
        payment_id: payment_id.clone(),
        refund_id: if planted(Bug::RefundNotKeyed) { order_id.clone() } else { format!("{order_id}:{transaction}") },
        transaction_id: transaction.clone(),
        money: capture.money.clone(),
        reason: "the order is not kept by this payment".into(),
        payment_channel: payment_channel.clone(),
    };
    let status = RefundStatusInput {
        payment_id: payment_id.clone(),
        refund_id: input.refund_id.clone(),
        payment_channel: payment_channel.clone(),
    };
    let mut gap = STATUS_FIRST;
    loop {
        let subject = if planted(Bug::RefundNotKeyed) { order_id } else { transaction };
        let call = ctx.activity_named("refund-payment", &input).intent(format!("refund-payment:{subject}"));
        match call.exhausted(Exhausted::Fail).await {
            Ok(RefundPaymentOutcome::Refunded | RefundPaymentOutcome::AlreadyRefunded) => return Ok(Ok(())),
            Ok(RefundPaymentOutcome::Rejected { reason }) => return Ok(Err(rejected(reason))),
            Ok(RefundPaymentOutcome::Processing) => {}
            Err(error) => return refused(error).map(Err),
        }
        account.set_refund(capture, RefundStatus::Processing);
        if let Some(end) = follow(ctx, &status, transaction, &mut gap, status_asks).await? {
            return Ok(end);
        }
    }
}

/// Asks for the status of an accepted refund until it is final; `None` when the channel has forgotten it.
async fn follow(
    ctx: &WorkflowContext,
    status: &RefundStatusInput,
    transaction: &str,
    gap: &mut Duration,
    asks: &mut u32,
) -> Result<Option<Result<(), Refused>>, WorkflowError> {
    loop {
        ctx.sleep(*gap).named("refundStatus").await?;
        *gap = (*gap * 2).min(STATUS_CAP);
        *asks += 1;
        let intent = numbered(&format!("refund-status:{transaction}"), *asks);
        let call = ctx.activity_named("refund-status", status).intent(intent);
        match call.exhausted(Exhausted::Fail).await {
            Ok(RefundStatusOutcome::Refunded) => return Ok(Some(Ok(()))),
            Ok(RefundStatusOutcome::Rejected { reason }) => return Ok(Some(Err(rejected(reason)))),
            Ok(RefundStatusOutcome::NotFound) => return Ok(None),
            Ok(RefundStatusOutcome::Processing) => {}
            Err(error) => return refused(error).map(|refused| Some(Err(refused))),
        }
    }
}

fn rejected(reason: Option<String>) -> Refused {
    Refused::Because(reason.map_or_else(
        || "the channel rejected the refund".to_owned(),
        |reason| format!("the channel rejected the refund: {reason}"),
    ))
}

fn refused(error: ActivityError) -> Result<Refused, WorkflowError> {
    match error {
        ActivityError::Failed(failure) => Ok(Refused::Because(failure.to_string())),
        ActivityError::Skipped { .. } => Ok(Refused::Left),
        ActivityError::Cancelled => Err(WorkflowError::Cancelled),
    }
}
