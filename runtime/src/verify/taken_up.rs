//! I19: an execution that has ended has no unread signal for longer than its owner needs to look.

use crate::engine::Registries;
use crate::store::{InboxRow, Loaded};

/// Stored signals, not held, of an execution that has ended. `None` when nobody is to take them up: it is open, or no
/// program here knows its type.
pub(super) fn unread_after_the_end<'a>(code: &Registries, loaded: &'a Loaded) -> Option<&'a [InboxRow]> {
    let row = &loaded.execution;
    let judged = !row.status.is_open() && code.workflows.get(row.key.workflow_type()).is_some();
    judged.then_some(&loaded.inbox)
}

pub(super) fn message(row: &InboxRow) -> String {
    format!("it has ended, and signal {:?} ({}) is stored for it and not taken up", row.signal_id, row.name)
}
