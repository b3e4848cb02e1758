//! Who owns which shard. An owner changes in the owner's lane, so that it never changes under a commit.

use sqlx::postgres::PgConnection;

use super::commit::Transaction;
use super::error::Fault;
use super::lane;
use super::values::{limit_of, shard_of, stored_shards};
use super::writer::Work;
use crate::fault::{Point, point};
use crate::store::Fence;

/// Makes the fence's node the owner of free shards, those first that have been free for the longest.
pub(super) struct Claim {
    pub(super) fence: Fence,
    pub(super) most: usize,
}

impl Work for Claim {
    type Value = Vec<u16>;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<Vec<u16>, Fault> {
        lane::check(within, &self.fence).await?;
        // What another node is just claiming is not waited for: it will be gone.
        let claimed: Vec<i16> = sqlx::query_scalar(
            "WITH free AS (
                 SELECT s.shard FROM overdue.shards AS s WHERE s.node_id IS NULL
                 ORDER BY s.freed_at, s.shard LIMIT $2 FOR UPDATE SKIP LOCKED),
             claimed AS (
                 UPDATE overdue.shards AS s SET node_id = $1, epoch = s.epoch + 1
                 FROM free WHERE s.shard = free.shard RETURNING s.shard)
             SELECT shard FROM claimed ORDER BY shard",
        )
        .bind(&self.fence.node_id)
        .bind(limit_of(self.most))
        .fetch_all(&mut *within.connection)
        .await?;
        Ok(claimed.into_iter().map(|shard| shard_of("shards.shard", shard)).collect::<Result<_, _>>()?)
    }
}

/// Gives shards of the fence's node to another one, or to nobody.
pub(super) struct HandOver {
    pub(super) fence: Fence,
    pub(super) shards: Vec<u16>,
    pub(super) to: Option<String>,
}

impl Work for HandOver {
    type Value = ();

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<(), Fault> {
        lane::check(within, &self.fence).await?;
        let heir = match &self.to {
            Some(to) if keep(within.connection, to).await? => Some(to),
            _ => None,
        };
        sqlx::query(
            "UPDATE overdue.shards AS s SET node_id = $3, epoch = s.epoch + 1, freed_at = clock_timestamp()
             WHERE s.node_id = $1 AND s.shard = ANY ($2)",
        )
        .bind(&self.fence.node_id)
        .bind(stored_shards(&self.shards))
        .bind(heir)
        .execute(&mut *within.connection)
        .await?;
        point(Point::HandOverUncommitted);
        Ok(())
    }
}

/// Keeps a node from being ended until the transaction ends, but not from renewing its lease; false when it is not there.
async fn keep(connection: &mut PgConnection, node_id: &str) -> Result<bool, Fault> {
    let found = sqlx::query("SELECT FROM overdue.nodes WHERE node_id = $1 FOR KEY SHARE").bind(node_id);
    Ok(found.fetch_optional(connection).await?.is_some())
}
