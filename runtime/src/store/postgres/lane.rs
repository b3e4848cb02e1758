//! The lane: who may write, and the epoch that proves it.

use std::collections::HashSet;

use sqlx::postgres::PgConnection;

use super::anchors;
use super::commit::Transaction;
use super::error::Fault;
use super::values::shard_of;
use super::writer::Work;
use crate::fault::{Point, point};
use crate::store::Fence;

/// The one writer of each node.
pub(super) const LANE: u16 = 0;

/// A lane's number as it is stored.
pub(super) fn stored(lane: u16) -> Result<i16, Fault> {
    i16::try_from(lane).map_err(|_| Fault::Unstorable(format!("lane {lane}")))
}

/// Fails when the database shows another epoch for this lane, or none. Else locks the lane until the transaction ends, and
/// tells which shards the node owns.
pub(super) async fn check(within: &mut Transaction<'_>, fence: &Fence) -> Result<HashSet<u16>, Fault> {
    let is_recorded = within.memory.recorded_epoch == Some(fence.epoch);
    if !is_recorded {
        name_session(within.connection, &fence.node_id).await?;
    }
    let owned: Vec<i16> = sqlx::query_scalar("SELECT overdue.fence($1, $2, $3)")
        .bind(&fence.node_id)
        .bind(stored(fence.lane)?)
        .bind(fence.epoch)
        .fetch_one(&mut *within.connection)
        .await?;
    if !is_recorded {
        record_session(within.connection, fence).await?;
        within.memory.recorded_epoch = Some(fence.epoch);
    }
    Ok(owned.into_iter().map(|shard| shard_of("shards.shard", shard)).collect::<Result<_, _>>()?)
}

/// Begins the lane of a new node, in this session.
pub(super) async fn begin(within: &mut Transaction<'_>, node_id: &str) -> Result<Fence, Fault> {
    let epoch = sqlx::query_scalar(
        "INSERT INTO overdue.lanes (node_id, lane, epoch, pid, backend_start)
         SELECT $1, $2, nextval('overdue.epochs'), a.pid, a.backend_start
         FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid()
         RETURNING epoch",
    )
    .bind(node_id)
    .bind(stored(LANE)?)
    .fetch_one(&mut *within.connection)
    .await?;
    within.memory.recorded_epoch = Some(epoch);
    Ok(Fence { node_id: node_id.to_owned(), lane: LANE, epoch })
}

/// Names this session as the one that writes in the fence's lane, so that a successor knows whom to end.
async fn record_session(connection: &mut PgConnection, fence: &Fence) -> Result<(), Fault> {
    sqlx::query(
        "UPDATE overdue.lanes AS l SET pid = a.pid, backend_start = a.backend_start
         FROM pg_stat_activity AS a
         WHERE a.pid = pg_backend_pid() AND l.node_id = $1 AND l.lane = $2 AND l.epoch = $3",
    )
    .bind(&fence.node_id)
    .bind(stored(fence.lane)?)
    .bind(fence.epoch)
    .execute(connection)
    .await?;
    Ok(())
}

/// What a session that writes in a node's lane is called. It bears the name before it can hold the lane's row: what that row
/// says of its session shows to nobody before the session's first commit.
fn session_name(node_id: &str) -> String {
    format!("overdue writer {node_id}")
}

async fn name_session(connection: &mut PgConnection, node_id: &str) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT set_config('application_name', $1, false)")
        .bind(session_name(node_id))
        .execute(connection)
        .await
        .map(drop)
}

/// Ends the sessions that write in a node's lane, but for the present one: the one that the lane names, if it is still that
/// one, and those that bear the node's name. A client that was stopped in the middle of a transaction holds its locks for as
/// long as it likes: no timeout of the server ends a session that waits for the rest of a message.
pub(super) async fn end_recorded_session(connection: &mut PgConnection, node_id: &str) -> Result<(), sqlx::Error> {
    sqlx::query(
        "SELECT pg_terminate_backend(a.pid)
         FROM pg_stat_activity AS a
         WHERE a.pid <> pg_backend_pid() AND a.datname = current_database()
           AND (a.application_name = $2
                OR EXISTS (SELECT FROM overdue.lanes AS l
                           WHERE l.node_id = $1 AND l.pid = a.pid AND l.backend_start = a.backend_start))",
    )
    .bind(node_id)
    .bind(session_name(node_id))
    .execute(connection)
    .await
    .map(drop)
}

/// Raises the epoch of the fence's lane, if it is still its own. The session that it was written in before is ended first:
/// its last commit is in the database or will never be once the lane's row can be locked.
pub(super) struct Raise(pub(super) Fence);

impl Work for Raise {
    type Value = Option<Fence>;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<Option<Fence>, Fault> {
        let fence = &self.0;
        name_session(within.connection, &fence.node_id).await?;
        end_recorded_session(within.connection, &fence.node_id).await?;
        point(Point::EpochUnraised);
        let epoch: Option<i64> = sqlx::query_scalar(
            "UPDATE overdue.lanes SET epoch = nextval('overdue.epochs')
             WHERE node_id = $1 AND lane = $2 AND epoch = $3 RETURNING epoch",
        )
        .bind(&fence.node_id)
        .bind(stored(fence.lane)?)
        .bind(fence.epoch)
        .fetch_optional(&mut *within.connection)
        .await?;
        let Some(epoch) = epoch else { return Ok(None) };
        point(Point::EpochRaised);
        anchors::await_commits(within.connection, &within.layout, &fence.node_id).await?;
        let raised = Fence { epoch, ..fence.clone() };
        record_session(within.connection, &raised).await?;
        within.memory.recorded_epoch = Some(epoch);
        Ok(Some(raised))
    }
}
