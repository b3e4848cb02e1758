//! Search attributes.

use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection, PgRow};

use super::error::unreadable;
use super::executions::CodedKey;
use super::layout::Layout;
use super::statement::Statement;
use super::values::{or_empty, stored_shards};
use crate::id::WorkflowKey;
use crate::store::AttributeValue;

pub(super) static INSERT: Statement = Statement::new(
    "INSERT INTO overdue.attributes (shard, type, id, name, value)
     SELECT /*one*/w.shard/*citus a.shard*/, w.type, w.id, w.name, w.value
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[], $5::text[]) AS w (shard, type, id, name, value)
     /*citus JOIN overdue.anchors AS a ON a.shard = w.shard AND a.shard = ANY ($1)*/",
);

/// An attribute to be stored: its execution, name, value.
pub(super) type NewAttribute<'a> = (CodedKey<'a>, &'a str, &'a AttributeValue);

/// Stores the attributes of new executions.
pub(super) async fn insert(
    connection: &mut PgConnection,
    layout: &Layout,
    mut attributes: Vec<NewAttribute<'_>>,
) -> Result<(), sqlx::Error> {
    if attributes.is_empty() {
        return Ok(());
    }
    attributes.sort_unstable_by_key(|(key, name, _)| (*key, *name));
    sqlx::query(INSERT.on(layout))
        .bind(attributes.iter().map(|((shard, ..), ..)| *shard).bind_iter())
        .bind(attributes.iter().map(|((_, code, _), ..)| *code).bind_iter())
        .bind(attributes.iter().map(|((.., id), ..)| *id).bind_iter())
        .bind(attributes.iter().map(|(_, name, _)| *name).bind_iter())
        .bind(attributes.iter().map(|(.., value)| value.stored()).bind_iter())
        .execute(connection)
        .await
        .map(drop)
}

pub(super) const OF_ONE: &str = "SELECT array_agg(a.name ORDER BY a.name), array_agg(a.value ORDER BY a.name)
     FROM overdue.types AS t JOIN overdue.attributes AS a ON a.type = t.code
     WHERE a.shard = $1 AND t.name = $2 AND a.id = $3";

/// The attributes of one execution, by name.
pub(super) async fn of_one(
    connection: &mut PgConnection,
    shard: u16,
    key: &WorkflowKey,
) -> Result<Vec<(String, AttributeValue)>, sqlx::Error> {
    let Some(shard) = stored_shards(&[shard]).pop() else { return Ok(Vec::new()) };
    let row = sqlx::query(OF_ONE).bind(shard).bind(key.workflow_type()).bind(key.id()).fetch_one(connection).await?;
    attributes_of(&row, 0)
}

/// The attributes in two columns of a row: an array of names and one of stored forms.
pub(super) fn attributes_of(row: &PgRow, column: usize) -> Result<Vec<(String, AttributeValue)>, sqlx::Error> {
    let names = or_empty::<String>(row.try_get(column)?);
    let values = or_empty::<String>(row.try_get(column + 1)?);
    names.into_iter().zip(values).map(|(name, value)| Ok((name, value_of(&value)?))).collect()
}

fn value_of(stored: &str) -> Result<AttributeValue, sqlx::Error> {
    AttributeValue::from_stored(stored).ok_or_else(|| unreadable("attributes.value", "a text without a kind"))
}
