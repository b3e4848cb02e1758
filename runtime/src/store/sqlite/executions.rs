//! The rows of executions.

use std::collections::HashSet;

use bytes::Bytes;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::error::{Fault, unreadable};
use super::history::event_number;
use super::values::{Sized, four, place, sixteen, sixty_four, sized};
use crate::fault::{Point, point};
use crate::id::{RunId, WorkflowKey};
use crate::store::{Advance, Execution, NewExecution, Parked, RowChange, Status};
use crate::time::Timestamp;

/// The number of a workflow type, and a workflow id.
pub(super) type CodedKey<'a> = (i64, &'a str);

static INSERT: Sized = sized!(
    "INSERT INTO executions
     (type, id, shard, run_id, status, wake_at, closed_at, rev, request_hash, needs_attention, attempts)
     VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
    ""
);

/// Creates executions whose keys are free; `rev` begins at 0.
pub(super) async fn insert(connection: &mut SqliteConnection, rows: &[(i64, &NewExecution)]) -> Result<(), Fault> {
    for (sql, piece) in INSERT.pieces(rows) {
        let mut query = sqlx::query(sql);
        for (code, new) in piece {
            query = query
                .bind(*code)
                .bind(new.key.id())
                .bind(i64::from(new.shard))
                .bind(new.run_id.as_bytes().to_vec())
                .bind(new.row.status.code())
                .bind(new.row.wake_at.map(Timestamp::as_micros))
                .bind(new.row.closed_at.map(Timestamp::as_micros))
                .bind(new.request_hash.to_vec())
                .bind(new.row.needs_attention)
                .bind(stored_attempts(&new.row));
        }
        query.execute(&mut *connection).await?;
        point(Point::ExecutionsWritten);
    }
    Ok(())
}

pub(super) static EXISTING: Sized = sized!(
    "WITH w (type, id) AS (VALUES ",
    "(?, ?)",
    ")
     SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL
     FROM w
     CROSS JOIN executions AS e ON e.type = w.type AND e.id = w.id
     CROSS JOIN types AS t ON t.code = e.type
     ORDER BY t.name, e.id"
);

/// Those of the named executions that exist.
pub(super) async fn existing(connection: &mut SqliteConnection, keys: &[CodedKey<'_>]) -> Result<Vec<Execution>, sqlx::Error> {
    let mut found = Vec::new();
    for (sql, piece) in EXISTING.pieces(keys) {
        let mut query = sqlx::query(sql);
        for (code, id) in piece {
            query = query.bind(*code).bind(*id);
        }
        for row in query.fetch_all(&mut *connection).await? {
            found.push(execution_of(&row)?);
        }
    }
    Ok(found)
}

pub(super) static UNEXPECTED: Sized = sized!(
    "WITH w (place, type, id, run_id, rev, first_event) AS (VALUES ",
    "(?, ?, ?, ?, ?, ?)",
    ")
     SELECT w.place
     FROM w
     WHERE NOT EXISTS (
               SELECT 1 FROM executions AS e
               WHERE e.type = w.type AND e.id = w.id AND e.run_id = w.run_id AND (w.rev IS NULL OR e.rev = w.rev)
                 AND (e.tombstone IS NULL OR (w.rev IS NULL AND w.first_event IS NULL)))
        OR EXISTS (SELECT 1 FROM history AS h WHERE h.run_id = w.run_id AND h.first_event = w.first_event)
     ORDER BY w.place"
);

/// The places of those transitions whose execution is not as they expect it: not there, of another run, at another `rev`
/// where it matters, or with their position taken.
pub(super) async fn unexpected(connection: &mut SqliteConnection, advances: &[(i64, &Advance)]) -> Result<HashSet<usize>, Fault> {
    let mut unexpected = HashSet::new();
    let asked: Vec<(usize, &(i64, &Advance))> = advances.iter().enumerate().collect();
    for (sql, piece) in UNEXPECTED.pieces(&asked) {
        let mut query = sqlx::query(sql);
        for (index, (code, advance)) in piece {
            query = query
                .bind(i64::try_from(*index).expect("a batch has few writes"))
                .bind(*code)
                .bind(advance.key.id())
                .bind(advance.run_id.as_bytes().to_vec())
                .bind(advance.row.as_ref().map(|_| stored_rev(advance.rev)).transpose()?)
                .bind(advance.record.as_ref().map(event_number).transpose()?);
        }
        for row in query.fetch_all(&mut *connection).await? {
            unexpected.insert(place(row.try_get(0)?));
        }
    }
    Ok(unexpected)
}

pub(super) static UPDATE: Sized = sized!(
    "WITH w (type, id, rev, status, wake_at, closed_at, needs_attention, attempts, parked_by, parked_since) AS (VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ")
     UPDATE executions
     SET rev = executions.rev + 1, status = w.status, wake_at = w.wake_at, closed_at = w.closed_at,
         needs_attention = w.needs_attention, attempts = w.attempts, parked_by = w.parked_by, parked_since = w.parked_since
     FROM w
     WHERE executions.type = w.type AND executions.id = w.id AND executions.rev = w.rev"
);

/// Rewrites rows that stand as expected: key, `rev` as it is, new values.
pub(super) async fn update(
    connection: &mut SqliteConnection,
    mut changes: Vec<(CodedKey<'_>, u64, &RowChange)>,
) -> Result<(), Fault> {
    changes.sort_unstable_by_key(|(key, ..)| *key);
    for (sql, piece) in UPDATE.pieces(&changes) {
        let mut query = sqlx::query(sql);
        for ((code, id), rev, row) in piece {
            query = query
                .bind(*code)
                .bind(*id)
                .bind(stored_rev(*rev)?)
                .bind(row.status.code())
                .bind(row.wake_at.map(Timestamp::as_micros))
                .bind(row.closed_at.map(Timestamp::as_micros))
                .bind(row.needs_attention)
                .bind(stored_attempts(row))
                .bind(row.parked.as_ref().map(|parked| parked.gate.as_str()))
                .bind(row.parked.as_ref().map(|parked| parked.since.as_micros()));
        }
        let done = query.execute(&mut *connection).await?;
        point(Point::ExecutionsWritten);
        if done.rows_affected() != piece.len() as u64 {
            return Err(unreadable("executions.rev", "another value than was read in the same transaction").into());
        }
    }
    Ok(())
}

pub(super) const FIND: &str = "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL
         FROM types AS t CROSS JOIN executions AS e ON e.type = t.code
         WHERE t.name = ?1 AND e.id = ?2";

/// The row of one execution.
pub(super) async fn find(connection: &mut SqliteConnection, key: &WorkflowKey) -> Result<Option<Execution>, sqlx::Error> {
    sqlx::query(FIND)
        .bind(key.workflow_type())
        .bind(key.id())
        .fetch_optional(connection)
        .await?
        .map(|row| execution_of(&row))
        .transpose()
}

pub(super) const FIND_MANY: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL, w.key, e.tombstone, e.parked_by, e.parked_since
         FROM json_each(?1) AS w
         CROSS JOIN types AS t ON t.name = w.value ->> 0
         CROSS JOIN executions AS e ON e.type = t.code AND e.id = w.value ->> 1
         ORDER BY w.key";

/// An execution's place among the keys asked for, its row, its tombstone if it has one, and what it waits behind.
pub(super) type Found = (usize, Execution, Option<Vec<u8>>, Option<Parked>);

/// The executions named in `keys` (a JSON array of pairs of type and id), each with its place in `keys`.
pub(super) async fn find_many(connection: &mut SqliteConnection, keys: &str) -> Result<Vec<Found>, sqlx::Error> {
    sqlx::query(FIND_MANY)
        .bind(keys)
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok((place(row.try_get(12)?), execution_of(row)?, row.try_get(13)?, parked_of(row, 14)?)))
        .collect()
}

/// The keys as the statements over many executions take them.
pub(super) fn keys_as_json<'a>(keys: impl Iterator<Item = &'a WorkflowKey>) -> String {
    let pairs: Vec<(&str, &str)> = keys.map(|key| (key.workflow_type(), key.id())).collect();
    serde_json::to_string(&pairs).expect("texts can be written as JSON")
}

/// The execution in the first twelve columns of a row.
pub(super) fn execution_of(row: &SqliteRow) -> Result<Execution, sqlx::Error> {
    let workflow_type: &str = row.try_get(0)?;
    let id: &str = row.try_get(1)?;
    let shard: i64 = row.try_get(2)?;
    let run_id: &[u8] = row.try_get(3)?;
    let status: i64 = row.try_get(4)?;
    let rev: i64 = row.try_get(7)?;
    let request_hash: &[u8] = row.try_get(8)?;
    let attempts: Option<Vec<u8>> = row.try_get(10)?;
    Ok(Execution {
        key: WorkflowKey::new(workflow_type, id),
        shard: u16::try_from(shard).map_err(|_| unreadable("executions.shard", shard))?,
        run_id: RunId(Uuid::from_slice(run_id).map_err(|_| unreadable("executions.run_id", "a value of another length"))?),
        status: Status::from_code(status).ok_or_else(|| unreadable("executions.status", status))?,
        wake_at: row.try_get::<Option<i64>, _>(5)?.map(Timestamp::from_micros),
        closed_at: row.try_get::<Option<i64>, _>(6)?.map(Timestamp::from_micros),
        rev: u64::try_from(rev).map_err(|_| unreadable("executions.rev", rev))?,
        request_hash: request_hash.try_into().map_err(|_| unreadable("executions.request_hash", "a value of another length"))?,
        needs_attention: row.try_get::<i64, _>(9)? != 0,
        attempts: attempts.map(Bytes::from).unwrap_or_default(),
        retired: row.try_get::<i64, _>(11)? != 0,
    })
}

/// What an execution waits behind, in the columns `gate` and the next.
pub(super) fn parked_of(row: &SqliteRow, gate: usize) -> Result<Option<Parked>, sqlx::Error> {
    let (gate, since): (Option<String>, Option<i64>) = (row.try_get(gate)?, row.try_get(gate + 1)?);
    Ok(gate.zip(since).map(|(gate, since)| Parked { gate, since: Timestamp::from_micros(since) }))
}

pub(super) fn stored_rev(rev: u64) -> Result<i64, Fault> {
    i64::try_from(rev).map_err(|_| Fault::Unstorable(format!("rev {rev}")))
}

/// Most rows have no attempts, and NULL costs no byte.
fn stored_attempts(row: &RowChange) -> Option<Vec<u8>> {
    (!row.attempts.is_empty()).then(|| row.attempts.to_vec())
}
