//! The nodes of the model: leases, fences, owners of shards.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::{Fence, Member, Membership, NewNode, Owner, Roster, Sharing};
use crate::time::Timestamp;

/// The one writer of each node.
const LANE: u16 = 0;

#[derive(Clone)]
pub(super) struct Nodes {
    sharing: Sharing,
    epoch: i64,
    nodes: BTreeMap<String, Node>,
    shards: Vec<Shard>,
}

#[derive(Clone)]
struct Node {
    url: Option<String>,
    secret: String,
    epoch: i64,
    expires_at: Timestamp,
}

#[derive(Clone, Default)]
struct Shard {
    owner: Option<String>,
    freed_at: Timestamp,
}

impl Nodes {
    pub(super) fn new(sharing: Sharing, shards: u16) -> Self {
        Self { sharing, epoch: 0, nodes: BTreeMap::new(), shards: vec![Shard::default(); shards.into()] }
    }

    pub(super) fn join(&mut self, new: &NewNode, now: Timestamp) -> Fence {
        self.epoch += 1;
        let node = Node {
            url: new.url.clone(),
            secret: new.secret.clone(),
            epoch: self.epoch,
            expires_at: now.saturating_add(new.lease),
        };
        match self.sharing {
            Sharing::Embedded => {
                self.nodes.clear();
                self.shards.iter_mut().for_each(|shard| shard.owner = Some(new.node_id.clone()));
            }
            Sharing::Shared => {
                if let Some(replaced) = &new.replaces
                    && self.nodes.remove(replaced).is_some()
                {
                    for shard in self.shards.iter_mut().filter(|shard| shard.owner.as_ref() == Some(replaced)) {
                        shard.owner = Some(new.node_id.clone());
                    }
                }
            }
        }
        self.nodes.insert(new.node_id.clone(), node);
        Fence { node_id: new.node_id.clone(), lane: LANE, epoch: self.epoch }
    }

    /// A node whose lease is not over.
    pub(super) fn holder(&self, now: Timestamp) -> Option<String> {
        let alive = self.nodes.iter().find(|(_, node)| node.expires_at > now);
        alive.map(|(node_id, node)| format!("node {node_id} at {}", node.url.as_deref().unwrap_or("no address")))
    }

    /// Ends every node there is, dead or alive.
    pub(super) fn end_all(&mut self) {
        self.nodes.clear();
        self.shards.fill(Shard::default());
    }

    pub(super) fn renew(&mut self, fence: &Fence, lease: Duration, now: Timestamp) -> Option<Membership> {
        self.nodes.get_mut(&fence.node_id)?.expires_at = now.saturating_add(lease);
        let members = self.nodes.iter().map(|(node_id, node)| Member {
            node_id: node_id.clone(),
            url: node.url.clone(),
            secret: node.secret.clone(),
            alive: node.expires_at > now,
        });
        let owners = self.shards.iter().map(|shard| match &shard.owner {
            Some(owner) => Owner::Node(owner.clone()),
            None => Owner::Nobody(now.since(shard.freed_at)),
        });
        let own_clock = (self.sharing == Sharing::Shared).then_some(now);
        Some(Membership { now: own_clock, up: Duration::MAX, members: members.collect(), owners: owners.collect() })
    }

    pub(super) fn roster(&self, now: Timestamp) -> Roster {
        let lane = |(node_id, node): (&String, &Node)| Fence { node_id: node_id.clone(), lane: LANE, epoch: node.epoch };
        Roster {
            now: (self.sharing == Sharing::Shared).then_some(now),
            last_epoch: self.epoch,
            nodes: self.nodes.iter().map(|(node_id, node)| (node_id.clone(), node.expires_at > now)).collect(),
            lanes: self.nodes.iter().map(lane).collect(),
            owners: (0..).zip(&self.shards).map(|(number, shard)| (number, shard.owner.clone())).collect(),
        }
    }

    pub(super) fn holds(&self, fence: &Fence) -> bool {
        fence.lane == LANE && self.nodes.get(&fence.node_id).is_some_and(|node| node.epoch == fence.epoch)
    }

    pub(super) fn owns(&self, fence: &Fence, shard: u16) -> bool {
        self.shards.get(usize::from(shard)).is_some_and(|shard| shard.owner.as_ref() == Some(&fence.node_id))
    }

    pub(super) fn claim(&mut self, fence: &Fence, most: usize) -> Vec<u16> {
        let mut free: Vec<(Timestamp, u16)> = (0u16..)
            .zip(&self.shards)
            .filter(|(_, shard)| shard.owner.is_none())
            .map(|(number, shard)| (shard.freed_at, number))
            .collect();
        free.sort_unstable();
        let mut claimed: Vec<u16> = free.into_iter().take(most).map(|(_, number)| number).collect();
        claimed.sort_unstable();
        for number in &claimed {
            self.shards[usize::from(*number)].owner = Some(fence.node_id.clone());
        }
        claimed
    }

    pub(super) fn hand_over(&mut self, fence: &Fence, shards: &[u16], to: Option<&str>, now: Timestamp) {
        let heir = to.filter(|heir| self.nodes.contains_key(*heir)).map(str::to_owned);
        for number in shards {
            if self.owns(fence, *number) {
                self.shards[usize::from(*number)] = Shard { owner: heir.clone(), freed_at: now };
            }
        }
    }

    pub(super) fn take_over(&mut self, node_id: &str, now: Timestamp) -> bool {
        let is_dead = self.sharing == Sharing::Shared && self.nodes.get(node_id).is_some_and(|node| node.expires_at <= now);
        if is_dead {
            self.end(node_id, now);
        }
        is_dead
    }

    pub(super) fn raise(&mut self, fence: &Fence) -> Option<Fence> {
        if !self.holds(fence) {
            return None;
        }
        self.epoch += 1;
        self.nodes.get_mut(&fence.node_id)?.epoch = self.epoch;
        Some(Fence { epoch: self.epoch, ..fence.clone() })
    }

    pub(super) fn leave(&mut self, fence: &Fence, now: Timestamp) {
        if self.holds(fence) {
            self.end(&fence.node_id, now);
        }
    }

    fn end(&mut self, node_id: &str, now: Timestamp) {
        self.nodes.remove(node_id);
        for shard in self.shards.iter_mut().filter(|shard| shard.owner.as_deref() == Some(node_id)) {
            *shard = Shard { owner: None, freed_at: now };
        }
    }
}
