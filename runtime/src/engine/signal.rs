//! Whether a signal is new, a repeated delivery, or contradicts one that was recorded.

use super::{Active, IncomingSignal, Registries};
use crate::history::SeenSignal;
use crate::payload::InvalidField;
use crate::store::InboxRow;
use crate::workflow::ErasedWorkflow;

/// What a signal is to the signals that a history holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalCheck {
    /// Not seen before.
    New,
    /// Seen before, saying the same.
    Duplicate,
    /// Its id, or what it is about, was seen before, saying something else.
    Conflict,
}

impl Active {
    /// Compares a signal with those that the execution received; `None` when nothing is known of them.
    pub(crate) fn check(&self, signal: &IncomingSignal, workflow: Option<&dyn ErasedWorkflow>) -> Option<SignalCheck> {
        match &self.tombstone {
            Some(tombstone) => Some(tombstone.check(self.row.run_id, signal)),
            None if self.row.retired => None,
            None => Some(check_against(signal, &self.folded.signals, workflow)),
        }
    }

    /// Whether the execution received a signal of this id.
    pub(crate) fn has_seen(&self, signal_id: &str) -> bool {
        match &self.tombstone {
            Some(tombstone) => tombstone.has_seen(self.row.run_id, signal_id),
            None => self.folded.signals.iter().any(|seen| seen.signal_id == signal_id),
        }
    }
}

/// Compares a signal with the recorded ones by its id and by its subject.
pub(crate) fn check_against(signal: &IncomingSignal, seen: &[SeenSignal], workflow: Option<&dyn ErasedWorkflow>) -> SignalCheck {
    let declared = |name: &str| workflow.and_then(|workflow| workflow.signal(name));
    for other in seen {
        let same_id = other.signal_id == signal.signal_id;
        if !same_id && (signal.subject.is_none() || other.name != signal.name) {
            continue;
        }
        let checked = declared(&other.name).and_then(|declaration| declaration.check(&other.payload).ok());
        let same_subject = checked.as_ref().is_some_and(|checked| checked.subject == signal.subject);
        if !same_id && !same_subject {
            continue;
        }
        let identity = checked.map_or_else(|| other.payload.canonical_hash(), |checked| checked.identity);
        let same = other.name == signal.name && identity == signal.identity;
        return if same { SignalCheck::Duplicate } else { SignalCheck::Conflict };
    }
    SignalCheck::New
}

/// Whether a stored signal has the shape that its type declares. Only one that nobody checked may not.
pub(crate) fn is_readable(code: &Registries, row: &InboxRow) -> bool {
    if !row.unchecked {
        return true;
    }
    // A program that does not know the type cannot tell.
    let Some(workflow) = code.workflows.get(row.key.workflow_type()) else { return true };
    let declared: Result<_, String> = workflow.signal(&row.name).ok_or_else(|| format!("there is no signal {:?}", row.name));
    let checked = declared.and_then(|declared| declared.check(&row.payload).map_err(|fields: Vec<InvalidField>| join(&fields)));
    match checked {
        Ok(_) => true,
        Err(reason) => {
            tracing::error!(
                workflow.type = row.key.workflow_type(), workflow.id = row.key.id(), signal.name = row.name, error = reason,
                "stored signal cannot be read; it is held"
            );
            false
        }
    }
}

/// A stored signal in the form in which it is compared with others.
pub(crate) fn signal_of(row: InboxRow, workflow: Option<&dyn ErasedWorkflow>) -> IncomingSignal {
    let checked = workflow.and_then(|workflow| workflow.signal(&row.name)?.check(&row.payload).ok());
    let identity = checked.as_ref().filter(|_| row.unchecked).map_or(row.identity, |checked| checked.identity);
    let subject = checked.and_then(|checked| checked.subject);
    IncomingSignal { name: row.name, signal_id: row.signal_id, payload: row.payload, subject, identity }
}

fn join(fields: &[InvalidField]) -> String {
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
