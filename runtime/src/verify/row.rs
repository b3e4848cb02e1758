//! I15: the row says what the history adds up to.
//!
//! All of it but the notes on attempts, which are no part of the history, and `wake_at`, which follows from both.

use super::Subject;
use crate::engine::{attribute_value, request_hash};
use crate::history::{Closing, EventKind};
use crate::store::{AttributeValue, Status};

/// What differs between the row and what it should say.
pub(super) fn differs(subject: &Subject<'_>) -> Option<Vec<String>> {
    let (row, folded) = (&subject.loaded.execution, &subject.folded);
    let mut found = Vec::new();
    let mut same = |what: &str, stored: String, adds_up: String| {
        if stored != adds_up {
            found.push(format!("its {what} is {stored}, and its history adds up to {adds_up}"));
        }
    };
    let blocked = subject.notes.as_ref().is_some_and(|notes| notes.blocked.is_some());
    let status = match &folded.closing {
        Some((_, closing)) => status_of(closing),
        None if blocked => Status::Blocked,
        None => Status::Running,
    };
    // Without the notes nobody can tell whether it is blocked.
    if folded.closing.is_some() || subject.notes.is_some() {
        same("status", row.status.as_str().into(), status.as_str().into());
    }
    same("end", shown(row.closed_at), shown(folded.closing.as_ref().map(|(at, _)| *at)));
    same("need of attention", row.needs_attention.to_string(), folded.needs_attention().to_string());
    same("shard", row.shard.to_string(), row.key.shard(subject.look.shards).to_string());
    same("run's time of creation", row.run_id.created_at().to_string(), folded.started_at.to_string());
    if let Some(hash) = requested(subject) {
        same("request hash", hex::encode(row.request_hash), hex::encode(hash));
    }
    if let Some(attributes) = subject.attributes {
        same("list of attributes", names(attributes), names(&recorded_attributes(subject)));
        if names(attributes) == names(&recorded_attributes(subject)) && attributes != recorded_attributes(subject) {
            found.push("its attributes have other values than its history".into());
        }
    }
    if folded.closing.is_some() && !row.attempts.is_empty() {
        found.push("it has ended and has notes on attempts".into());
    }
    if let Some(updates) = updates_at_least(subject).filter(|least| row.rev < *least) {
        found.push(format!("its rev is {}, and it was updated at least {updates} times", row.rev));
    }
    Some(found)
}

/// The status of what ended so.
pub(super) fn status_of(closing: &Closing) -> Status {
    match closing {
        Closing::Completed(_) => Status::Completed,
        Closing::Failed(_) => Status::Failed,
        Closing::Cancelled { .. } => Status::Cancelled,
        Closing::Terminated { .. } => Status::Terminated,
    }
}

fn shown(at: Option<crate::time::Timestamp>) -> String {
    at.map_or_else(|| "none".to_owned(), |at| format!("{at} ({} us)", at.as_micros()))
}

fn names(attributes: &[(String, AttributeValue)]) -> String {
    let names: Vec<&str> = attributes.iter().map(|(name, _)| name.as_str()).collect();
    format!("{names:?}")
}

/// The hash of the request that the history tells of. What the engine derived itself was asked for by a signal, which it
/// does not tell of.
fn requested(subject: &Subject<'_>) -> Option<[u8; 16]> {
    match subject.events.first().map(|event| &event.kind) {
        Some(EventKind::WorkflowStarted { input, start_at, attributes, .. })
            if subject.loaded.execution.key.root_id() == subject.loaded.execution.key.id() =>
        {
            request_hash(input, *start_at, attributes)
        }
        _ => None,
    }
}

fn recorded_attributes(subject: &Subject<'_>) -> Vec<(String, AttributeValue)> {
    match subject.events.first().map(|event| &event.kind) {
        Some(EventKind::WorkflowStarted { attributes, .. }) => {
            attributes.iter().filter_map(|(name, payload)| Some((name.clone(), attribute_value(payload)?))).collect()
        }
        _ => Vec::new(),
    }
}

/// How often the row was written after the first time, at the very least: to end, and to be blocked.
fn updates_at_least(subject: &Subject<'_>) -> Option<u64> {
    let ended_later = subject.folded.closing.is_some() && subject.loaded.records.len() > 1;
    let blocked = subject.loaded.execution.status == Status::Blocked;
    (ended_later || blocked).then_some(1)
}
