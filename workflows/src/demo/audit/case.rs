//! All that is known about one order, put side by side.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;

use super::super::drive::SentSignal;
use super::super::evidence::{Evidence, Execution};
use super::owners;
use crate::sandbox::{Effect, EffectRecord, RequestRecord};

/// How the order service has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::demo) enum Outcome<'a> {
    /// Not at all.
    Undecided,
    /// Paid, by this transaction.
    Paid(&'a str),
    /// Cancelled, for this reason.
    Cancelled(&'a str),
    /// More than once.
    Torn,
}

/// One order's ledger lines, executions and signals.
#[derive(Debug)]
pub(in crate::demo) struct Case<'a> {
    pub(in crate::demo) order_id: String,
    pub(in crate::demo) effects: Vec<&'a EffectRecord>,
    pub(in crate::demo) requests: Vec<&'a RequestRecord>,
    pub(in crate::demo) executions: Vec<&'a Execution>,
    pub(in crate::demo) signals: Vec<&'a SentSignal>,
}

/// Sorts the evidence by order.
pub(super) fn cases(evidence: &Evidence) -> Vec<Case<'_>> {
    let owners = owners(evidence);
    let mut cases: HashMap<&str, Case<'_>> = HashMap::new();
    for order_id in &evidence.orders {
        cases.insert(order_id, Case::new(order_id));
    }
    for effect in evidence.effects() {
        if let Some(case) = owners.get(effect.subject.as_str()).and_then(|owner| cases.get_mut(owner)) {
            case.effects.push(effect);
        }
    }
    for request in evidence.requests() {
        if let Some(case) = owners.get(request.subject.as_str()).and_then(|owner| cases.get_mut(owner)) {
            case.requests.push(request);
        }
    }
    for execution in &evidence.executions {
        if let Some(case) = cases.get_mut(execution.order_id.as_str()) {
            case.executions.push(execution);
        }
    }
    for signal in &evidence.signals {
        if let Some(case) = cases.get_mut(signal.order_id.as_str()) {
            case.signals.push(signal);
        }
    }
    evidence.orders.iter().filter_map(|order_id| cases.remove(order_id.as_str())).collect()
}

impl<'a> Case<'a> {
    fn new(order_id: &str) -> Case<'a> {
        Case {
            order_id: order_id.to_owned(),
            effects: Vec::new(),
            requests: Vec::new(),
            executions: Vec::new(),
            signals: Vec::new(),
        }
    }

    /// How the order service has decided.
    pub(in crate::demo) fn outcome(&self) -> Outcome<'a> {
        let mut outcome = Outcome::Undecided;
        for effect in &self.effects {
            let next = match &effect.effect {
                Effect::OrderPaid { transaction_id } => Outcome::Paid(transaction_id),
                Effect::OrderCancelled { reason } => Outcome::Cancelled(reason),
                _ => continue,
            };
            outcome = if outcome == Outcome::Undecided { next } else { Outcome::Torn };
        }
        outcome
    }

    pub(in crate::demo) fn is_cancelled(&self) -> bool {
        matches!(self.outcome(), Outcome::Cancelled(_))
    }

    /// The deadline when the order was placed.
    pub(in crate::demo) fn first_deadline(&self) -> Option<Timestamp> {
        self.deadlines().next()
    }

    /// The deadline after all its moves.
    pub(in crate::demo) fn last_deadline(&self) -> Option<Timestamp> {
        self.deadlines().last()
    }

    fn deadlines(&self) -> impl Iterator<Item = Timestamp> {
        self.effects.iter().filter_map(|effect| match effect.effect {
            Effect::OrderPlaced { pay_deadline, .. } | Effect::DeadlineMoved { pay_deadline } => Some(pay_deadline),
            _ => None,
        })
    }

    /// How often an effect happened to this subject.
    pub(super) fn times(&self, subject: &str, wanted: impl Fn(&Effect) -> bool) -> usize {
        self.effects.iter().filter(|effect| effect.subject == subject && wanted(&effect.effect)).count()
    }

    /// The subjects to which this happened.
    pub(super) fn subjects(&self, wanted: impl Fn(&Effect) -> bool) -> Vec<&'a str> {
        self.effects.iter().filter(|effect| wanted(&effect.effect)).map(|effect| effect.subject.as_str()).collect()
    }

    /// Every event of every execution of the order.
    pub(super) fn events(&self) -> impl Iterator<Item = &'a Value> {
        self.executions.iter().flat_map(|execution| &execution.events)
    }

    /// The order's own execution.
    pub(in crate::demo) fn main(&self) -> Option<&'a Execution> {
        self.executions.iter().find(|execution| execution.kind == "order-timeout").copied()
    }

    /// Whether a payment is held for a person's review.
    pub(in crate::demo) fn waits_for_review(&self) -> bool {
        self.executions.iter().any(|execution| execution.needs_attention.iter().any(|step| step == "review-payment"))
    }

    /// Whether any step waits for a person.
    pub(in crate::demo) fn needs_attention(&self) -> bool {
        self.executions.iter().any(|execution| !execution.needs_attention.is_empty())
    }
}

/// The result that closes an execution, if it completed.
pub(super) fn result(execution: &Execution) -> Option<&Value> {
    execution.events.iter().find(|event| event["kind"] == "WorkflowCompleted").map(|event| &event["result"])
}
