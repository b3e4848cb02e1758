//! Lanes: who may write, and the epoch that proves it.

use sqlx::sqlite::SqliteConnection;

use super::error::Fault;
use crate::fault::{Point, point};
use crate::store::Fence;

/// The one writer's.
const LANE: u16 = 0;

/// Ends every lane there is and begins a new one. One process at a time holds this store, so that whoever had a lane
/// before is gone, or is an earlier incarnation of the caller. Needs a transaction.
pub(super) async fn join(connection: &mut SqliteConnection, node_id: &str) -> Result<Fence, sqlx::Error> {
    end_all(connection).await?;
    point(Point::EpochUnraised);
    let epoch = raise_epoch(connection).await?;
    point(Point::EpochRaised);
    begin(connection, node_id, LANE, epoch).await?;
    Ok(Fence { node_id: node_id.to_owned(), lane: LANE, epoch })
}

/// Ends the fence's lane, if it is still its own.
pub(super) async fn leave(connection: &mut SqliteConnection, fence: &Fence) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM lanes WHERE node_id = ?1 AND lane = ?2 AND epoch = ?3")
        .bind(&fence.node_id)
        .bind(i64::from(fence.lane))
        .bind(fence.epoch)
        .execute(connection)
        .await
        .map(drop)
}

/// Fails when the database shows another epoch for this lane, or none.
pub(super) async fn check(connection: &mut SqliteConnection, fence: &Fence) -> Result<(), Fault> {
    let epoch: Option<i64> = sqlx::query_scalar("SELECT epoch FROM lanes WHERE node_id = ?1 AND lane = ?2")
        .bind(&fence.node_id)
        .bind(i64::from(fence.lane))
        .fetch_optional(connection)
        .await?;
    if epoch == Some(fence.epoch) { Ok(()) } else { Err(Fault::FenceLost) }
}

pub(super) async fn end_all(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM lanes").execute(connection).await.map(drop)
}

async fn raise_epoch(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("UPDATE meta SET epoch = epoch + 1 WHERE one = 1 RETURNING epoch").fetch_one(connection).await
}

async fn begin(connection: &mut SqliteConnection, node_id: &str, lane: u16, epoch: i64) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO lanes (node_id, lane, epoch) VALUES (?1, ?2, ?3)")
        .bind(node_id)
        .bind(i64::from(lane))
        .bind(epoch)
        .execute(connection)
        .await
        .map(drop)
}
