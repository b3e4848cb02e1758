//! Workflow types and their numbers.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

/// Types are part of programs, so there are few; a listing walks over them.
const TYPES_MAX: i64 = 10_000;

/// The number of a type, given to it now when it has none. Needs a transaction.
pub(super) async fn code(connection: &mut SqliteConnection, name: &str) -> Result<i64, sqlx::Error> {
    match find(connection, name).await? {
        Some(code) => Ok(code),
        None => insert(connection, name).await,
    }
}

/// All types with their numbers, by name.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<(String, i64)>, sqlx::Error> {
    sqlx::query("SELECT name, code FROM types ORDER BY name LIMIT ?1")
        .bind(TYPES_MAX)
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

async fn find(connection: &mut SqliteConnection, name: &str) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT code FROM types WHERE name = ?1").bind(name).fetch_optional(connection).await
}

async fn insert(connection: &mut SqliteConnection, name: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("INSERT INTO types (name) VALUES (?1) RETURNING code").bind(name).fetch_one(connection).await
}
