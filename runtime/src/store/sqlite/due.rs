//! What is due, and what will be soon: one range of one partial index per shard.

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::values::limit_of;
use crate::id::WorkflowKey;
use crate::store::Due;
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
