//! What those outside are told of an order: that it was paid, cancelled or refunded, and that a person is needed.
//!
//! Orders that were decided before there were events are not told of: what is recorded of them has none. Each kind has a
//! change of its own, so that an order under way tells of all that is still to come.

use overdue_activities::{CancelReason, Capture};
use overdue_runtime::workflow::{Emitted, StepInTrouble, WorkflowContext};
use overdue_runtime::{Payload, WorkflowKey};
use serde::Serialize;

use super::input::OrderInput;
use super::progress::Reason;

/// Whom a notice is for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Customer<'a> {
    order_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_no: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a str>,
}

impl<'a> Customer<'a> {
    fn of(order: &'a OrderInput) -> Self {
        Self { order_id: &order.order_id, order_no: order.order_no.as_deref(), user_id: order.user_id.as_deref() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(flatten)]
    customer: Customer<'a>,
    reason: CancelReason,
    amount: &'a str,
    currency: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Paid<'a> {
    #[serde(flatten)]
    customer: Customer<'a>,
    /// Absent where the order service keeps the order and does not say by which.
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_id: Option<&'a str>,
    amount: &'a str,
    currency: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Refunded<'a> {
    order_id: &'a str,
    transaction_id: &'a str,
    amount: &'a str,
    currency: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NeedsAttention<'a> {
    #[serde(flatten)]
    customer: Customer<'a>,
    /// The workflow's type, id and number of the step: what `retry`, `resolve` and `skip` are given.
    workflow_type: &'a str,
    workflow_id: &'a str,
    number: u64,
    step: &'a str,
    failure: &'a str,
}

pub(super) fn cancelled(ctx: &WorkflowContext, order: &OrderInput, reason: Reason) {
    let (amount, currency) = (&order.amount, &order.currency);
    tell(ctx, "order.cancelled", &Cancelled { customer: Customer::of(order), reason: reason.into(), amount, currency });
}

pub(super) fn paid(ctx: &WorkflowContext, order: &OrderInput, transaction_id: Option<&str>) {
    let (amount, currency) = (&order.amount, &order.currency);
    tell(ctx, "order.paid", &Paid { customer: Customer::of(order), transaction_id, amount, currency });
}

pub(super) fn refunded(ctx: &WorkflowContext, order_id: &str, capture: &Capture) {
    let (amount, currency) = (capture.money.amount(), capture.money.currency());
    tell(ctx, "order.refunded", &Refunded { order_id, transaction_id: &capture.transaction_id, amount, currency });
}

/// What is told of a step of an order's workflow, or of its late payment's, that needs a person.
pub(crate) fn needs_attention(key: &WorkflowKey, input: &Payload, step: &StepInTrouble<'_>) -> Option<Emitted> {
    let order: Option<OrderInput> = input.parse().ok();
    let unknown = Customer { order_id: key.root_id(), order_no: None, user_id: None };
    let told = NeedsAttention {
        customer: order.as_ref().map_or(unknown, Customer::of),
        workflow_type: key.workflow_type(),
        workflow_id: key.id(),
        number: step.number,
        step: step.name,
        failure: step.why,
    };
    Emitted::new("order.needs-attention", &told).ok()
}

fn tell(ctx: &WorkflowContext, event: &str, data: &impl Serialize) {
    if ctx.version(event, 0, 1) == 0 {
        return;
    }
    if let Err(error) = ctx.emit(event, data) {
        // Fields of an order are short: this would be a mistake of ours, and no reason to stop the order.
        tracing::error!(error = %error, "an event of an order is not told");
    }
}
