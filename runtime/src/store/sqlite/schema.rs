//! Creating, checking and migrating the database's schema.

use std::sync::LazyLock;

use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnection;

use super::error::store_error;
use crate::fault::{Point, is_armed, point};
use crate::store::StoreError;
use crate::store::migrations::migrations;

/// Every migration that this program knows.
pub(super) static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    migrations! { "sqlite":
    "0001_executions",
    "0002_history",
    "0003_attributes",
    "0004_inbox",
    "0005_lanes",
    "0006_tokens",
    "0007_retention",
    "0008_transfer",
    "0010_controls",
    "0011_outbox",
    "0012_parked",
    }
});

/// What to do with a database that an older program wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OlderSchema {
    /// Say how to migrate it.
    Refuse,
    /// Migrate it.
    Migrate,
}

/// Where a database's schema stands, seen from this program.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing is in it, or its creation was interrupted.
    Empty,
    /// Somebody else's.
    Foreign,
    /// Written by an older program.
    Older,
    /// As this program writes it.
    Current,
    /// Written by a newer program.
    Newer(i64),
}

/// Brings the schema to what this program needs.
pub(super) async fn prepare(connection: &mut SqliteConnection, older: OlderSchema) -> Result<(), StoreError> {
    match (standing(connection).await?, older) {
        (Standing::Empty, _) | (Standing::Older | Standing::Current, OlderSchema::Migrate) => migrate(connection).await,
        // Runs nothing; checks that what was applied is what this program would have applied.
        (Standing::Current, OlderSchema::Refuse) => migrate(connection).await,
        (other, _) => Err(refusal(&other)),
    }
}

fn refusal(standing: &Standing) -> StoreError {
    StoreError::Refused(match standing {
        Standing::Newer(version) => format!(
            "the database was written by a newer overdue (its schema has migration {version}, this program ends at {}): \
             run that version or a later one",
            latest()
        ),
        Standing::Foreign => "the file is a database, but not one of overdue: choose another path".into(),
        Standing::Older | Standing::Empty | Standing::Current => {
            "the database was written by an older overdue: back it up, then run `overdue migrate`".into()
        }
    })
}

/// Refuses a schema that is not this program's, and changes nothing.
pub(super) async fn check(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    match standing(connection).await? {
        Standing::Current => Ok(()),
        Standing::Empty => Err(StoreError::Refused("the database was never in use".into())),
        other => Err(refusal(&other)),
    }
}

/// Checks the number of shards, or stores it when the database is new.
pub(super) async fn fix_shards(connection: &mut SqliteConnection, shards: u16) -> Result<(), StoreError> {
    let stored = match stored_shards(connection).await? {
        Some(stored) => stored,
        None => {
            store_shards(connection, shards).await?;
            i64::from(shards)
        }
    };
    if stored == i64::from(shards) {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "the database was created with {stored} shards and cannot be used with {shards}: start with {stored}"
    )))
}

/// The number of shards of a database that was in use.
pub(super) async fn shards(connection: &mut SqliteConnection) -> Result<u16, StoreError> {
    let stored = stored_shards(connection).await?.ok_or_else(|| StoreError::Refused("the database was never in use".into()))?;
    u16::try_from(stored).map_err(|_| StoreError::Corrupt(format!("a store of {stored} shards")))
}

async fn migrate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    if is_armed(Point::MigrationApplied) {
        one_by_one(connection).await?;
    }
    run(&MIGRATOR, connection).await
}

async fn run(migrator: &Migrator, connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let run = migrator.run(connection).await;
    run.map_err(|error| StoreError::Refused(format!("the database's schema cannot be used: {error}")))
}

/// The same, seen between any two of them.
async fn one_by_one(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    for number in 1..=MIGRATOR.iter().count() {
        let mut first = Migrator::with_migrations(MIGRATOR.iter().take(number).cloned().collect());
        run(first.set_ignore_missing(true), connection).await?;
        point(Point::MigrationApplied);
    }
    Ok(())
}

fn latest() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0)
}

async fn standing(connection: &mut SqliteConnection) -> Result<Standing, StoreError> {
    if count_tables(connection).await? == 0 {
        return Ok(Standing::Empty);
    }
    if !has_table(connection, "_sqlx_migrations").await? {
        return Ok(Standing::Foreign);
    }
    let applied = applied_version(connection).await?;
    if applied > latest() {
        return Ok(Standing::Newer(applied));
    }
    // The number of shards is stored last: without it, the database was never in use.
    if !has_table(connection, "meta").await? || stored_shards(connection).await?.is_none() {
        return Ok(Standing::Empty);
    }
    Ok(if applied < latest() { Standing::Older } else { Standing::Current })
}

async fn count_tables(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT count(*) FROM sqlite_schema").fetch_one(connection).await.map_err(store_error)
}

async fn has_table(connection: &mut SqliteConnection, name: &'static str) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)")
        .bind(name)
        .fetch_one(connection)
        .await
        .map_err(store_error)
}

async fn applied_version(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations").fetch_one(connection).await.map_err(store_error)
}

async fn stored_shards(connection: &mut SqliteConnection) -> Result<Option<i64>, StoreError> {
    sqlx::query_scalar("SELECT shards FROM meta WHERE one = 1").fetch_optional(connection).await.map_err(store_error)
}

async fn store_shards(connection: &mut SqliteConnection, shards: u16) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO meta (one, shards) VALUES (1, ?1)")
        .bind(i64::from(shards))
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}
