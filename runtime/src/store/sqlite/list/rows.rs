//! The ways to the rows of a page, each along its index.

use sqlx::sqlite::SqliteConnection;

use super::Conditions;
use crate::store::sqlite::executions::execution_of;
use crate::store::sqlite::values::limit_of;
use crate::store::{Execution, Position};
use crate::time::Timestamp;

pub(in crate::store::sqlite) const ANY: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL
         FROM types AS t CROSS JOIN executions AS e ON e.type = t.code
         WHERE t.code = ?1 AND e.id > ?2
           AND (?3 IS NULL OR e.status = ?3) AND (?4 IS NULL OR e.needs_attention = ?4)
         ORDER BY e.id
         LIMIT ?5";

pub(super) async fn any(
    connection: &mut SqliteConnection,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(ANY)
        .bind(code)
        .bind(after_id)
        .bind(conditions.status)
        .bind(conditions.needs_attention)
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(execution_of).collect()
}

pub(in crate::store::sqlite) const NEEDING_ATTENTION: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL
         FROM types AS t CROSS JOIN executions AS e INDEXED BY executions_attention ON e.type = t.code
         WHERE t.code = ?1 AND e.id > ?2 AND e.needs_attention = 1
           AND (?3 IS NULL OR e.status = ?3)
         ORDER BY e.id
         LIMIT ?4";

pub(super) async fn needing_attention(
    connection: &mut SqliteConnection,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(NEEDING_ATTENTION)
        .bind(code)
        .bind(after_id)
        .bind(conditions.status)
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(execution_of).collect()
}

pub(in crate::store::sqlite) const BLOCKED: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL
         FROM types AS t CROSS JOIN executions AS e INDEXED BY executions_attention ON e.type = t.code
         WHERE t.code = ?1 AND e.id > ?2 AND e.status = 1
           AND (?3 IS NULL OR e.needs_attention = ?3)
         ORDER BY e.id
         LIMIT ?4";

pub(super) async fn blocked(
    connection: &mut SqliteConnection,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(BLOCKED)
        .bind(code)
        .bind(after_id)
        .bind(conditions.needs_attention)
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(execution_of).collect()
}

pub(in crate::store::sqlite) const WITH_ATTRIBUTE: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL
         FROM types AS t
         CROSS JOIN attributes AS a INDEXED BY attributes_search ON a.type = t.code
         CROSS JOIN executions AS e ON e.type = a.type AND e.id = a.id
         WHERE t.code = ?1 AND a.name = ?6 AND a.value = ?7 AND a.id > ?2
           AND (?3 IS NULL OR e.status = ?3) AND (?4 IS NULL OR e.needs_attention = ?4)
           AND NOT EXISTS (
               SELECT 1 FROM json_each(?5) AS f
               WHERE NOT EXISTS (
                   SELECT 1 FROM attributes AS b
                   WHERE b.type = e.type AND b.id = e.id AND b.name = f.key
                     AND b.value IN (SELECT v.value FROM json_each(f.value) AS v)))
         ORDER BY a.id
         LIMIT ?8";

pub(super) async fn with_attribute(
    connection: &mut SqliteConnection,
    name: &str,
    value: &str,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(WITH_ATTRIBUTE)
        .bind(code)
        .bind(after_id)
        .bind(conditions.status)
        .bind(conditions.needs_attention)
        .bind(&conditions.attributes)
        .bind(name)
        .bind(value)
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(execution_of).collect()
}

pub(in crate::store::sqlite) const DUE_BEFORE: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL
         FROM json_each(?1) AS s
         CROSS JOIN executions AS e ON e.number IN (
             SELECT d.number
             FROM executions AS d INDEXED BY executions_due
             CROSS JOIN types AS u ON u.code = d.type
             WHERE d.shard = s.value AND d.wake_at >= ?3 AND d.wake_at < ?2
               AND (d.wake_at, u.name, d.id) > (?3, ?4, ?5)
               AND (?6 IS NULL OR u.name IN (SELECT v.value FROM json_each(?6) AS v))
               AND (?7 IS NULL OR d.status = ?7) AND (?8 IS NULL OR d.needs_attention = ?8)
               AND NOT EXISTS (
                   SELECT 1 FROM json_each(?9) AS f
                   WHERE NOT EXISTS (
                       SELECT 1 FROM attributes AS b
                       WHERE b.type = d.type AND b.id = d.id AND b.name = f.key
                         AND b.value IN (SELECT w.value FROM json_each(f.value) AS w)))
             ORDER BY d.wake_at, u.name, d.id
             LIMIT ?10)
         CROSS JOIN types AS t ON t.code = e.type
         ORDER BY e.wake_at, t.name, e.id
         LIMIT ?10";

/// Open executions by time: the first of each shard, then the first of those.
pub(super) async fn due_before(
    connection: &mut SqliteConnection,
    shards: &str,
    before: Timestamp,
    after: Option<&Position>,
    visible_types: Option<&str>,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let after_wake_at = after.and_then(|position| position.wake_at).map_or(i64::MIN, Timestamp::as_micros);
    let rows = sqlx::query(DUE_BEFORE)
        .bind(shards)
        .bind(before.as_micros())
        .bind(after_wake_at)
        .bind(after.map_or("", |position| position.workflow_type.as_str()))
        .bind(after.map_or("", |position| position.id.as_str()))
        .bind(visible_types)
        .bind(conditions.status)
        .bind(conditions.needs_attention)
        .bind(&conditions.attributes)
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(execution_of).collect()
}
