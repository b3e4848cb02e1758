//! The actions: each stands for a function of the code, and any that can happen may happen next. A process that stands
//! still between two steps is one whose next step is chosen late.

use std::sync::atomic::{AtomicU32, Ordering};

use stateright::{Model, Property};

use super::mutant::Mutant;
use super::property::{Goal, Wrong};
use super::state::{Call, Commit, EXECUTIONS, Hold, Incarnation, Left, NODE_IDS, PROCESSES, SHARDS, Stage, World};

/// A protocol, within bounds.
pub(crate) struct Protocol {
    pub(crate) shards: usize,
    pub(crate) executions: usize,
    pub(crate) left: Left,
    pub(crate) mutant: Option<Mutant>,
    reached: AtomicU32,
}

/// One step. `process` is whoever makes it, `at` a place among the open transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `Shared::join` and `Store::join`: a new id, an epoch above all others; the life before is ended.
    Join { process: usize },
    /// `Steward::look`: a renewal tells that the node was ended, or which shards it turns out to own (`Ownership::seen`).
    See { process: usize },
    /// `Store::claim`, in the lane. What was claimed is told by the next look, as after a lost answer.
    Claim { process: usize, shard: usize },
    /// `Core::leave`: a shard is to be given to the other node.
    Leave { process: usize, shard: usize, to: u8 },
    /// `Core::settle_shards`: it has come to rest.
    Settle { process: usize, shard: usize },
    /// `Store::hand_over`, in the lane.
    HandOver { process: usize },
    /// `Store::leave` after a drain.
    Drain { process: usize },
    /// `Store::take_over`. When the lease is over is free: it makes nothing safe.
    TakeOver { node_id: u8 },
    /// A request to start reaches a node.
    Start { process: usize, execution: usize },
    /// A payment reaches a node: the owner folds it, another one stores it (`client/signal.rs`).
    Pay { process: usize, execution: usize },
    /// The scanner finds it, the core reads it (`core/load.rs`).
    Load { process: usize, execution: usize },
    /// `Core::drive`: what is there is folded into a transition.
    Fold { process: usize, execution: usize },
    /// `Committer::gather` and `Store::commit` on its way: everything that waits is one batch.
    Send { process: usize },
    /// The fence is checked.
    CheckFence { at: usize },
    /// The writes are applied and committed.
    Apply { at: usize },
    /// The outcome reaches the committer.
    Answer { at: usize },
    /// The connection breaks: the client hears of it, the transaction goes on (`CommitError::Unknown`).
    Break { at: usize },
    /// The database refuses (`CommitError::Unavailable`): nothing is applied.
    Refuse { at: usize },
    /// `Committer::raise`.
    Raise { process: usize },
    /// `Committer::settle` behind the raise: read, answer what is there, commit the rest again.
    Find { process: usize },
    /// `Core::begin_calls`: a call is sent.
    Call { process: usize, execution: usize },
    /// Its answer comes.
    CallAnswered { process: usize, execution: usize },
    /// The process ends without a word.
    Kill { process: usize },
    /// The store's time reaches the deadlines.
    TimeComes,
}

impl Protocol {
    pub(crate) fn new(shards: usize, executions: usize, left: Left, mutant: Option<Mutant>) -> Self {
        Self { shards, executions, left, mutant, reached: AtomicU32::new(0) }
    }

    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn shard(&self, execution: usize) -> usize {
        execution % self.shards
    }

    pub(crate) fn reach(&self, goal: Goal) {
        self.reached.fetch_or(1 << goal as u32, Ordering::Relaxed);
    }

    pub(crate) fn has_reached(&self, goal: Goal) -> bool {
        self.reached.load(Ordering::Relaxed) & (1 << goal as u32) != 0
    }

    /// Whether a look would tell the node of a shard that it does not know to be its own. One that is being given away is
    /// not, until the store has taken that in.
    pub(crate) fn is_gain(&self, world: &World, me: &Incarnation, shard: usize) -> bool {
        let is_given = me.handing_over.is_some_and(|(given, _)| given == shard) && !self.has(Mutant::GainWhileGiving);
        world.owners[shard] == Some(me.node_id) && me.holds[shard] == Hold::Not && !is_given
    }

    fn of_process(&self, world: &World, process: usize, me: &Incarnation, actions: &mut Vec<Action>) {
        let left = &world.left;
        let is_idle = me.commit == Commit::Idle;
        let is_in = world.lanes[usize::from(me.node_id)].is_some();
        let owns = |shard: usize| world.owners[shard] == Some(me.node_id);
        if !is_in || (0..self.shards).any(|shard| self.is_gain(world, me, shard)) {
            actions.push(Action::See { process });
        }
        let is_free = |node_id| !Self::is_locked(world, node_id);
        for shard in 0..self.shards {
            let may_claim = world.owners[shard].is_none() || self.has(Mutant::ClaimTaken) && !owns(shard);
            if is_idle && me.waiting.is_empty() && may_claim && is_free(me.node_id) {
                actions.push(Action::Claim { process, shard });
            }
            match (me.holds[shard], &world.processes[1 - process]) {
                (Hold::Owned, Some(other)) if left.hand_overs > 0 && world.lanes[usize::from(other.node_id)].is_some() => {
                    actions.push(Action::Leave { process, shard, to: other.node_id });
                }
                (Hold::Leaving { .. }, _) if me.handing_over.is_none() && self.is_at_rest(me, shard) => {
                    actions.push(Action::Settle { process, shard });
                }
                _ => {}
            }
        }
        let beside = self.has(Mutant::HandOverDuringCommit);
        if me.handing_over.is_some() && (is_idle && me.waiting.is_empty() && is_free(me.node_id) || beside) {
            actions.push(Action::HandOver { process });
        }
        match &me.commit {
            Commit::Idle if !me.waiting.is_empty() => actions.push(Action::Send { process }),
            Commit::Unknown(_) => actions.push(Action::Raise { process }),
            Commit::Raised(_) => actions.push(Action::Find { process }),
            _ => {}
        }
        if left.kills > 0 {
            actions.push(Action::Kill { process });
            let is_at_rest = (0..self.executions).all(|execution| me.calls[execution] == Call::None);
            if is_idle && me.waiting.is_empty() && is_at_rest && me.handing_over.is_none() {
                actions.push(Action::Drain { process });
            }
        }
        for execution in 0..self.executions {
            self.of_execution(world, process, me, execution, actions);
        }
    }

    fn of_execution(&self, world: &World, process: usize, me: &Incarnation, execution: usize, actions: &mut Vec<Action>) {
        let is_owned = me.holds[self.shard(execution)] == Hold::Owned;
        let work = me.at_work[execution].as_ref();
        let is_waiting = me.waiting.iter().any(|write| write.execution() == execution);
        if world.left.starts > 0 && !world.promised_starts[execution] && !is_waiting {
            actions.push(Action::Start { process, execution });
        }
        let may_pay = world.rows[execution].is_some() && !world.promised_payments[execution] && !is_waiting;
        if world.left.payments > 0 && may_pay && work.is_none_or(|work| !work.committing && !work.unread) {
            actions.push(Action::Pay { process, execution });
        }
        if work.is_none()
            && is_owned
            && let Some(row) = &world.rows[execution]
            && (world.inbox[execution] || row.is_open() && world.is_due)
        {
            actions.push(Action::Load { process, execution });
        }
        if self.folded(world, process, execution).is_some() {
            actions.push(Action::Fold { process, execution });
        }
        let is_scheduled = work.is_some_and(|work| {
            let is_hasty = self.has(Mutant::CallBeforeCommit) && work.committing && world.is_due && !work.unread;
            work.row.is_open() && (work.row.has_fired() || is_hasty)
        });
        match me.calls[execution] {
            Call::None if is_scheduled && is_owned => actions.push(Action::Call { process, execution }),
            Call::Waiting => actions.push(Action::CallAnswered { process, execution }),
            _ => {}
        }
    }

    fn of_transactions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, open) in world.transactions.iter().enumerate() {
            match &open.stage {
                Stage::Sent if !Self::is_locked(world, open.node_id) => actions.push(Action::CheckFence { at }),
                Stage::Fenced { .. } => actions.push(Action::Apply { at }),
                Stage::Committed(_) | Stage::FenceLost => actions.push(Action::Answer { at }),
                Stage::Sent => {}
            }
            if open.client.is_some() && world.left.breaks > 0 && open.stage != Stage::FenceLost {
                actions.push(Action::Break { at });
            }
            let is_open = matches!(open.stage, Stage::Sent | Stage::Fenced { .. });
            if open.client.is_some() && world.left.refusals > 0 && is_open {
                actions.push(Action::Refuse { at });
            }
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    /// Two nodes, each with its shards; where there is one shard, the first node has it.
    fn init_states(&self) -> Vec<World> {
        let node = |process: u8| {
            let epoch = if self.has(Mutant::ReusedNodeId) { 1 } else { process + 1 };
            let mut node = Incarnation { node_id: process, epoch, ..Incarnation::default() };
            if usize::from(process) < self.shards {
                node.holds[usize::from(process)] = Hold::Owned;
            }
            node
        };
        let nodes = [node(0), node(1)];
        let mut lanes = [None; NODE_IDS];
        lanes[0] = Some(nodes[0].epoch);
        lanes[1] = Some(nodes[1].epoch);
        vec![World {
            lanes,
            owners: std::array::from_fn(|shard| (shard < self.shards).then_some(u8::from(shard == 1))),
            epochs: 2,
            rows: [const { None }; EXECUTIONS],
            inbox: [false; EXECUTIONS],
            late: [false; EXECUTIONS],
            is_due: false,
            transactions: Vec::new(),
            processes: nodes.map(Some),
            replaces: [None; PROCESSES],
            promised_starts: [false; EXECUTIONS],
            promised_payments: [false; EXECUTIONS],
            called: [false; EXECUTIONS],
            left: self.left,
            wrong: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.wrong.is_some() {
            return;
        }
        for (process, life) in world.processes.iter().enumerate() {
            match life {
                Some(me) => self.of_process(world, process, me, actions),
                None if world.left.joins > 0 => actions.push(Action::Join { process }),
                None => {}
            }
        }
        let has_other = |node_id: u8| world.processes.iter().flatten().any(|life| life.node_id != node_id);
        for node_id in (0u8..).take(NODE_IDS) {
            if world.left.takeovers > 0 && world.lanes[usize::from(node_id)].is_some() && has_other(node_id) {
                actions.push(Action::TakeOver { node_id });
            }
        }
        self.of_transactions(world, actions);
        if !world.is_due && world.rows.iter().any(Option::is_some) {
            actions.push(Action::TimeComes);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.step(&mut next, action);
        next.wrong = next.wrong.or_else(|| Wrong::seen_in(&next));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! never {
            ($($wrong:ident),*) => {
                vec![$(Property::always(Wrong::$wrong.sentence(), |_, world: &World| world.wrong != Some(Wrong::$wrong))),*]
            };
        }
        never![
            PromiseBeforeCommit,
            PromiseLost,
            HistoryForked,
            EventAfterEnd,
            InboxOverlooked,
            OldEpoch,
            NotTheOwner,
            EndedNodeIsIn,
            OwnerOutOfStep,
            CallBeforeCommit,
            TwoCallers,
            FiredEarly
        ]
    }
}

const _: () = assert!(SHARDS == 2 && PROCESSES == 2, "a shard goes to the other node");
