//! The rows of executions.

use std::collections::HashSet;

use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection, PgRow};
use uuid::Uuid;

use super::error::{Fault, unreadable};
use super::layout::Layout;
use super::statement::Statement;
use super::values::{
    event_number, place, shard_of, stored_attempts, stored_rev, stored_run, stored_shard, stored_shards, stored_status,
};
use crate::fault::{Point, point};
use crate::id::{RunId, WorkflowKey};
use crate::store::{Advance, Execution, NewExecution, Parked, RowChange, Status};
use crate::time::Timestamp;

/// Names a row: its shard, the number of its workflow type, its workflow id. Sorts as the key's index does.
pub(super) type CodedKey<'a> = (i16, i16, &'a str);

/// A key with the number of its type.
pub(super) fn coded(shard: u16, code: i16, id: &str) -> Result<CodedKey<'_>, Fault> {
    Ok((stored_shard(shard)?, code, id))
}

pub(super) static INSERT: Statement = Statement::new("INSERT INTO overdue.executions AS e
         (shard, type, id, run_id, status, wake_at, closed_at, rev, request_hash, needs_attention, attempts)
     SELECT /*one*/w.shard/*citus a.shard*/, w.type, w.id, w.run_id, w.status, w.wake_at, w.closed_at, 0, w.request_hash, w.needs_attention, w.attempts
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::uuid[], $5::smallint[], $6::bigint[], $7::bigint[],
                 $8::uuid[], $9::boolean[], $10::bytea[])
          AS w (shard, type, id, run_id, status, wake_at, closed_at, request_hash, needs_attention, attempts)
     /*citus JOIN overdue.anchors AS a ON a.shard = w.shard AND a.shard = ANY ($1)*/
     WHERE NOT EXISTS (
         SELECT 1 FROM overdue.executions AS o
         WHERE o.shard = /*one*/w.shard/*citus a.shard AND o.shard = ANY ($1)*/ AND o.type = w.type AND o.id = w.id)
     ON CONFLICT (shard, type, id) DO NOTHING
     RETURNING e.shard, e.type, e.id, /*one*/(
         SELECT true FROM overdue.inbox AS x
         WHERE x.shard = e.shard AND x.type = e.type AND x.id = e.id AND NOT x.held LIMIT 1) IS NOT NULL/*citus NULL::boolean*/");

/// An execution that was created, and whether unread inbox rows wait for it; `None` where that is to be asked for.
pub(super) type Created = ((i16, i16, String), Option<bool>);

/// Creates those executions whose keys are free; `rev` begins at 0. `rows` is sorted by key, each of which is there once.
/// A key that is looked up first is a start whose row is never judged: what cannot be stored exists all the same.
pub(super) async fn insert(
    connection: &mut PgConnection,
    layout: &Layout,
    rows: &[(CodedKey<'_>, &NewExecution)],
) -> Result<Vec<Created>, sqlx::Error> {
    let created = sqlx::query(INSERT.on(layout))
        .bind(rows.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(rows.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(rows.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(rows.iter().map(|(_, new)| stored_run(new.run_id)).bind_iter())
        .bind(rows.iter().map(|(_, new)| stored_status(&new.row)).bind_iter())
        .bind(rows.iter().map(|(_, new)| new.row.wake_at.map(Timestamp::as_micros)).bind_iter())
        .bind(rows.iter().map(|(_, new)| new.row.closed_at.map(Timestamp::as_micros)).bind_iter())
        .bind(rows.iter().map(|(_, new)| Uuid::from_bytes(new.request_hash)).bind_iter())
        .bind(rows.iter().map(|(_, new)| new.row.needs_attention).bind_iter())
        .bind(rows.iter().map(|(_, new)| stored_attempts(&new.row)).bind_iter())
        .fetch_all(connection)
        .await?;
    point(Point::ExecutionsWritten);
    created.iter().map(|row| Ok(((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?), row.try_get(3)?))).collect()
}

pub(super) static EXISTING: Statement = Statement::new(
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL
     FROM unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)
     JOIN overdue.executions AS e ON e.shard = w.shard AND e.type = w.type AND e.id = w.id /*citus AND e.shard = ANY ($1)*/
     JOIN overdue.types AS t ON t.code = e.type
     ORDER BY t.name, e.id",
);

/// Those of the named executions that exist.
pub(super) async fn existing(
    connection: &mut PgConnection,
    layout: &Layout,
    keys: &[CodedKey<'_>],
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(EXISTING.on(layout))
        .bind(keys.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(keys.iter().map(|(_, code, _)| *code).bind_iter())
        .bind(keys.iter().map(|(.., id)| *id).bind_iter())
        .fetch_all(connection)
        .await?;
    rows.iter().map(execution_of).collect()
}

pub(super) static LOCK: Statement = Statement::new(
    "SELECT count(*) FROM (
         SELECT 1
         FROM unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)
         JOIN overdue.executions AS e ON e.shard = w.shard AND e.type = w.type AND e.id = w.id
          /*citus AND e.shard = ANY ($1)*/
         ORDER BY e.shard, e.type, e.id
         FOR NO KEY UPDATE OF e) AS locked",
);

/// Locks rows as an update of them would; those that exist.
pub(super) async fn lock(connection: &mut PgConnection, layout: &Layout, keys: &[CodedKey<'_>]) -> Result<(), sqlx::Error> {
    lock_with(connection, LOCK.on(layout), keys).await
}

pub(super) static LOCK_SHARED: Statement = Statement::new(
    "SELECT count(*) FROM (
         SELECT 1
         FROM unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)
         JOIN overdue.executions AS e ON e.shard = w.shard AND e.type = w.type AND e.id = w.id
          /*citus AND e.shard = ANY ($1)*/
         ORDER BY e.shard, e.type, e.id
         FOR SHARE OF e) AS locked",
);

/// Keeps rows from being updated by others; those that exist.
pub(super) async fn lock_shared(
    connection: &mut PgConnection,
    layout: &Layout,
    keys: &[CodedKey<'_>],
) -> Result<(), sqlx::Error> {
    lock_with(connection, LOCK_SHARED.on(layout), keys).await
}

async fn lock_with(connection: &mut PgConnection, sql: &'static str, keys: &[CodedKey<'_>]) -> Result<(), sqlx::Error> {
    sqlx::query(sql)
        .bind(keys.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(keys.iter().map(|(_, code, _)| *code).bind_iter())
        .bind(keys.iter().map(|(.., id)| *id).bind_iter())
        .execute(connection)
        .await
        .map(drop)
}

pub(super) static UNEXPECTED: Statement = Statement::new(
    "SELECT w.place
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::uuid[], $5::integer[], $6::bigint[])
          WITH ORDINALITY AS w (shard, type, id, run_id, rev, first_event, place)
     LEFT JOIN overdue.executions AS e ON e.shard = w.shard AND e.type = w.type AND e.id = w.id /*citus AND e.shard = ANY ($1)*/
     LEFT JOIN overdue.history AS h ON h.shard = w.shard AND h.run_id = w.run_id AND h.first_event = w.first_event
      /*citus AND h.shard = ANY ($1)*/
     WHERE e.run_id IS NULL OR e.run_id <> w.run_id OR e.rev <> w.rev OR h.run_id IS NOT NULL
        OR (e.tombstone IS NOT NULL AND (w.rev IS NOT NULL OR w.first_event IS NOT NULL))
     ORDER BY w.place",
);

/// The places of those transitions whose execution is not as they expect it: not there, of another run, at another `rev`
/// where it matters, retired, or with their position taken.
pub(super) async fn unexpected(
    connection: &mut PgConnection,
    layout: &Layout,
    advances: &[(CodedKey<'_>, &Advance)],
) -> Result<HashSet<usize>, Fault> {
    let (mut revs, mut positions) = (Vec::with_capacity(advances.len()), Vec::with_capacity(advances.len()));
    for (_, advance) in advances {
        revs.push(advance.row.as_ref().map(|_| stored_rev(advance.rev)).transpose()?);
        positions.push(advance.record.as_ref().map(event_number).transpose()?);
    }
    let rows = sqlx::query(UNEXPECTED.on(layout))
        .bind(advances.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(advances.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(advances.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(advances.iter().map(|(_, advance)| stored_run(advance.run_id)).bind_iter())
        .bind(revs)
        .bind(positions)
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().map(|row| row.try_get(0).map(place)).collect::<Result<_, _>>()?)
}

pub(super) static UPDATE: Statement = Statement::new(
    "UPDATE overdue.executions AS e
     SET rev = e.rev + 1, status = w.status, wake_at = w.wake_at, closed_at = w.closed_at,
         needs_attention = w.needs_attention, attempts = w.attempts, parked_by = w.parked_by, parked_since = w.parked_since
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::integer[], $5::smallint[], $6::bigint[], $7::bigint[],
                 $8::boolean[], $9::bytea[], $10::text[], $11::bigint[])
          AS w (shard, type, id, rev, status, wake_at, closed_at, needs_attention, attempts, parked_by, parked_since)
     WHERE e.shard = w.shard AND e.type = w.type AND e.id = w.id AND e.rev = w.rev
       /*citus AND e.shard = ANY ($1)*/",
);

/// Rewrites rows that stand as expected: key, `rev` as it is, new values.
pub(super) async fn update(
    connection: &mut PgConnection,
    layout: &Layout,
    mut changes: Vec<(CodedKey<'_>, u64, &RowChange)>,
) -> Result<(), Fault> {
    if changes.is_empty() {
        return Ok(());
    }
    changes.sort_unstable_by_key(|(key, ..)| *key);
    let revs = changes.iter().map(|(_, rev, _)| stored_rev(*rev)).collect::<Result<Vec<i32>, Fault>>()?;
    let done = sqlx::query(UPDATE.on(layout))
        .bind(changes.iter().map(|((shard, ..), ..)| *shard).bind_iter())
        .bind(changes.iter().map(|((_, code, _), ..)| *code).bind_iter())
        .bind(changes.iter().map(|((.., id), ..)| *id).bind_iter())
        .bind(revs)
        .bind(changes.iter().map(|(.., row)| stored_status(row)).bind_iter())
        .bind(changes.iter().map(|(.., row)| row.wake_at.map(Timestamp::as_micros)).bind_iter())
        .bind(changes.iter().map(|(.., row)| row.closed_at.map(Timestamp::as_micros)).bind_iter())
        .bind(changes.iter().map(|(.., row)| row.needs_attention).bind_iter())
        .bind(changes.iter().map(|(.., row)| stored_attempts(row)).bind_iter())
        .bind(changes.iter().map(|(.., row)| row.parked.as_ref().map(|parked| parked.gate.as_str())).bind_iter())
        .bind(changes.iter().map(|(.., row)| row.parked.as_ref().map(|parked| parked.since.as_micros())).bind_iter())
        .execute(connection)
        .await?;
    point(Point::ExecutionsWritten);
    if done.rows_affected() == changes.len() as u64 { Ok(()) } else { Err(Fault::Overtaken("the row of an execution")) }
}

pub(super) const FIND: &str = "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL
     FROM overdue.types AS t JOIN overdue.executions AS e ON e.type = t.code
     WHERE e.shard = $1 AND t.name = $2 AND e.id = $3";

/// The row of one execution.
pub(super) async fn find(connection: &mut PgConnection, shard: u16, key: &WorkflowKey) -> Result<Option<Execution>, sqlx::Error> {
    let Some(shard) = stored_shards(&[shard]).pop() else { return Ok(None) };
    sqlx::query(FIND)
        .bind(shard)
        .bind(key.workflow_type())
        .bind(key.id())
        .fetch_optional(connection)
        .await?
        .map(|row| execution_of(&row))
        .transpose()
}

/// What an execution waits behind, in the columns `gate` and the next.
pub(super) fn parked_of(row: &PgRow, gate: usize) -> Result<Option<Parked>, sqlx::Error> {
    let (gate, since): (Option<String>, Option<i64>) = (row.try_get(gate)?, row.try_get(gate + 1)?);
    Ok(gate.zip(since).map(|(gate, since)| Parked { gate, since: Timestamp::from_micros(since) }))
}

/// The execution in the first twelve columns of a row.
pub(super) fn execution_of(row: &PgRow) -> Result<Execution, sqlx::Error> {
    let status: i16 = row.try_get(4)?;
    let rev: i32 = row.try_get(7)?;
    let attempts: Option<Vec<u8>> = row.try_get(10)?;
    Ok(Execution {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        shard: shard_of("executions.shard", row.try_get(2)?)?,
        run_id: RunId(row.try_get(3)?),
        status: Status::from_code(i64::from(status)).ok_or_else(|| unreadable("executions.status", status))?,
        wake_at: row.try_get::<Option<i64>, _>(5)?.map(Timestamp::from_micros),
        closed_at: row.try_get::<Option<i64>, _>(6)?.map(Timestamp::from_micros),
        rev: u64::try_from(rev).map_err(|_| unreadable("executions.rev", rev))?,
        request_hash: row.try_get::<Uuid, _>(8)?.into_bytes(),
        needs_attention: row.try_get(9)?,
        attempts: attempts.map(Bytes::from).unwrap_or_default(),
        retired: row.try_get(11)?,
    })
}
