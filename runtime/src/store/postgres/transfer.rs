//! Moving a shared store: its name and marks, what keeps others off, and the doors to export and import.
//!
//! Whoever moves it has a lock of the database to himself, in the session that writes, from before the first row is read
//! until it is closed: no node joins, no token is made, no caller leaves a request. That session is not replaced when it is
//! lost, so that the marks are set in it or not at all.

pub(super) mod export;
mod import;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use uuid::Uuid;

pub(super) use self::import::Import;
use super::commit::Transaction;
use super::connection::Target;
use super::error::{Fault, sqlstate, store_error};
use super::readers::answer;
use super::writer::{Command, Work};
use super::{PostgresStore, migrate, nodes};
use crate::store::{Counts, Imported, Parcel, Place, Portable, Standing, Store, StoreError, StoreFacts, StoreName};

/// The number of the lock, as `overdue.stay` has it: "overdue" and a 1, in bytes.
const LOCK: i64 = 8_031_718_527_447_950_593;

#[async_trait]
impl Portable for PostgresStore {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(standing(&mut connection, self.target.url())).await
    }

    async fn mark(&self, copying_from: Option<&StoreName>, moved_to: Option<&StoreName>) -> Result<(), StoreError> {
        let mark = Mark { copying_from: copying_from.cloned(), moved_to: moved_to.cloned() };
        self.ask(|answer| Command::Mark(mark, answer)).await
    }

    async fn export(&self, place: &Place, limit: usize) -> Result<(Parcel, Option<Place>), StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(export::export(&mut connection, place, limit, &self.all_shards)).await
    }

    async fn import(&self, parcel: &Parcel) -> Result<Imported, StoreError> {
        self.ask(|answer| Command::Import(Import(parcel.clone()), answer)).await
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.ask(|answer| Command::Clear(Clear, answer)).await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        counts(&mut *self.readers.connection().await?).await.map_err(store_error)
    }

    async fn close(&self) {
        Store::close(self).await;
    }
}

/// Takes the lock for as long as the session lives. Waits for the transactions that keep the store where it is, and names
/// them when they do not end.
pub(super) async fn keep_others_off(connection: &mut PgConnection, target: &Target) -> Result<(), StoreError> {
    match sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut *connection).await {
        Ok(_) => Ok(()),
        Err(error) if sqlstate(&error) == Some(migrate::LOCK_NOT_AVAILABLE) => {
            let holders = holders(connection).await.unwrap_or_default();
            let who = if holders.is_empty() { "another session".to_owned() } else { holders.join("; ") };
            Err(StoreError::Refused(format!(
                "{} is in use by {who}: it is being copied, or a transaction that starts a workflow or sends a signal is open; \
                 let it end, or end it with SELECT pg_terminate_backend(pid)",
                target.url()
            )))
        }
        Err(error) => Err(store_error(error)),
    }
}

async fn holders(connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT l.pid, a.usename::text, a.application_name, a.state, left(a.query, 100)
         FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
           AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
           AND ((l.classid::bigint << 32) | l.objid::bigint) = $1
         ORDER BY l.pid LIMIT 10",
    )
    .bind(LOCK)
    .fetch_all(connection)
    .await?;
    rows.iter().map(migrate::blocker).collect()
}

/// Keeps the store from being moved until the transaction ends; fails when that is going on or was done.
pub(super) async fn stay(within: &mut Transaction<'_>) -> Result<(), Fault> {
    let url = within.url;
    let stays: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_xact_lock_shared($1)").bind(LOCK).fetch_one(&mut *within.connection).await?;
    if !stays {
        let message = format!("{url} is being copied into another store: wait until `overdue copy` has ended");
        return Err(Fault::Refused(StoreError::Refused(message)));
    }
    standing(within.connection, url).await?.check_servable().map_err(Fault::Refused)
}

/// Which store this is, its marks, and whose lease is alive.
pub(super) async fn standing(connection: &mut PgConnection, url: &str) -> Result<Standing, sqlx::Error> {
    let row = sqlx::query(
        "SELECT t.store_id, t.copying_from_id, t.copying_from, t.moved_to_id, t.moved_to,
                (SELECT 'node ' || n.node_id || ' at ' || coalesce(n.url, 'no address') FROM overdue.nodes AS n
                 WHERE n.expires_at > clock_timestamp() ORDER BY n.node_id LIMIT 1)
         FROM overdue.transfer AS t WHERE t.one = 1",
    )
    .fetch_one(connection)
    .await?;
    let name = StoreName { id: row.try_get::<Uuid, _>(0)?.into_bytes(), url: url.to_owned() };
    Ok(Standing { name, copying_from: name_of(&row, 1)?, moved_to: name_of(&row, 3)?, in_use_by: row.try_get(5)? })
}

fn name_of(row: &PgRow, column: usize) -> Result<Option<StoreName>, sqlx::Error> {
    let (id, url): (Option<Uuid>, Option<String>) = (row.try_get(column)?, row.try_get(column + 1)?);
    Ok(id.zip(url).map(|(id, url)| StoreName { id: id.into_bytes(), url }))
}

/// Sets both marks and ends every node.
pub(super) struct Mark {
    copying_from: Option<StoreName>,
    moved_to: Option<StoreName>,
}

impl Work for Mark {
    type Value = ();

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<(), Fault> {
        let (copying_from, moved_to) = (self.copying_from.as_ref(), self.moved_to.as_ref());
        nodes::end_all(within.connection, &within.layout).await?;
        sqlx::query(
            "UPDATE overdue.transfer SET copying_from_id = $1, copying_from = $2, moved_to_id = $3, moved_to = $4 WHERE one = 1",
        )
        .bind(copying_from.map(|name| Uuid::from_bytes(name.id)))
        .bind(copying_from.map(|name| name.url.as_str()))
        .bind(moved_to.map(|name| Uuid::from_bytes(name.id)))
        .bind(moved_to.map(|name| name.url.as_str()))
        .execute(&mut *within.connection)
        .await?;
        Ok(())
    }
}

/// Removes everything but the store's name, marks, number of shards, types and last epoch.
pub(super) struct Clear;

impl Work for Clear {
    type Value = ();

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<(), Fault> {
        sqlx::query(
            "TRUNCATE overdue.executions, overdue.history, overdue.attributes, overdue.inbox, overdue.starts, overdue.outbox,
                      overdue.tokens, overdue.controls",
        )
        .execute(&mut *within.connection)
        .await?;
        Ok(())
    }
}

async fn counts(connection: &mut PgConnection) -> Result<Counts, sqlx::Error> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM overdue.executions), (SELECT count(*) FROM overdue.history),
                (SELECT count(*) FROM overdue.attributes), (SELECT count(*) FROM overdue.inbox),
                (SELECT count(*) FROM overdue.starts), (SELECT count(*) FROM overdue.tokens),
                (SELECT count(*) FROM overdue.outbox), (SELECT count(*) FROM overdue.controls)",
    )
    .fetch_one(connection)
    .await?;
    let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    Ok(Counts {
        executions: count(0)?,
        history_rows: count(1)?,
        attributes: count(2)?,
        inbox_rows: count(3)?,
        requested_starts: count(4)?,
        outbox_rows: count(6)?,
        tokens: count(5)?,
        controls: count(7)?,
    })
}
