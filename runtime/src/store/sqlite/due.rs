//! What is due, what will be soon, and how much will be when: one range of one partial index per shard.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::SqliteStore;
use super::error::store_error;
use super::values::limit_of;
use crate::id::WorkflowKey;
use crate::store::{Due, DueCount, Forecasts, StoreError};
use crate::time::Timestamp;

pub(super) const DUE: &str = "SELECT t.name, e.id, e.wake_at
         FROM json_each(?1) AS s
         CROSS JOIN executions AS e ON e.number IN (
             SELECT d.number FROM executions AS d INDEXED BY executions_due
             WHERE d.shard = s.value AND d.wake_at <= ?2
             ORDER BY d.wake_at LIMIT ?3)
         CROSS JOIN types AS t ON t.code = e.type
         ORDER BY s.value, e.wake_at, t.name, e.id";

/// Open executions of `shards` (a JSON array) with `wake_at <= until`, the earliest of each shard, by shard and time.
pub(super) async fn due(
    connection: &mut SqliteConnection,
    shards: &str,
    until: Timestamp,
    limit_per_shard: usize,
) -> Result<Vec<Due>, sqlx::Error> {
    sqlx::query(DUE)
        .bind(shards)
        .bind(until.as_micros())
        .bind(limit_of(limit_per_shard))
        .fetch_all(connection)
        .await?
        .iter()
        .map(due_of)
        .collect()
}

pub(super) const UPCOMING: &str = "SELECT t.name, e.id, e.wake_at
         FROM json_each(?1) AS s
         CROSS JOIN executions AS e ON e.number IN (
             SELECT d.number FROM executions AS d INDEXED BY executions_due
             WHERE d.shard = s.value AND d.wake_at > ?2 AND d.wake_at <= ?3
             ORDER BY d.wake_at LIMIT ?4)
         CROSS JOIN types AS t ON t.code = e.type
         ORDER BY s.value, e.wake_at, t.name, e.id";

/// Open executions of `shards` (a JSON array) with `after < wake_at <= until`, the earliest of each shard, by shard and
/// time.
pub(super) async fn upcoming(
    connection: &mut SqliteConnection,
    shards: &str,
    after: Timestamp,
    until: Timestamp,
    limit_per_shard: usize,
) -> Result<Vec<Due>, sqlx::Error> {
    sqlx::query(UPCOMING)
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

fn due_of(row: &SqliteRow) -> Result<Due, sqlx::Error> {
    Ok(Due {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        wake_at: Timestamp::from_micros(row.try_get(2)?),
    })
}

#[async_trait]
impl Forecasts for SqliteStore {
    async fn due_counts(
        &self,
        edges: &[Timestamp],
        types: Option<&[String]>,
        rows_max: usize,
    ) -> Result<Vec<DueCount>, StoreError> {
        let mut snapshot = self.readers.page().await?;
        let types = types.map(|types| serde_json::to_string(types).expect("texts can be written as JSON"));
        let mut counts = Vec::with_capacity(edges.len());
        for window in edges.windows(2) {
            let window = Window { shards: &self.all_shards, from: window[0], until: window[1], rows_max };
            let (read, due) = match &types {
                None => all(&mut snapshot, window).await.map(|read| (read, read)),
                Some(types) => of_types(&mut snapshot, window, types).await,
            }
            .map_err(store_error)?;
            counts.push(DueCount { due: due.unsigned_abs(), is_cut: read >= limit_of(rows_max) });
        }
        Ok(counts)
    }
}

#[derive(Clone, Copy)]
struct Window<'a> {
    /// A JSON array.
    shards: &'a str,
    from: Timestamp,
    until: Timestamp,
    rows_max: usize,
}

pub(super) const COUNT: &str = "SELECT count(*) FROM (
         SELECT 1
         FROM json_each(?1) AS s
         CROSS JOIN executions AS d INDEXED BY executions_due
         WHERE d.shard = s.value AND d.wake_at >= ?2 AND d.wake_at < ?3
         LIMIT ?4)";

/// Reads the index alone.
async fn all(connection: &mut SqliteConnection, window: Window<'_>) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(COUNT)
        .bind(window.shards)
        .bind(window.from.as_micros())
        .bind(window.until.as_micros())
        .bind(limit_of(window.rows_max))
        .fetch_one(connection)
        .await
}

pub(super) const COUNT_OF_TYPES: &str = "SELECT count(*),
                count(*) FILTER (WHERE r.type IN (
                    SELECT t.code FROM json_each(?5) AS v CROSS JOIN types AS t ON t.name = v.value))
         FROM (
             SELECT d.type
             FROM json_each(?1) AS s
             CROSS JOIN executions AS d INDEXED BY executions_due
             WHERE d.shard = s.value AND d.wake_at >= ?2 AND d.wake_at < ?3
             LIMIT ?4) AS r";

/// How many rows were read, and how many of them are of these types (a JSON array).
async fn of_types(connection: &mut SqliteConnection, window: Window<'_>, types: &str) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query_as(COUNT_OF_TYPES)
        .bind(window.shards)
        .bind(window.from.as_micros())
        .bind(window.until.as_micros())
        .bind(limit_of(window.rows_max))
        .bind(types)
        .fetch_one(connection)
        .await
}
