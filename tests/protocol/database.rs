//! The database's side: transactions of commits, and what changes lanes and owners.

use super::model::Protocol;
use super::mutant::Mutant;
use super::property::{Goal, Wrong};
use super::state::{Kind, Outcome, Row, SHARDS, Stage, Transaction, World, Write};

impl Protocol {
    /// Whether a transaction holds this node's lane.
    pub(crate) fn is_locked(world: &World, node_id: u8) -> bool {
        world.transactions.iter().any(|open| open.node_id == node_id && matches!(open.stage, Stage::Fenced { .. }))
    }

    /// `lane::check`: `overdue.fence` locks the lane's row, compares the epoch and tells the node's shards.
    pub(crate) fn check_fence(&self, world: &mut World, index: usize) {
        let transaction = &world.transactions[index];
        let owns = |shard: usize| world.owners[shard] == Some(transaction.node_id);
        let is_current = world.lanes[usize::from(transaction.node_id)] == Some(transaction.epoch);
        let mut owned: [bool; SHARDS] = std::array::from_fn(owns);
        let mut passes = is_current || self.has(Mutant::NoEpochCheck);
        if self.has(Mutant::PipelineGoesOn) {
            // Nothing was read of the fence: the client's own idea of its shards takes its place.
            passes = true;
            owned = [true; SHARDS];
        }
        if !passes {
            self.reach(Goal::ZombieRefused);
        }
        world.transactions[index].stage = if passes { Stage::Fenced { owned } } else { Stage::FenceLost };
    }

    /// `commit::Batch` behind its fence, and its COMMIT.
    pub(crate) fn apply(&self, world: &mut World, index: usize, owned: [bool; SHARDS]) {
        let transaction = world.transactions[index].clone();
        if transaction.writes.len() > 1 {
            self.reach(Goal::GroupCommit);
        }
        let outcomes: Vec<Outcome> =
            transaction.writes.iter().map(|write| self.apply_write(world, &transaction, owned, write)).collect();
        if transaction.client.is_none() {
            self.reach(Goal::LateLanding);
            world.transactions.remove(index);
        } else {
            world.transactions[index].stage = Stage::Committed(outcomes);
        }
    }

    fn apply_write(&self, world: &mut World, from: &Transaction, owned: [bool; SHARDS], write: &Write) -> Outcome {
        let execution = write.execution();
        let shard = self.shard(execution);
        let is_current = world.lanes[usize::from(from.node_id)] == Some(from.epoch);
        let is_owner = world.owners[shard] == Some(from.node_id);
        let outcome = match *write {
            Write::Start { run, .. } => match world.rows[execution] {
                Some(_) => Outcome::There,
                None => {
                    let event = super::state::Event { kind: Kind::Started { run }, epoch: from.epoch };
                    world.rows[execution] = Some(Row { rev: 0, history: vec![event] });
                    Outcome::Done
                }
            },
            Write::Deposit { .. } => {
                let is_known = world.late[execution] || world.rows[execution].as_ref().is_some_and(Row::is_paid);
                if std::mem::replace(&mut world.inbox[execution], !is_known) || is_known { Outcome::There } else { Outcome::Done }
            }
            Write::Late { consume, .. } => {
                if consume && !owned[shard] {
                    return Outcome::NotOwned;
                }
                world.inbox[execution] &= !consume;
                world.late[execution] = true;
                self.reach(Goal::PaidAfterEnd);
                Outcome::Done
            }
            Write::Advance { .. } if !owned[shard] => return Outcome::NotOwned,
            Write::Advance { .. } => self.advance(world, execution, write, is_current && is_owner),
        };
        if outcome == Outcome::Done {
            if !is_current {
                world.wrong.get_or_insert(Wrong::OldEpoch);
            } else if matches!(write, Write::Advance { .. }) && !is_owner {
                world.wrong.get_or_insert(Wrong::NotTheOwner);
            }
        }
        outcome
    }

    /// `advances::apply`: the guard, then `rev` and the place of the record, which are optimistic locks of their own.
    fn advance(&self, world: &mut World, execution: usize, write: &Write, is_rightful: bool) -> Outcome {
        let Write::Advance { rev, first_event, event, consume, .. } = *write else { return Outcome::Stale };
        let Some(row) = &mut world.rows[execution] else { return Outcome::Stale };
        let is_guarded = event.kind != Kind::PaidLate;
        let is_unread = world.inbox[execution] && !consume;
        if is_guarded && is_unread && !self.has(Mutant::CloseIgnoresInbox) {
            self.reach(Goal::UnreadInboxRefused);
            return Outcome::UnreadInbox;
        }
        let is_in_place = usize::from(first_event) == row.history.len();
        if (!is_in_place || rev != row.rev) && !self.has(Mutant::NoOptimisticLock) {
            if is_rightful {
                world.wrong.get_or_insert(Wrong::OwnerOutOfStep);
            }
            return Outcome::Stale;
        }
        let found = match (is_in_place, row.is_open(), is_guarded && is_unread) {
            (false, ..) => Some(Wrong::HistoryForked),
            (_, false, _) => Some(Wrong::EventAfterEnd),
            (.., true) => Some(Wrong::InboxOverlooked),
            _ => None,
        };
        world.wrong = world.wrong.or(found);
        match event.kind {
            Kind::Paid => self.reach(Goal::PaidInTime),
            Kind::PaidLate => self.reach(Goal::PaidAfterDeadline),
            _ => {}
        }
        row.history.push(event);
        row.rev += u8::from(is_guarded);
        world.inbox[execution] &= !consume;
        Outcome::Done
    }

    /// `lane::end_recorded_session` and the lock behind it: what holds the lane is ended. That it was waited for instead is
    /// another order of the same steps. A session that has not passed its fence is recorded nowhere, and goes on.
    pub(crate) fn end_session(&self, world: &mut World, node_id: u8) {
        if self.has(Mutant::WeakLock) {
            return;
        }
        if Self::is_locked(world, node_id) {
            self.reach(Goal::SessionEnded);
        }
        world.transactions.retain(|open| {
            let is_ended = open.node_id == node_id && matches!(open.stage, Stage::Fenced { .. });
            !(is_ended && open.client.is_none())
        });
        for open in &mut world.transactions {
            if open.node_id == node_id && matches!(open.stage, Stage::Fenced { .. }) {
                open.stage = Stage::FenceLost;
            }
        }
    }

    /// `nodes::end`: the lanes, then the shards, which go to the heir or to nobody.
    pub(crate) fn end_node(&self, world: &mut World, node_id: u8, heir: Option<u8>) {
        if !self.has(Mutant::TakeOverWithoutEpoch) {
            self.end_session(world, node_id);
            world.lanes[usize::from(node_id)] = None;
        }
        for owner in &mut world.owners {
            if *owner == Some(node_id) {
                *owner = heir;
            }
        }
    }

    /// The next epoch: of one sequence for all nodes.
    pub(crate) fn next_epoch(&self, world: &mut World, before: u8) -> u8 {
        if self.has(Mutant::ReusedNodeId) {
            return before + 1;
        }
        world.epochs += 1;
        world.epochs
    }
}
