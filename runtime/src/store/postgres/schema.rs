//! Creating, checking and migrating the database's schema.
//!
//! Everything stands in a schema of its own, `overdue`, the list of applied migrations included: other tables may live in
//! the same database.

use std::sync::LazyLock;

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnection;

use super::connection::Target;
use super::error::store_error;
use super::migrate;
use crate::store::StoreError;
use crate::store::migrations::migrations;

/// Every migration that this program knows.
pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    migrations! { "postgres":
    "0001_executions",
    "0002_history",
    "0003_attributes",
    "0004_inbox",
    "0005_lanes",
    "0006_tokens",
    "0007_retention",
    "0008_transfer",
    "0009_requests",
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
    /// Written by a newer program, in a way that this one can use.
    Compatible,
    /// Written by a newer program.
    Newer(i64),
}

/// Brings the schema to what this program needs.
pub(super) async fn prepare(connection: &mut PgConnection, target: &Target, older: OlderSchema) -> Result<(), StoreError> {
    match (standing(connection).await?, older) {
        (Standing::Empty, _) | (Standing::Older | Standing::Current, OlderSchema::Migrate) => migrate::run(target).await,
        (Standing::Current, OlderSchema::Refuse) => check_applied(connection).await,
        (Standing::Compatible, _) => Ok(()),
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
        Standing::Foreign => {
            "the database has a schema `overdue` that is not one of this program: choose another database".into()
        }
        Standing::Older | Standing::Empty | Standing::Current | Standing::Compatible => {
            "the database was written by an older overdue: back it up, then run `overdue migrate`".into()
        }
    })
}

/// Refuses a schema that this program cannot use, and changes nothing.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), StoreError> {
    match standing(connection).await? {
        Standing::Current => check_applied(connection).await,
        Standing::Compatible => Ok(()),
        Standing::Empty => Err(StoreError::Refused("the database is empty: no overdue has used it yet".into())),
        other => Err(refusal(&other)),
    }
}

/// Checks the number of shards, or stores it when the database is new.
pub(super) async fn fix_shards(connection: &mut PgConnection, shards: u16) -> Result<(), StoreError> {
    store_shards(connection, shards).await?;
    match stored_shards(connection).await? {
        Some(stored) if stored == i32::from(shards) => Ok(()),
        Some(stored) => Err(StoreError::Refused(format!(
            "the database was created with {stored} shards and cannot be used with {shards}: start with {stored}"
        ))),
        None => Err(StoreError::Corrupt("the number of shards is not there".into())),
    }
}

/// The number of shards that was stored.
pub(super) async fn shards(connection: &mut PgConnection) -> Result<u16, StoreError> {
    let stored = stored_shards(connection).await?;
    let stored = stored.ok_or_else(|| StoreError::Refused("the database is empty: no overdue has used it yet".into()))?;
    u16::try_from(stored).map_err(|_| StoreError::Corrupt(format!("the number of shards is {stored}")))
}

/// The number of the last migration that this program knows.
pub(super) fn latest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

async fn standing(connection: &mut PgConnection) -> Result<Standing, StoreError> {
    if count_relations(connection).await? == 0 {
        return Ok(Standing::Empty);
    }
    if !has_table(connection, migrate::APPLIED).await? {
        return Ok(Standing::Foreign);
    }
    let applied = applied_version(connection).await?;
    // The number of shards is stored last: without it, the database was never in use.
    if !has_table(connection, "overdue.meta").await? || stored_shards(connection).await?.is_none() {
        return Ok(if applied > latest() { Standing::Newer(applied) } else { Standing::Empty });
    }
    Ok(match applied {
        applied if applied < latest() => Standing::Older,
        applied if applied == latest() => Standing::Current,
        _ if lowest_compatible(connection).await? <= latest() => Standing::Compatible,
        applied => Standing::Newer(applied),
    })
}

/// That what was applied is what this program would have applied.
async fn check_applied(connection: &mut PgConnection) -> Result<(), StoreError> {
    let applied: Vec<(i64, Vec<u8>)> = sqlx::query_as("SELECT version, checksum FROM overdue._sqlx_migrations ORDER BY version")
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    for migration in MIGRATIONS.iter() {
        let same = applied.iter().any(|(version, checksum)| *version == migration.version && *checksum == *migration.checksum);
        if !same {
            return Err(StoreError::Refused(format!(
                "the database's schema cannot be used: its migration {} is another one than this program's",
                migration.version
            )));
        }
    }
    Ok(())
}

/// Whether the schema is there, empty perhaps.
pub(super) async fn exists(connection: &mut PgConnection) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT to_regnamespace('overdue') IS NOT NULL").fetch_one(connection).await.map_err(store_error)
}

async fn count_relations(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('overdue')")
        .fetch_one(connection)
        .await
        .map_err(store_error)
}

async fn has_table(connection: &mut PgConnection, name: &'static str) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(name).fetch_one(connection).await.map_err(store_error)
}

async fn applied_version(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM overdue._sqlx_migrations")
        .fetch_one(connection)
        .await
        .map_err(store_error)
}

async fn lowest_compatible(connection: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT compatible::bigint FROM overdue.meta WHERE one = 1")
        .fetch_one(connection)
        .await
        .map_err(store_error)
}

pub(super) async fn stored_shards(connection: &mut PgConnection) -> Result<Option<i32>, StoreError> {
    sqlx::query_scalar("SELECT shards::integer FROM overdue.meta WHERE one = 1")
        .fetch_optional(connection)
        .await
        .map_err(store_error)
}

/// Stores the number and a row for each shard, unless there is a number. Of two that do so at once, one succeeds.
async fn store_shards(connection: &mut PgConnection, shards: u16) -> Result<(), StoreError> {
    let stored = i16::try_from(shards).map_err(|_| StoreError::Refused(format!("{shards} shards are too many")))?;
    sqlx::query(
        "WITH fixed AS (
             INSERT INTO overdue.meta (one, shards)
             SELECT 1, $1 WHERE NOT EXISTS (SELECT 1 FROM overdue.meta AS m WHERE m.one = 1)
             ON CONFLICT DO NOTHING RETURNING shards)
         INSERT INTO overdue.shards (shard)
         SELECT s.shard::smallint FROM fixed CROSS JOIN generate_series(0, fixed.shards - 1) AS s (shard)",
    )
    .bind(stored)
    .execute(connection)
    .await
    .map(drop)
    .map_err(store_error)
}
