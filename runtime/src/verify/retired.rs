//! I42: nothing is left of what is gone, and of what is retired what must be.

use super::Look;
use super::row::status_of;
use crate::engine::Tombstone;
use crate::store::{Loaded, Status};

/// What is wrong with what is left of a retired execution.
pub(super) fn left(look: Look<'_>, loaded: &Loaded) -> Vec<String> {
    let row = &loaded.execution;
    let mut found = Vec::new();
    if !loaded.records.is_empty() {
        found.push(format!("it is retired and has {} history rows", loaded.records.len()));
    }
    if !row.attempts.is_empty() || row.needs_attention || row.wake_at.is_some() {
        found.push("it is retired and something of it is still to be done".into());
    }
    if row.rev == 0 {
        found.push("it is retired and its row was never updated".into());
    }
    if row.shard != row.key.shard(look.shards) {
        found.push(format!("its shard is {}, and its id says {}", row.shard, row.key.shard(look.shards)));
    }
    match Tombstone::decode(&loaded.tombstone) {
        Err(error) => found.push(error.to_string()),
        Ok(tombstone) => {
            let status = tombstone.closing().as_ref().map(status_of);
            if status != Some(row.status) {
                let told = status.map_or("no end", Status::as_str);
                found.push(format!("its status is {}, and its tombstone tells of {told}", row.status.as_str()));
            }
            if row.closed_at.is_none_or(|closed_at| tombstone.retired_at < closed_at) {
                found.push("it was retired before its end".into());
            }
        }
    }
    found
}

/// A tombstone of what is not retired.
pub(super) fn beside_a_history(loaded: &Loaded) -> Vec<String> {
    let stray = !loaded.tombstone.is_empty();
    if stray { vec!["it has a tombstone and is not retired".into()] } else { Vec::new() }
}
