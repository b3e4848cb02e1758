//! Workflow types and their numbers.

use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::error::Fault;

/// Types are part of programs, so there are few; a listing walks over them.
const TYPES_MAX: i64 = 10_000;

/// The number of a type, given to it now when it has none. Needs a transaction.
pub(super) async fn code(connection: &mut PgConnection, name: &str) -> Result<i16, Fault> {
    if let Some(code) = find(connection, name).await? {
        return Ok(code);
    }
    if let Some(code) = insert(connection, name).await? {
        return Ok(code);
    }
    // Another node gave it a number at the same time, or gave that number to another type.
    find(connection, name).await?.ok_or(Fault::Overtaken("the list of types"))
}

pub(super) const ALL: &str = "SELECT name, code FROM overdue.types ORDER BY name LIMIT $1";

/// All types with their numbers, by name.
pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<(String, i16)>, sqlx::Error> {
    sqlx::query(ALL)
        .bind(TYPES_MAX)
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

async fn find(connection: &mut PgConnection, name: &str) -> Result<Option<i16>, sqlx::Error> {
    sqlx::query_scalar("SELECT code FROM overdue.types WHERE name = $1").bind(name).fetch_optional(connection).await
}

/// The next number rather than one of a sequence: a batch that is rolled back again and again must not use them up.
async fn insert(connection: &mut PgConnection, name: &str) -> Result<Option<i16>, sqlx::Error> {
    sqlx::query_scalar(
        "INSERT INTO overdue.types (code, name)
         SELECT (coalesce(max(t.code), 0) + 1)::smallint, $1 FROM overdue.types AS t
         ON CONFLICT DO NOTHING RETURNING code",
    )
    .bind(name)
    .fetch_optional(connection)
    .await
}
