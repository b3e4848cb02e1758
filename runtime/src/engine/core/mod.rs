//! The decision core: a message and the time in, effects out. No I/O, no clock, no task.
//!
//! ```text
//!             input                 loaded                  commit
//! (asleep) ──────────▶ Loading ──────────────▶ At work ──────────────▶ At work, committing
//!     ▲                                          │  ▲                     │
//!     └───────── nothing queued, no call ────────┘  └───── committed ─────┘
//! ```
//!
//! An execution at work has at most one commit under way; what reaches it meanwhile is folded into its next transition.

mod closed;
mod committed;
mod drive;
mod load;
mod message;
mod requested;
mod shards;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::message::{Effect, Message, Scan, Ticket};
use self::shards::Shards;
use super::dispatch::Dispatch;
use super::horizon::Horizon;
use super::{Active, Answer, Input, Registries, ReplyId};
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::store::Execution;
use crate::time::Timestamp;

/// The most executions that are held in memory because their time has come; the rest waits in the store.
pub(crate) const HELD_MAX: usize = 5_000;
/// The most executions that are read at once.
const LOAD_MAX: usize = 500;

/// An execution that the core is busy with.
enum Entry {
    /// Being read. What reads up to the number `after` bring was asked for before, and may be older than the last commit.
    Loading {
        after: u64,
        inputs: Vec<Input>,
    },
    AtWork(Box<AtWork>),
}

struct AtWork {
    active: Active,
    queue: Vec<Input>,
    commit: Option<Committing>,
}

/// A transition that is on its way to the store.
struct Committing {
    /// To fold them again if the commit is refused.
    inputs: Vec<Input>,
    answers: Vec<(ReplyId, Answer)>,
    spawned: Vec<Active>,
    consumed: Vec<String>,
    /// Whether it changes the row.
    row_changed: bool,
    /// The row as it was stored before.
    before: Option<Box<Execution>>,
    /// Whether a step begins to wait for a person with it.
    asks_for_a_person: bool,
    kind: CommitKind,
}

impl Committing {
    fn of(kind: CommitKind) -> Self {
        Self {
            inputs: Vec::new(),
            answers: Vec::new(),
            spawned: Vec::new(),
            consumed: Vec::new(),
            row_changed: true,
            before: None,
            asks_for_a_person: false,
            kind,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CommitKind {
    Transition,
    /// The execution is being blocked.
    Block,
}

/// What a ticket stands for.
enum Awaited {
    Advance(WorkflowKey),
    Deposit {
        reply: ReplyId,
    },
    LateStart {
        reply: Option<ReplyId>,
        active: Box<Active>,
    },
    /// A start that was asked for inside the store; without an execution, its refusal.
    RequestedStart {
        key: WorkflowKey,
        active: Option<Box<Active>>,
    },
    /// A stored signal that cannot be read is put aside.
    Refusal,
}

/// The decision core of a node.
pub(crate) struct Core {
    code: Arc<Registries>,
    random: Box<dyn FnMut() -> u64 + Send>,
    shards: Shards,
    /// How long calls under way may take to end when a shard is given away.
    patience: Duration,
    entries: HashMap<WorkflowKey, Entry>,
    /// Executions that a transition was to start, and that are being read: the store leaves one as it is that was there
    /// before.
    spawned: HashMap<WorkflowKey, Box<Active>>,
    /// Executions of which a transition was rejected: they take up one thing at a time, so that what cannot be stored is
    /// found and takes nothing else with it.
    careful: HashSet<WorkflowKey>,
    /// Calls begun by this process that have not ended, by execution.
    begun: HashMap<WorkflowKey, BTreeSet<u64>>,
    held_by_shard: Vec<usize>,
    horizon: Horizon,
    dispatch: Dispatch,
    to_load: VecDeque<WorkflowKey>,
    /// Reads that were asked for so far.
    reads: u64,
    /// Executions to be read again later, after a failure.
    later: BTreeSet<(Timestamp, WorkflowKey)>,
    awaited: HashMap<Ticket, Awaited>,
    /// Requested starts that are on their way to the store.
    starting: HashSet<WorkflowKey>,
    next_ticket: u64,
    draining: bool,
    now: Timestamp,
    effects: Vec<Effect>,
}

impl Core {
    /// A core that owns no shard yet.
    pub(crate) fn new(code: Arc<Registries>, shards: u16, patience: Duration, random: Box<dyn FnMut() -> u64 + Send>) -> Self {
        Self {
            code,
            random,
            shards: Shards::none_of(shards),
            patience,
            entries: HashMap::new(),
            spawned: HashMap::new(),
            careful: HashSet::new(),
            begun: HashMap::new(),
            held_by_shard: vec![0; shards.into()],
            horizon: Horizon::default(),
            dispatch: Dispatch::default(),
            to_load: VecDeque::new(),
            reads: 0,
            later: BTreeSet::new(),
            awaited: HashMap::new(),
            starting: HashSet::new(),
            next_ticket: 0,
            draining: false,
            now: Timestamp::default(),
            effects: Vec::new(),
        }
    }

    /// Takes a message in. Effects are gathered until [`flush`](Self::flush).
    pub(crate) fn step(&mut self, message: Message, now: Timestamp) {
        self.now = now;
        match message {
            Message::Input { key, input } => self.input(key, input),
            Message::Expect(key) => self.expect(key),
            Message::Unexpect(key) => self.unexpect(key),
            Message::Adopt(active) => self.adopt_expected(*active),
            Message::Hint { key, wake_at } => self.hint(wake_at, &key),
            Message::Nudge(key) => self.unread(key),
            Message::Loaded { number, results } => {
                results.into_iter().for_each(|(key, loaded)| self.loaded(number, key, loaded));
            }
            Message::LoadFailed { number, keys } => keys.into_iter().for_each(|key| self.load_failed(number, key)),
            Message::Committed { ticket, outcome } => self.committed(ticket, outcome),
            Message::CallEnded { key, number, limit, outcome, sends } => self.call_ended(key, number, limit, outcome, sends),
            Message::Scanned(scan) => self.scanned(scan),
            Message::Gain(shards) => self.gain(shards),
            Message::Leave(gifts) => self.leave(gifts, self.patience),
            Message::Drain => {
                self.draining = true;
                self.dispatch.forget_waiting();
            }
        }
    }

    /// Lets what is due begin, and takes the effects.
    pub(crate) fn flush(&mut self, now: Timestamp) -> Vec<Effect> {
        self.now = now;
        self.settle_shards();
        self.fall_due();
        while !self.to_load.is_empty() {
            let batch: Vec<_> = self.to_load.drain(..self.to_load.len().min(LOAD_MAX)).collect();
            self.reads += 1;
            self.effects.push(Effect::Load { number: self.reads, keys: batch });
        }
        std::mem::take(&mut self.effects)
    }

    /// When the core has to be flushed next although nothing happens.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let later = self.later.first().map(|(at, _)| *at);
        [self.horizon.next(), later].into_iter().flatten().min()
    }

    /// Whether nothing is under way: no call, no commit.
    pub(crate) fn is_idle(&self) -> bool {
        self.dispatch.under_way() == 0 && self.awaited.is_empty()
    }

    /// Executions in memory: being read, folded, committed, or waiting for a call.
    pub(crate) fn held(&self) -> usize {
        self.entries.len()
    }

    /// How many due executions of one shard a scan must ask for, so that it always finds some that are not held.
    pub(crate) fn scan_limit(&self) -> usize {
        let held = self.held_by_shard.iter().copied().max().unwrap_or(0);
        held + HELD_MAX / usize::from(self.shards.number().max(1)) + 16
    }

    fn input(&mut self, key: WorkflowKey, input: Input) {
        if self.draining
            && let Some(reply) = input.reply()
        {
            self.refuse_unavailable(reply);
            return;
        }
        match input.reply() {
            Some(reply) if !self.shards.owns(&key) => return self.not_owner(reply),
            None if !self.shards.holds(&key) => return,
            _ => {}
        }
        match self.entries.get_mut(&key) {
            Some(Entry::Loading { inputs, .. }) => inputs.push(input),
            Some(Entry::AtWork(work)) => {
                work.queue.push(input);
                self.drive(&key);
            }
            None => self.begin_loading(key, vec![input]),
        }
    }

    fn fall_due(&mut self) {
        while let Some((at, key)) = self.later.first().cloned() {
            if at > self.now {
                break;
            }
            self.later.remove(&(at, key.clone()));
            self.to_load.push_back(key);
        }
        while let Some(key) = self.horizon.pop_due(self.now) {
            point(Point::TimerUnused);
            self.due(key);
        }
    }

    fn due(&mut self, key: WorkflowKey) {
        if !self.shards.owns(&key) {
            return;
        }
        let room = self.has_room();
        match self.entries.get_mut(&key) {
            Some(Entry::Loading { .. }) => {}
            Some(Entry::AtWork(work)) => {
                if work.active.has_due(self.now) {
                    work.queue.push(Input::Due);
                    self.drive(&key);
                }
            }
            // What there is no room for is found again by the scan.
            None if !room => {}
            None => self.begin_loading(key, Vec::new()),
        }
    }

    /// Whether one more execution may be taken into memory because of its time.
    fn has_room(&self) -> bool {
        !self.draining && self.entries.len() < HELD_MAX
    }

    fn scanned(&mut self, scan: Scan) {
        self.horizon.extend(scan.upcoming, scan.horizon);
        for due in scan.overdue {
            self.due(due.key);
        }
        for key in scan.unread {
            self.unread(key);
        }
        for row in scan.unclaimed {
            self.unclaimed(row);
        }
        for requested in scan.requested {
            self.requested(requested);
        }
    }

    fn hint(&mut self, wake_at: Timestamp, key: &WorkflowKey) {
        if self.shards.owns(key) {
            self.horizon.hint(wake_at, key, self.now);
        }
    }

    /// An execution has inbox rows: they are read, with it or beside it.
    fn unread(&mut self, key: WorkflowKey) {
        if !self.shards.owns(&key) {
            return;
        }
        match self.entries.get(&key) {
            Some(Entry::Loading { .. }) => {}
            Some(Entry::AtWork(_)) => self.to_load.push_back(key),
            None if !self.has_room() => {}
            None => self.begin_loading(key, Vec::new()),
        }
    }

    fn begin_loading(&mut self, key: WorkflowKey, inputs: Vec<Input>) {
        self.held_by_shard[usize::from(key.shard(self.shards.number()))] += 1;
        self.entries.insert(key.clone(), Entry::Loading { after: self.reads, inputs });
        self.to_load.push_back(key);
    }

    fn forget(&mut self, key: &WorkflowKey) -> Option<Entry> {
        self.spawned.remove(key);
        self.careful.remove(key);
        let entry = self.entries.remove(key)?;
        self.held_by_shard[usize::from(key.shard(self.shards.number()))] -= 1;
        Some(entry)
    }

    fn ticket(&mut self, awaited: Awaited) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.awaited.insert(ticket, awaited);
        ticket
    }

    fn reply(&mut self, reply: ReplyId, answer: Answer) {
        self.effects.push(Effect::Reply(reply, answer));
    }

    fn refuse_unavailable(&mut self, reply: ReplyId) {
        self.reply(reply, Answer::Refused(super::RefusedInput::Unavailable));
    }
}
