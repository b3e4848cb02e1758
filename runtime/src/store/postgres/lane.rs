//! Lanes: who may write, and the epoch that proves it.

use sqlx::postgres::PgConnection;

use super::error::Fault;
use super::writer::SmallWrite;
use crate::store::Fence;

/// Ends every lane there is and begins a new one.
pub(super) struct Join {
    pub(super) node_id: String,
    pub(super) lane: u16,
}

impl SmallWrite for Join {
    type Value = Fence;

    async fn write(&self, connection: &mut PgConnection) -> Result<Fence, Fault> {
        end_all(connection).await?;
        let epoch = begin(connection, &self.node_id, self.lane).await?;
        Ok(Fence { node_id: self.node_id.clone(), lane: self.lane, epoch })
    }
}

/// Ends the fence's lane, if it is still its own.
pub(super) struct Leave(pub(super) Fence);

impl SmallWrite for Leave {
    type Value = ();

    async fn write(&self, connection: &mut PgConnection) -> Result<(), Fault> {
        sqlx::query("DELETE FROM overdue.lanes WHERE node_id = $1 AND lane = $2 AND epoch = $3")
            .bind(&self.0.node_id)
            .bind(stored(self.0.lane))
            .bind(self.0.epoch)
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// Fails when the database shows another epoch for this lane, or none; else locks the lane until the transaction ends.
pub(super) async fn check(connection: &mut PgConnection, fence: &Fence) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT overdue.fence($1, $2, $3)")
        .bind(&fence.node_id)
        .bind(stored(fence.lane))
        .bind(fence.epoch)
        .execute(connection)
        .await
        .map(drop)
}

/// Names this session as the one that writes in the fence's lane, so that a successor knows whom to end.
pub(super) async fn record_session(connection: &mut PgConnection, fence: &Fence) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE overdue.lanes AS l SET pid = a.pid, backend_start = a.backend_start
         FROM pg_stat_activity AS a
         WHERE a.pid = pg_backend_pid() AND l.node_id = $1 AND l.lane = $2 AND l.epoch = $3",
    )
    .bind(&fence.node_id)
    .bind(stored(fence.lane))
    .bind(fence.epoch)
    .execute(connection)
    .await
    .map(drop)
}

async fn begin(connection: &mut PgConnection, node_id: &str, lane: u16) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "INSERT INTO overdue.lanes (node_id, lane, epoch, pid, backend_start)
         SELECT $1, $2, nextval('overdue.epochs'), a.pid, a.backend_start
         FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid()
         RETURNING epoch",
    )
    .bind(node_id)
    .bind(stored(lane))
    .fetch_one(connection)
    .await
}

async fn end_all(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM overdue.lanes").execute(connection).await.map(drop)
}

fn stored(lane: u16) -> i16 {
    i16::try_from(lane).expect("a node has few lanes")
}
