//! The workflow's own account of where it stands: phase, decision, reason, refunds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use overdue_activities::{CancelReason, Capture};
use overdue_runtime::workflow::WorkflowContext;
use serde::{Deserialize, Serialize};

/// What an order's workflow is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Until it is paid or due.
    WaitingForPayment,
    /// The order service is asked whether a payment counts.
    Confirming,
    /// The order service is asked whether the order is given up.
    Cancelling,
    /// Stock, coupon and payment are given back.
    GivingBack,
    /// Late payments are waited for, or what is left is settled.
    Watching,
    /// Nothing is left.
    Done,
}

/// Who won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The order is kept.
    Paid,
    /// The order is given up.
    Cancelled,
    /// The order service does not know the order.
    OrderNotFound,
}

/// Why the order was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// Nobody paid until the deadline.
    Timeout,
    /// The user asked for it.
    User,
    /// The payment failed for good.
    PaymentFailed,
}

impl From<Reason> for CancelReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Timeout => Self::Timeout,
            Reason::User => Self::User,
            Reason::PaymentFailed => Self::PaymentFailed,
        }
    }
}

/// Where a refund stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefundStatus {
    /// Asked for.
    Requested,
    /// Accepted, not done.
    Processing,
    /// Done.
    Refunded,
    /// Waits for a person, or was left by one.
    NeedsAttention,
}

/// A refund.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefundView {
    /// The transaction that goes back.
    pub transaction_id: String,
    /// All of what was captured.
    pub amount: String,
    /// Its currency.
    pub currency: String,
    /// Where it stands.
    pub status: RefundStatus,
}

/// The account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// What it is busy with.
    pub phase: Phase,
    /// Who won.
    pub decision: Option<Decision>,
    /// Why the order was given up.
    pub reason: Option<Reason>,
    /// Refunds, in the order in which they were asked for.
    pub refunds: Vec<RefundView>,
}

/// The account as the workflow's concurrent parts share it. Every change is shown at once.
#[derive(Clone)]
pub(crate) struct Account {
    ctx: WorkflowContext,
    progress: Arc<Mutex<Progress>>,
}

impl Account {
    pub(crate) fn open(ctx: &WorkflowContext, phase: Phase) -> Self {
        let progress = Progress { phase, decision: None, reason: None, refunds: Vec::new() };
        let account = Self { ctx: ctx.clone(), progress: Arc::new(Mutex::new(progress)) };
        account.show();
        account
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().clone()
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.lock().phase = phase;
        self.show();
    }

    pub(crate) fn set_decision(&self, decision: Option<Decision>, reason: Option<Reason>) {
        {
            let mut progress = self.lock();
            progress.decision = decision;
            progress.reason = reason;
        }
        self.show();
    }

    /// Notes where the refund of a transaction stands.
    pub(crate) fn set_refund(&self, capture: &Capture, status: RefundStatus) {
        {
            let mut progress = self.lock();
            match progress.refunds.iter_mut().find(|refund| refund.transaction_id == capture.transaction_id) {
                Some(refund) => refund.status = status,
                None => progress.refunds.push(RefundView {
                    transaction_id: capture.transaction_id.clone(),
                    amount: capture.money.amount().to_owned(),
                    currency: capture.money.currency().to_owned(),
                    status,
                }),
            }
        }
        self.show();
    }

    fn show(&self) {
        self.ctx.set_progress(&*self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
