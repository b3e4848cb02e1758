//! I16: the code, run over the history, asks for exactly what was recorded.

use super::{Replay, Subject};
use crate::replay::Machine;
use crate::store::Status;
use crate::workflow::ReplayFault;

/// Runs the code over the history. A fault is none where the row tells of it already: the execution is blocked, or was so
/// until a person ended it.
pub(super) fn differently(subject: &Subject<'_>) -> (Replay, Vec<String>) {
    let (code, row) = (subject.look.code, &subject.loaded.execution);
    match Machine::replay(&code.workflows, &row.key, row.run_id, &subject.events) {
        Ok(_) => (Replay::Judged, Vec::new()),
        Err(ReplayFault::UnknownType(_)) => (Replay::UnknownType, Vec::new()),
        Err(_) if matches!(row.status, Status::Blocked | Status::Terminated) => (Replay::Stopped, Vec::new()),
        Err(fault) => (Replay::Judged, vec![fault.to_string()]),
    }
}
