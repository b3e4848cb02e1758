//! What nodes agree on: documents that are replaced as a whole.

use bytes::Bytes;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::error::{Fault, unreadable};
use super::values::limit_of;
use crate::store::{CONTROLS_MAX, Control};

/// All of them, by name.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Control>, sqlx::Error> {
    let rows = sqlx::query("SELECT name, rev, value FROM controls ORDER BY name LIMIT ?1")
        .bind(limit_of(CONTROLS_MAX))
        .fetch_all(connection)
        .await?;
    let control_of = |row: &sqlx::sqlite::SqliteRow| {
        let (rev, value): (i64, Vec<u8>) = (row.try_get(1)?, row.try_get(2)?);
        let rev = u64::try_from(rev).map_err(|_| unreadable("controls.rev", rev))?;
        Ok(Control { name: row.try_get(0)?, rev, value: Bytes::from(value) })
    };
    rows.iter().map(control_of).collect()
}

/// Stores a document as it is. Needs a transaction.
pub(super) async fn insert(connection: &mut SqliteConnection, control: &Control) -> Result<(), Fault> {
    sqlx::query("INSERT INTO controls (name, rev, value) VALUES (?1, ?2, ?3)")
        .bind(&control.name)
        .bind(stored(control.rev)?)
        .bind(control.value.to_vec())
        .execute(connection)
        .await?;
    Ok(())
}

/// Writes a revision if the one before it stands there, or none and it is the first. Needs a transaction.
pub(super) async fn replace(connection: &mut SqliteConnection, control: &Control) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(
        "INSERT INTO controls (name, rev, value)
         SELECT ?1, ?2, ?3
         WHERE ?2 = coalesce((SELECT rev FROM controls WHERE name = ?1), 0) + 1
         ON CONFLICT (name) DO UPDATE SET rev = excluded.rev, value = excluded.value",
    )
    .bind(&control.name)
    .bind(stored(control.rev)?)
    .bind(control.value.to_vec())
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

fn stored(rev: u64) -> Result<i64, sqlx::Error> {
    i64::try_from(rev).map_err(|_| unreadable("controls.rev", rev))
}
