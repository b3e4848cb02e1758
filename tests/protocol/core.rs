//! A node's side: what its core folds, and what follows from outcomes.

use super::model::Protocol;
use super::mutant::Mutant;
use super::property::{Goal, Wrong};
use super::state::{AtWork, Call, Commit, Event, Hold, Incarnation, Kind, Outcome, Row, World, Write};

impl Protocol {
    /// What an execution's next transition would be, stored signals first, the deadline last (`transition.rs`).
    pub(crate) fn folded(&self, world: &World, process: usize, execution: usize) -> Option<Write> {
        let me = world.processes[process].as_ref()?;
        let work = me.at_work[execution].as_ref().filter(|work| !work.committing)?;
        let is_owned = match me.holds[self.shard(execution)] {
            Hold::Not => return None,
            Hold::Owned => true,
            Hold::Leaving { .. } => false,
        };
        let answered = me.calls[execution] == Call::Answered && work.row.is_open();
        if work.unread && is_owned {
            return Some(self.payment(&work.row, execution, me.epoch, true));
        }
        let kind = match work.row.has_fired() {
            true if answered => Kind::Completed,
            false if is_owned && world.is_due && work.row.is_open() => Kind::Fired,
            _ => return None,
        };
        Some(advance(&work.row, execution, Event { kind, epoch: me.epoch }, false, false))
    }

    /// What becomes of a payment, by where the execution stands.
    pub(crate) fn payment(&self, row: &Row, execution: usize, epoch: u8, consume: bool) -> Write {
        if !row.is_open() && !self.has(Mutant::EndedGrows) {
            return Write::Late { execution, consume };
        }
        let kind = if row.has_fired() { Kind::PaidLate } else { Kind::Paid };
        advance(row, execution, Event { kind, epoch }, consume, !consume)
    }

    /// A promise to a caller, judged when it is made.
    pub(crate) fn promise(world: &mut World, write: &Write) {
        let execution = write.execution();
        let row = world.rows[execution].as_ref();
        let is_paid = world.inbox[execution] || world.late[execution] || row.is_some_and(Row::is_paid);
        let (promised, is_there) = match write {
            Write::Start { .. } => (&mut world.promised_starts, row.is_some()),
            Write::Deposit { .. } | Write::Late { consume: false, .. } | Write::Advance { asked: true, .. } => {
                (&mut world.promised_payments, is_paid)
            }
            Write::Late { .. } | Write::Advance { .. } => return,
        };
        promised[execution] = true;
        if !is_there {
            world.wrong.get_or_insert(Wrong::PromiseBeforeCommit);
        }
    }

    /// `Core::committed`, and the answer to a request that starts.
    pub(crate) fn committed(&self, world: &mut World, process: usize, write: &Write, outcome: Outcome) {
        let execution = write.execution();
        let shard = self.shard(execution);
        if matches!(write, Write::Start { .. }) && outcome == Outcome::There {
            self.reach(Goal::StartedTwice);
        }
        let Some(me) = &mut world.processes[process] else { return };
        let is_awaited = match write {
            Write::Start { .. } | Write::Deposit { .. } | Write::Late { consume: false, .. } => true,
            // Who was forgotten was told to ask the owner.
            Write::Advance { .. } | Write::Late { .. } => me.at_work[execution].as_ref().is_some_and(|work| work.committing),
        };
        if !is_awaited {
            return;
        }
        match outcome {
            Outcome::Done | Outcome::There => {
                if let Write::Advance { event, consume, .. } = write
                    && let Some(work) = &mut me.at_work[execution]
                {
                    work.committing = false;
                    work.unread &= !consume;
                    work.row.history.push(*event);
                    work.row.rev += u8::from(event.kind != Kind::PaidLate);
                    if !work.row.is_open() {
                        me.at_work[execution] = None;
                        me.calls[execution] = Call::None;
                    }
                } else if matches!(write, Write::Late { consume: true, .. }) {
                    me.at_work[execution] = None;
                }
                Self::promise(world, write);
            }
            Outcome::NotOwned => lose(me, shard, |execution| self.shard(execution)),
            Outcome::UnreadInbox => me.at_work[execution] = None,
            Outcome::Stale => world.processes[process] = None,
        }
    }

    /// `CommitFailure::NotApplied`: read again later.
    pub(crate) fn not_applied(world: &mut World, process: usize, write: &Write) {
        if let Some(me) = &mut world.processes[process]
            && matches!(write, Write::Advance { .. } | Write::Late { .. })
        {
            me.at_work[write.execution()] = None;
        }
    }

    /// `settle::applied`: what a batch of unknown outcome has left in the store.
    pub(crate) fn applied(world: &World, write: &Write) -> Option<Outcome> {
        let row = world.rows[write.execution()].as_ref();
        let is_there = match write {
            Write::Start { run, .. } => row.is_some_and(|row| row.has(Kind::Started { run: *run })),
            Write::Advance { first_event, event, .. } => {
                row.is_some_and(|row| row.history.get(usize::from(*first_event)) == Some(event))
            }
            Write::Deposit { .. } | Write::Late { .. } => false,
        };
        is_there.then_some(Outcome::Done)
    }

    /// The process has lost its lane: its next life replaces this one (`End::Lost`), and what it held reaches nobody.
    pub(crate) fn lost(world: &mut World, process: usize) {
        let Some(me) = world.processes[process].take() else { return };
        world.replaces[process] = Some(me.node_id);
        forget_client(world, process);
    }

    /// Whether a leaving shard is at rest (`Core::at_rest`).
    pub(crate) fn is_at_rest(&self, me: &Incarnation, shard: usize) -> bool {
        let of_shard = |execution: &usize| self.shard(*execution) == shard;
        let is_busy = |execution: usize| {
            me.calls[execution] != Call::None || me.at_work[execution].as_ref().is_some_and(|work| work.committing)
        };
        self.has(Mutant::MoveWithoutDrain)
            || self.has(Mutant::HandOverDuringCommit)
            || !(0..me.calls.len()).filter(of_shard).any(is_busy)
    }
}

/// Transactions go on without the process that asked for them; what is over without an answer is gone.
pub(crate) fn forget_client(world: &mut World, process: usize) {
    use super::state::Stage;
    for open in &mut world.transactions {
        if open.client == Some(process) {
            open.client = None;
        }
    }
    world.transactions.retain(|open| open.client.is_some() || !matches!(open.stage, Stage::Committed(_) | Stage::FenceLost));
    world.transactions.sort();
}

/// `Core::lose` and `forget_shard`.
pub(crate) fn lose(me: &mut Incarnation, shard: usize, shard_of: impl Fn(usize) -> usize) {
    me.holds[shard] = Hold::Not;
    for execution in 0..me.calls.len() {
        if shard_of(execution) == shard {
            me.at_work[execution] = None;
            me.calls[execution] = Call::None;
        }
    }
}

/// Reads an execution whole, in one snapshot (`Store::load`).
pub(crate) fn load(world: &World, execution: usize) -> Option<AtWork> {
    let row = world.rows[execution].clone()?;
    Some(AtWork { row, unread: world.inbox[execution], committing: false })
}

fn advance(row: &Row, execution: usize, event: Event, consume: bool, asked: bool) -> Write {
    let first_event = u8::try_from(row.history.len()).unwrap_or(u8::MAX);
    Write::Advance { execution, rev: row.rev, first_event, event, consume, asked }
}

/// Puts a write into the lane.
pub(crate) fn submit(me: &mut Incarnation, write: Write) {
    if matches!(write, Write::Advance { .. } | Write::Late { .. })
        && let Some(work) = &mut me.at_work[write.execution()]
    {
        work.committing = true;
    }
    me.waiting.push(write);
    me.waiting.sort_unstable();
}

/// The batch that the committer has in hand.
pub(crate) fn in_hand(commit: &mut Commit) -> Vec<Write> {
    match std::mem::take(commit) {
        Commit::Idle => Vec::new(),
        Commit::UnderWay(writes) | Commit::Unknown(writes) | Commit::Raised(writes) => writes,
    }
}
