//! Listing executions, a page at a time, each kind of listing along the index that serves it.
//!
//! Every statement reads rows together with their attributes, so that a row and its attributes are of one state. A page
//! over several types is several statements: like two pages, they may show two states.

pub(super) mod rows;

use std::collections::BTreeMap;

use sqlx::postgres::PgConnection;

use super::layout::Layout;
use super::types;
use super::values::{limit_of, stored_shards};
use crate::id::{WorkflowKey, shard_of};
use crate::store::{Filter, Listed, Page, Position, Status};

/// The conditions that every listing checks row by row.
struct Conditions {
    status: Option<i16>,
    needs_attention: Option<bool>,
    /// The names of attributes that a row must have with one of the forms listed for them.
    names: Vec<String>,
    /// The forms: names and, in the same places, stored forms.
    of_names: Vec<String>,
    forms: Vec<String>,
}

impl Conditions {
    fn of(filter: &Filter) -> Self {
        let pairs = || filter.attributes.iter().flat_map(|(name, forms)| forms.iter().map(move |form| (name, form)));
        Self {
            status: filter.status.map(|status| i16::try_from(status.code()).expect("there are few statuses")),
            needs_attention: filter.needs_attention,
            names: filter.attributes.keys().cloned().collect(),
            of_names: pairs().map(|(name, _)| name.clone()).collect(),
            forms: pairs().map(|(_, form)| form.clone()).collect(),
        }
    }
}

/// A page.
pub(super) async fn page(
    connection: &mut PgConnection,
    layout: &Layout,
    filter: &Filter,
    after: Option<&Position>,
    limit: usize,
    all_shards: &[i16],
) -> Result<Page, sqlx::Error> {
    let conditions = Conditions::of(filter);
    // One more than asked for tells whether there is a next page.
    let wanted = limit.saturating_add(1);
    let mut rows = match filter.due_before {
        Some(before) => {
            let visible = visible_types(filter);
            let mut rows = Vec::new();
            for shards in layout.parts_of(all_shards) {
                let window = rows::Window { shards: &shards, after, before, limit: wanted };
                rows.extend(rows::due_before(connection, layout, window, visible.as_deref(), &conditions).await?);
            }
            if layout.is_distributed() {
                rows.sort_by_cached_key(|listed| (listed.execution.wake_at, listed.execution.key.clone()));
                rows.truncate(wanted);
            }
            rows
        }
        None => by_key(connection, layout, filter, after, &conditions, wanted, all_shards).await?,
    };
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|last| Position {
        wake_at: filter.due_before.and(last.execution.wake_at),
        workflow_type: last.execution.key.workflow_type().to_owned(),
        id: last.execution.key.id().to_owned(),
    });
    Ok(Page { rows, next })
}

pub(super) const DERIVED: &str = "SELECT t.name, e.id
     FROM overdue.types AS t JOIN overdue.executions AS e ON e.type = t.code
     WHERE e.shard = $1 AND e.id >= $2 AND e.id < $3
     ORDER BY t.name, e.id
     LIMIT $4";

/// The executions whose id begins with `root_id` and a `~`, by type and id. All of them live in one shard.
pub(super) async fn derived(
    connection: &mut PgConnection,
    root_id: &str,
    shards: u16,
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    let prefix = format!("{root_id}~");
    let Some(shard) = stored_shards(&[shard_of(&prefix, shards)]).pop() else { return Ok(Vec::new()) };
    // Texts are compared byte by byte, and the byte after '~' is 0x7f: between the two bounds lie the ids with this
    // prefix and no others.
    let keys: Vec<(String, String)> = sqlx::query_as(DERIVED)
        .bind(shard)
        .bind(prefix)
        .bind(format!("{root_id}\u{7f}"))
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    Ok(keys.into_iter().map(|(workflow_type, id)| WorkflowKey::new(workflow_type, id)).collect())
}

/// The types that a listing may show; `None` for all.
fn visible_types(filter: &Filter) -> Option<Vec<String>> {
    match (&filter.workflow_type, &filter.visible_types) {
        (None, None) => None,
        (Some(one), None) => Some(vec![one.clone()]),
        (None, Some(visible)) => Some(visible.clone()),
        (Some(one), Some(visible)) => Some(visible.iter().filter(|visible| *visible == one).take(1).cloned().collect()),
    }
}

/// Types in order, and ids within a type: the key's index is by number of the type, whose order means nothing.
async fn by_key(
    connection: &mut PgConnection,
    layout: &Layout,
    filter: &Filter,
    after: Option<&Position>,
    conditions: &Conditions,
    wanted: usize,
    all_shards: &[i16],
) -> Result<Vec<Listed>, sqlx::Error> {
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
        let limit = wanted - found.len();
        let mut of_all = Vec::new();
        for shards in layout.parts_of(all_shards) {
            let range = rows::Range { shards: &shards, code, after_id, limit };
            of_all.extend(of_type(connection, layout, filter, range, conditions).await?);
        }
        if layout.is_distributed() {
            of_all.sort_by_cached_key(|listed| listed.execution.key.clone());
            of_all.truncate(limit);
        }
        found.extend(of_all);
        if found.len() >= wanted {
            break;
        }
    }
    Ok(found)
}

async fn of_type(
    connection: &mut PgConnection,
    layout: &Layout,
    filter: &Filter,
    range: rows::Range<'_>,
    conditions: &Conditions,
) -> Result<Vec<Listed>, sqlx::Error> {
    if let Some((name, values)) = filter.attributes.first_key_value() {
        let mut merged = BTreeMap::new();
        for value in values {
            for listed in rows::with_attribute(connection, layout, name, value, range, conditions).await? {
                merged.insert(listed.execution.key.id().to_owned(), listed);
            }
        }
        return Ok(merged.into_values().take(range.limit).collect());
    }
    match (filter.needs_attention, filter.status) {
        (Some(true), _) => rows::needing_attention(connection, layout, range, conditions).await,
        (_, Some(Status::Blocked)) => rows::blocked(connection, layout, range, conditions).await,
        _ => rows::any(connection, layout, range, conditions).await,
    }
}
