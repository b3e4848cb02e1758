//! Ending a node that is dead: its lease is over by the database's clock.
//!
//! Never waits for long for what the dead one holds: a client that was stopped in the middle of a transaction keeps its
//! locks, and its session is ended then. Runs in a session of its own, in a task that nobody gives up half way.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};

use super::connection::Target;
use super::error::{Failure, Fault};
use super::layout::Layout;
use super::{lane, nodes};
use crate::store::StoreError;

/// The longest wait for a lock that the dead node may hold.
pub(super) const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often it is tried, its session being ended before each try but the first.
const TRIES_MAX: u32 = 4;

/// Ends the node and frees its shards; false when it is alive, is gone already, or the database has not been up for
/// `lease`: after a restart every node is late, and gets that long to come back.
pub(super) async fn take_over(target: Target, layout: Layout, node_id: String, lease: Duration) -> Result<bool, StoreError> {
    let mut connection = target.open_taker(LOCK_WAIT_MAX).await.map_err(super::error::store_error)?;
    let mut tries = 1;
    let ended = loop {
        match end(&mut connection, &layout, &node_id, lease).await {
            Err(failure) if failure.is_contention() && tries < TRIES_MAX => {
                let _ = connection.execute(sqlx::raw_sql("ROLLBACK")).await;
                if let Err(error) = lane::end_recorded_session(&mut connection, &node_id).await {
                    break Err(Failure::Before(error.into()));
                }
                tries += 1;
            }
            ended => break ended,
        }
    };
    // A failed transaction ends with its session.
    let _ = connection.close().await;
    ended.map_err(Failure::of_small_write)
}

async fn end(connection: &mut PgConnection, layout: &Layout, node_id: &str, lease: Duration) -> Result<bool, Failure> {
    let before = |error: sqlx::Error| Failure::Before(error.into());
    connection.execute(sqlx::raw_sql("BEGIN")).await.map_err(before)?;
    let dead = is_dead(connection, node_id, lease).await.map_err(Failure::Before)?;
    if dead {
        nodes::end(connection, layout, node_id, None).await.map_err(Failure::Before)?;
    }
    connection.execute(sqlx::raw_sql("COMMIT")).await.map_err(Failure::At)?;
    Ok(dead)
}

/// Locks the row of a node whose lease is over. A renewal that was faster is seen; a later one waits, and finds no row.
async fn is_dead(connection: &mut PgConnection, node_id: &str, lease: Duration) -> Result<bool, Fault> {
    let found = sqlx::query(
        "SELECT FROM overdue.nodes AS n
         WHERE n.node_id = $1 AND n.expires_at <= clock_timestamp() AND pg_postmaster_start_time() <= clock_timestamp() - $2
         FOR UPDATE",
    )
    .bind(node_id)
    .bind(nodes::interval(lease));
    Ok(found.fetch_optional(connection).await?.is_some())
}
