//! Reads that may concern several places: one statement at each, the answers brought into the order of one.
//!
//! Where all tables stand in one server there is one place and one statement, and nothing is left to be done.

use sqlx::postgres::PgConnection;

use super::layout::Layout;
use super::{due, inbox, load, requests};
use crate::id::WorkflowKey;
use crate::store::{Due, InboxRow, Loaded, RequestedStart};
use crate::time::Timestamp;

pub(super) async fn load(
    connection: &mut PgConnection,
    layout: &Layout,
    keys: &[WorkflowKey],
    shards: &[i16],
) -> Result<Vec<Option<Loaded>>, sqlx::Error> {
    if !layout.is_distributed() {
        return load::load(connection, layout, keys, shards).await;
    }
    let mut loaded: Vec<Option<Loaded>> = keys.iter().map(|_| None).collect();
    for places in layout.parts((0..keys.len()).collect(), |place| shards[*place].unsigned_abs()) {
        let keys: Vec<WorkflowKey> = places.iter().map(|place| keys[*place].clone()).collect();
        let shards: Vec<i16> = places.iter().map(|place| shards[*place]).collect();
        for (place, found) in places.into_iter().zip(load::load(connection, layout, &keys, &shards).await?) {
            loaded[place] = found;
        }
    }
    Ok(loaded)
}

pub(super) async fn due(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    until: Timestamp,
    limit_per_shard: usize,
) -> Result<Vec<Due>, sqlx::Error> {
    let mut found = Vec::new();
    for part in layout.parts_of(shards) {
        found.extend(due::due(connection, layout, &part, until, limit_per_shard).await?);
    }
    Ok(by_shard_and_time(layout, found))
}

pub(super) async fn upcoming(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    after: Timestamp,
    until: Timestamp,
    limit_per_shard: usize,
) -> Result<Vec<Due>, sqlx::Error> {
    let mut found = Vec::new();
    for part in layout.parts_of(shards) {
        found.extend(due::upcoming(connection, layout, &part, after, until, limit_per_shard).await?);
    }
    Ok(by_shard_and_time(layout, found))
}

fn by_shard_and_time(layout: &Layout, mut found: Vec<Due>) -> Vec<Due> {
    if let Some(shards) = layout.shards() {
        // Stable: within a shard they are in order.
        found.sort_by_key(|due| due.key.shard(shards));
    }
    found
}

pub(super) async fn unread_keys(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    let mut found = Vec::new();
    for part in layout.parts_of(shards) {
        found.extend(inbox::unread_keys(connection, layout, &part, limit).await?);
    }
    if let Some(shards) = layout.shards() {
        found.sort_by_key(|key| key.shard(shards));
        found.truncate(limit);
    }
    Ok(found)
}

pub(super) async fn unclaimed(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    before: Timestamp,
    limit: usize,
) -> Result<Vec<InboxRow>, sqlx::Error> {
    let mut found = Vec::new();
    for part in layout.parts_of(shards) {
        found.extend(inbox::unclaimed(connection, layout, &part, before, limit).await?);
    }
    if layout.is_distributed() {
        let order = |row: &InboxRow| (row.received_at, row.key.clone(), row.signal_id.clone());
        found.sort_by_cached_key(order);
        found.truncate(limit);
    }
    Ok(found)
}

pub(super) async fn requested(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    types: &[String],
    limit: usize,
) -> Result<Vec<RequestedStart>, sqlx::Error> {
    let mut found = Vec::new();
    for part in layout.parts_of(shards) {
        found.extend(requests::requested(connection, layout, &part, types, limit).await?);
    }
    if layout.is_distributed() {
        found.sort_by_cached_key(|(requested_at, start)| (*requested_at, start.key.clone()));
        found.truncate(limit);
    }
    Ok(found.into_iter().map(|(_, start)| start).collect())
}
