//! Whether a signal is new, a repeated delivery, or contradicts one that was recorded; and taking it up.

use super::transition::{EVENTS_PER_EXECUTION_MAX, SIGNALS_PER_EXECUTION_MAX};
use super::{Active, Answer, IncomingSignal, RefusedInput, Registries};
use crate::history::{EventKind, SeenSignal};
use crate::id::WorkflowKey;
use crate::payload::InvalidField;
use crate::store::InboxRow;
use crate::workflow::{ErasedWorkflow, ReplayFault};

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

/// Says that a stored signal is put aside.
pub(crate) fn report_held(key: &WorkflowKey, row: &InboxRow) {
    tracing::error!(
        workflow.type = key.workflow_type(), workflow.id = key.id(), signal.name = row.name,
        "stored signal contradicts one that was taken; it is held"
    );
}

fn join(fields: &[InvalidField]) -> String {
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Active {
    /// Takes up a stored signal. One that is there already is dropped with its row; one that contradicts what is there is
    /// kept, and held.
    pub(super) fn take_inbox(
        &mut self,
        row: InboxRow,
        code: &Registries,
        consume: &mut Vec<String>,
        hold: &mut Vec<String>,
    ) -> Result<(), ReplayFault> {
        let workflow = code.workflows.get(self.row.key.workflow_type()).map(AsRef::as_ref);
        let signal_id = row.signal_id.clone();
        let signal = signal_of(row.clone(), workflow);
        match check_against(&signal, &self.folded.signals, workflow) {
            SignalCheck::New => {
                let IncomingSignal { name, signal_id, payload, .. } = signal;
                self.push(EventKind::SignalReceived { name, signal_id, payload })?;
            }
            SignalCheck::Duplicate => {}
            SignalCheck::Conflict => {
                report_held(&self.row.key, &row);
                hold.push(signal_id);
                return Ok(());
            }
        }
        consume.push(signal_id);
        Ok(())
    }

    pub(super) fn take_signal(&mut self, signal: &IncomingSignal, code: &Registries) -> Result<Answer, ReplayFault> {
        let workflow = code.workflows.get(self.row.key.workflow_type());
        match check_against(signal, &self.folded.signals, workflow.map(AsRef::as_ref)) {
            SignalCheck::Duplicate => return Ok(Answer::Duplicate),
            SignalCheck::Conflict => return Ok(Answer::Refused(RefusedInput::SignalConflict)),
            SignalCheck::New => {}
        }
        if self.folded.signals.len() >= SIGNALS_PER_EXECUTION_MAX || self.folded.last_event >= EVENTS_PER_EXECUTION_MAX {
            return Ok(Answer::Refused(RefusedInput::TooManySignals));
        }
        let number = self.push(EventKind::SignalReceived {
            name: signal.name.clone(),
            signal_id: signal.signal_id.clone(),
            payload: signal.payload.clone(),
        })?;
        let late = self.machine.as_ref().is_some_and(|machine| machine.answered_late(number));
        Ok(if late { Answer::Late } else { Answer::Applied })
    }
}
