//! The outbox: events that sinks do not have yet.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::commit::Batch;
use super::error::{Fault, store_error, unreadable};
use super::values::{Sized, four, limit_of, sixteen, sixty_four, sized};
use super::{SqliteStore, shards_as_json};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::store::{Dispatch, Outbox, OutboxChange, OutboxFilter, OutboxKey, OutboxRow, OutboxState, Outcome, StoreError};
use crate::time::Timestamp;

#[async_trait]
impl Outbox for SqliteStore {
    async fn outbox_due(&self, sink: &str, shards: &[u16], until: Timestamp, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        let shards = shards_as_json(shards);
        due(&mut *self.readers.connection().await?, sink, &shards, until, limit).await.map_err(store_error)
    }

    async fn outbox_page(
        &self,
        filter: &OutboxFilter,
        after: Option<&OutboxKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        page(&mut *self.readers.page().await?, filter, after, limit).await.map_err(store_error)
    }

    async fn outbox_row(&self, place: &OutboxKey) -> Result<Option<OutboxRow>, StoreError> {
        row(&mut *self.readers.connection().await?, place).await.map_err(store_error)
    }
}

pub(super) static INSERT: Sized = sized!(
    "WITH w (shard, sink, run_id, event, type, id, name, data, emitted_at, is_first) AS (VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ")
     INSERT INTO outbox (shard, sink, run_id, event, type, id, name, data, emitted_at, next_at)
     SELECT w.shard, w.sink, w.run_id, w.event, w.type, w.id, w.name, w.data, w.emitted_at,
            CASE WHEN w.is_first AND NOT EXISTS (
                SELECT 1 FROM outbox AS o WHERE o.shard = w.shard AND o.sink = w.sink AND o.run_id = w.run_id)
            THEN w.emitted_at END
     FROM w
     WHERE true
     ON CONFLICT (shard, sink, run_id, event) DO NOTHING"
);

/// Stores what transitions emit; of each run and sink the first is due, unless earlier ones wait.
pub(super) async fn insert(connection: &mut SqliteConnection, mut rows: Vec<&OutboxRow>) -> Result<(), Fault> {
    rows.sort_unstable_by(|one, other| one.place.cmp(&other.place));
    let is_first = |at: usize| {
        let run = |row: &OutboxRow| (row.place.shard, row.place.sink.clone(), row.place.run_id);
        at == 0 || run(rows[at - 1]) != run(rows[at])
    };
    let rows: Vec<(&OutboxRow, bool)> = rows.iter().enumerate().map(|(at, row)| (*row, is_first(at))).collect();
    for (sql, piece) in INSERT.pieces(&rows) {
        let mut query = sqlx::query(sql);
        for (row, is_first) in piece {
            query = query
                .bind(i64::from(row.place.shard))
                .bind(row.place.sink.as_str())
                .bind(row.place.run_id.as_bytes().to_vec())
                .bind(stored_event(&row.place)?)
                .bind(row.key.workflow_type())
                .bind(row.key.id())
                .bind(row.name.as_str())
                .bind(row.data.as_str())
                .bind(row.emitted_at.as_micros())
                .bind(*is_first);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Stores a row as it stands.
pub(super) async fn put(connection: &mut SqliteConnection, row: &OutboxRow) -> Result<(), Fault> {
    sqlx::query(
        "INSERT INTO outbox (shard, sink, run_id, event, type, id, name, data, emitted_at, next_at, attempts, failing_since,
                             parked, failure)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )
    .bind(i64::from(row.place.shard))
    .bind(row.place.sink.as_str())
    .bind(row.place.run_id.as_bytes().to_vec())
    .bind(stored_event(&row.place)?)
    .bind(row.key.workflow_type())
    .bind(row.key.id())
    .bind(row.name.as_str())
    .bind(row.data.as_str())
    .bind(row.emitted_at.as_micros())
    .bind(row.next_at.map(Timestamp::as_micros))
    .bind(i64::from(row.attempts))
    .bind(row.failing_since.map(Timestamp::as_micros))
    .bind(row.parked)
    .bind(row.failure.as_deref())
    .execute(connection)
    .await?;
    Ok(())
}

/// The changes of one round.
pub(super) async fn apply(
    batch: &mut Batch<'_>,
    dispatches: &[(usize, &Dispatch)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    for (index, dispatch) in dispatches {
        let changed = match &dispatch.change {
            OutboxChange::Remove { now } => {
                let removed = remove(batch.connection, dispatch).await?;
                if removed {
                    promote(batch.connection, &dispatch.place, *now).await?;
                }
                removed
            }
            OutboxChange::Update { .. } => update(batch.connection, dispatch).await?,
        };
        outcomes[*index] = Some(if changed { Outcome::Dispatched } else { Outcome::Stale });
    }
    Ok(())
}

pub(super) const REMOVE: &str =
    "DELETE FROM outbox WHERE shard = ?1 AND sink = ?2 AND run_id = ?3 AND event = ?4 AND attempts = ?5";

async fn remove(connection: &mut SqliteConnection, dispatch: &Dispatch) -> Result<bool, Fault> {
    let removed = sqlx::query(REMOVE)
        .bind(i64::from(dispatch.place.shard))
        .bind(dispatch.place.sink.as_str())
        .bind(dispatch.place.run_id.as_bytes().to_vec())
        .bind(stored_event(&dispatch.place)?)
        .bind(i64::from(dispatch.attempts))
        .execute(connection)
        .await?;
    Ok(removed.rows_affected() > 0)
}

pub(super) const PROMOTE: &str = "UPDATE outbox SET next_at = ?4
     WHERE shard = ?1 AND sink = ?2 AND run_id = ?3 AND next_at IS NULL AND parked = 0
       AND event = (SELECT min(e.event) FROM outbox AS e WHERE e.shard = ?1 AND e.sink = ?2 AND e.run_id = ?3)";

/// Makes the first row of a run due that only waited for one before it.
async fn promote(connection: &mut SqliteConnection, place: &OutboxKey, now: Timestamp) -> Result<(), Fault> {
    sqlx::query(PROMOTE)
        .bind(i64::from(place.shard))
        .bind(place.sink.as_str())
        .bind(place.run_id.as_bytes().to_vec())
        .bind(now.as_micros())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) const UPDATE: &str = "UPDATE outbox SET next_at = ?6, attempts = ?7, failing_since = ?8, parked = ?9, failure = ?10
     WHERE shard = ?1 AND sink = ?2 AND run_id = ?3 AND event = ?4 AND attempts = ?5";

async fn update(connection: &mut SqliteConnection, dispatch: &Dispatch) -> Result<bool, Fault> {
    let OutboxChange::Update { next_at, attempts, failing_since, parked, failure } = &dispatch.change else { return Ok(false) };
    let updated = sqlx::query(UPDATE)
        .bind(i64::from(dispatch.place.shard))
        .bind(dispatch.place.sink.as_str())
        .bind(dispatch.place.run_id.as_bytes().to_vec())
        .bind(stored_event(&dispatch.place)?)
        .bind(i64::from(dispatch.attempts))
        .bind(next_at.map(Timestamp::as_micros))
        .bind(i64::from(*attempts))
        .bind(failing_since.map(Timestamp::as_micros))
        .bind(*parked)
        .bind(failure.as_deref())
        .execute(connection)
        .await?;
    Ok(updated.rows_affected() > 0)
}

pub(super) const DUE: &str =
    "SELECT o.shard, o.sink, o.run_id, o.event, o.type, o.id, o.name, o.data, o.emitted_at, o.next_at, o.attempts,
            o.failing_since, o.parked, o.failure
     FROM (
         SELECT d.number, d.next_at, d.run_id, d.event
         FROM json_each(?1) AS s
         CROSS JOIN outbox AS d ON d.number IN (
             SELECT f.number FROM outbox AS f INDEXED BY outbox_due
             WHERE f.shard = s.value AND f.sink = ?2 AND f.next_at <= ?3
             ORDER BY f.next_at, f.run_id, f.event LIMIT ?4)
         ORDER BY d.next_at, d.run_id, d.event
         LIMIT ?4) AS w
     CROSS JOIN outbox AS o ON o.number = w.number
     ORDER BY w.next_at, w.run_id, w.event";

async fn due(
    connection: &mut SqliteConnection,
    sink: &str,
    shards: &str,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<OutboxRow>, sqlx::Error> {
    let rows =
        sqlx::query(DUE).bind(shards).bind(sink).bind(until.as_micros()).bind(limit_of(limit)).fetch_all(connection).await?;
    rows.iter().map(row_of).collect()
}

pub(super) const PAGE: &str =
    "SELECT o.shard, o.sink, o.run_id, o.event, o.type, o.id, o.name, o.data, o.emitted_at, o.next_at, o.attempts,
            o.failing_since, o.parked, o.failure
     FROM outbox AS o
     WHERE (o.shard, o.sink, o.run_id, o.event) > (?1, ?2, ?3, ?4) AND (?5 IS NULL OR o.sink = ?5)
       AND (?6 IS NULL OR o.attempts = 0 AND o.parked = 0)
     ORDER BY o.shard, o.sink, o.run_id, o.event
     LIMIT ?7";

pub(super) const TRIED: &str =
    "SELECT o.shard, o.sink, o.run_id, o.event, o.type, o.id, o.name, o.data, o.emitted_at, o.next_at, o.attempts,
            o.failing_since, o.parked, o.failure
     FROM outbox AS o INDEXED BY outbox_tried
     WHERE o.attempts > 0 AND (o.shard, o.sink, o.run_id, o.event) > (?1, ?2, ?3, ?4) AND (?5 IS NULL OR o.sink = ?5)
       AND o.parked = ?6
     ORDER BY o.shard, o.sink, o.run_id, o.event
     LIMIT ?7";

/// Rows behind `after`, in the order of their names.
pub(super) async fn page(
    connection: &mut SqliteConnection,
    filter: &OutboxFilter,
    after: Option<&OutboxKey>,
    limit: usize,
) -> Result<Vec<OutboxRow>, sqlx::Error> {
    let (sql, flag) = match filter.state {
        None => (PAGE, None),
        Some(OutboxState::Waiting) => (PAGE, Some(true)),
        Some(OutboxState::Failing) => (TRIED, Some(false)),
        Some(OutboxState::NeedsAttention) => (TRIED, Some(true)),
    };
    let rows = sqlx::query(sql)
        .bind(after.map_or(-1, |after| i64::from(after.shard)))
        .bind(after.map_or("", |after| after.sink.as_str()))
        .bind(after.map(|after| after.run_id.as_bytes().to_vec()).unwrap_or_default())
        .bind(after.map_or(0, |after| i64::try_from(after.event).unwrap_or(i64::MAX)))
        .bind(filter.sink.as_deref())
        .bind(flag)
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(row_of).collect()
}

pub(super) const ROW: &str =
    "SELECT o.shard, o.sink, o.run_id, o.event, o.type, o.id, o.name, o.data, o.emitted_at, o.next_at, o.attempts,
            o.failing_since, o.parked, o.failure
     FROM outbox AS o
     WHERE o.shard = ?1 AND o.sink = ?2 AND o.run_id = ?3 AND o.event = ?4";

/// The row of this name.
pub(super) async fn row(connection: &mut SqliteConnection, place: &OutboxKey) -> Result<Option<OutboxRow>, sqlx::Error> {
    let row = sqlx::query(ROW)
        .bind(i64::from(place.shard))
        .bind(place.sink.as_str())
        .bind(place.run_id.as_bytes().to_vec())
        .bind(i64::try_from(place.event).unwrap_or(i64::MAX))
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(row_of).transpose()
}

fn stored_event(place: &OutboxKey) -> Result<i64, Fault> {
    i64::try_from(place.event).map_err(|_| Fault::Unstorable(format!("event number {}", place.event)))
}

fn row_of(row: &SqliteRow) -> Result<OutboxRow, sqlx::Error> {
    let shard: i64 = row.try_get(0)?;
    let run_id = Uuid::from_slice(row.try_get(2)?).map_err(|_| unreadable("outbox.run_id", "a value of another length"))?;
    let data: String = row.try_get(7)?;
    let attempts: i64 = row.try_get(10)?;
    Ok(OutboxRow {
        place: OutboxKey {
            shard: u16::try_from(shard).map_err(|_| unreadable("outbox.shard", shard))?,
            sink: row.try_get(1)?,
            run_id: RunId(run_id),
            event: row.try_get::<i64, _>(3)?.unsigned_abs(),
        },
        key: WorkflowKey::new(row.try_get::<&str, _>(4)?, row.try_get::<&str, _>(5)?),
        name: row.try_get(6)?,
        data: Payload::from_json(&data).map_err(|_| unreadable("outbox.data", "a text that is not JSON"))?,
        emitted_at: Timestamp::from_micros(row.try_get(8)?),
        next_at: row.try_get::<Option<i64>, _>(9)?.map(Timestamp::from_micros),
        attempts: u32::try_from(attempts).map_err(|_| unreadable("outbox.attempts", attempts))?,
        failing_since: row.try_get::<Option<i64>, _>(11)?.map(Timestamp::from_micros),
        parked: row.try_get::<i64, _>(12)? != 0,
        failure: row.try_get(13)?,
    })
}
