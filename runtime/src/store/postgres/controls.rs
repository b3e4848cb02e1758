//! What nodes agree on: documents that are replaced as a whole.

use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::commit::Transaction;
use super::error::{Fault, unreadable};
use super::transfer;
use super::values::limit_of;
use super::writer::Work;
use crate::store::{CONTROLS_MAX, Control};

/// All of them, by name.
pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<Control>, sqlx::Error> {
    let rows = sqlx::query("SELECT name, rev, value FROM overdue.controls ORDER BY name LIMIT $1")
        .bind(limit_of(CONTROLS_MAX))
        .fetch_all(connection)
        .await?;
    let control_of = |row: &PgRow| {
        let (rev, value): (i64, Vec<u8>) = (row.try_get(1)?, row.try_get(2)?);
        let rev = u64::try_from(rev).map_err(|_| unreadable("controls.rev", rev))?;
        Ok(Control { name: row.try_get(0)?, rev, value: Bytes::from(value) })
    };
    rows.iter().map(control_of).collect()
}

/// Stores a document as it is.
pub(super) async fn insert(connection: &mut PgConnection, control: &Control) -> Result<(), Fault> {
    sqlx::query("INSERT INTO overdue.controls (name, rev, value) VALUES ($1, $2, $3)")
        .bind(&control.name)
        .bind(stored(control.rev)?)
        .bind(&control.value[..])
        .execute(connection)
        .await?;
    Ok(())
}

/// Writes a revision if the one before it stands there, or none and it is the first.
pub(super) struct Replace(pub(super) Control);

impl Work for Replace {
    type Value = bool;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<bool, Fault> {
        transfer::stay(within).await?;
        replace(within.connection, &self.0).await
    }
}

/// The same inside a transaction. Of two at once one waits for the other and is then refused: the condition is looked at
/// again on the row as it stands.
pub(super) async fn replace(connection: &mut PgConnection, control: &Control) -> Result<bool, Fault> {
    let statement = if control.rev == 1 {
        "INSERT INTO overdue.controls (name, rev, value) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
    } else {
        "UPDATE overdue.controls SET rev = $2, value = $3 WHERE name = $1 AND rev = $2 - 1"
    };
    let replaced = sqlx::query(statement).bind(&control.name).bind(stored(control.rev)?).bind(&control.value[..]);
    Ok(replaced.execute(connection).await?.rows_affected() == 1)
}

fn stored(rev: u64) -> Result<i64, Fault> {
    i64::try_from(rev).map_err(|_| Fault::Unstorable(format!("rev {rev}")))
}
