//! Waiting for a step while everything else goes on: signals are taken as they come, refunds and reviews run beside it.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use overdue_runtime::fault::{Bug, coin, planted};
use overdue_runtime::workflow::{Received, Signal, WorkflowContext, WorkflowError};
use overdue_runtime::{Payload, Timestamp};

use super::cancelling::ASK_AGAIN_MIN;
use super::closing::CloseEnd;
use super::input::OrderInput;
use super::paying::{PaymentState, Payments, Reviewed, Settled};
use super::progress::{Account, Decision, Phase, Reason};
use super::signals::{CancelOrder, ExtendDeadline, PaymentFailed, PaymentSucceeded, SetDeadline};
use super::{Kept, Verdict, telling};

/// What runs beside the current step.
pub(super) enum Side {
    /// A person was asked about a payment.
    Reviewed(Reviewed),
    /// A payment that came beside the decision was settled.
    Settled(String, Settled),
    /// A person has seen what there was to see.
    Seen,
    /// A payment goes back; it has.
    Refunded,
    /// Stock or coupon was given back.
    GaveBack,
    /// The payment was closed, or not.
    Closed(CloseEnd),
}

/// What ended the wait.
pub(super) enum Attended<T> {
    /// The step.
    Done(T),
    /// Something else happened: look again whether the step is still wanted.
    News,
}

/// One run of the workflow.
pub(super) struct OrderRun {
    pub(super) ctx: WorkflowContext,
    pub(super) order: Arc<OrderInput>,
    pub(super) account: Account,
    pub(super) payments: Payments,
    pub(super) deadline: Timestamp,
    pub(super) close_before: bool,
    pub(super) late_payment_window: Duration,
    pub(super) close_before_limit: Duration,
    /// Somebody asked for the order to be given up.
    pub(super) stop: Option<Reason>,
    /// The transaction that the order service keeps the order by, once it has said so.
    pub(super) paid_by: Option<String>,
    /// Nothing that arrives now can change who wins.
    pub(super) is_settled: bool,
    /// Answers of `cancel-order` that were not final.
    pub(super) cancel_asks: u32,
    /// How long to wait at least when the order service is not due at a deadline that has passed.
    pub(super) not_due_gap: Duration,
    /// Answers of `close-payment` that were not final.
    pub(super) close_asks: Arc<AtomicU32>,
    pub(super) is_closed: bool,
    /// The channel had no such payment when it was asked to close it.
    pub(super) may_be_created: bool,
    sides: Vec<(String, BoxFuture<'static, Result<Side, WorkflowError>>)>,
}

impl OrderRun {
    pub(super) fn new(ctx: WorkflowContext, order: Arc<OrderInput>, kept: Kept) -> Self {
        let Kept(close_before, window, limit) = kept;
        Self {
            account: Account::open(&ctx, Phase::WaitingForPayment),
            payments: Payments(BTreeMap::new()),
            deadline: order.pay_deadline,
            close_before,
            late_payment_window: Duration::from_millis(window),
            close_before_limit: Duration::from_millis(limit),
            stop: None,
            paid_by: None,
            is_settled: false,
            cancel_asks: 0,
            not_due_gap: ASK_AGAIN_MIN,
            close_asks: Arc::default(),
            is_closed: false,
            may_be_created: false,
            sides: Vec::new(),
            ctx,
            order,
        }
    }

    /// Runs something beside the steps, under a name by which it can be given up.
    pub(super) fn beside(&mut self, name: String, side: impl Future<Output = Result<Side, WorkflowError>> + Send + 'static) {
        self.sides.push((name, Box::pin(side)));
    }

    /// Gives up what runs under this name.
    pub(super) fn give_up(&mut self, name: &str) {
        self.sides.retain(|(other, _)| other != name);
    }

    /// Whether any of these runs beside the steps.
    pub(super) fn is_running(&self, names: &[&str]) -> bool {
        self.sides.iter().any(|(name, _)| names.contains(&name.as_str()))
    }

    /// Whether nothing runs beside the steps.
    pub(super) fn is_alone(&self) -> bool {
        self.sides.is_empty()
    }

    /// Waits for `step` to its end, whatever else happens.
    pub(super) async fn finish<F: Future + Unpin>(&mut self, mut step: F) -> Result<F::Output, WorkflowError> {
        loop {
            if let Attended::Done(output) = self.attend(&mut step).await? {
                return Ok(output);
            }
        }
    }

    /// Waits for `step` or for anything else. Signals come first, so that none waits behind a step.
    pub(super) async fn attend<F: Future + Unpin>(&mut self, step: &mut F) -> Result<Attended<F::Output>, WorkflowError> {
        enum Woken<T> {
            Signal(Received<Payload>),
            Side(Side),
            Step(T),
        }
        let mut signal = self.ctx.any_signal();
        let sides = &mut self.sides;
        let woken = poll_fn(|cx| {
            // As a select does that takes a random one of those that are ready.
            if planted(Bug::RandomSelect)
                && coin("which of those that are ready")
                && let Poll::Ready(output) = Pin::new(&mut *step).poll(cx)
            {
                return Poll::Ready(Ok(Woken::Step(output)));
            }
            if let Poll::Ready(received) = Pin::new(&mut signal).poll(cx) {
                return Poll::Ready(received.map(Woken::Signal).map_err(WorkflowError::from));
            }
            for position in 0..sides.len() {
                if let Poll::Ready(side) = sides[position].1.as_mut().poll(cx) {
                    drop(sides.remove(position));
                    return Poll::Ready(side.map(Woken::Side));
                }
            }
            Pin::new(&mut *step).poll(cx).map(|output| Ok(Woken::Step(output)))
        })
        .await?;
        match woken {
            Woken::Signal(received) => self.take(&received),
            Woken::Side(side) => self.side_ended(side),
            Woken::Step(output) => return Ok(Attended::Done(output)),
        }
        Ok(Attended::News)
    }

    fn take(&mut self, received: &Received<Payload>) {
        match received.name() {
            PaymentSucceeded::NAME => {
                if let Some(payment) = received.read::<PaymentSucceeded>() {
                    if self.is_settled {
                        received.answer_late();
                    }
                    self.payment_arrived(&payment);
                }
            }
            PaymentFailed::NAME => match received.read::<PaymentFailed>() {
                Some(_) if self.is_past_waiting() => received.answer_late(),
                Some(failed) if failed.is_final => self.stop = Some(self.stop.unwrap_or(Reason::PaymentFailed)),
                // Only recorded: the buyer may try another card.
                Some(_) | None => {}
            },
            CancelOrder::NAME => {
                if self.is_past_waiting() {
                    received.answer_late();
                } else {
                    self.stop = Some(self.stop.unwrap_or(Reason::User));
                }
            }
            ExtendDeadline::NAME => match received.read::<ExtendDeadline>() {
                Some(extend) if !self.is_past_waiting() && extend.pay_deadline > self.deadline => {
                    self.deadline = extend.pay_deadline
                }
                Some(_) => received.answer_late(),
                None => {}
            },
            SetDeadline::NAME => match received.read::<SetDeadline>() {
                Some(set) if !self.is_past_waiting() => self.deadline = set.pay_deadline,
                Some(_) => received.answer_late(),
                None => {}
            },
            // Undeclared signals are refused at the door.
            _ => {}
        }
    }

    /// Whether a payment or the end is already being decided on.
    fn is_past_waiting(&self) -> bool {
        self.account.progress().phase != Phase::WaitingForPayment
            || self.stop.is_some()
            || self.payments.next_to_confirm().is_some()
    }

    fn side_ended(&mut self, side: Side) {
        match side {
            Side::Reviewed(reviewed) => self.payment_reviewed(reviewed),
            Side::Closed(end) => self.payment_closed(end),
            // Nobody decided, but the order service keeps the order by this payment.
            Side::Settled(transaction, Settled::Kept) if self.account.progress().decision.is_none() => {
                self.account.set_decision(Some(Decision::Paid), None);
                telling::paid(&self.ctx, &self.order, Some(&transaction));
            }
            Side::Settled(..) | Side::Seen | Side::Refunded | Side::GaveBack => {}
        }
    }

    /// Shows who won. From here on nothing that arrives can change it.
    pub(super) fn decided(&mut self, verdict: &Verdict) {
        self.is_settled = true;
        match verdict {
            Verdict::Paid => {
                self.account.set_decision(Some(Decision::Paid), None);
                telling::paid(&self.ctx, &self.order, self.paid_by.as_deref());
            }
            Verdict::Cancelled(reason) => {
                self.account.set_decision(Some(Decision::Cancelled), Some(*reason));
                telling::cancelled(&self.ctx, &self.order, *reason);
            }
            Verdict::NotFound => self.account.set_decision(Some(Decision::OrderNotFound), None),
            Verdict::LeftAlone => {}
        }
        self.payments.end_reviews().into_iter().for_each(|name| self.give_up(&name));
        self.rest_of_payments(verdict);
    }

    /// What becomes of the payments that the order is not kept by.
    fn rest_of_payments(&mut self, verdict: &Verdict) {
        for payment in self.payments.take_undecided() {
            let goes_back = matches!(verdict, Verdict::Cancelled(_)) || payment.state == PaymentState::Refused;
            if goes_back { self.refund(payment.capture, payment.payment_id) } else { self.settle_beside(payment) }
        }
    }
}
