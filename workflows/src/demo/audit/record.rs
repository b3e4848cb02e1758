//! D5 and D6: what was acknowledged is in the histories, what was done has its intent there, and both are whole.

use std::collections::HashSet;

use serde_json::Value;

use super::super::drive::SentSignal;
use super::super::evidence::{Evidence, Execution};
use super::case::{Case, result};
use super::{Findings, Violation};
use crate::sandbox::Effect;

pub(super) fn judge(case: &Case<'_>, found: &mut Findings<'_>) {
    for signal in &case.signals {
        signal_is_recorded(case, signal, found);
    }
    for execution in &case.executions {
        history_is_whole(execution, found);
        refunds_are_real(case, execution, found);
    }
    effects_have_intents(case, found);
}

/// What concerns the run as a whole, or executions that could not be judged at all.
pub(super) fn judge_whole(evidence: &Evidence, violations: &mut Vec<Violation>) {
    for (order_id, reason) in &evidence.refused_starts {
        violations.push(Violation { order_id: order_id.clone(), rule: "D6", reason: reason.clone() });
    }
    for (kind, id) in &evidence.unsettled {
        let order_id = id.split('~').next().unwrap_or(id).to_owned();
        let reason = format!("the execution {kind} {id} was still moving when the demo stopped waiting");
        violations.push(Violation { order_id, rule: "D6", reason });
    }
    for request in evidence.requests().filter(|request| request.key_reused) {
        let key = request.key.as_deref().unwrap_or_default();
        let reason = format!("the key {key} was used for two different requests");
        violations.push(Violation { order_id: request.subject.clone(), rule: "D6", reason });
    }
}

fn signal_is_recorded(case: &Case<'_>, signal: &SentSignal, found: &mut Findings<'_>) {
    let (name, id) = (&signal.name, &signal.signal_id);
    if !(200..300).contains(&signal.status) {
        return found.add("D5", format!("the signal {name} {id} was answered {}", signal.status));
    }
    let is_payment = signal.name == "payment-succeeded";
    // A signal that changes nothing after the decision says so in its answer; only money must never be dropped.
    let may_be_dropped = !is_payment && signal.outcome.as_deref() == Some("late");
    let recorded = case.events().any(|event| match event["kind"].as_str() {
        Some("SignalReceived") => event["name"] == **name && event["signalId"] == **id,
        // What came after the end is the input of the execution that takes it up.
        Some("WorkflowStarted") => mentions(&event["input"], id),
        _ => false,
    });
    if !recorded && !may_be_dropped {
        let outcome = signal.outcome.as_deref().unwrap_or("no outcome");
        found.add("D5", format!("the signal {name} {id} was acknowledged ({outcome}) and is in no history"));
    }
}

/// Whether a string occurs anywhere in the value.
fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string == text,
        Value::Array(items) => items.iter().any(|item| mentions(item, text)),
        Value::Object(fields) => fields.values().any(|field| mentions(field, text)),
        _ => false,
    }
}

fn history_is_whole(execution: &Execution, found: &mut Findings<'_>) {
    let name = format!("{} {}", execution.kind, execution.id);
    let gap = execution.events.iter().zip(1u64..).find(|(event, number)| event["number"].as_u64() != Some(*number));
    if let Some((event, expected)) = gap {
        found.add("D6", format!("the history of {name} has {} where {expected} belongs", event["number"]));
    }
    let count = |kind: &str| execution.events.iter().filter(|event| event["kind"] == kind).count();
    if count("WorkflowStarted") != 1 {
        found.add("D6", format!("the history of {name} has {} beginnings", count("WorkflowStarted")));
    }
    let last_is_end = execution.events.last().is_some_and(|event| event["kind"] == "WorkflowCompleted");
    match execution.status.as_str() {
        "completed" if count("WorkflowCompleted") != 1 || !last_is_end => {
            found.add("D6", format!("{name} is completed, its history does not end so"));
        }
        "completed" => {}
        "running" if !execution.needs_attention.is_empty() => {}
        status => found.add("D6", format!("{name} has not ended well, its status is {status}")),
    }
}

/// A result that claims a refund is borne out by the channel.
fn refunds_are_real(case: &Case<'_>, execution: &Execution, found: &mut Findings<'_>) {
    let refunds = result(execution).and_then(|result| result["refunds"].as_array());
    for refund in refunds.into_iter().flatten() {
        let transaction = refund["transactionId"].as_str().unwrap_or_default();
        let real = case.effects.iter().any(
            |effect| matches!(&effect.effect, Effect::RefundAccepted { transaction_id, .. } if transaction_id == transaction),
        );
        if refund["status"] == "refunded" && !real {
            found.add("D6", format!("the result claims a refund of {transaction} that the channel does not know"));
        }
    }
}

/// No effect without its intent: the key of each effect is that of a scheduled activity.
fn effects_have_intents(case: &Case<'_>, found: &mut Findings<'_>) {
    let intents: HashSet<_> = case
        .events()
        .filter(|event| event["kind"] == "ActivityScheduled")
        .filter_map(|event| event["idempotencyKey"].as_str())
        .collect();
    for request in case.requests.iter().filter(|request| !request.call.reads()) {
        let known = request.key.as_deref().is_some_and(|key| intents.contains(key));
        if !known {
            let (call, key) = (request.call, request.key.as_deref().unwrap_or("none"));
            found.add("D6", format!("{call:?} was called with the key {key}, which no history scheduled"));
        }
    }
}
