//! Distributing the tables by shard over the workers of Citus, and finding them distributed.
//!
//! What grows with the orders is distributed, colocated, so that one shard's rows of every table are at one worker. Types are
//! a reference table: every worker joins them. Membership, tokens and the number of shards stay with the coordinator: there
//! a commit locks its lane in the session that it is sent through, and nothing is copied to every worker when a lease is
//! renewed.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};

use super::connection::Durability;
use super::error::store_error;
use super::layout::Layout;
use super::schema;
use crate::store::StoreError;

/// The longest that distributing waits for a lock.
pub(super) const LOCK_WAIT_MAX: Duration = Duration::from_secs(4);

/// What is distributed by shard; the others are colocated with the first.
const BY_SHARD: [&str; 7] = [
    "overdue.executions",
    "overdue.history",
    "overdue.attributes",
    "overdue.inbox",
    "overdue.starts",
    "overdue.outbox",
    // One row for each shard, at its own place: see `anchors.rs`.
    "overdue.anchors",
];

/// What every worker has a copy of.
const TYPES: &str = "overdue.types";

/// Places for each worker: so many times as many workers find something to hold, and a batch, which is of one place, is
/// not made smaller than that takes.
const PLACES_PER_WORKER: i64 = 4;

/// How the tables of a prepared database lie.
pub(super) async fn layout(connection: &mut PgConnection, durability: Durability) -> Result<Layout, StoreError> {
    if !has_citus(connection).await.map_err(store_error)? {
        return Ok(Layout::One);
    }
    let missing = missing(connection).await.map_err(store_error)?;
    if missing.len() == BY_SHARD.len() {
        return Ok(Layout::One);
    }
    if !missing.is_empty() {
        return Err(StoreError::Refused(format!(
            "some tables are distributed and others are not ({}): run `overdue migrate --distribute` again",
            missing.join(", ")
        )));
    }
    check_workers(connection, durability).await?;
    Layout::read(connection).await.map_err(store_error)
}

/// Distributes what is not distributed yet, in one transaction.
pub(super) async fn distribute(connection: &mut PgConnection, durability: Durability) -> Result<(), StoreError> {
    if !has_citus(connection).await.map_err(store_error)? {
        return Err(StoreError::Refused(
            "the extension citus is not installed in this database: set shared_preload_libraries = 'citus' on the coordinator \
             and on every worker, run CREATE EXTENSION citus in this database on each of them, and add the workers on the \
             coordinator with citus_set_coordinator_host and citus_add_node"
                .into(),
        ));
    }
    let workers = workers(connection).await.map_err(store_error)?;
    if workers == 0 {
        return Err(StoreError::Refused("Citus has no node that may hold rows: add one with citus_add_node".into()));
    }
    check_workers(connection, durability).await?;
    let Some(shards) = schema::stored_shards(connection).await? else {
        return Err(StoreError::Refused("no server has used the database yet: run `overdue serve` once".into()));
    };
    let mut transaction = connection.begin().await.map_err(store_error)?;
    let distributed = within(&mut transaction, workers, shards).await;
    match distributed {
        Ok(()) => transaction.commit().await.map_err(|error| refused(&error)),
        Err(error) => Err(error),
    }
}

async fn within(connection: &mut PgConnection, workers: i64, shards: i32) -> Result<(), StoreError> {
    // Those who write now would go on as if nothing had happened.
    connection.execute("LOCK TABLE overdue.nodes IN SHARE ROW EXCLUSIVE MODE").await.map_err(|error| refused(&error))?;
    let alive: i64 = sqlx::query_scalar("SELECT count(*) FROM overdue.nodes AS n WHERE n.expires_at > clock_timestamp()")
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    let missing = missing(connection).await.map_err(store_error)?;
    if alive > 0 && !missing.is_empty() {
        return Err(StoreError::Refused(format!("{alive} nodes use the database: stop every server first")));
    }
    create(connection, &missing, workers, shards).await.map_err(|error| refused(&error))
}

async fn create(connection: &mut PgConnection, missing: &[String], workers: i64, shards: i32) -> Result<(), sqlx::Error> {
    // Several tables in one transaction take one connection to each worker.
    connection.execute("SET LOCAL citus.multi_shard_modify_mode = 'sequential'").await?;
    connection
        .execute("CREATE TABLE IF NOT EXISTS overdue.anchors (shard smallint NOT NULL PRIMARY KEY CHECK (shard >= 0))")
        .await?;
    if !is_distributed(connection, TYPES).await? {
        sqlx::query("SELECT create_reference_table($1::text::regclass)").bind(TYPES).execute(&mut *connection).await?;
    }
    for table in missing {
        if *table == BY_SHARD[0] {
            let places = (workers * PLACES_PER_WORKER).min(i64::from(shards));
            sqlx::query(
                "SELECT create_distributed_table($1::text::regclass, 'shard', colocate_with => 'none', shard_count => $2::integer)",
            )
            .bind(table)
            .bind(i32::try_from(places).unwrap_or(shards))
            .execute(&mut *connection)
            .await?;
        } else {
            sqlx::query("SELECT create_distributed_table($1::text::regclass, 'shard', colocate_with => $2)")
                .bind(table)
                .bind(BY_SHARD[0])
                .execute(&mut *connection)
                .await?;
        }
        // What was copied to the workers is still here, where nobody sees it.
        sqlx::query("SELECT truncate_local_data_after_distributing_table($1::text::regclass)")
            .bind(table)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("INSERT INTO overdue.anchors (shard) SELECT s.shard::smallint FROM generate_series(0, $1 - 1) AS s (shard) ON CONFLICT DO NOTHING")
        .bind(shards)
        .execute(connection)
        .await
        .map(drop)
}

fn refused(error: &sqlx::Error) -> StoreError {
    StoreError::Refused(format!("the tables cannot be distributed: {error}; nothing is half done"))
}

async fn has_citus(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')").fetch_one(connection).await
}

/// The nodes that may hold rows; the coordinator can be one.
async fn workers(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT count(*) FROM pg_dist_node WHERE shouldhaveshards AND noderole = 'primary' AND isactive")
        .fetch_one(connection)
        .await
}

/// Those tables that are not distributed by shard.
async fn missing(connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT t.name FROM unnest($1::text[]) WITH ORDINALITY AS t (name, place)
         WHERE NOT EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = to_regclass(t.name) AND p.partmethod = 'h')
         ORDER BY t.place",
    )
    .bind(&BY_SHARD[..])
    .fetch_all(connection)
    .await
}

async fn is_distributed(connection: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = to_regclass($1))")
        .bind(table)
        .fetch_one(connection)
        .await
}

/// Refuses workers that would lose what was acknowledged: it is there that commits are made.
async fn check_workers(connection: &mut PgConnection, durability: Durability) -> Result<(), StoreError> {
    if durability == Durability::Unchecked {
        return Ok(());
    }
    let careless: Vec<String> = sqlx::query_scalar(
        "SELECT w.nodename || ':' || w.nodeport || CASE WHEN w.success THEN '' ELSE ' (' || w.result || ')' END
         FROM run_command_on_workers(
             $$ SELECT 'off' = ANY (ARRAY[current_setting('fsync'), current_setting('full_page_writes'),
                                         current_setting('synchronous_commit')]) $$) AS w
         WHERE NOT w.success OR w.result <> 'f'
         ORDER BY 1",
    )
    .fetch_all(connection)
    .await
    .map_err(store_error)?;
    if careless.is_empty() {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "workers that do not answer, or run with fsync, full_page_writes or synchronous_commit = off and would lose what they \
         acknowledged in a crash: {}",
        careless.join(", ")
    )))
}
