//! What is due, what will be soon, and how much will be when: one range of one partial index per shard.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::PostgresStore;
use super::layout::Layout;
use super::readers::answer;
use super::statement::Statement;
use super::values::limit_of;
use crate::id::WorkflowKey;
use crate::store::{Due, DueCount, Forecasts, StoreError};
use crate::time::Timestamp;

pub(super) static DUE: Statement = Statement::new(
    "SELECT t.name, d.id, d.wake_at
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT e.type, e.id, e.wake_at FROM overdue.executions AS e
         WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.wake_at <= $2
         ORDER BY e.wake_at LIMIT $3) AS d
     JOIN overdue.types AS t ON t.code = d.type
     ORDER BY s.shard, d.wake_at, t.name, d.id",
);

/// Open executions of `shards` with `wake_at <= until`, the earliest of each shard, by shard and time.
pub(super) async fn due(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    until: Timestamp,
    limit_per_shard: usize,
) -> Result<Vec<Due>, sqlx::Error> {
    sqlx::query(DUE.on(layout))
        .bind(shards)
        .bind(until.as_micros())
        .bind(limit_of(limit_per_shard))
        .fetch_all(connection)
        .await?
        .iter()
        .map(due_of)
        .collect()
}

pub(super) static UPCOMING: Statement = Statement::new(
    "SELECT t.name, d.id, d.wake_at
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT e.type, e.id, e.wake_at FROM overdue.executions AS e
         WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.wake_at > $2 AND e.wake_at <= $3
         ORDER BY e.wake_at LIMIT $4) AS d
     JOIN overdue.types AS t ON t.code = d.type
     ORDER BY s.shard, d.wake_at, t.name, d.id",
);

/// Open executions of `shards` with `after < wake_at <= until`, the earliest of each shard, by shard and time.
pub(super) async fn upcoming(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    after: Timestamp,
    until: Timestamp,
    limit_per_shard: usize,
) -> Result<Vec<Due>, sqlx::Error> {
    sqlx::query(UPCOMING.on(layout))
        .bind(shards)
        .bind(after.as_micros())
        .bind(until.as_micros())
        .bind(limit_of(limit_per_shard))
        .fetch_all(connection)
        .await?
        .iter()
        .map(due_of)
        .collect()
}

fn due_of(row: &PgRow) -> Result<Due, sqlx::Error> {
    Ok(Due {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        wake_at: Timestamp::from_micros(row.try_get(2)?),
    })
}

#[async_trait]
impl Forecasts for PostgresStore {
    async fn due_counts(
        &self,
        edges: &[Timestamp],
        types: Option<&[String]>,
        rows_max: usize,
    ) -> Result<Vec<DueCount>, StoreError> {
        let mut connection = self.readers.page().await?;
        answer(counts(&mut connection, &self.layout, &self.all_shards, edges, types, limit_of(rows_max))).await
    }
}

pub(super) static COUNT: Statement = Statement::new(
    "SELECT c.rows, c.due
     FROM unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS w (begins, ends, place)
     CROSS JOIN LATERAL (
         SELECT count(*) AS rows, count(*) FILTER (WHERE $4::text[] IS NULL OR t.name = ANY ($4)) AS due
         FROM (
             SELECT d.type FROM unnest($1::smallint[]) AS s (shard)
             CROSS JOIN LATERAL (
                 SELECT e.type FROM overdue.executions AS e
                 WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.wake_at >= w.begins AND e.wake_at < w.ends
                 ORDER BY e.wake_at LIMIT $5) AS d
             LIMIT $5) AS r
         JOIN overdue.types AS t ON t.code = r.type) AS c
     ORDER BY w.place",
);

async fn counts(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    edges: &[Timestamp],
    types: Option<&[String]>,
    rows_max: i64,
) -> Result<Vec<DueCount>, sqlx::Error> {
    let begins: Vec<i64> = edges.iter().map(|edge| edge.as_micros()).collect();
    let ends: Vec<i64> = begins.iter().skip(1).copied().collect();
    let begins = &begins[..ends.len()];
    // Rows read and rows counted, added up over the places that the tables lie at.
    let mut windows = vec![(0, 0); ends.len()];
    for part in layout.parts_of(shards) {
        let counted: Vec<(i64, i64)> = sqlx::query_as(COUNT.on(layout))
            .bind(&part)
            .bind(begins)
            .bind(&ends)
            .bind(types)
            .bind(rows_max)
            .fetch_all(&mut *connection)
            .await?;
        for (window, (rows, due)) in windows.iter_mut().zip(counted) {
            *window = (window.0 + rows, window.1 + due);
        }
    }
    Ok(windows.into_iter().map(|(rows, due)| DueCount { due: due.unsigned_abs(), is_cut: rows >= rows_max }).collect())
}
