//! How values travel to PostgreSQL and back: one array a column, unnested by the statement, and places in them.

use uuid::Uuid;

use super::error::{Fault, unreadable};
use crate::history::Record;
use crate::id::RunId;
use crate::store::RowChange;

/// A place in a list, as it comes back from a statement that counted it with `WITH ORDINALITY`, from one on.
pub(super) fn place(ordinality: i64) -> usize {
    usize::try_from(ordinality - 1).expect("what comes back was a place")
}

/// A limit as a statement takes it.
pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A shard as it is stored. A store has at most [`super::SHARDS_MAX`] of them.
pub(super) fn stored_shard(shard: u16) -> Result<i16, Fault> {
    i16::try_from(shard).map_err(|_| Fault::Unstorable(format!("shard {shard}")))
}

/// Shards as a statement that reads takes them; one that cannot be stored has no rows.
pub(super) fn stored_shards(shards: &[u16]) -> Vec<i16> {
    shards.iter().filter_map(|shard| i16::try_from(*shard).ok()).collect()
}

/// The shard of a stored number.
pub(super) fn shard_of(column: &'static str, stored: i16) -> Result<u16, sqlx::Error> {
    u16::try_from(stored).map_err(|_| unreadable(column, stored))
}

pub(super) fn stored_run(run_id: RunId) -> Uuid {
    run_id.0
}

pub(super) fn stored_rev(rev: u64) -> Result<i32, Fault> {
    i32::try_from(rev).map_err(|_| Fault::Unstorable(format!("rev {rev}")))
}

/// A record's position as it is stored.
pub(super) fn event_number(record: &Record) -> Result<i64, Fault> {
    i64::try_from(record.first_event).map_err(|_| Fault::Unstorable(format!("event number {}", record.first_event)))
}

pub(super) fn stored_status(row: &RowChange) -> i16 {
    i16::try_from(row.status.code()).expect("there are few statuses")
}

/// Most rows have no attempts, and NULL costs no byte.
pub(super) fn stored_attempts(row: &RowChange) -> Option<&[u8]> {
    (!row.attempts.is_empty()).then_some(&row.attempts[..])
}

/// An array that is aggregated from no row comes back as NULL.
pub(super) fn or_empty<T>(array: Option<Vec<T>>) -> Vec<T> {
    array.unwrap_or_default()
}
