//! The fence beside the rows, where the tables are distributed.
//!
//! The lane's row stands at the coordinator, and its lock ends with the coordinator's session. If that session is killed
//! while its COMMIT is on the way to a worker, the worker's transaction is still open when the successor has the lane. So
//! each shard has an *anchor*, a row at its own place: a commit holds those of the shards that it advances, and whoever
//! ends a lane waits for them. On one server the lane's lock says all of that.

use sqlx::postgres::PgConnection;

use super::layout::Layout;

const HOLD: &str = "SELECT count(*) FROM (
         SELECT 1 FROM overdue.anchors AS a WHERE a.shard = ANY ($1) ORDER BY a.shard FOR KEY SHARE) AS held";

/// Keeps the successor of this lane waiting until the transaction has ended where these shards are, which are of one place.
pub(super) async fn hold(connection: &mut PgConnection, layout: &Layout, shards: &[i16]) -> Result<(), sqlx::Error> {
    if !layout.is_distributed() || shards.is_empty() {
        return Ok(());
    }
    sqlx::query(HOLD).bind(shards).execute(connection).await.map(drop)
}

const AWAIT: &str = "SELECT count(*) FROM (
         SELECT 1 FROM overdue.anchors AS a WHERE a.shard = ANY ($1) ORDER BY a.shard FOR UPDATE) AS free";

/// Waits until no commit of the node is under way anywhere. Its lane is locked by the caller, so that none can follow.
pub(super) async fn await_commits(connection: &mut PgConnection, layout: &Layout, node_id: &str) -> Result<(), sqlx::Error> {
    if !layout.is_distributed() {
        return Ok(());
    }
    let owned = sqlx::query_scalar("SELECT s.shard FROM overdue.shards AS s WHERE s.node_id = $1 ORDER BY s.shard");
    let shards: Vec<i16> = owned.bind(node_id).fetch_all(&mut *connection).await?;
    for part in layout.parts_of(&shards) {
        sqlx::query(AWAIT).bind(part).execute(&mut *connection).await?;
    }
    Ok(())
}
