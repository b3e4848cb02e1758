//! `late-payment`: money that came after its order's workflow ended, or for an order that nobody started.
//!
//! It never refunds before it has asked the order service which transaction the order is kept by.

use async_trait::async_trait;
use overdue_activities::Capture;
use overdue_runtime::workflow::{
    ByHandStep, Emitted, LateStart, Signal, SignalView, StepInTrouble, Workflow, WorkflowContext, WorkflowError,
};
use overdue_runtime::{Payload, WorkflowKey};
use serde::{Deserialize, Serialize};

use crate::order_timeout::{
    Account, Decision, ORDER_TIMEOUT, OrderInput, PaymentSucceeded, Phase, Progress, RefundByHand, ReviewOrder, Settled,
    Settling, needs_attention, settle,
};

/// The workflow type of late payments.
pub const LATE_PAYMENT: &str = "late-payment";

/// What a late payment's workflow is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatePaymentInput {
    /// The order.
    pub order_id: String,
    /// The money that came.
    #[serde(flatten)]
    pub capture: Capture,
    /// The payment that it belongs to, as far as is known.
    pub payment_id: Option<String>,
    /// The channel of that payment.
    pub payment_channel: Option<String>,
}

/// The workflow.
pub struct LatePayment;

#[async_trait]
impl Workflow for LatePayment {
    const TYPE: &'static str = LATE_PAYMENT;
    type Input = LatePaymentInput;
    type Output = Progress;

    async fn run(&self, ctx: WorkflowContext, input: LatePaymentInput) -> Result<Progress, WorkflowError> {
        let account = Account::open(&ctx, Phase::Confirming);
        let LatePaymentInput { order_id, capture, payment_id, payment_channel } = input;
        let settling = Settling { order_id, capture, payment_id, payment_channel, asks: 0 };
        // Money finds its end even if somebody asks for this to stop.
        let decision = match ctx.shielded(settle(&ctx, &account, settling)).await? {
            Settled::Kept | Settled::PaidTwice => Decision::Paid,
            Settled::Cancelled => Decision::Cancelled,
            Settled::NotFound => Decision::OrderNotFound,
        };
        account.set_decision(Some(decision), None);
        account.set_phase(Phase::Done);
        Ok(account.progress())
    }

    fn by_hand_steps(&self) -> Vec<ByHandStep> {
        vec![ByHandStep::of::<ReviewOrder>("review-order"), ByHandStep::of::<RefundByHand>("review-refund")]
    }

    fn attention_event(&self, key: &WorkflowKey, input: &Payload, step: &StepInTrouble<'_>) -> Option<Emitted> {
        needs_attention(key, input, step)
    }

    /// The order's own: its refund has one key, whoever asks for it.
    fn key_namespace(&self) -> &str {
        ORDER_TIMEOUT
    }
}

/// The execution that acts on a late signal of an order, if it is a payment.
pub(crate) fn start(key: &WorkflowKey, signal: &SignalView<'_>) -> Option<LateStart> {
    if signal.name != PaymentSucceeded::NAME {
        return None;
    }
    let payment: PaymentSucceeded = signal.payload.parse().ok()?;
    let order: Option<OrderInput> = signal.input.and_then(|input| input.parse().ok());
    let input = LatePaymentInput {
        order_id: key.root_id().to_owned(),
        capture: payment.capture()?,
        payment_id: payment.payment_id.clone().or_else(|| order.as_ref()?.payment_id.clone()),
        payment_channel: order.and_then(|order| order.payment_channel),
    };
    Some(LateStart { workflow_type: LATE_PAYMENT, subject: payment.transaction_id, input: Payload::of(&input).ok()? })
}
