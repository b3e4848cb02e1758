//! What is due, and what will be soon: one range of one partial index per shard.

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::layout::Layout;
use super::statement::Statement;
use super::values::limit_of;
use crate::id::WorkflowKey;
use crate::store::Due;
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
