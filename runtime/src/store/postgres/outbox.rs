//! The outbox: events that sinks do not have yet.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection, PgRow};

use super::PostgresStore;
use super::commit::Transaction;
use super::error::{Fault, unreadable};
use super::layout::Layout;
use super::readers::answer;
use super::statement::Statement;
use super::values::{limit_of, shard_of, stored_run, stored_shard, stored_shards};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::store::{Dispatch, Outbox, OutboxChange, OutboxFilter, OutboxKey, OutboxRow, OutboxState, Outcome, StoreError};
use crate::time::Timestamp;

#[async_trait]
impl Outbox for PostgresStore {
    async fn outbox_due(&self, sink: &str, shards: &[u16], until: Timestamp, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(due(&mut connection, &self.layout, sink, &stored_shards(shards), until, limit)).await
    }

    async fn outbox_page(
        &self,
        filter: &OutboxFilter,
        after: Option<&OutboxKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(page(&mut connection, filter, after, limit)).await
    }

    async fn outbox_row(&self, place: &OutboxKey) -> Result<Option<OutboxRow>, StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(row(&mut connection, place)).await
    }
}

pub(super) static INSERT: Statement = Statement::new(
    "INSERT INTO overdue.outbox (shard, sink, run_id, event, type, id, name, data, emitted_at, next_at)
     SELECT /*one*/w.shard/*citus a.shard*/, w.sink, w.run_id, w.event, w.type, w.id, w.name, w.data, w.emitted_at,
            CASE WHEN w.is_first AND NOT EXISTS (
                SELECT 1 FROM overdue.outbox AS o
                WHERE o.shard = /*one*/w.shard/*citus a.shard AND o.shard = ANY ($1)*/ AND o.sink = w.sink AND o.run_id = w.run_id)
            THEN w.emitted_at END
     FROM unnest($1::smallint[], $2::text[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
                 $9::bigint[], $10::boolean[])
          AS w (shard, sink, run_id, event, type, id, name, data, emitted_at, is_first)
     /*citus JOIN overdue.anchors AS a ON a.shard = w.shard AND a.shard = ANY ($1)*/
     ON CONFLICT (shard, sink, run_id, event) DO NOTHING",
);

/// Stores what transitions emit; of each run and sink the first is due, unless earlier ones wait.
pub(super) async fn insert(connection: &mut PgConnection, layout: &Layout, mut rows: Vec<&OutboxRow>) -> Result<(), Fault> {
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable_by(|one, other| one.place.cmp(&other.place));
    let is_first = |at: usize| {
        let run = |row: &OutboxRow| (row.place.shard, row.place.sink.clone(), row.place.run_id);
        at == 0 || run(rows[at - 1]) != run(rows[at])
    };
    let is_first: Vec<bool> = (0..rows.len()).map(is_first).collect();
    let shards = rows.iter().map(|row| stored_shard(row.place.shard)).collect::<Result<Vec<i16>, Fault>>()?;
    let events = rows.iter().map(|row| stored_event(&row.place)).collect::<Result<Vec<i64>, Fault>>()?;
    sqlx::query(INSERT.on(layout))
        .bind(shards)
        .bind(rows.iter().map(|row| row.place.sink.as_str()).bind_iter())
        .bind(rows.iter().map(|row| stored_run(row.place.run_id)).bind_iter())
        .bind(events)
        .bind(rows.iter().map(|row| row.key.workflow_type()).bind_iter())
        .bind(rows.iter().map(|row| row.key.id()).bind_iter())
        .bind(rows.iter().map(|row| row.name.as_str()).bind_iter())
        .bind(rows.iter().map(|row| row.data.as_str()).bind_iter())
        .bind(rows.iter().map(|row| row.emitted_at.as_micros()).bind_iter())
        .bind(is_first)
        .execute(connection)
        .await?;
    Ok(())
}

/// Stores a row as it stands.
pub(super) async fn put(connection: &mut PgConnection, row: &OutboxRow) -> Result<(), Fault> {
    sqlx::query(
        "INSERT INTO overdue.outbox (shard, sink, run_id, event, type, id, name, data, emitted_at, next_at, attempts,
                                     failing_since, parked, failure)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    )
    .bind(stored_shard(row.place.shard)?)
    .bind(row.place.sink.as_str())
    .bind(stored_run(row.place.run_id))
    .bind(stored_event(&row.place)?)
    .bind(row.key.workflow_type())
    .bind(row.key.id())
    .bind(row.name.as_str())
    .bind(row.data.as_str())
    .bind(row.emitted_at.as_micros())
    .bind(row.next_at.map(Timestamp::as_micros))
    .bind(stored_attempts(row.attempts)?)
    .bind(row.failing_since.map(Timestamp::as_micros))
    .bind(row.parked)
    .bind(row.failure.as_deref())
    .execute(connection)
    .await?;
    Ok(())
}

/// The changes of one round.
pub(super) async fn apply(
    within: &mut Transaction<'_>,
    dispatches: &[(usize, &Dispatch)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if dispatches.is_empty() {
        return Ok(());
    }
    let mut sorted = dispatches.to_vec();
    sorted.sort_unstable_by(|(_, one), (_, other)| one.place.cmp(&other.place));
    let is_removal = |dispatch: &Dispatch| matches!(dispatch.change, OutboxChange::Remove { .. });
    let (removals, updates): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|(_, dispatch)| is_removal(dispatch));
    let layout = within.layout.clone();
    let mut changed = remove(within.connection, &layout, &removals).await?;
    // One that is stale makes nobody due.
    let removed: Vec<_> = removals.iter().copied().filter(|(_, dispatch)| changed.contains(&dispatch.place)).collect();
    promote(within.connection, &layout, &removed).await?;
    changed.extend(update(within.connection, &layout, &updates).await?);
    for (index, dispatch) in removals.iter().chain(&updates) {
        outcomes[*index] = Some(if changed.contains(&dispatch.place) { Outcome::Dispatched } else { Outcome::Stale });
    }
    Ok(())
}

type Indexed<'a> = (usize, &'a Dispatch);

pub(super) static REMOVE: Statement = Statement::new(
    "DELETE FROM overdue.outbox AS o
     USING unnest($1::smallint[], $2::text[], $3::uuid[], $4::bigint[], $5::integer[]) AS w (shard, sink, run_id, event, attempts)
     WHERE o.shard = w.shard AND o.sink = w.sink AND o.run_id = w.run_id AND o.event = w.event AND o.attempts = w.attempts
       /*citus AND o.shard = ANY ($1)*/
     RETURNING o.shard, o.sink, o.run_id, o.event",
);

async fn remove(connection: &mut PgConnection, layout: &Layout, removals: &[Indexed<'_>]) -> Result<Vec<OutboxKey>, Fault> {
    if removals.is_empty() {
        return Ok(Vec::new());
    }
    let Columns { shards, events, attempts } = columns(removals)?;
    let rows = sqlx::query(REMOVE.on(layout))
        .bind(shards)
        .bind(removals.iter().map(|(_, of)| of.place.sink.as_str()).bind_iter())
        .bind(removals.iter().map(|(_, of)| stored_run(of.place.run_id)).bind_iter())
        .bind(events)
        .bind(attempts)
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().map(key_of).collect::<Result<_, _>>()?)
}

pub(super) static PROMOTE: Statement = Statement::new(
    "UPDATE overdue.outbox AS o SET next_at = w.now
     FROM unnest($1::smallint[], $2::text[], $3::uuid[], $4::bigint[]) AS w (shard, sink, run_id, now)
     WHERE o.shard = w.shard AND o.sink = w.sink AND o.run_id = w.run_id AND o.next_at IS NULL AND NOT o.parked
       /*one*/AND o.event = (
           SELECT min(e.event) FROM overdue.outbox AS e WHERE e.shard = w.shard AND e.sink = w.sink AND e.run_id = w.run_id)/*citus
       AND o.shard = ANY ($1) AND NOT EXISTS (
           SELECT 1 FROM overdue.outbox AS e
           WHERE e.shard = o.shard AND e.shard = ANY ($1) AND e.sink = o.sink AND e.run_id = o.run_id AND e.event < o.event)*/",
);

/// Makes the first row of each of these runs due that only waited for one before it.
async fn promote(connection: &mut PgConnection, layout: &Layout, removals: &[Indexed<'_>]) -> Result<(), Fault> {
    if removals.is_empty() {
        return Ok(());
    }
    let now = |dispatch: &Dispatch| match dispatch.change {
        OutboxChange::Remove { now } => Some(now.as_micros()),
        OutboxChange::Update { .. } => None,
    };
    sqlx::query(PROMOTE.on(layout))
        .bind(columns(removals)?.shards)
        .bind(removals.iter().map(|(_, of)| of.place.sink.as_str()).bind_iter())
        .bind(removals.iter().map(|(_, of)| stored_run(of.place.run_id)).bind_iter())
        .bind(removals.iter().map(|(_, of)| now(of)).bind_iter())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) static UPDATE: Statement = Statement::new(
    "UPDATE overdue.outbox AS o
     SET next_at = w.next_at, attempts = w.spent, failing_since = w.failing_since, parked = w.parked, failure = w.failure
     FROM unnest($1::smallint[], $2::text[], $3::uuid[], $4::bigint[], $5::integer[], $6::bigint[], $7::integer[], $8::bigint[],
                 $9::boolean[], $10::text[])
          AS w (shard, sink, run_id, event, attempts, next_at, spent, failing_since, parked, failure)
     WHERE o.shard = w.shard AND o.sink = w.sink AND o.run_id = w.run_id AND o.event = w.event AND o.attempts = w.attempts
       /*citus AND o.shard = ANY ($1)*/
     RETURNING o.shard, o.sink, o.run_id, o.event",
);

async fn update(connection: &mut PgConnection, layout: &Layout, updates: &[Indexed<'_>]) -> Result<Vec<OutboxKey>, Fault> {
    if updates.is_empty() {
        return Ok(Vec::new());
    }
    let Columns { shards, events, attempts } = columns(updates)?;
    let (mut next, mut spent, mut since, mut parks, mut failures) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (_, dispatch) in updates {
        let OutboxChange::Update { next_at, attempts, failing_since, parked, failure } = &dispatch.change else { continue };
        next.push(next_at.map(Timestamp::as_micros));
        spent.push(stored_attempts(*attempts)?);
        since.push(failing_since.map(Timestamp::as_micros));
        parks.push(*parked);
        failures.push(failure.as_deref());
    }
    let rows = sqlx::query(UPDATE.on(layout))
        .bind(shards)
        .bind(updates.iter().map(|(_, of)| of.place.sink.as_str()).bind_iter())
        .bind(updates.iter().map(|(_, of)| stored_run(of.place.run_id)).bind_iter())
        .bind(events)
        .bind(attempts)
        .bind(next)
        .bind(spent)
        .bind(since)
        .bind(parks)
        .bind(failures)
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().map(key_of).collect::<Result<_, _>>()?)
}

pub(super) static DUE: Statement = Statement::new(
    "SELECT o.shard, o.sink, o.run_id, o.event, o.type, o.id, o.name, o.data, o.emitted_at, o.next_at, o.attempts,
            o.failing_since, o.parked, o.failure
     FROM (
         SELECT d.shard, d.run_id, d.event, d.next_at
         FROM unnest($1::smallint[]) AS s (shard)
         CROSS JOIN LATERAL (
             SELECT d.shard, d.run_id, d.event, d.next_at FROM overdue.outbox AS d
             WHERE d.shard = s.shard /*citus AND d.shard = ANY ($1)*/ AND d.sink = $2 AND d.next_at <= $3
             ORDER BY d.next_at, d.run_id, d.event LIMIT $4) AS d
         ORDER BY d.next_at, d.run_id, d.event LIMIT $4) AS p
     JOIN overdue.outbox AS o
       ON o.shard = p.shard AND o.sink = $2 AND o.run_id = p.run_id AND o.event = p.event /*citus AND o.shard = ANY ($1)*/
     ORDER BY o.next_at, o.run_id, o.event",
);

async fn due(
    connection: &mut PgConnection,
    layout: &Layout,
    sink: &str,
    shards: &[i16],
    until: Timestamp,
    limit: usize,
) -> Result<Vec<OutboxRow>, sqlx::Error> {
    let mut found = Vec::new();
    for part in layout.parts_of(shards) {
        let query = sqlx::query(DUE.on(layout)).bind(part).bind(sink).bind(until.as_micros()).bind(limit_of(limit));
        for row in query.fetch_all(&mut *connection).await? {
            found.push(row_of(&row)?);
        }
    }
    if layout.is_distributed() {
        found.sort_by_cached_key(|row: &OutboxRow| (row.next_at, row.place.run_id, row.place.event));
        found.truncate(limit);
    }
    Ok(found)
}

pub(super) const PAGE: &str =
    "SELECT o.shard, o.sink, o.run_id, o.event, o.type, o.id, o.name, o.data, o.emitted_at, o.next_at, o.attempts,
            o.failing_since, o.parked, o.failure
     FROM overdue.outbox AS o
     WHERE (o.shard, o.sink, o.run_id, o.event) > ($1, $2, $3, $4) AND ($5::text IS NULL OR o.sink = $5)
       AND ($6::boolean IS NULL OR (o.attempts = 0 AND NOT o.parked))
     ORDER BY o.shard, o.sink, o.run_id, o.event
     LIMIT $7";

pub(super) const TRIED: &str =
    "SELECT o.shard, o.sink, o.run_id, o.event, o.type, o.id, o.name, o.data, o.emitted_at, o.next_at, o.attempts,
            o.failing_since, o.parked, o.failure
     FROM overdue.outbox AS o
     WHERE o.attempts > 0 AND (o.shard, o.sink, o.run_id, o.event) > ($1, $2, $3, $4) AND ($5::text IS NULL OR o.sink = $5)
       AND o.parked = $6
     ORDER BY o.shard, o.sink, o.run_id, o.event
     LIMIT $7";

/// Rows behind `after`, in the order of their names.
pub(super) async fn page(
    connection: &mut PgConnection,
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
        .bind(after.map_or(-1, |after| i16::try_from(after.shard).unwrap_or(i16::MAX)))
        .bind(after.map_or("", |after| after.sink.as_str()))
        .bind(after.map_or(uuid::Uuid::nil(), |after| stored_run(after.run_id)))
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
     FROM overdue.outbox AS o
     WHERE o.shard = $1 AND o.sink = $2 AND o.run_id = $3 AND o.event = $4";

/// The row of this name.
pub(super) async fn row(connection: &mut PgConnection, place: &OutboxKey) -> Result<Option<OutboxRow>, sqlx::Error> {
    let Some(shard) = stored_shards(&[place.shard]).pop() else { return Ok(None) };
    let row = sqlx::query(ROW)
        .bind(shard)
        .bind(place.sink.as_str())
        .bind(stored_run(place.run_id))
        .bind(i64::try_from(place.event).unwrap_or(i64::MAX))
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(row_of).transpose()
}

/// The parts of the rows' names and of what is expected of them that have a narrower form in the database.
struct Columns {
    shards: Vec<i16>,
    events: Vec<i64>,
    attempts: Vec<i32>,
}

fn columns(dispatches: &[Indexed<'_>]) -> Result<Columns, Fault> {
    let mut columns = Columns { shards: Vec::new(), events: Vec::new(), attempts: Vec::new() };
    for (_, dispatch) in dispatches {
        columns.shards.push(stored_shard(dispatch.place.shard)?);
        columns.events.push(stored_event(&dispatch.place)?);
        columns.attempts.push(stored_attempts(dispatch.attempts)?);
    }
    Ok(columns)
}

fn stored_event(place: &OutboxKey) -> Result<i64, Fault> {
    i64::try_from(place.event).map_err(|_| Fault::Unstorable(format!("event number {}", place.event)))
}

fn stored_attempts(attempts: u32) -> Result<i32, Fault> {
    i32::try_from(attempts).map_err(|_| Fault::Unstorable(format!("{attempts} attempts")))
}

fn key_of(row: &PgRow) -> Result<OutboxKey, sqlx::Error> {
    Ok(OutboxKey {
        shard: shard_of("outbox.shard", row.try_get(0)?)?,
        sink: row.try_get(1)?,
        run_id: RunId(row.try_get(2)?),
        event: row.try_get::<i64, _>(3)?.unsigned_abs(),
    })
}

fn row_of(row: &PgRow) -> Result<OutboxRow, sqlx::Error> {
    let attempts: i32 = row.try_get(10)?;
    Ok(OutboxRow {
        place: key_of(row)?,
        key: WorkflowKey::new(row.try_get::<&str, _>(4)?, row.try_get::<&str, _>(5)?),
        name: row.try_get(6)?,
        data: Payload::from_json(row.try_get(7)?).map_err(|_| unreadable("outbox.data", "a text that is not JSON"))?,
        emitted_at: Timestamp::from_micros(row.try_get(8)?),
        next_at: row.try_get::<Option<i64>, _>(9)?.map(Timestamp::from_micros),
        attempts: u32::try_from(attempts).map_err(|_| unreadable("outbox.attempts", attempts))?,
        failing_since: row.try_get::<Option<i64>, _>(11)?.map(Timestamp::from_micros),
        parked: row.try_get(12)?,
        failure: row.try_get(13)?,
    })
}
