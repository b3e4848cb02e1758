//! The nodes: joining, leaving, and the lease that says who is alive.
//!
//! Rows are locked in one order everywhere: a node, its lane, its shards. A renewal locks nothing but its own node's row,
//! and no commit locks that one.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::types::PgInterval;
use sqlx::postgres::{PgConnection, PgRow};

use super::anchors;
use super::commit::Transaction;
use super::error::Fault;
use super::layout::Layout;
use super::values::or_empty;
use super::writer::Work;
use super::{lane, transfer};
use crate::fault::{Point, point};
use crate::store::{Fence, Member, Membership, NewNode, Owner};
use crate::time::Timestamp;

/// Lets a node in. The one that it replaces is ended, and its shards are the new one's.
pub(super) struct Join(pub(super) NewNode);

impl Work for Join {
    type Value = Fence;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<Fence, Fault> {
        transfer::stay(within).await?;
        let node = &self.0;
        insert(within.connection, node).await?;
        let fence = lane::begin(within, &node.node_id).await?;
        if let Some(replaced) = &node.replaces
            && lock(within.connection, replaced).await?
        {
            // It is an earlier life of this very process: whatever session it had is of no use any more.
            lane::end_recorded_session(within.connection, replaced).await?;
            end(within.connection, &within.layout, replaced, Some(&node.node_id)).await?;
        }
        Ok(fence)
    }
}

/// Ends the fence's node and frees its shards, if it is still the one that writes.
pub(super) struct Leave(pub(super) Fence);

impl Work for Leave {
    type Value = ();

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<(), Fault> {
        let fence = &self.0;
        if lock(within.connection, &fence.node_id).await? && holds(within.connection, fence).await? {
            end(within.connection, &within.layout, &fence.node_id, None).await?;
        }
        Ok(())
    }
}

async fn insert(connection: &mut PgConnection, node: &NewNode) -> Result<(), Fault> {
    sqlx::query(
        "INSERT INTO overdue.nodes (node_id, url, secret, joined_at, expires_at)
         VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp() + $4)",
    )
    .bind(&node.node_id)
    .bind(&node.url)
    .bind(&node.secret)
    .bind(interval(node.lease))
    .execute(connection)
    .await?;
    Ok(())
}

/// Locks a node's row; false when it is not there.
async fn lock(connection: &mut PgConnection, node_id: &str) -> Result<bool, Fault> {
    let found = sqlx::query("SELECT FROM overdue.nodes WHERE node_id = $1 FOR UPDATE").bind(node_id);
    Ok(found.fetch_optional(connection).await?.is_some())
}

async fn holds(connection: &mut PgConnection, fence: &Fence) -> Result<bool, Fault> {
    let found = sqlx::query("SELECT FROM overdue.lanes WHERE node_id = $1 AND lane = $2 AND epoch = $3 FOR UPDATE")
        .bind(&fence.node_id)
        .bind(lane::stored(fence.lane)?)
        .bind(fence.epoch);
    Ok(found.fetch_optional(connection).await?.is_some())
}

/// Ends a node whose row is locked: first its lanes, which waits for the commit under way, then nothing more of it can
/// come; its shards go to the heir, or to nobody.
pub(super) async fn end(connection: &mut PgConnection, layout: &Layout, node_id: &str, heir: Option<&str>) -> Result<(), Fault> {
    sqlx::query("DELETE FROM overdue.lanes WHERE node_id = $1").bind(node_id).execute(&mut *connection).await?;
    anchors::await_commits(connection, layout, node_id).await?;
    sqlx::query("UPDATE overdue.shards SET node_id = $2, epoch = epoch + 1, freed_at = clock_timestamp() WHERE node_id = $1")
        .bind(node_id)
        .bind(heir)
        .execute(&mut *connection)
        .await?;
    point(Point::TakeOverHalfDone);
    sqlx::query("DELETE FROM overdue.nodes WHERE node_id = $1").bind(node_id).execute(connection).await?;
    Ok(())
}

/// Ends every node there is, dead or alive, and with it the session in which it may hold its lane.
pub(super) async fn end_all(connection: &mut PgConnection, layout: &Layout) -> Result<(), Fault> {
    let node_ids: Vec<String> =
        sqlx::query_scalar("SELECT node_id FROM overdue.nodes ORDER BY node_id").fetch_all(&mut *connection).await?;
    for node_id in &node_ids {
        lane::end_recorded_session(connection, node_id).await?;
    }
    for node_id in &node_ids {
        lock(connection, node_id).await?;
        end(connection, layout, node_id, None).await?;
    }
    Ok(())
}

/// The renewal is in the same statement as the reading, which does not see it: the own row is taken from the renewal.
pub(super) const RENEW: &str = "WITH renewed AS (
         UPDATE overdue.nodes SET expires_at = clock_timestamp() + $2 WHERE node_id = $1 RETURNING node_id, expires_at),
     seen AS (
         SELECT n.node_id, n.url, n.secret, coalesce(r.expires_at, n.expires_at) > clock_timestamp() AS alive
         FROM overdue.nodes AS n LEFT JOIN renewed AS r ON r.node_id = n.node_id)
     SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000)::bigint,
            m.node_ids, m.urls, m.secrets, m.alive, o.node_ids, o.free_for
     FROM renewed
     CROSS JOIN (
         SELECT array_agg(node_id ORDER BY node_id) AS node_ids, array_agg(url ORDER BY node_id) AS urls,
                array_agg(secret ORDER BY node_id) AS secrets, array_agg(alive ORDER BY node_id) AS alive
         FROM seen) AS m
     CROSS JOIN (
         SELECT array_agg(s.node_id ORDER BY s.shard) AS node_ids,
                array_agg((extract(epoch FROM clock_timestamp() - s.freed_at) * 1000000)::bigint ORDER BY s.shard) AS free_for
         FROM overdue.shards AS s) AS o";

/// Renews a node's lease and tells who is there; `None` when the node was ended.
pub(super) async fn renew(
    connection: &mut PgConnection,
    node_id: &str,
    lease: Duration,
) -> Result<Option<Membership>, sqlx::Error> {
    let row = sqlx::query(RENEW).bind(node_id).bind(interval(lease)).fetch_optional(connection).await?;
    row.map(|row| membership_of(&row)).transpose()
}

fn membership_of(row: &PgRow) -> Result<Membership, sqlx::Error> {
    let node_ids = or_empty::<String>(row.try_get(2)?);
    let urls = or_empty::<Option<String>>(row.try_get(3)?);
    let secrets = or_empty::<String>(row.try_get(4)?);
    let alive = or_empty::<bool>(row.try_get(5)?);
    let members = node_ids.into_iter().zip(urls).zip(secrets).zip(alive);
    let owners = or_empty::<Option<String>>(row.try_get(6)?).into_iter().zip(or_empty::<i64>(row.try_get(7)?));
    Ok(Membership {
        now: Some(Timestamp::from_micros(row.try_get(0)?)),
        up: micros(row.try_get(1)?),
        members: members.map(|(((node_id, url), secret), alive)| Member { node_id, url, secret, alive }).collect(),
        owners: owners.map(|(node_id, free_for)| node_id.map_or_else(|| Owner::Nobody(micros(free_for)), Owner::Node)).collect(),
    })
}

/// A time span of the server; one that a step of its clock made negative is none.
fn micros(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
}

/// A time span as statements take it.
pub(super) fn interval(duration: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX) }
}
