//! Listing executions, a page at a time, each kind of listing along the index that serves it.

use std::collections::BTreeMap;

use sqlx::sqlite::SqliteConnection;

use super::executions::{self, execution_of};
use super::values::limit_of;
use super::{attributes, types};
use crate::id::WorkflowKey;
use crate::store::{AttributeValue, Execution, Filter, Listed, Page, Position, Status};
use crate::time::Timestamp;

/// The conditions that every listing checks row by row.
struct Conditions {
    status: Option<i64>,
    needs_attention: Option<bool>,
    /// A JSON object: for each name, an array of stored forms.
    attributes: String,
}

/// A page. Needs a transaction: rows and attributes must be of one state.
pub(super) async fn page(
    connection: &mut SqliteConnection,
    filter: &Filter,
    after: Option<&Position>,
    limit: usize,
    all_shards: &str,
) -> Result<Page, sqlx::Error> {
    let conditions = Conditions {
        status: filter.status.map(Status::code),
        needs_attention: filter.needs_attention,
        attributes: serde_json::to_string(&filter.attributes).expect("texts can be written as JSON"),
    };
    // One more than asked for tells whether there is a next page.
    let wanted = limit.saturating_add(1);
    let mut found = match filter.due_before {
        Some(before) => {
            let visible = visible_types(filter);
            due_before(connection, all_shards, before, after, visible.as_deref(), &conditions, wanted).await?
        }
        None => by_key(connection, filter, after, &conditions, wanted).await?,
    };
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| Position {
        wake_at: filter.due_before.and(last.wake_at),
        workflow_type: last.key.workflow_type().to_owned(),
        id: last.key.id().to_owned(),
    });
    Ok(Page { rows: with_attributes(connection, found).await?, next })
}

/// The executions whose id begins with `prefix` and a `~`, by type and id.
pub(super) async fn derived(
    connection: &mut SqliteConnection,
    root_id: &str,
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    // Texts are compared byte by byte, and the byte after '~' is 0x7f: between the two bounds lie the ids with this
    // prefix and no others.
    let keys: Vec<(String, String)> = sqlx::query_as(
        "SELECT t.name, e.id
         FROM types AS t CROSS JOIN executions AS e ON e.type = t.code
         WHERE e.id >= ?1 AND e.id < ?2
         ORDER BY t.name, e.id
         LIMIT ?3",
    )
    .bind(format!("{root_id}~"))
    .bind(format!("{root_id}\u{7f}"))
    .bind(limit_of(limit))
    .fetch_all(connection)
    .await?;
    Ok(keys.into_iter().map(|(workflow_type, id)| WorkflowKey::new(workflow_type, id)).collect())
}

/// The types that a listing may show, as a JSON array; `None` for all.
fn visible_types(filter: &Filter) -> Option<String> {
    let shown: Vec<&String> = match (&filter.workflow_type, &filter.visible_types) {
        (None, None) => return None,
        (Some(one), None) => vec![one],
        (None, Some(visible)) => visible.iter().collect(),
        (Some(one), Some(visible)) => visible.iter().filter(|visible| *visible == one).take(1).collect(),
    };
    Some(serde_json::to_string(&shown).expect("texts can be written as JSON"))
}

/// Types in order, and ids within a type: the key's index is by number of the type, whose order means nothing.
async fn by_key(
    connection: &mut SqliteConnection,
    filter: &Filter,
    after: Option<&Position>,
    conditions: &Conditions,
    wanted: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let first_type = after.map_or("", |position| position.workflow_type.as_str());
    let mut found = Vec::new();
    for (name, code) in types::all(connection).await? {
        let shown = filter.workflow_type.as_ref().is_none_or(|one| *one == name)
            && filter.visible_types.as_ref().is_none_or(|visible| visible.contains(&name));
        if !shown || name.as_str() < first_type {
            continue;
        }
        // Ids are not empty, so the empty one is before all.
        let after_id = after.filter(|position| position.workflow_type == name).map_or("", |position| position.id.as_str());
        let left = wanted - found.len();
        found.extend(of_type(connection, filter, code, after_id, conditions, left).await?);
        if found.len() >= wanted {
            break;
        }
    }
    Ok(found)
}

async fn of_type(
    connection: &mut SqliteConnection,
    filter: &Filter,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    if let Some((name, values)) = filter.attributes.first_key_value() {
        let mut merged = BTreeMap::new();
        for value in values {
            for execution in with_attribute(connection, name, value, code, after_id, conditions, limit).await? {
                merged.insert(execution.key.id().to_owned(), execution);
            }
        }
        return Ok(merged.into_values().take(limit).collect());
    }
    match (filter.needs_attention, filter.status) {
        (Some(true), _) => needing_attention(connection, code, after_id, conditions, limit).await,
        (_, Some(Status::Blocked)) => blocked(connection, code, after_id, conditions, limit).await,
        _ => any(connection, code, after_id, conditions, limit).await,
    }
}

async fn any(
    connection: &mut SqliteConnection,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts
         FROM types AS t CROSS JOIN executions AS e ON e.type = t.code
         WHERE t.code = ?1 AND e.id > ?2
           AND (?3 IS NULL OR e.status = ?3) AND (?4 IS NULL OR e.needs_attention = ?4)
         ORDER BY e.id
         LIMIT ?5",
    )
    .bind(code)
    .bind(after_id)
    .bind(conditions.status)
    .bind(conditions.needs_attention)
    .bind(limit_of(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(execution_of).collect()
}

async fn needing_attention(
    connection: &mut SqliteConnection,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts
         FROM types AS t CROSS JOIN executions AS e INDEXED BY executions_attention ON e.type = t.code
         WHERE t.code = ?1 AND e.id > ?2 AND e.needs_attention = 1
           AND (?3 IS NULL OR e.status = ?3)
         ORDER BY e.id
         LIMIT ?4",
    )
    .bind(code)
    .bind(after_id)
    .bind(conditions.status)
    .bind(limit_of(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(execution_of).collect()
}

async fn blocked(
    connection: &mut SqliteConnection,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts
         FROM types AS t CROSS JOIN executions AS e INDEXED BY executions_attention ON e.type = t.code
         WHERE t.code = ?1 AND e.id > ?2 AND e.status = 1
           AND (?3 IS NULL OR e.needs_attention = ?3)
         ORDER BY e.id
         LIMIT ?4",
    )
    .bind(code)
    .bind(after_id)
    .bind(conditions.needs_attention)
    .bind(limit_of(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(execution_of).collect()
}

async fn with_attribute(
    connection: &mut SqliteConnection,
    name: &str,
    value: &str,
    code: i64,
    after_id: &str,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts
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
         LIMIT ?8",
    )
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

/// Open executions by time: the first of each shard, then the first of those.
async fn due_before(
    connection: &mut SqliteConnection,
    shards: &str,
    before: Timestamp,
    after: Option<&Position>,
    visible_types: Option<&str>,
    conditions: &Conditions,
    limit: usize,
) -> Result<Vec<Execution>, sqlx::Error> {
    let after_wake_at = after.and_then(|position| position.wake_at).map_or(i64::MIN, Timestamp::as_micros);
    let rows = sqlx::query(
        "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts
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
         LIMIT ?10",
    )
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

async fn with_attributes(connection: &mut SqliteConnection, found: Vec<Execution>) -> Result<Vec<Listed>, sqlx::Error> {
    let keys = executions::keys_as_json(found.iter().map(|execution| &execution.key));
    let mut rows: Vec<Listed> =
        found.into_iter().map(|execution| Listed { execution, attributes: Vec::<(String, AttributeValue)>::new() }).collect();
    for (place, attribute) in attributes::of_many(connection, &keys).await? {
        rows[place].attributes.push(attribute);
    }
    Ok(rows)
}
