//! Search attributes.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::error::{Fault, unreadable};
use super::values::{Sized, four, place, sixteen, sixty_four, sized};
use crate::id::WorkflowKey;
use crate::store::AttributeValue;

static INSERT: Sized = sized!("INSERT INTO attributes (type, id, name, value) VALUES ", "(?, ?, ?, ?)", "");

/// An attribute to be stored: number of its type, workflow id, name, value.
pub(super) type NewAttribute<'a> = (i64, &'a str, &'a str, &'a AttributeValue);

/// Stores the attributes of new executions.
pub(super) async fn insert(connection: &mut SqliteConnection, attributes: &[NewAttribute<'_>]) -> Result<(), Fault> {
    for (sql, piece) in INSERT.pieces(attributes) {
        let mut query = sqlx::query(sql);
        for (code, id, name, value) in piece {
            query = query.bind(*code).bind(*id).bind(*name).bind(value.stored());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

pub(super) const OF_ONE: &str = "SELECT a.name, a.value
         FROM types AS t CROSS JOIN attributes AS a ON a.type = t.code
         WHERE t.name = ?1 AND a.id = ?2
         ORDER BY a.name";

/// The attributes of one execution, by name.
pub(super) async fn of_one(
    connection: &mut SqliteConnection,
    key: &WorkflowKey,
) -> Result<Vec<(String, AttributeValue)>, sqlx::Error> {
    sqlx::query(OF_ONE)
        .bind(key.workflow_type())
        .bind(key.id())
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok((row.try_get(0)?, value_of(row.try_get(1)?)?)))
        .collect()
}

pub(super) const OF_MANY: &str = "SELECT w.key, a.name, a.value
         FROM json_each(?1) AS w
         CROSS JOIN types AS t ON t.name = w.value ->> 0
         CROSS JOIN attributes AS a ON a.type = t.code AND a.id = w.value ->> 1
         ORDER BY w.key, a.name";

/// The attributes of the executions named in `keys` (a JSON array of pairs of type and id), each with the place of its
/// execution in `keys`.
pub(super) async fn of_many(
    connection: &mut SqliteConnection,
    keys: &str,
) -> Result<Vec<(usize, (String, AttributeValue))>, sqlx::Error> {
    sqlx::query(OF_MANY)
        .bind(keys)
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok((place(row.try_get(0)?), (row.try_get(1)?, value_of(row.try_get(2)?)?))))
        .collect()
}

fn value_of(stored: &str) -> Result<AttributeValue, sqlx::Error> {
    AttributeValue::from_stored(stored).ok_or_else(|| unreadable("attributes.value", "a text without a kind"))
}
