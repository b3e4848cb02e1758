//! Moving an embedded store: its name and marks, and the doors to export and import.
//!
//! The lock beside the file keeps every server off while a copy has it open.

pub(super) mod export;
mod import;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

pub(super) use self::import::import;
use super::error::{store_error, unreadable};
use super::writer::Command;
use super::{SqliteStore, lane};
use crate::store::{Counts, Imported, Parcel, Place, Portable, Standing, Store, StoreError, StoreFacts, StoreName};

#[async_trait]
impl Portable for SqliteStore {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        standing(&mut *self.readers.connection().await?, &self.url).await.map_err(store_error)
    }

    async fn mark(&self, copying_from: Option<&StoreName>, moved_to: Option<&StoreName>) -> Result<(), StoreError> {
        let (copying_from, moved_to) = (copying_from.cloned(), moved_to.cloned());
        self.ask(|answer| Command::Mark { copying_from, moved_to, answer }).await
    }

    async fn export(&self, place: &Place, limit: usize) -> Result<(Parcel, Option<Place>), StoreError> {
        export::export(&mut *self.readers.snapshot().await?, place, limit).await.map_err(store_error)
    }

    async fn import(&self, parcel: &Parcel) -> Result<Imported, StoreError> {
        check_storable(parcel)?;
        self.ask(|answer| Command::Import { parcel: parcel.clone(), answer }).await
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.ask(|answer| Command::Clear { answer }).await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        counts(&mut *self.readers.connection().await?).await.map_err(store_error)
    }

    async fn close(&self) {
        Store::close(self).await;
    }
}

/// Nobody asks for starts or sends signals inside this store, so there is no place for such that wait to be looked at.
fn check_storable(parcel: &Parcel) -> Result<(), StoreError> {
    let waiting = match parcel {
        Parcel::Requests(all) => all.first().map(|request| format!("the start of {} that was asked for", request.key)),
        Parcel::Signals(all) => {
            let unchecked = all.iter().find(|carried| carried.row.unchecked);
            unchecked.map(|carried| format!("signal {} of {} that was sent", carried.row.signal_id, carried.row.key))
        }
        Parcel::Executions(_) | Parcel::Outbox(_) | Parcel::Tokens(_) | Parcel::Controls(_) => None,
    };
    waiting.map_or(Ok(()), |what| {
        Err(StoreError::Refused(format!(
            "{what} inside the source cannot be kept by an embedded store: serve the source until it is taken up, or remove it if it was refused"
        )))
    })
}

/// Which store this is, and its marks.
pub(super) async fn standing(connection: &mut SqliteConnection, url: &str) -> Result<Standing, sqlx::Error> {
    let row = sqlx::query("SELECT store_id, copying_from_id, copying_from, moved_to_id, moved_to FROM transfer WHERE one = 1")
        .fetch_one(connection)
        .await?;
    let name = StoreName { id: id_of(row.try_get(0)?)?, url: url.to_owned() };
    Ok(Standing { name, copying_from: name_of(&row, 1)?, moved_to: name_of(&row, 3)?, in_use_by: None })
}

fn name_of(row: &SqliteRow, column: usize) -> Result<Option<StoreName>, sqlx::Error> {
    let (id, url): (Option<&[u8]>, Option<String>) = (row.try_get(column)?, row.try_get(column + 1)?);
    id.zip(url).map(|(id, url)| Ok(StoreName { id: id_of(id)?, url })).transpose()
}

fn id_of(bytes: &[u8]) -> Result<[u8; 16], sqlx::Error> {
    bytes.try_into().map_err(|_| unreadable("transfer.store_id", "a value of another length"))
}

/// Sets both marks and ends every lane. Needs a transaction.
pub(super) async fn mark(
    connection: &mut SqliteConnection,
    copying_from: Option<&StoreName>,
    moved_to: Option<&StoreName>,
) -> Result<(), sqlx::Error> {
    lane::end_all(connection).await?;
    sqlx::query("UPDATE transfer SET copying_from_id = ?1, copying_from = ?2, moved_to_id = ?3, moved_to = ?4 WHERE one = 1")
        .bind(copying_from.map(|name| name.id.to_vec()))
        .bind(copying_from.map(|name| name.url.as_str()))
        .bind(moved_to.map(|name| name.id.to_vec()))
        .bind(moved_to.map(|name| name.url.as_str()))
        .execute(connection)
        .await
        .map(drop)
}

/// Removes everything but the store's name, marks, number of shards and last epoch. Needs a transaction.
pub(super) async fn clear(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for sql in [
        "DELETE FROM history",
        "DELETE FROM attributes",
        "DELETE FROM inbox",
        "DELETE FROM outbox",
        "DELETE FROM executions",
        "DELETE FROM tokens",
        "DELETE FROM controls",
    ] {
        sqlx::query(sql).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn counts(connection: &mut SqliteConnection) -> Result<Counts, sqlx::Error> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM executions), (SELECT count(*) FROM history), (SELECT count(*) FROM attributes),
                (SELECT count(*) FROM inbox), (SELECT count(*) FROM tokens), (SELECT count(*) FROM outbox),
                (SELECT count(*) FROM controls)",
    )
    .fetch_one(connection)
    .await?;
    let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    Ok(Counts {
        executions: count(0)?,
        history_rows: count(1)?,
        attributes: count(2)?,
        inbox_rows: count(3)?,
        requested_starts: 0,
        outbox_rows: count(5)?,
        tokens: count(4)?,
        controls: count(6)?,
    })
}
