//! Shards that this node owns: taking them up, and giving them away once nothing of them is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Core, Effect, Entry};
use crate::engine::{Answer, Input, RefusedInput};
use crate::fault::{Bug, planted};
use crate::id::WorkflowKey;
use crate::time::Timestamp;

/// How this node stands to the shards.
pub(super) struct Shards {
    holds: Vec<Hold>,
    leaving: BTreeMap<u16, Leaving>,
    /// Given away, and still this node's in the store until its lane has carried that out.
    giving: BTreeSet<u16>,
    changed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Not,
    Owned,
    /// Still owned, but nothing new is begun.
    Leaving,
}

struct Leaving {
    to: String,
    /// When calls that are still under way are waited for no longer.
    until: Timestamp,
}

impl Shards {
    pub(super) fn none_of(shards: u16) -> Self {
        Self { holds: vec![Hold::Not; shards.into()], leaving: BTreeMap::new(), giving: BTreeSet::new(), changed: false }
    }

    pub(super) fn number(&self) -> u16 {
        u16::try_from(self.holds.len()).unwrap_or(u16::MAX)
    }

    fn of(&self, key: &WorkflowKey) -> u16 {
        key.shard(self.number())
    }

    /// Whether work on this execution may begin here.
    pub(super) fn owns(&self, key: &WorkflowKey) -> bool {
        self.holds[usize::from(self.of(key))] == Hold::Owned
    }

    /// Whether nobody else works on this execution yet.
    pub(super) fn holds(&self, key: &WorkflowKey) -> bool {
        self.holds[usize::from(self.of(key))] != Hold::Not
    }

    fn set(&mut self, shard: u16, hold: Hold) {
        if let Some(held) = self.holds.get_mut(usize::from(shard)) {
            self.changed |= (*held == Hold::Owned) != (hold == Hold::Owned);
            *held = hold;
        }
    }

    fn owned(&self) -> Vec<u16> {
        (0u16..).zip(&self.holds).filter(|(_, hold)| **hold == Hold::Owned).map(|(shard, _)| shard).collect()
    }
}

impl Core {
    pub(super) fn gain(&mut self, shards: Vec<u16>) {
        for shard in shards {
            // What is being given away stays so: the heir already counts on it. Whoever looks before the lane has carried it
            // out still finds this node the owner.
            if !self.shards.leaving.contains_key(&shard) && !self.shards.giving.contains(&shard) {
                self.shards.set(shard, Hold::Owned);
            }
        }
    }

    /// Begins to give shards away: no new work, and what waits in memory goes back to the store.
    pub(super) fn leave(&mut self, gifts: Vec<(u16, String)>, patience: Duration) {
        if self.draining {
            return;
        }
        let until = self.now.saturating_add(patience);
        for (shard, to) in gifts {
            if self.shards.holds[usize::from(shard)] == Hold::Owned {
                self.shards.set(shard, Hold::Leaving);
                self.shards.leaving.insert(shard, Leaving { to, until });
            }
        }
        let number = self.shards.number();
        let holds = &self.shards.holds;
        let unsent = self.dispatch.forget_waiting_if(|call| holds[usize::from(call.key.shard(number))] == Hold::Leaving);
        for call in unsent {
            self.end_begun(&call.key, call.number);
            if let Some(Entry::AtWork(work)) = self.entries.get_mut(&call.key) {
                work.active.running.remove(&call.number);
            }
        }
    }

    /// Gives away what has come to rest, and tells when what is owned has changed.
    pub(super) fn settle_shards(&mut self) {
        for shard in self.at_rest() {
            let Some(leaving) = self.shards.leaving.remove(&shard) else { continue };
            self.shards.set(shard, Hold::Not);
            self.forget_shard(shard);
            self.shards.giving.insert(shard);
            self.effects.push(Effect::HandOver { shard, to: leaving.to });
        }
        if std::mem::take(&mut self.shards.changed) {
            self.effects.push(Effect::Owned(self.shards.owned()));
        }
    }

    /// The lane has carried out what was given away: from now on it may come back.
    pub(super) fn given(&mut self, shards: Vec<u16>) {
        for shard in &shards {
            self.shards.giving.remove(shard);
        }
        self.effects.push(Effect::Given(shards));
    }

    /// The leaving shards of which no commit is under way, and no call that is still waited for.
    fn at_rest(&self) -> Vec<u16> {
        if self.shards.leaving.is_empty() {
            return Vec::new();
        }
        if planted(Bug::MoveWithoutDrain) {
            return self.shards.leaving.keys().copied().collect();
        }
        let mut busy = vec![false; self.shards.holds.len()];
        for (key, entry) in &self.entries {
            if matches!(entry, Entry::AtWork(work) if work.commit.is_some()) {
                busy[usize::from(self.shards.of(key))] = true;
            }
        }
        for key in self.begun.keys() {
            let shard = self.shards.of(key);
            busy[usize::from(shard)] |= self.shards.leaving.get(&shard).is_some_and(|leaving| self.now < leaving.until);
        }
        self.shards.leaving.keys().copied().filter(|shard| !busy[usize::from(*shard)]).collect()
    }

    /// The store says that this execution's shard is another's.
    pub(super) fn lose(&mut self, key: &WorkflowKey) {
        let shard = self.shards.of(key);
        tracing::error!(shard, workflow.type = key.workflow_type(), workflow.id = key.id(), "shard turned out to be another node's");
        self.shards.leaving.remove(&shard);
        self.shards.set(shard, Hold::Not);
        self.forget_shard(shard);
    }

    /// Drops what is held of a shard. Those who wait are told to ask its owner.
    fn forget_shard(&mut self, shard: u16) {
        let mut keys: Vec<WorkflowKey> = self.entries.keys().filter(|key| self.shards.of(key) == shard).cloned().collect();
        keys.sort_unstable();
        for key in keys {
            let inputs = match self.forget(&key) {
                Some(Entry::Loading { inputs, .. }) => inputs,
                Some(Entry::AtWork(work)) => {
                    work.commit.map(|commit| commit.inputs).into_iter().flatten().chain(work.queue).collect()
                }
                None => Vec::new(),
            };
            for reply in inputs.iter().filter_map(Input::reply) {
                self.not_owner(reply);
            }
        }
        let number = self.shards.number();
        self.begun.retain(|key, _| key.shard(number) != shard);
    }

    pub(super) fn not_owner(&mut self, reply: crate::engine::ReplyId) {
        self.reply(reply, Answer::Refused(RefusedInput::NotOwner));
    }
}
