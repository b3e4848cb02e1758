//! Which shards this node owns, and who has the others: what requests are routed by.
//!
//! The core decides what is owned; here it is published. For the rest it is a view, up to a membership round old.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;

use crate::store::{Member, Membership, Owner};

/// Where the owner of a shard is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// This node.
    Here,
    /// Another one, as it was last seen.
    Peer(Member),
    /// Nobody that is known and alive.
    Nowhere,
}

/// Shared by the core's shell, the steward and the doors.
pub(super) struct Ownership {
    inner: RwLock<Inner>,
    owned: watch::Sender<Arc<[u16]>>,
}

#[derive(Default)]
struct Inner {
    node_id: String,
    holds: Vec<bool>,
    /// When a shard was last given away or lost, by the monotonic clock: what was seen before says nothing of it.
    left_at: BTreeMap<u16, Duration>,
    owners: Vec<Owner>,
    members: BTreeMap<String, Member>,
}

impl Ownership {
    pub(super) fn new(shards: u16) -> Self {
        let inner = Inner { holds: vec![false; shards.into()], ..Inner::default() };
        Self { inner: RwLock::new(inner), owned: watch::Sender::new(Arc::from([])) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A new life under another id, which owns nothing yet.
    pub(super) fn begin(&self, node_id: &str) {
        let mut inner = self.write();
        inner.node_id = node_id.to_owned();
        inner.holds.fill(false);
        inner.left_at.clear();
        drop(inner);
        self.owned.send_replace(Arc::from([]));
    }

    /// What the core owns from now on.
    pub(super) fn owns(&self, owned: Vec<u16>, now: Duration) {
        let mut inner = self.write();
        let before = std::mem::take(&mut inner.holds);
        inner.holds = vec![false; before.len()];
        for shard in &owned {
            inner.holds[usize::from(*shard)] = true;
        }
        for (shard, before) in (0u16..).zip(before) {
            if before && !inner.holds[usize::from(shard)] {
                inner.left_at.insert(shard, now);
            }
        }
        drop(inner);
        self.owned.send_replace(owned.into());
    }

    /// The store has taken in that these shards were given away.
    pub(super) fn given(&self, shards: &[u16], now: Duration) {
        self.write().left_at.extend(shards.iter().map(|shard| (*shard, now)));
    }

    /// Takes in who is there and who owns what, asked for at `sent`. The shards that this node turns out to have been
    /// given.
    pub(super) fn seen(&self, membership: &Membership, sent: Duration) -> Vec<u16> {
        let mut inner = self.write();
        inner.members = membership.members.iter().map(|member| (member.node_id.clone(), member.clone())).collect();
        inner.owners.clone_from(&membership.owners);
        let is_news = |shard: &u16| inner.left_at.get(shard).is_none_or(|left_at| *left_at < sent);
        let shards = (0u16..).zip(&membership.owners);
        shards
            .filter(|(shard, owner)| owner.is(&inner.node_id) && !inner.holds[usize::from(*shard)] && is_news(shard))
            .map(|(shard, _)| shard)
            .collect()
    }

    /// Where to ask about an execution of this shard.
    pub(super) fn route(&self, shard: u16) -> Route {
        let inner = self.read();
        let shard = usize::from(shard);
        if inner.holds.get(shard).copied().unwrap_or(false) {
            return Route::Here;
        }
        let Some(Owner::Node(owner)) = inner.owners.get(shard) else { return Route::Nowhere };
        let peer = inner.members.get(owner).filter(|member| member.alive && member.node_id != inner.node_id);
        peer.map_or(Route::Nowhere, |member| Route::Peer(member.clone()))
    }

    /// The other living nodes.
    pub(super) fn peers(&self) -> Vec<Member> {
        let inner = self.read();
        let others = inner.members.values().filter(|member| member.alive && member.node_id != inner.node_id);
        others.cloned().collect()
    }

    /// How many shards this node owns.
    pub(super) fn owned(&self) -> usize {
        self.owned.borrow().len()
    }

    /// The owned shards, ascending, as they change.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<[u16]>> {
        self.owned.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(owners: &[&str]) -> Membership {
        let member = |name: &str| Member { node_id: name.into(), url: None, secret: String::new(), alive: name != "dead" };
        Membership {
            now: None,
            up: Duration::MAX,
            members: ["dead", "me", "other"].map(member).into(),
            owners: owners.iter().map(|owner| Owner::Node((*owner).to_owned())).collect(),
        }
    }

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn what_was_given_away_is_not_taken_for_ones_own_by_what_was_seen_before() {
        let ownership = Ownership::new(2);
        ownership.begin("me");
        assert_eq!(ownership.seen(&seen(&["me", "me"]), at(1)), [0, 1]);
        ownership.owns(vec![0, 1], at(2));
        ownership.owns(vec![1], at(5));
        assert_eq!(ownership.seen(&seen(&["me", "me"]), at(4)), Vec::<u16>::new());
        ownership.given(&[0], at(7));
        assert_eq!(ownership.seen(&seen(&["me", "me"]), at(6)), Vec::<u16>::new(), "the store had not taken it in yet");
        assert_eq!(ownership.seen(&seen(&["me", "me"]), at(8)), [0], "it came back");
    }

    #[test]
    fn a_request_goes_to_the_living_owner() {
        let ownership = Ownership::new(4);
        ownership.begin("me");
        ownership.seen(&seen(&["me", "other", "dead", "me"]), at(1));
        ownership.owns(vec![0], at(2));
        assert_eq!(ownership.route(0), Route::Here);
        assert!(matches!(ownership.route(1), Route::Peer(member) if member.node_id == "other"));
        assert_eq!(ownership.route(2), Route::Nowhere);
        assert_eq!(ownership.route(3), Route::Nowhere, "not taken up yet");
        assert_eq!(ownership.peers().len(), 1);
    }
}
