//! `order-timeout`: an order that nobody paid for.
//!
//! ```text
//! waiting ──payment──▶ confirming ──▶ paid
//!    │  ▲                  │
//!    │  └──not due─────────┼──────────────┐
//!    └─deadline/user/failure──▶ cancelling ──▶ giving back ──▶ watching ──▶ done
//! ```
//!
//! The order service judges who won; everything here follows from its answers. Whatever money arrives ends as the payment
//! that the order is kept by, or as a refund.

mod attend;
mod cancelling;
mod closing;
mod giving_back;
mod input;
mod paying;
mod progress;
mod refunding;
mod signals;
mod telling;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use overdue_runtime::workflow::{
    ByHandStep, DeadlineDeclaration, Emitted, LateStart, Signal, SignalDeclaration, SignalView, StepInTrouble, Workflow,
    WorkflowContext, WorkflowError,
};
use overdue_runtime::{InvalidField, Payload, WorkflowKey};
use serde::{Deserialize, Serialize};

pub use input::{ClosePayment, OrderInput};
pub use progress::{Decision, Phase, Progress, Reason, RefundStatus, RefundView};
pub use signals::{CancelOrder, ExtendDeadline, PaymentFailed, PaymentSucceeded, SetDeadline};

pub(crate) use paying::{ReviewOrder, Settled, Settling, settle};
pub(crate) use progress::Account;
pub(crate) use refunding::RefundByHand;
pub(crate) use telling::needs_attention;

use attend::OrderRun;
use closing::CloseResult;
use paying::Review;

/// The workflow type of unpaid orders.
pub const ORDER_TIMEOUT: &str = "order-timeout";

/// What the workflow does where a start does not say otherwise. An order keeps the settings it began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether the payment is closed after or before the order is cancelled.
    pub close_payment: ClosePayment,
    /// How long a cancelled order is watched for late payments.
    pub late_payment_window: Duration,
    /// With [`ClosePayment::BeforeCancel`]: how long the cancel waits for the close at most.
    pub close_before_limit: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            close_payment: ClosePayment::AfterCancel,
            late_payment_window: Duration::from_secs(7 * 24 * 3600),
            close_before_limit: Duration::from_secs(3600),
        }
    }
}

/// The settings as an order keeps them: [close before cancel, window in milliseconds, limit in milliseconds].
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Kept(bool, u64, u64);

impl Settings {
    /// What holds for this order for as long as it lives.
    fn kept(self, order: &OrderInput) -> Kept {
        let close = order.close_payment.unwrap_or(self.close_payment);
        let window = order.late_payment_window.map_or(self.late_payment_window, |window| window.0);
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Kept(close == ClosePayment::BeforeCancel, millis(window), millis(self.close_before_limit))
    }
}

/// The workflow.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrderTimeout {
    /// What holds where a start does not say otherwise.
    pub settings: Settings,
}

#[async_trait]
impl Workflow for OrderTimeout {
    const TYPE: &'static str = ORDER_TIMEOUT;
    type Input = OrderInput;
    type Output = Progress;

    async fn run(&self, ctx: WorkflowContext, order: OrderInput) -> Result<Progress, WorkflowError> {
        let kept = ctx.side_effect(|| self.settings.kept(&order));
        OrderRun::new(ctx, Arc::new(order), kept).run().await
    }

    fn check(&self, key: &WorkflowKey, order: &OrderInput) -> Result<(), Vec<InvalidField>> {
        order.check(key.id())
    }

    fn signals(&self) -> Vec<SignalDeclaration> {
        vec![
            SignalDeclaration::of::<PaymentSucceeded>(),
            SignalDeclaration::of::<PaymentFailed>(),
            SignalDeclaration::of::<CancelOrder>(),
            SignalDeclaration::of::<ExtendDeadline>(),
            SignalDeclaration::of::<SetDeadline>(),
        ]
    }

    fn deadline(&self) -> Option<DeadlineDeclaration> {
        Some(DeadlineDeclaration::of::<SetDeadline>(waiting::PAY_DEADLINE))
    }

    fn by_hand_steps(&self) -> Vec<ByHandStep> {
        vec![
            ByHandStep::of::<Review>("review-payment"),
            ByHandStep::of::<ReviewOrder>("review-order"),
            ByHandStep::of::<CloseResult>("review-close-payment"),
            ByHandStep::of::<RefundByHand>("review-refund"),
        ]
    }

    fn cancel_signal(&self, reason: &str, actor: &str) -> Option<(&'static str, Payload)> {
        let signal = CancelOrder { reason: reason.to_owned(), actor: Some(actor.to_owned()) };
        Payload::of(&signal).ok().map(|payload| (CancelOrder::NAME, payload))
    }

    fn attention_event(&self, key: &WorkflowKey, input: &Payload, step: &StepInTrouble<'_>) -> Option<Emitted> {
        needs_attention(key, input, step)
    }

    fn late_signal(&self, key: &WorkflowKey, signal: &SignalView<'_>) -> Option<LateStart> {
        crate::late_payment::start(key, signal)
    }
}

impl OrderRun {
    async fn run(mut self) -> Result<Progress, WorkflowError> {
        let decision = loop {
            let next = self.wait().await?;
            if let Some(decision) = self.decide(next).await? {
                break decision;
            }
        };
        self.decided(&decision);
        match decision {
            Verdict::Cancelled(_) => self.give_back_and_watch().await?,
            Verdict::Paid | Verdict::NotFound | Verdict::LeftAlone => self.settle_rest().await?,
        }
        self.account.set_phase(Phase::Done);
        Ok(self.account.progress())
    }
}

/// How it is decided who won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The order is kept.
    Paid,
    /// The order is given up.
    Cancelled(Reason),
    /// The order service does not know the order.
    NotFound,
    /// A person decided that the order is to be left as it is.
    LeftAlone,
}
