//! The ways to the rows of a page, each along its index: the first of each shard, then the first of those.

use sqlx::postgres::{PgConnection, PgRow};

use super::Conditions;
use crate::store::postgres::attributes::attributes_of;
use crate::store::postgres::executions::execution_of;
use crate::store::postgres::layout::Layout;
use crate::store::postgres::statement::Statement;
use crate::store::postgres::values::limit_of;
use crate::store::{Listed, Position};
use crate::time::Timestamp;

/// A part of the rows of one type, in the order of their ids.
#[derive(Clone, Copy)]
pub(super) struct Range<'a> {
    pub(super) shards: &'a [i16],
    /// The number of the type.
    pub(super) code: i16,
    /// The part begins after this id.
    pub(super) after_id: &'a str,
    pub(super) limit: usize,
}

pub(in crate::store::postgres) static ANY: Statement = Statement::new(
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL, a.names, a.forms
     FROM (
         SELECT f.shard, f.type, f.id FROM unnest($1::smallint[]) AS s (shard)
         CROSS JOIN LATERAL (
             SELECT e.shard, e.type, e.id FROM overdue.executions AS e
             WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.type = $2 AND e.id > $3
               AND ($4::smallint IS NULL OR e.status = $4) AND ($5::boolean IS NULL OR e.needs_attention = $5)
             ORDER BY e.id LIMIT $6) AS f
         ORDER BY f.id LIMIT $6) AS p
     JOIN overdue.types AS t ON t.code = p.type
     JOIN overdue.executions AS e ON e.shard = p.shard AND e.type = p.type AND e.id = p.id /*citus AND e.shard = ANY ($1)*/
     CROSS JOIN LATERAL (
         SELECT array_agg(b.name ORDER BY b.name) AS names, array_agg(b.value ORDER BY b.name) AS forms
         FROM overdue.attributes AS b WHERE b.shard = p.shard AND b.type = p.type AND b.id = p.id
           /*citus AND b.shard = ANY ($1)*/) AS a
     ORDER BY e.id",
);

pub(super) async fn any(
    connection: &mut PgConnection,
    layout: &Layout,
    range: Range<'_>,
    conditions: &Conditions,
) -> Result<Vec<Listed>, sqlx::Error> {
    let rows = sqlx::query(ANY.on(layout))
        .bind(range.shards)
        .bind(range.code)
        .bind(range.after_id)
        .bind(conditions.status)
        .bind(conditions.needs_attention)
        .bind(limit_of(range.limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(listed_of).collect()
}

pub(in crate::store::postgres) static NEEDING_ATTENTION: Statement = Statement::new(
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL, a.names, a.forms
     FROM (
         SELECT f.shard, f.type, f.id FROM unnest($1::smallint[]) AS s (shard)
         CROSS JOIN LATERAL (
             SELECT e.shard, e.type, e.id FROM overdue.executions AS e
             WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.type = $2 AND e.id > $3
               AND (e.needs_attention OR e.status = 1) AND e.needs_attention
               AND ($4::smallint IS NULL OR e.status = $4)
             ORDER BY e.id LIMIT $5) AS f
         ORDER BY f.id LIMIT $5) AS p
     JOIN overdue.types AS t ON t.code = p.type
     JOIN overdue.executions AS e ON e.shard = p.shard AND e.type = p.type AND e.id = p.id /*citus AND e.shard = ANY ($1)*/
     CROSS JOIN LATERAL (
         SELECT array_agg(b.name ORDER BY b.name) AS names, array_agg(b.value ORDER BY b.name) AS forms
         FROM overdue.attributes AS b WHERE b.shard = p.shard AND b.type = p.type AND b.id = p.id
           /*citus AND b.shard = ANY ($1)*/) AS a
     ORDER BY e.id",
);

pub(super) async fn needing_attention(
    connection: &mut PgConnection,
    layout: &Layout,
    range: Range<'_>,
    conditions: &Conditions,
) -> Result<Vec<Listed>, sqlx::Error> {
    let rows = sqlx::query(NEEDING_ATTENTION.on(layout))
        .bind(range.shards)
        .bind(range.code)
        .bind(range.after_id)
        .bind(conditions.status)
        .bind(limit_of(range.limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(listed_of).collect()
}

pub(in crate::store::postgres) static BLOCKED: Statement = Statement::new(
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL, a.names, a.forms
     FROM (
         SELECT f.shard, f.type, f.id FROM unnest($1::smallint[]) AS s (shard)
         CROSS JOIN LATERAL (
             SELECT e.shard, e.type, e.id FROM overdue.executions AS e
             WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.type = $2 AND e.id > $3
               AND (e.needs_attention OR e.status = 1) AND e.status = 1
               AND ($4::boolean IS NULL OR e.needs_attention = $4)
             ORDER BY e.id LIMIT $5) AS f
         ORDER BY f.id LIMIT $5) AS p
     JOIN overdue.types AS t ON t.code = p.type
     JOIN overdue.executions AS e ON e.shard = p.shard AND e.type = p.type AND e.id = p.id /*citus AND e.shard = ANY ($1)*/
     CROSS JOIN LATERAL (
         SELECT array_agg(b.name ORDER BY b.name) AS names, array_agg(b.value ORDER BY b.name) AS forms
         FROM overdue.attributes AS b WHERE b.shard = p.shard AND b.type = p.type AND b.id = p.id
           /*citus AND b.shard = ANY ($1)*/) AS a
     ORDER BY e.id",
);

pub(super) async fn blocked(
    connection: &mut PgConnection,
    layout: &Layout,
    range: Range<'_>,
    conditions: &Conditions,
) -> Result<Vec<Listed>, sqlx::Error> {
    let rows = sqlx::query(BLOCKED.on(layout))
        .bind(range.shards)
        .bind(range.code)
        .bind(range.after_id)
        .bind(conditions.needs_attention)
        .bind(limit_of(range.limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(listed_of).collect()
}

pub(in crate::store::postgres) static WITH_ATTRIBUTE: Statement = Statement::new(
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL, a.names, a.forms
     FROM (
         SELECT f.shard, f.type, f.id FROM unnest($1::smallint[]) AS s (shard)
         CROSS JOIN LATERAL (
             SELECT e.shard, e.type, e.id
             FROM overdue.attributes AS c
             JOIN overdue.executions AS e ON e.shard = c.shard AND e.type = c.type AND e.id = c.id
             WHERE c.shard = s.shard /*citus AND c.shard = ANY ($1) AND e.shard = ANY ($1)*/ AND c.name = $9 AND c.value = $10 AND c.type = $2 AND c.id > $3
               AND ($4::smallint IS NULL OR e.status = $4) AND ($5::boolean IS NULL OR e.needs_attention = $5)
               AND NOT EXISTS (
                   SELECT 1 FROM unnest($6::text[]) AS w (name)
                   WHERE NOT EXISTS (
                       SELECT 1 FROM unnest($7::text[], $8::text[]) AS v (name, form)
                       JOIN overdue.attributes AS b
                         ON b.shard = c.shard AND b.type = c.type AND b.id = c.id AND b.name = v.name AND b.value = v.form
                       WHERE v.name = w.name /*citus AND b.shard = ANY ($1)*/))
             ORDER BY c.id LIMIT $11) AS f
         ORDER BY f.id LIMIT $11) AS p
     JOIN overdue.types AS t ON t.code = p.type
     JOIN overdue.executions AS e ON e.shard = p.shard AND e.type = p.type AND e.id = p.id /*citus AND e.shard = ANY ($1)*/
     CROSS JOIN LATERAL (
         SELECT array_agg(b.name ORDER BY b.name) AS names, array_agg(b.value ORDER BY b.name) AS forms
         FROM overdue.attributes AS b WHERE b.shard = p.shard AND b.type = p.type AND b.id = p.id
           /*citus AND b.shard = ANY ($1)*/) AS a
     ORDER BY e.id");

pub(super) async fn with_attribute(
    connection: &mut PgConnection,
    layout: &Layout,
    name: &str,
    value: &str,
    range: Range<'_>,
    conditions: &Conditions,
) -> Result<Vec<Listed>, sqlx::Error> {
    let rows = sqlx::query(WITH_ATTRIBUTE.on(layout))
        .bind(range.shards)
        .bind(range.code)
        .bind(range.after_id)
        .bind(conditions.status)
        .bind(conditions.needs_attention)
        .bind(&conditions.names)
        .bind(&conditions.of_names)
        .bind(&conditions.forms)
        .bind(name)
        .bind(value)
        .bind(limit_of(range.limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(listed_of).collect()
}

pub(in crate::store::postgres) static DUE_BEFORE: Statement = Statement::new(
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL, a.names, a.forms
     FROM (
         SELECT f.shard, f.type, f.id, f.type_name, f.wake_at FROM unnest($1::smallint[]) AS s (shard)
         CROSS JOIN LATERAL (
             SELECT e.shard, e.type, e.id, u.name AS type_name, e.wake_at
             FROM overdue.executions AS e
             JOIN overdue.types AS u ON u.code = e.type
             WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.wake_at >= $9 AND e.wake_at < $2
               AND (e.wake_at, u.name, e.id) > ($9, $10, $11)
               AND ($3::text[] IS NULL OR u.name = ANY ($3))
               AND ($4::smallint IS NULL OR e.status = $4) AND ($5::boolean IS NULL OR e.needs_attention = $5)
               AND NOT EXISTS (
                   SELECT 1 FROM unnest($6::text[]) AS w (name)
                   WHERE NOT EXISTS (
                       SELECT 1 FROM unnest($7::text[], $8::text[]) AS v (name, form)
                       JOIN overdue.attributes AS b
                         ON b.shard = e.shard AND b.type = e.type AND b.id = e.id AND b.name = v.name AND b.value = v.form
                       WHERE v.name = w.name /*citus AND b.shard = ANY ($1)*/))
             ORDER BY e.wake_at, u.name, e.id LIMIT $12) AS f
         ORDER BY f.wake_at, f.type_name, f.id LIMIT $12) AS p
     JOIN overdue.types AS t ON t.code = p.type
     JOIN overdue.executions AS e ON e.shard = p.shard AND e.type = p.type AND e.id = p.id /*citus AND e.shard = ANY ($1)*/
     CROSS JOIN LATERAL (
         SELECT array_agg(b.name ORDER BY b.name) AS names, array_agg(b.value ORDER BY b.name) AS forms
         FROM overdue.attributes AS b WHERE b.shard = p.shard AND b.type = p.type AND b.id = p.id
           /*citus AND b.shard = ANY ($1)*/) AS a
     ORDER BY p.wake_at, p.type_name, p.id",
);

/// A part of the open rows, in the order of their times.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) shards: &'a [i16],
    /// The part begins after this position.
    pub(super) after: Option<&'a Position>,
    pub(super) before: Timestamp,
    pub(super) limit: usize,
}

/// Open executions by time.
pub(super) async fn due_before(
    connection: &mut PgConnection,
    layout: &Layout,
    window: Window<'_>,
    visible_types: Option<&[String]>,
    conditions: &Conditions,
) -> Result<Vec<Listed>, sqlx::Error> {
    let Window { shards, after, before, limit } = window;
    let rows = sqlx::query(DUE_BEFORE.on(layout))
        .bind(shards)
        .bind(before.as_micros())
        .bind(visible_types)
        .bind(conditions.status)
        .bind(conditions.needs_attention)
        .bind(&conditions.names)
        .bind(&conditions.of_names)
        .bind(&conditions.forms)
        .bind(after.and_then(|position| position.wake_at).map_or(i64::MIN, Timestamp::as_micros))
        .bind(after.map_or("", |position| position.workflow_type.as_str()))
        .bind(after.map_or("", |position| position.id.as_str()))
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(listed_of).collect()
}

fn listed_of(row: &PgRow) -> Result<Listed, sqlx::Error> {
    Ok(Listed { execution: execution_of(row)?, attributes: attributes_of(row, 12)? })
}
