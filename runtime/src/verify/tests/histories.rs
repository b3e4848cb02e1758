//! Histories written anew, with a chain that holds: what is wrong with them is in their events.

use crate::history::{Chain, EventKind, Record, decode, encode};
use crate::store::{Loaded, Status};
use crate::time::Timestamp;

/// The events of each transition, with their recorded time.
pub(super) type Rows = Vec<(Timestamp, Vec<EventKind>)>;

/// Changes a history and writes it as if it had been so from the beginning.
pub(super) fn rewritten(loaded: &mut Loaded, change: impl FnOnce(&mut Rows)) {
    let run_id = loaded.execution.run_id;
    let (events, _) = decode(run_id, &loaded.records).unwrap();
    let mut rows = Rows::new();
    for event in events {
        if loaded.records.iter().any(|record| record.first_event == event.number) {
            rows.push((event.at, Vec::new()));
        }
        rows.last_mut().unwrap().1.push(event.kind);
    }
    change(&mut rows);
    let (mut chain, mut first_event) = (Chain::beginning(run_id), 1);
    loaded.records = rows
        .iter()
        .map(|(at, kinds)| {
            let record = Record { first_event, bytes: encode(*at, kinds, &mut chain) };
            first_event += kinds.len() as u64;
            record
        })
        .collect();
}

/// Gives the row of an execution that ended so.
pub(super) fn closed_as(loaded: &mut Loaded, status: Status, at: Timestamp) {
    let row = &mut loaded.execution;
    (row.status, row.closed_at, row.wake_at, row.rev) = (status, Some(at), None, row.rev + 1);
    row.attempts.clear();
}
