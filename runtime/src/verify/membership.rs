//! I20: no epoch is above the last that was handed out, and no two are the same. I26: each shard is there once, and its
//! owner is a node that may write.

use std::collections::BTreeSet;

use super::violation::{Invariant, Violation};
use crate::store::Roster;

/// What is wrong with who is in and who owns what.
pub(super) fn faults(roster: &Roster, shards: u16) -> Vec<Violation> {
    let epochs = epochs(roster).into_iter().map(|message| Violation::of_store(Invariant::Epochs, message));
    let owners = owners(roster, shards).into_iter().map(|message| Violation::of_store(Invariant::OneOwner, message));
    epochs.chain(owners).collect()
}

fn epochs(roster: &Roster) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for lane in &roster.lanes {
        if lane.epoch > roster.last_epoch {
            found.push(format!("node {} has epoch {}, and {} is the last", lane.node_id, lane.epoch, roster.last_epoch));
        }
        if !seen.insert(lane.epoch) {
            found.push(format!("node {} has epoch {}, and so has another one", lane.node_id, lane.epoch));
        }
    }
    found
}

fn owners(roster: &Roster, shards: u16) -> Vec<String> {
    let mut found = Vec::new();
    let lanes_of = |node_id: &str| roster.lanes.iter().filter(|lane| lane.node_id == node_id).count();
    for (node_id, _) in &roster.nodes {
        match lanes_of(node_id) {
            1 => {}
            lanes => found.push(format!("node {node_id} has {lanes} lanes")),
        }
    }
    let is_in = |node_id: &str| roster.nodes.iter().any(|(other, _)| other == node_id);
    let stray = roster.lanes.iter().filter(|lane| !is_in(&lane.node_id));
    found.extend(stray.map(|lane| format!("a lane is of {}, which is no node", lane.node_id)));
    for (shard, owner) in &roster.owners {
        if let Some(owner) = owner
            && (!is_in(owner) || lanes_of(owner) == 0)
        {
            found.push(format!("shard {shard} is of {owner}, which is no node that may write"));
        }
    }
    let numbers: Vec<u16> = roster.owners.iter().map(|(shard, _)| *shard).collect();
    if numbers != (0..shards).collect::<Vec<_>>() {
        found.push(format!("there are {shards} shards, and owners are noted of {numbers:?}"));
    }
    found
}
