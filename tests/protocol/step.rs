//! What each action does.

use super::core::{forget_client, in_hand, load, lose, submit};
use super::model::{Action, Protocol};
use super::mutant::Mutant;
use super::property::{Goal, Wrong};
use super::state::{Call, Commit, Hold, Incarnation, Row, Stage, Transaction, World, Write};

impl Protocol {
    pub(crate) fn step(&self, world: &mut World, action: Action) {
        match action {
            Action::Join { process } => self.join(world, process),
            Action::TakeOver { node_id } => {
                world.left.takeovers -= 1;
                let is_calling = |life: &Incarnation| life.node_id == node_id && life.calls.contains(&Call::Waiting);
                if world.processes.iter().flatten().any(is_calling) {
                    self.reach(Goal::TakeOverWithCallInFlight);
                }
                self.end_node(world, node_id, None);
            }
            Action::TimeComes => world.is_due = true,
            Action::CheckFence { at } => self.check_fence(world, at),
            Action::Apply { at } => {
                if let Stage::Fenced { owned } = world.transactions[at].stage {
                    self.apply(world, at, owned);
                }
            }
            Action::Answer { at } => self.answer(world, at),
            Action::Break { at } => {
                world.left.breaks -= 1;
                if let Some(process) = world.transactions[at].client
                    && let Some(me) = &mut world.processes[process]
                {
                    me.commit = Commit::Unknown(in_hand(&mut me.commit));
                    forget_client(world, process);
                }
            }
            Action::Refuse { at } => {
                world.left.refusals -= 1;
                let refused = world.transactions.remove(at);
                if let Some(process) = refused.client
                    && let Some(me) = &mut world.processes[process]
                {
                    me.commit = Commit::Idle;
                    refused.writes.iter().for_each(|write| Self::not_applied(world, process, write));
                }
            }
            Action::Kill { process } => {
                world.left.kills -= 1;
                world.processes[process] = None;
                forget_client(world, process);
            }
            Action::Drain { process } => {
                world.left.kills -= 1;
                self.reach(Goal::Drained);
                if let Some(me) = world.processes[process].take()
                    && world.lanes[usize::from(me.node_id)] == Some(me.epoch)
                {
                    self.end_node(world, me.node_id, None);
                }
            }
            Action::Start { process, .. }
            | Action::Pay { process, .. }
            | Action::Load { process, .. }
            | Action::Fold { process, .. }
            | Action::Send { process }
            | Action::See { process }
            | Action::Claim { process, .. }
            | Action::Leave { process, .. }
            | Action::Settle { process, .. }
            | Action::HandOver { process }
            | Action::Raise { process }
            | Action::Find { process }
            | Action::Call { process, .. }
            | Action::CallAnswered { process, .. } => {
                if let Some(me) = world.processes[process].take() {
                    self.of_life(world, process, me, action);
                }
            }
        }
        world.transactions.sort();
    }

    /// A step of a node: `me` is out of the world meanwhile, and back behind it unless its lane is lost.
    fn of_life(&self, world: &mut World, process: usize, mut me: Incarnation, action: Action) {
        let is_fenced = world.lanes[usize::from(me.node_id)] == Some(me.epoch);
        let mut is_lost = false;
        let mut behind: Vec<(Write, super::state::Outcome)> = Vec::new();
        match action {
            Action::Start { execution, .. } => {
                world.left.starts -= 1;
                submit(&mut me, Write::Start { execution, run: world.left.starts });
            }
            Action::Pay { execution, .. } => self.pay(world, &mut me, execution),
            Action::Load { execution, .. } => me.at_work[execution] = load(world, execution),
            Action::Fold { execution, .. } => {
                world.processes[process] = Some(me.clone());
                if let Some(write) = self.folded(world, process, execution) {
                    submit(&mut me, write);
                }
            }
            Action::Send { .. } => {
                let writes = std::mem::take(&mut me.waiting);
                if self.has(Mutant::AckBeforeCommit) {
                    writes.iter().for_each(|write| Self::promise(world, write));
                }
                me.commit = Commit::UnderWay(writes.clone());
                let (node_id, epoch) = (me.node_id, me.epoch);
                world.transactions.push(Transaction { node_id, epoch, writes, stage: Stage::Sent, client: Some(process) });
            }
            Action::See { .. } => {
                is_lost = world.lanes[usize::from(me.node_id)].is_none();
                for shard in 0..self.shards {
                    if self.is_gain(world, &me, shard) {
                        me.holds[shard] = Hold::Owned;
                    }
                }
            }
            Action::Claim { shard, .. } if is_fenced => world.owners[shard] = Some(me.node_id),
            Action::Leave { shard, to, .. } => {
                world.left.hand_overs -= 1;
                me.holds[shard] = Hold::Leaving { to };
            }
            Action::Settle { shard, .. } => {
                if let Hold::Leaving { to } = me.holds[shard] {
                    me.handing_over = Some((shard, to));
                    // A mistake that forgets a call still waits for it.
                    let calls = me.calls;
                    lose(&mut me, shard, |execution| self.shard(execution));
                    if self.has(Mutant::MoveWithoutDrain) {
                        me.calls = calls;
                    }
                }
            }
            Action::HandOver { .. } if is_fenced => {
                if let Some((shard, to)) = me.handing_over.take()
                    && world.owners[shard] == Some(me.node_id)
                {
                    self.reach(Goal::HandOver);
                    world.owners[shard] = world.lanes[usize::from(to)].map(|_| to);
                }
            }
            Action::Claim { .. } | Action::HandOver { .. } => is_lost = true,
            Action::Raise { .. } => is_lost = !self.raise(world, &mut me),
            Action::Find { .. } => {
                for write in in_hand(&mut me.commit) {
                    match Self::applied(world, &write) {
                        Some(outcome) => behind.push((write, outcome)),
                        None => me.waiting.push(write),
                    }
                }
                self.reach(if behind.is_empty() { Goal::UnknownHadNot } else { Goal::UnknownHadCommitted });
                me.waiting.sort_unstable();
            }
            Action::Call { execution, .. } => {
                me.calls[execution] = Call::Waiting;
                self.judge_call(world, process, &me, execution);
            }
            Action::CallAnswered { execution, .. } => me.calls[execution] = Call::Answered,
            _ => {}
        }
        world.processes[process] = Some(me);
        for (write, outcome) in behind {
            self.committed(world, process, &write, outcome);
        }
        if is_lost {
            Self::lost(world, process);
        }
    }

    fn join(&self, world: &mut World, process: usize) {
        world.left.joins -= 1;
        let new = 2 + self.left.joins - world.left.joins - 1;
        let node_id = if self.has(Mutant::ReusedNodeId) { u8::from(process == 1) } else { new };
        let epoch = self.next_epoch(world, 0);
        world.lanes[usize::from(node_id)] = Some(epoch);
        if let Some(replaced) = world.replaces[process].take()
            && world.lanes[usize::from(replaced)].is_some()
            && replaced != node_id
        {
            self.end_node(world, replaced, Some(node_id));
        }
        world.processes[process] = Some(Incarnation { node_id, epoch, ..Incarnation::default() });
    }

    /// False when the lane is another's.
    fn raise(&self, world: &mut World, me: &mut Incarnation) -> bool {
        let batch = in_hand(&mut me.commit);
        if self.has(Mutant::BlindRetry) || self.has(Mutant::NoOptimisticLock) {
            me.waiting.extend(batch);
            me.waiting.sort_unstable();
            return true;
        }
        me.commit = Commit::Raised(batch);
        if self.has(Mutant::ReadWithoutRaise) {
            return true;
        }
        let lane = usize::from(me.node_id);
        if world.lanes[lane] != Some(me.epoch) && !self.has(Mutant::RaiseWithoutCheck) {
            self.reach(Goal::RaisedTooLate);
            return false;
        }
        if world.lanes[lane].is_none() {
            world.wrong.get_or_insert(Wrong::EndedNodeIsIn);
        }
        self.end_session(world, me.node_id);
        me.epoch = self.next_epoch(world, me.epoch);
        world.lanes[lane] = Some(me.epoch);
        true
    }

    fn pay(&self, world: &mut World, me: &mut Incarnation, execution: usize) {
        world.left.payments -= 1;
        if me.holds[self.shard(execution)] != Hold::Owned {
            return submit(me, Write::Deposit { execution });
        }
        if me.at_work[execution].is_none() {
            me.at_work[execution] = load(world, execution);
        }
        let Some(work) = &me.at_work[execution] else { return };
        if work.row.is_paid() {
            world.promised_payments[execution] = true;
        } else if !work.unread {
            submit(me, self.payment(&work.row, execution, me.epoch, false));
        }
    }

    fn answer(&self, world: &mut World, at: usize) {
        let open = world.transactions.remove(at);
        let Some(process) = open.client else { return };
        let Some(me) = &mut world.processes[process] else { return };
        me.commit = Commit::Idle;
        match open.stage {
            Stage::Committed(outcomes) => {
                for (write, outcome) in open.writes.iter().zip(outcomes) {
                    self.committed(world, process, write, outcome);
                }
            }
            _ => Self::lost(world, process),
        }
    }

    fn judge_call(&self, world: &mut World, process: usize, me: &Incarnation, execution: usize) {
        world.called[execution] = true;
        if !world.rows[execution].as_ref().is_some_and(Row::has_fired) {
            world.wrong.get_or_insert(Wrong::CallBeforeCommit);
        }
        let is_in = |life: &Incarnation| world.lanes[usize::from(life.node_id)] == Some(life.epoch);
        let other = world.processes[1 - process].as_ref();
        if is_in(me) && other.is_some_and(|other| is_in(other) && other.calls[execution] == Call::Waiting) {
            world.wrong.get_or_insert(Wrong::TwoCallers);
        }
    }
}
