//! Listing executions, a page at a time, each kind of listing along the index that serves it.

pub(super) mod rows;

use std::collections::BTreeMap;

use sqlx::sqlite::SqliteConnection;

use super::executions;
use super::values::limit_of;
use super::{attributes, types};
use crate::id::WorkflowKey;
use crate::store::{AttributeValue, Execution, Filter, Listed, Page, Position, Status};

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
            rows::due_before(connection, all_shards, before, after, visible.as_deref(), &conditions, wanted).await?
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

pub(super) const DERIVED: &str = "SELECT t.name, e.id
         FROM types AS t CROSS JOIN executions AS e ON e.type = t.code
         WHERE e.id >= ?1 AND e.id < ?2
         ORDER BY t.name, e.id
         LIMIT ?3";

/// The executions whose id begins with `prefix` and a `~`, by type and id.
pub(super) async fn derived(
    connection: &mut SqliteConnection,
    root_id: &str,
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    // Texts are compared byte by byte, and the byte after '~' is 0x7f: between the two bounds lie the ids with this
    // prefix and no others.
    let keys: Vec<(String, String)> = sqlx::query_as(DERIVED)
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
            for execution in rows::with_attribute(connection, name, value, code, after_id, conditions, limit).await? {
                merged.insert(execution.key.id().to_owned(), execution);
            }
        }
        return Ok(merged.into_values().take(limit).collect());
    }
    match (filter.needs_attention, filter.status) {
        (Some(true), _) => rows::needing_attention(connection, code, after_id, conditions, limit).await,
        (_, Some(Status::Blocked)) => rows::blocked(connection, code, after_id, conditions, limit).await,
        _ => rows::any(connection, code, after_id, conditions, limit).await,
    }
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
