//! Payments: confirming the one that keeps the order, reviewing odd ones, settling the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use overdue_activities::{Capture, ConfirmPaidInput, ConfirmPaidOutcome};
use overdue_runtime::activity::Exhausted;
use overdue_runtime::fault::{Bug, planted};
use overdue_runtime::workflow::{ActivityError, ByHandOutcome, WorkflowContext, WorkflowError};
use serde::{Deserialize, Serialize};

use super::Verdict;
use super::attend::{OrderRun, Side};
use super::input::OrderInput;
use super::progress::{Account, Phase, Reason};
use super::refunding::{Refund, refund};
use super::signals::PaymentSucceeded;

/// Where a payment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaymentState {
    /// The order service is to be asked about it.
    Arrived,
    /// A person is asked: it is not what the order costs.
    UnderReview,
    /// It is not accepted; it goes back once it is decided who won.
    Refused,
    /// The order is kept by it, or it goes back.
    Settled,
}

/// A payment and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Payment {
    pub(super) capture: Capture,
    pub(super) payment_id: Option<String>,
    pub(super) state: PaymentState,
    /// How often the order service was asked about it.
    asks: u32,
    arrival: usize,
}

/// The payments that arrived, by transaction.
pub(super) struct Payments(pub(super) BTreeMap<String, Payment>);

impl Payments {
    /// The earliest payment that the order service is to be asked about.
    pub(super) fn next_to_confirm(&self) -> Option<String> {
        let arrived = self.0.values().filter(|payment| payment.state == PaymentState::Arrived);
        arrived.min_by_key(|payment| payment.arrival).map(|payment| payment.capture.transaction_id.clone())
    }

    /// Marks what is not settled as settled and gives it, in the order of arrival.
    pub(super) fn take_undecided(&mut self) -> Vec<Payment> {
        let mut undecided: Vec<Payment> = Vec::new();
        for payment in self.0.values_mut().filter(|payment| payment.state != PaymentState::Settled) {
            undecided.push(payment.clone());
            payment.state = PaymentState::Settled;
        }
        undecided.sort_by_key(|payment| payment.arrival);
        undecided
    }

    /// The names of the reviews that are no longer needed.
    pub(super) fn end_reviews(&self) -> Vec<String> {
        let reviews = self.0.values().filter(|payment| payment.state == PaymentState::UnderReview);
        reviews.map(|payment| review_name(&payment.capture.transaction_id)).collect()
    }

    fn set(&mut self, transaction: &str, state: PaymentState) {
        if let Some(payment) = self.0.get_mut(transaction) {
            payment.state = state;
        }
    }
}

fn review_name(transaction: &str) -> String {
    format!("review-payment:{transaction}")
}

/// What a person says about a payment that is not what the order costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Review {
    decision: ReviewDecision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ReviewDecision {
    /// The order is to be kept by it, if the order service agrees.
    Accept,
    /// It is to go back.
    Refund,
}

/// A person has looked at an order that the order service does not know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReviewOrder {}

/// A review that ended.
pub(super) struct Reviewed {
    transaction: String,
    accepted: bool,
}

/// What the person sees.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewDetails {
    transaction_id: String,
    amount: String,
    currency: String,
    expected_amount: String,
    expected_currency: String,
}

impl OrderRun {
    /// Takes a payment in. One that is known already changes nothing.
    pub(super) fn payment_arrived(&mut self, signal: &PaymentSucceeded) {
        let Some(capture) = signal.capture() else { return };
        self.captured(capture, signal.payment_id.clone());
    }

    /// Takes in money that the channel took, whoever said so.
    pub(super) fn captured(&mut self, capture: Capture, payment_id: Option<String>) {
        let transaction = capture.transaction_id.clone();
        if self.payments.0.contains_key(&transaction) {
            return;
        }
        let is_price = self.order.price().is_some_and(|price| price == capture.money);
        let payment_id = payment_id.or_else(|| self.order.payment_id.clone());
        let arrival = self.payments.0.len();
        let state = match (self.is_settled, is_price) {
            (true, _) => PaymentState::Settled,
            (false, true) => PaymentState::Arrived,
            (false, false) => PaymentState::UnderReview,
        };
        let payment = Payment { capture, payment_id, state, asks: 0, arrival };
        self.payments.0.insert(transaction.clone(), payment.clone());
        match state {
            PaymentState::UnderReview => self.review(&transaction),
            PaymentState::Settled => self.late_payment(payment),
            PaymentState::Arrived | PaymentState::Refused => {}
        }
    }

    /// A payment after the decision: it goes back from a cancelled order; otherwise the order service is asked first.
    fn late_payment(&mut self, payment: Payment) {
        if self.account.progress().decision == Some(super::Decision::Cancelled) {
            self.refund(payment.capture, payment.payment_id);
        } else {
            self.settle_beside(payment);
        }
    }

    /// Asks a person about a payment that is not what the order costs.
    fn review(&mut self, transaction: &str) {
        let Some(payment) = self.payments.0.get(transaction) else { return };
        let details = ReviewDetails {
            transaction_id: transaction.to_owned(),
            amount: payment.capture.money.amount().to_owned(),
            currency: payment.capture.money.currency().to_owned(),
            expected_amount: self.order.amount.clone(),
            expected_currency: self.order.currency.clone(),
        };
        let why = format!(
            "{} arrived for an order of {} {}: resolve it with {{\"decision\":\"accept\"}} or {{\"decision\":\"refund\"}} (skip \
             refunds, too); without either it goes back when the order is decided",
            payment.capture.money, self.order.amount, self.order.currency
        );
        let (ctx, transaction) = (self.ctx.clone(), transaction.to_owned());
        self.beside(review_name(&transaction), async move {
            loop {
                let accepted = match ctx.by_hand::<Review>("review-payment", &details, why.as_str()).await? {
                    ByHandOutcome::Resolved(review) => review.decision == ReviewDecision::Accept,
                    ByHandOutcome::Skipped { .. } => false,
                    ByHandOutcome::Retried => continue,
                };
                return Ok(Side::Reviewed(Reviewed { transaction, accepted }));
            }
        });
    }

    pub(super) fn payment_reviewed(&mut self, reviewed: Reviewed) {
        let Reviewed { transaction, accepted } = reviewed;
        if accepted {
            self.payments.set(&transaction, PaymentState::Arrived);
        } else if let Some(payment) = self.payments.0.get_mut(&transaction) {
            payment.state = PaymentState::Settled;
            let (capture, payment_id) = (payment.capture.clone(), payment.payment_id.clone());
            self.refund(capture, payment_id);
        }
    }

    /// Asks the order service whether the order is kept by a payment.
    pub(super) async fn confirm(&mut self, transaction: &str) -> Result<Option<Verdict>, WorkflowError> {
        self.account.set_phase(Phase::Confirming);
        let Some(payment) = self.payments.0.get_mut(transaction) else { return Ok(None) };
        payment.asks += 1;
        let (capture, payment_id, asks) = (payment.capture.clone(), payment.payment_id.clone(), payment.asks);
        let answer = self.finish(Box::pin(ask(self.ctx.clone(), self.order.order_id.clone(), capture.clone(), asks))).await?;
        let verdict = match answer? {
            Some(ConfirmPaidOutcome::Paid) => {
                self.paid_by = Some(transaction.to_owned());
                Verdict::Paid
            }
            Some(ConfirmPaidOutcome::AlreadyPaid { transaction_id }) if transaction_id == transaction => {
                self.paid_by = Some(transaction_id);
                Verdict::Paid
            }
            Some(ConfirmPaidOutcome::AlreadyPaid { transaction_id }) => {
                self.paid_by = Some(transaction_id);
                self.payments.set(transaction, PaymentState::Refused);
                return Ok(Some(Verdict::Paid));
            }
            Some(ConfirmPaidOutcome::AlreadyCancelled) => {
                let reason = self.stop.take().unwrap_or(Reason::User);
                return Ok(Some(Verdict::Cancelled(reason)));
            }
            Some(ConfirmPaidOutcome::Expired) => {
                self.account.set_phase(Phase::Cancelling);
                let verdict = self.cancel(Reason::Timeout).await?;
                if verdict.is_none() {
                    // The order waits on, but not for this payment.
                    self.payments.set(transaction, PaymentState::Settled);
                    self.refund(capture, payment_id);
                }
                return Ok(verdict);
            }
            Some(ConfirmPaidOutcome::NotFound) => {
                self.payments.set(transaction, PaymentState::Settled);
                self.refund(capture, payment_id);
                self.review_order();
                return Ok(Some(Verdict::NotFound));
            }
            None => {
                // A person decided that it is not to be confirmed: the order waits on, and the money goes back.
                self.payments.set(transaction, PaymentState::Settled);
                self.refund(capture, payment_id);
                return Ok(None);
            }
        };
        self.payments.set(transaction, PaymentState::Settled);
        Ok(Some(verdict))
    }

    /// Keeps the order in sight of a person: money came for an order that the order service does not know.
    fn review_order(&mut self) {
        let (ctx, order) = (self.ctx.clone(), Arc::clone(&self.order));
        self.beside("review-order".into(), async move {
            review_unknown_order(&ctx, &order.order_id).await?;
            Ok(Side::Seen)
        });
    }

    /// Has the order service say which transaction it keeps the order by, and refunds this one if it is another.
    pub(super) fn settle_beside(&mut self, payment: Payment) {
        let settling = Settling::of(&self.order, payment.capture, payment.payment_id, payment.asks);
        let (ctx, account) = (self.ctx.clone(), self.account.clone());
        self.beside(format!("settle:{}", settling.capture.transaction_id), async move {
            let transaction = settling.capture.transaction_id.clone();
            settle(&ctx, &account, settling).await.map(|settled| Side::Settled(transaction, settled))
        });
    }

    /// Waits until every payment has found its end.
    pub(super) async fn settle_rest(&mut self) -> Result<(), WorkflowError> {
        while !self.is_alone() {
            self.account.set_phase(Phase::Watching);
            let mut never = std::future::pending::<()>();
            self.attend(&mut never).await?;
        }
        Ok(())
    }
}

/// A payment that did not decide anything, to be settled.
pub(crate) struct Settling {
    pub(crate) order_id: String,
    pub(crate) capture: Capture,
    pub(crate) payment_id: Option<String>,
    pub(crate) payment_channel: Option<String>,
    /// How often the order service was asked about it before.
    pub(crate) asks: u32,
}

impl Settling {
    fn of(order: &OrderInput, capture: Capture, payment_id: Option<String>, asks: u32) -> Self {
        let (order_id, payment_channel) = (order.order_id.clone(), order.payment_channel.clone());
        Self { order_id, capture, payment_id, payment_channel, asks }
    }
}

/// What became of a settled payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The order is kept by it.
    Kept,
    /// It went back: the order is kept by another one.
    PaidTwice,
    /// It went back: the order is given up.
    Cancelled,
    /// It went back: the order service does not know the order.
    NotFound,
}

/// Asks the order service which transaction it keeps the order by; every other one is refunded.
pub(crate) async fn settle(ctx: &WorkflowContext, account: &Account, settling: Settling) -> Result<Settled, WorkflowError> {
    let Settling { order_id, capture, payment_id, payment_channel, asks } = settling;
    let answer = if planted(Bug::RefundUnasked) {
        Some(ConfirmPaidOutcome::AlreadyCancelled)
    } else {
        ask(ctx.clone(), order_id.clone(), capture.clone(), asks + 1).await?
    };
    let settled = match answer {
        Some(ConfirmPaidOutcome::Paid) => return Ok(Settled::Kept),
        Some(ConfirmPaidOutcome::AlreadyPaid { transaction_id }) if transaction_id == capture.transaction_id => {
            return Ok(Settled::Kept);
        }
        Some(ConfirmPaidOutcome::AlreadyPaid { .. }) => Settled::PaidTwice,
        // Skipped by hand: it is not confirmed, so it goes back.
        Some(ConfirmPaidOutcome::AlreadyCancelled) | None => Settled::Cancelled,
        Some(ConfirmPaidOutcome::Expired) => super::cancelling::cancel_expired(ctx, &order_id, &capture).await?,
        Some(ConfirmPaidOutcome::NotFound) => Settled::NotFound,
    };
    if settled == Settled::Kept {
        return Ok(settled);
    }
    refund(ctx, account, Refund { order_id: order_id.clone(), capture, payment_id, payment_channel }).await?;
    if settled == Settled::NotFound {
        review_unknown_order(ctx, &order_id).await?;
    }
    Ok(settled)
}

/// Asks the order service about a payment; `None` when a person decided that it is not to be asked.
async fn ask(
    ctx: WorkflowContext,
    order_id: String,
    payment: Capture,
    asks: u32,
) -> Result<Option<ConfirmPaidOutcome>, WorkflowError> {
    let intent = numbered(&format!("confirm-paid:{}", payment.transaction_id), asks);
    let input = ConfirmPaidInput { order_id, payment };
    let call = ctx.activity_named("confirm-paid", &input).intent(intent).exhausted(Exhausted::NeedsAttention);
    match call.await {
        Ok(outcome) => Ok(Some(outcome)),
        Err(ActivityError::Skipped { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn review_unknown_order(ctx: &WorkflowContext, order_id: &str) -> Result<(), WorkflowError> {
    let why =
        "money came for an order that the order service does not know; it is refunded. Resolve with {} once you have looked";
    ctx.by_hand::<ReviewOrder>("review-order", &order_id, why).await?;
    Ok(())
}

/// The intent of the n-th question: a question after an answer that was not final is a new one.
pub(super) fn numbered(intent: &str, number: u32) -> String {
    if number <= 1 { intent.to_owned() } else { format!("{intent}#{number}") }
}
