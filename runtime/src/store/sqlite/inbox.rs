//! The inbox: signals that are stored and not yet part of a history.

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::error::unreadable;
use super::executions::CodedKey;
use super::values::{Sized, four, limit_of, place, sixteen, sixty_four, sized};
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{CarriedSignal, InboxRow, Status};
use crate::time::Timestamp;

/// Names an inbox row: number of its type, workflow id, signal id.
pub(super) type RowKey<'a> = (i64, &'a str, &'a str);

pub(super) async fn count(connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM inbox").fetch_one(connection).await?;
    Ok(rows.unsigned_abs())
}

pub(super) static UNREAD: Sized = sized!(
    "WITH w (place, type, id) AS (VALUES ",
    "(?, ?, ?)",
    ")
     SELECT w.place, x.signal_id
     FROM w CROSS JOIN inbox AS x ON x.type = w.type AND x.id = w.id
     WHERE x.held = 0
     ORDER BY w.place, x.signal_id"
);

/// The signal ids of the rows that are not held, of each of the named executions.
pub(super) async fn unread(connection: &mut SqliteConnection, keys: &[CodedKey<'_>]) -> Result<Vec<Vec<String>>, sqlx::Error> {
    let mut unread: Vec<Vec<String>> = keys.iter().map(|_| Vec::new()).collect();
    let asked: Vec<(usize, &CodedKey<'_>)> = keys.iter().enumerate().collect();
    for (sql, piece) in UNREAD.pieces(&asked) {
        let mut query = sqlx::query(sql);
        for (index, (code, id)) in piece {
            query = query.bind(i64::try_from(*index).expect("a batch has few writes")).bind(*code).bind(*id);
        }
        for row in query.fetch_all(&mut *connection).await? {
            unread[place(row.try_get(0)?)].push(row.try_get(1)?);
        }
    }
    Ok(unread)
}

pub(super) static KNOWN: Sized = sized!(
    "WITH w (place, type, id, signal_id) AS (VALUES ",
    "(?, ?, ?, ?)",
    ")
     SELECT w.place,
            (SELECT count(*) FROM inbox AS c WHERE c.type = w.type AND c.id = w.id),
            (SELECT x.identity FROM inbox AS x WHERE x.type = w.type AND x.id = w.id AND x.signal_id = w.signal_id)
     FROM w
     ORDER BY w.place"
);

/// What is stored already where a signal is to go.
pub(super) struct Known {
    /// Rows of the same execution.
    pub(super) rows: usize,
    /// What the row with the same signal id says.
    pub(super) identity: Option<[u8; 16]>,
}

/// What is known of each of these rows, in the order of `keys`.
pub(super) async fn known(connection: &mut SqliteConnection, keys: &[RowKey<'_>]) -> Result<Vec<Known>, sqlx::Error> {
    let mut known = Vec::with_capacity(keys.len());
    let asked: Vec<(usize, &RowKey<'_>)> = keys.iter().enumerate().collect();
    for (sql, piece) in KNOWN.pieces(&asked) {
        let mut query = sqlx::query(sql);
        for (index, (code, id, signal_id)) in piece {
            let index = i64::try_from(*index).expect("a batch has few writes");
            query = query.bind(index).bind(*code).bind(*id).bind(*signal_id);
        }
        for row in query.fetch_all(&mut *connection).await? {
            let identity = row.try_get::<Option<&[u8]>, _>(2)?.map(identity_of).transpose()?;
            known.push(Known { rows: place(row.try_get(1)?), identity });
        }
    }
    Ok(known)
}

static INSERT: Sized = sized!(
    "INSERT INTO inbox (type, id, signal_id, shard, name, payload, identity, received_at) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?)",
    ""
);

/// Stores rows whose keys are free.
pub(super) async fn insert(connection: &mut SqliteConnection, rows: &[(i64, &InboxRow)]) -> Result<(), sqlx::Error> {
    for (sql, piece) in INSERT.pieces(rows) {
        let mut query = sqlx::query(sql);
        for (code, row) in piece {
            query = query
                .bind(*code)
                .bind(row.key.id())
                .bind(&row.signal_id)
                .bind(i64::from(row.shard))
                .bind(&row.name)
                .bind(row.payload.as_str())
                .bind(row.identity.to_vec())
                .bind(row.received_at.as_micros());
        }
        query.execute(&mut *connection).await?;
        point(Point::InboxWritten);
    }
    Ok(())
}

pub(super) static DELETE: Sized = sized!(
    "WITH w (type, id, signal_id) AS (VALUES ",
    "(?, ?, ?)",
    ")
     DELETE FROM inbox WHERE (type, id, signal_id) IN (SELECT w.type, w.id, w.signal_id FROM w)"
);

/// Removes rows; how many of them were there.
pub(super) async fn delete(connection: &mut SqliteConnection, keys: &[RowKey<'_>]) -> Result<u64, sqlx::Error> {
    let mut removed = 0;
    for (sql, piece) in DELETE.pieces(keys) {
        let mut query = sqlx::query(sql);
        for (code, id, signal_id) in piece {
            query = query.bind(*code).bind(*id).bind(*signal_id);
        }
        removed += query.execute(&mut *connection).await?.rows_affected();
        point(Point::InboxWritten);
    }
    Ok(removed)
}

pub(super) static HOLD: Sized = sized!(
    "WITH w (type, id, signal_id) AS (VALUES ",
    "(?, ?, ?)",
    ")
     UPDATE inbox SET held = 1 WHERE (type, id, signal_id) IN (SELECT w.type, w.id, w.signal_id FROM w)"
);

/// Marks rows held.
pub(super) async fn hold(connection: &mut SqliteConnection, keys: &[RowKey<'_>]) -> Result<(), sqlx::Error> {
    for (sql, piece) in HOLD.pieces(keys) {
        let mut query = sqlx::query(sql);
        for (code, id, signal_id) in piece {
            query = query.bind(*code).bind(*id).bind(*signal_id);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

pub(super) const READ: &str = "SELECT t.name, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at, w.key
         FROM json_each(?1) AS w
         CROSS JOIN types AS t ON t.name = w.value ->> 0
         CROSS JOIN inbox AS x ON x.type = t.code AND x.id = w.value ->> 1
         WHERE x.held = 0
         ORDER BY w.key, x.received_at, x.signal_id";

/// The rows that are not held of the executions named in `keys` (a JSON array of pairs of type and id), oldest first, each
/// with the place of its execution in `keys`.
pub(super) async fn read(connection: &mut SqliteConnection, keys: &str) -> Result<Vec<(usize, InboxRow)>, sqlx::Error> {
    sqlx::query(READ)
        .bind(keys)
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok((place(row.try_get(8)?), inbox_row_of(row)?)))
        .collect()
}

pub(super) const WHOLE: &str = "SELECT t.name, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at, x.held
         FROM (SELECT DISTINCT value FROM json_each(?1)) AS w
         CROSS JOIN types AS t ON t.name = w.value ->> 0
         CROSS JOIN inbox AS x ON x.type = t.code AND x.id = w.value ->> 1
         ORDER BY t.name, x.id, x.signal_id";

/// All rows, held or not, of the executions named in `keys` (a JSON array of pairs of type and id).
pub(super) async fn whole(connection: &mut SqliteConnection, keys: &str) -> Result<Vec<CarriedSignal>, sqlx::Error> {
    let rows = sqlx::query(WHOLE).bind(keys).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(CarriedSignal { row: inbox_row_of(row)?, held: row.try_get::<i64, _>(8)? != 0 })).collect()
}

pub(super) const UNREAD_KEYS: &str = "SELECT DISTINCT s.value, t.name, x.id
         FROM json_each(?1) AS s
         CROSS JOIN inbox AS x ON x.shard = s.value
         CROSS JOIN executions AS e ON e.type = x.type AND e.id = x.id
         CROSS JOIN types AS t ON t.code = x.type
         WHERE x.held = 0 AND e.status <> ?3
         ORDER BY s.value, t.name, x.id
         LIMIT ?2";

/// Existing executions of these shards (a JSON array) with rows that are not held, but for blocked ones, by shard and key.
pub(super) async fn unread_keys(
    connection: &mut SqliteConnection,
    shards: &str,
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    sqlx::query(UNREAD_KEYS)
        .bind(shards)
        .bind(limit_of(limit))
        .bind(Status::Blocked.code())
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok(WorkflowKey::new(row.try_get::<&str, _>(1)?, row.try_get::<&str, _>(2)?)))
        .collect()
}

pub(super) const UNCLAIMED: &str = "SELECT t.name, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at
         FROM inbox AS x INDEXED BY inbox_age
         CROSS JOIN types AS t ON t.code = x.type
         WHERE x.received_at < ?2 AND x.held = 0
           AND x.shard IN (SELECT s.value FROM json_each(?1) AS s)
           AND NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.type = x.type AND e.id = x.id)
         ORDER BY x.received_at, t.name, x.id, x.signal_id
         LIMIT ?3";

/// Rows of these shards (a JSON array), received before `before`, without an execution, oldest first.
pub(super) async fn unclaimed(
    connection: &mut SqliteConnection,
    shards: &str,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<InboxRow>, sqlx::Error> {
    sqlx::query(UNCLAIMED)
        .bind(shards)
        .bind(before.as_micros())
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?
        .iter()
        .map(inbox_row_of)
        .collect()
}

pub(super) fn inbox_row_of(row: &SqliteRow) -> Result<InboxRow, sqlx::Error> {
    let shard: i64 = row.try_get(3)?;
    Ok(InboxRow {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        shard: u16::try_from(shard).map_err(|_| unreadable("inbox.shard", shard))?,
        signal_id: row.try_get(2)?,
        name: row.try_get(4)?,
        payload: Payload::from_json(row.try_get(5)?).map_err(|error| unreadable("inbox.payload", error))?,
        identity: identity_of(row.try_get(6)?)?,
        received_at: Timestamp::from_micros(row.try_get(7)?),
        unchecked: false,
    })
}

fn identity_of(bytes: &[u8]) -> Result<[u8; 16], sqlx::Error> {
    bytes.try_into().map_err(|_| unreadable("inbox.identity", "a value of another length"))
}
