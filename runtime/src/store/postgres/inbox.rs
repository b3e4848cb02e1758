//! The inbox: signals that are stored and not yet part of a history.

use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection, PgRow};
use uuid::Uuid;

use super::executions::CodedKey;
use super::layout::Layout;
use super::statement::Statement;
use super::values::{limit_of, place, shard_of};
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{InboxRow, Status};
use crate::time::Timestamp;

/// The identity of a signal that no program has checked: it was sent inside the database.
pub(super) const UNCHECKED: Uuid = Uuid::nil();

/// Names an inbox row: its execution and its signal id.
pub(super) type RowKey<'a> = (CodedKey<'a>, &'a str);

pub(super) static COUNT: Statement =
    Statement::new("SELECT least(count(*), $1) FROM /*one*/(SELECT 1 FROM overdue.inbox LIMIT $1)/*citus overdue.inbox*/ AS x");

/// Rows in the inbox, counted up to `limit`.
pub(super) async fn count(connection: &mut PgConnection, layout: &Layout, limit: usize) -> Result<usize, sqlx::Error> {
    let rows: i64 = sqlx::query_scalar(COUNT.on(layout)).bind(limit_of(limit)).fetch_one(connection).await?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

pub(super) static COUNT_EACH: Statement = Statement::new(
    "SELECT c.rows
     FROM unnest($1::smallint[], $2::smallint[], $3::text[]) WITH ORDINALITY AS w (shard, type, id, place)
     CROSS JOIN LATERAL (
         SELECT count(*) AS rows FROM (
             SELECT 1 FROM overdue.inbox AS x
             WHERE x.shard = w.shard AND x.type = w.type AND x.id = w.id /*citus AND x.shard = ANY ($1)*/
             LIMIT $4) AS first) AS c
     ORDER BY w.place",
);

/// Rows of each of these executions, counted up to `limit`, in the order of `keys`.
pub(super) async fn count_each(
    connection: &mut PgConnection,
    layout: &Layout,
    keys: &[CodedKey<'_>],
    limit: usize,
) -> Result<Vec<usize>, sqlx::Error> {
    let rows: Vec<i64> = sqlx::query_scalar(COUNT_EACH.on(layout))
        .bind(keys.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(keys.iter().map(|(_, code, _)| *code).bind_iter())
        .bind(keys.iter().map(|(.., id)| *id).bind_iter())
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|rows| usize::try_from(rows).unwrap_or(usize::MAX)).collect())
}

pub(super) static UNREAD: Statement = Statement::new(
    "SELECT w.place, x.signal_id
     FROM unnest($1::smallint[], $2::smallint[], $3::text[]) WITH ORDINALITY AS w (shard, type, id, place)
     JOIN overdue.inbox AS x ON x.shard = w.shard AND x.type = w.type AND x.id = w.id
     WHERE NOT x.held /*citus AND x.shard = ANY ($1)*/
     ORDER BY w.place, x.signal_id",
);

/// The signal ids of the rows that are not held, of each of the named executions.
pub(super) async fn unread(
    connection: &mut PgConnection,
    layout: &Layout,
    keys: &[CodedKey<'_>],
) -> Result<Vec<Vec<String>>, sqlx::Error> {
    let mut unread: Vec<Vec<String>> = keys.iter().map(|_| Vec::new()).collect();
    let rows = sqlx::query(UNREAD.on(layout))
        .bind(keys.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(keys.iter().map(|(_, code, _)| *code).bind_iter())
        .bind(keys.iter().map(|(.., id)| *id).bind_iter())
        .fetch_all(connection)
        .await?;
    for row in rows {
        unread[place(row.try_get(0)?)].push(row.try_get(1)?);
    }
    Ok(unread)
}

pub(super) static KNOWN: Statement = Statement::new(
    "SELECT w.place, x.identity, CASE WHEN x.identity = $5 THEN x.payload END
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[])
          WITH ORDINALITY AS w (shard, type, id, signal_id, place)
     JOIN overdue.inbox AS x ON x.shard = w.shard AND x.type = w.type AND x.id = w.id AND x.signal_id = w.signal_id
      /*citus AND x.shard = ANY ($1)*/
     ORDER BY w.place",
);

/// What a stored signal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// It was checked.
    Identity([u8; 16]),
    /// Nobody has checked it yet: the hash of its bare payload.
    Payload([u8; 16]),
}

impl Says {
    /// Whether a signal says the same.
    pub(super) fn same_as(&self, row: &InboxRow) -> bool {
        match self {
            Self::Identity(identity) => *identity == row.identity,
            Self::Payload(hash) => *hash == row.payload.canonical_hash(),
        }
    }
}

/// What the row with each of these keys says, in the order of `keys`; `None` where there is none.
pub(super) async fn known(
    connection: &mut PgConnection,
    layout: &Layout,
    keys: &[RowKey<'_>],
) -> Result<Vec<Option<Says>>, sqlx::Error> {
    let mut known = vec![None; keys.len()];
    for row in bind_keys(KNOWN.on(layout), keys).bind(UNCHECKED).fetch_all(connection).await? {
        known[place(row.try_get(0)?)] = Some(match row.try_get::<Option<&str>, _>(2)? {
            Some(payload) => Says::Payload(unchecked_payload(payload).canonical_hash()),
            None => Says::Identity(row.try_get::<Uuid, _>(1)?.into_bytes()),
        });
    }
    Ok(known)
}

pub(super) static INSERT: Statement = Statement::new(
    "INSERT INTO overdue.inbox AS x (shard, type, id, signal_id, name, payload, identity, received_at)
     SELECT /*one*/w.shard/*citus a.shard*/, w.type, w.id, w.signal_id, w.name, w.payload, w.identity, w.received_at
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::bigint[])
          AS w (shard, type, id, signal_id, name, payload, identity, received_at)
     /*citus JOIN overdue.anchors AS a ON a.shard = w.shard AND a.shard = ANY ($1)*/
     ON CONFLICT (shard, type, id, signal_id) DO NOTHING",
);

/// Stores the rows whose keys are free; how many of them were. `rows` is sorted by key, each of which is there once.
pub(super) async fn insert(
    connection: &mut PgConnection,
    layout: &Layout,
    rows: &[(CodedKey<'_>, &InboxRow)],
) -> Result<u64, sqlx::Error> {
    if rows.is_empty() {
        return Ok(0);
    }
    let done = sqlx::query(INSERT.on(layout))
        .bind(rows.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(rows.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(rows.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(rows.iter().map(|(_, row)| &row.signal_id[..]).bind_iter())
        .bind(rows.iter().map(|(_, row)| &row.name[..]).bind_iter())
        .bind(rows.iter().map(|(_, row)| row.payload.as_str()).bind_iter())
        .bind(rows.iter().map(|(_, row)| stored_identity(row)).bind_iter())
        .bind(rows.iter().map(|(_, row)| row.received_at.as_micros()).bind_iter())
        .execute(connection)
        .await?;
    point(Point::InboxWritten);
    Ok(done.rows_affected())
}

/// A row that nobody has checked stays so.
fn stored_identity(row: &InboxRow) -> Uuid {
    if row.unchecked { UNCHECKED } else { Uuid::from_bytes(row.identity) }
}

pub(super) static DELETE: Statement = Statement::new(
    "DELETE FROM overdue.inbox AS x
     USING unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[]) AS w (shard, type, id, signal_id)
     WHERE x.shard = w.shard AND x.type = w.type AND x.id = w.id AND x.signal_id = w.signal_id
       /*citus AND x.shard = ANY ($1)*/",
);

/// Removes rows; those that are there.
pub(super) async fn delete(connection: &mut PgConnection, layout: &Layout, mut keys: Vec<RowKey<'_>>) -> Result<(), sqlx::Error> {
    if keys.is_empty() {
        return Ok(());
    }
    keys.sort_unstable();
    bind_keys(DELETE.on(layout), &keys).execute(connection).await?;
    point(Point::InboxWritten);
    Ok(())
}

pub(super) static HOLD: Statement = Statement::new(
    "UPDATE overdue.inbox AS x SET held = true
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[]) AS w (shard, type, id, signal_id)
     WHERE x.shard = w.shard AND x.type = w.type AND x.id = w.id AND x.signal_id = w.signal_id
       /*citus AND x.shard = ANY ($1)*/",
);

/// Marks rows held; those that are there.
pub(super) async fn hold(connection: &mut PgConnection, layout: &Layout, mut keys: Vec<RowKey<'_>>) -> Result<(), sqlx::Error> {
    if keys.is_empty() {
        return Ok(());
    }
    keys.sort_unstable();
    bind_keys(HOLD.on(layout), &keys).execute(connection).await.map(drop)
}

pub(super) type Query = sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments>;

pub(super) fn bind_keys(sql: &'static str, keys: &[RowKey<'_>]) -> Query {
    sqlx::query(sql)
        .bind(keys.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(keys.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(keys.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(keys.iter().map(|(_, signal_id)| *signal_id).bind_iter())
}

pub(super) static UNREAD_KEYS: Statement = Statement::new(
    "SELECT x.name, x.id
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT DISTINCT t.name, x.id
         FROM overdue.inbox AS x
         JOIN overdue.executions AS e ON e.shard = x.shard AND e.type = x.type AND e.id = x.id
         JOIN overdue.types AS t ON t.code = x.type
         WHERE x.shard = s.shard AND NOT x.held AND e.status <> $3
           /*citus AND x.shard = ANY ($1) AND e.shard = ANY ($1)*/
         ORDER BY t.name, x.id
         LIMIT $2) AS x
     ORDER BY s.shard, x.name, x.id
     LIMIT $2",
);

/// Existing executions of these shards with rows that are not held, but for blocked ones, by shard and key.
pub(super) async fn unread_keys(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    sqlx::query(UNREAD_KEYS.on(layout))
        .bind(shards)
        .bind(limit_of(limit))
        .bind(i16::try_from(Status::Blocked.code()).expect("there are few statuses"))
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok(WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?)))
        .collect()
}

pub(super) static UNCLAIMED: Statement = Statement::new(
    "SELECT x.type_name, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT t.name AS type_name, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at
         FROM overdue.inbox AS x
         JOIN overdue.types AS t ON t.code = x.type
         WHERE x.shard = s.shard AND x.received_at < $2 AND NOT x.held /*citus AND x.shard = ANY ($1)*/
           AND NOT EXISTS (
               SELECT 1 FROM overdue.executions AS e WHERE e.shard = x.shard AND e.type = x.type AND e.id = x.id
               /*citus AND e.shard = ANY ($1)*/)
         ORDER BY x.received_at, t.name, x.id, x.signal_id
         LIMIT $3) AS x
     ORDER BY x.received_at, x.type_name, x.id, x.signal_id
     LIMIT $3",
);

/// Rows of these shards, received before `before`, without an execution, oldest first.
pub(super) async fn unclaimed(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    before: Timestamp,
    limit: usize,
) -> Result<Vec<InboxRow>, sqlx::Error> {
    sqlx::query(UNCLAIMED.on(layout))
        .bind(shards)
        .bind(before.as_micros())
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?
        .iter()
        .map(inbox_row_of)
        .collect()
}

/// The inbox row in the first eight columns of a row.
pub(super) fn inbox_row_of(row: &PgRow) -> Result<InboxRow, sqlx::Error> {
    let (payload, identity, unchecked) = content_of(row.try_get(5)?, row.try_get(6)?)?;
    Ok(InboxRow {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        signal_id: row.try_get(2)?,
        shard: shard_of("inbox.shard", row.try_get(3)?)?,
        name: row.try_get(4)?,
        payload,
        identity,
        received_at: Timestamp::from_micros(row.try_get(7)?),
        unchecked,
    })
}

/// The payload and the identity of a stored signal, and whether nobody has checked it.
pub(super) fn content_of(payload: &str, identity: Uuid) -> Result<(Payload, [u8; 16], bool), sqlx::Error> {
    if identity == UNCHECKED {
        let payload = unchecked_payload(payload);
        let identity = payload.canonical_hash();
        return Ok((payload, identity, true));
    }
    let payload = Payload::from_json(payload).map_err(|error| super::error::unreadable("inbox.payload", error))?;
    Ok((payload, identity.into_bytes(), false))
}

/// What the database takes for JSON and this program does not becomes `null`, which no signal is: it is then refused, and
/// holds nothing up.
fn unchecked_payload(stored: &str) -> Payload {
    Payload::from_json(stored).unwrap_or_else(|_| Payload::null())
}
