//! Moving an execution on: from what is queued to the next commit, and from a commit to the calls.

use super::{AtWork, Awaited, CommitKind, Committing, Core, Effect, Entry};
use crate::activity::ActivityFailure;
use crate::engine::{
    Active, Answer, Call, CommitRequest, IncomingSignal, Input, RefusedInput, ReplyId, ReplyTo, SignalCheck, Step, check_against,
};
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Advance, Deposit, InboxRow, Status, Write};
use crate::workflow::ReplayFault;

/// No read counts: the execution is handed over by whoever starts it.
const HELD: u64 = u64::MAX;

impl Core {
    /// Folds what is queued into a transition, unless one is being committed.
    pub(super) fn drive(&mut self, key: &WorkflowKey) {
        let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
        if work.commit.is_some() {
            return;
        }
        if work.queue.is_empty() {
            self.rest(key);
            return;
        }
        let mut inputs = std::mem::take(&mut work.queue);
        if !work.active.row.status.is_open() {
            self.drive_closed(key, inputs);
            return;
        }
        if work.active.machine.is_none() {
            // Only the end needs no code.
            let (ends, others): (Vec<_>, Vec<_>) = inputs.into_iter().partition(|input| matches!(input, Input::Terminate { .. }));
            self.set_aside(key, others);
            if ends.is_empty() {
                self.rest(key);
                return;
            }
            inputs = ends;
        }
        let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
        if work.active.row.status == Status::Blocked {
            work.active.notes.blocked = None;
        }
        // What is stored precedes what is not, and everything precedes the deadline.
        inputs.sort_by_key(|input| match input {
            Input::Recover => 0,
            Input::Inbox(_) => 1,
            Input::Due | Input::LetGo => 3,
            _ => 2,
        });
        if self.careful.contains(key) && inputs.len() > 1 {
            let others = inputs.split_off(1);
            work.queue = others;
        }
        let again = inputs.clone();
        let before = work.active.row.clone();
        let signals_before = work.active.folded.signals.len();
        let mut step = Step { code: &self.code, now: self.now, random: &mut *self.random };
        match work.active.transition(inputs, &mut step) {
            Ok(draft) => {
                work.queue.splice(0..0, draft.left);
                match draft.advance {
                    Some(advance) => {
                        if again.iter().any(|input| matches!(input, Input::Attempt { .. })) {
                            point(Point::ResultUncommitted);
                        }
                        let committing = Committing {
                            inputs: again,
                            answers: draft.answers,
                            spawned: draft.spawned,
                            consumed: advance.consume.clone(),
                            row_changed: advance.row.is_some(),
                            asks_for_a_person: work.active.row.needs_attention && !before.needs_attention,
                            before: Some(Box::new(before)),
                            kind: CommitKind::Transition,
                        };
                        self.commit(key, advance, committing);
                    }
                    None => {
                        for (reply, answer) in draft.answers {
                            self.reply(reply, answer);
                        }
                        self.begin_calls(key);
                        self.drive(key);
                    }
                }
            }
            Err(fault) => {
                work.queue.splice(0..0, again);
                // What it was taking up is not stored.
                work.active.folded.signals.truncate(signals_before);
                self.block(key, &fault);
            }
        }
    }

    pub(super) fn commit(&mut self, key: &WorkflowKey, advance: Advance, committing: Committing) {
        let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
        work.commit = Some(committing);
        let ticket = self.ticket(Awaited::Advance(key.clone()));
        self.effects
            .push(Effect::Commit(Box::new(CommitRequest { write: Write::Advance(advance), reply_to: ReplyTo::Core(ticket) })));
    }

    /// Begins the calls that the store now knows of.
    pub(super) fn begin_calls(&mut self, key: &WorkflowKey) {
        let may_begin = !self.draining && self.shards.owns(key);
        let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
        if !may_begin {
            return;
        }
        let calls = work.active.calls_to_begin(&self.code);
        if calls.is_empty() {
            return;
        }
        self.begun.entry(key.clone()).or_default().extend(calls.iter().map(|call| call.number));
        for call in calls {
            self.begin_call(call);
        }
    }

    fn begin_call(&mut self, call: Call) {
        if let Some(call) = self.dispatch.admit(call) {
            self.effects.push(Effect::Call(Box::new(call)));
        }
    }

    pub(super) fn call_ended(
        &mut self,
        key: WorkflowKey,
        number: u64,
        limit: Option<String>,
        outcome: Result<Payload, ActivityFailure>,
        sends: u32,
    ) {
        self.end_begun(&key, number);
        let mut next = self.dispatch.ended(limit.as_deref());
        while let Some(call) = next.take() {
            if self.still_wanted(&call) {
                self.effects.push(Effect::Call(Box::new(call)));
            } else {
                self.end_begun(&call.key, call.number);
                next = self.dispatch.ended(limit.as_deref());
                if let Some(Entry::AtWork(work)) = self.entries.get_mut(&call.key) {
                    work.active.running.remove(&call.number);
                }
                self.rest(&call.key);
            }
        }
        self.input(key, Input::Attempt { number, outcome, sends });
    }

    pub(super) fn end_begun(&mut self, key: &WorkflowKey, number: u64) {
        if let Some(begun) = self.begun.get_mut(key) {
            begun.remove(&number);
            if begun.is_empty() {
                self.begun.remove(key);
            }
        }
    }

    /// Whether the workflow still waits for a call that waited for its limit.
    fn still_wanted(&self, call: &Call) -> bool {
        let is_begun = self.begun.get(&call.key).is_some_and(|begun| begun.contains(&call.number));
        is_begun
            && match self.entries.get(&call.key) {
                Some(Entry::AtWork(work)) => work.active.folded.activities.contains_key(&call.number),
                _ => true,
            }
    }

    /// Lets an execution go that has nothing to do, leaving a hint for its next instant.
    pub(super) fn rest(&mut self, key: &WorkflowKey) {
        let Some(Entry::AtWork(work)) = self.entries.get(key) else { return };
        if work.commit.is_some() || !work.queue.is_empty() {
            return;
        }
        if let Some(due) = work.active.next_due() {
            self.horizon.hint(due, key, self.now);
        }
        let is_open = work.active.row.status.is_open();
        if !is_open {
            // Its calls that still wait for their limit are not wanted any more.
            self.begun.remove(key);
        }
        if !is_open || work.active.running.is_empty() {
            self.forget(key);
        }
    }

    /// Holds the place of an execution that is being started here.
    pub(super) fn expect(&mut self, key: WorkflowKey) {
        if !self.shards.owns(&key) {
            return;
        }
        match self.entries.get_mut(&key) {
            // What is being read of it was asked for before its start.
            Some(Entry::Loading { after, .. }) => *after = HELD,
            Some(Entry::AtWork(_)) => {}
            None => {
                self.held_by_shard[usize::from(key.shard(self.shards.number()))] += 1;
                self.entries.insert(key, Entry::Loading { after: HELD, inputs: Vec::new() });
            }
        }
    }

    pub(super) fn unexpect(&mut self, key: WorkflowKey) {
        if let Some(Entry::Loading { after, .. }) = self.entries.get_mut(&key) {
            *after = self.reads;
            self.to_load.push_back(key);
        }
    }

    /// Takes in an execution for which a place was held, unless that was given up: it may have moved on since.
    pub(super) fn adopt_expected(&mut self, active: Active) {
        if !self.shards.owns(&active.row.key) {
            return;
        }
        match self.entries.get_mut(&active.row.key) {
            Some(Entry::Loading { after, .. }) if *after == HELD => self.adopt(active),
            // Another node may have owned it meanwhile, and moved it on: what is read from now on counts.
            Some(Entry::Loading { after, .. }) => {
                *after = self.reads;
                self.to_load.push_back(active.row.key);
            }
            // Its memory here is at least as new.
            Some(Entry::AtWork(_)) => {}
            None => self.begin_loading(active.row.key, Vec::new()),
        }
    }

    /// Takes in an execution that was just started here, with whatever reached it meanwhile.
    pub(super) fn adopt(&mut self, active: Active) {
        let key = active.row.key.clone();
        if !self.shards.owns(&key) {
            return;
        }
        let queue = match self.entries.get_mut(&key) {
            // Its memory here is at least as new.
            Some(Entry::AtWork(_)) => return,
            Some(Entry::Loading { inputs, .. }) => std::mem::take(inputs),
            None => {
                self.held_by_shard[usize::from(active.row.shard)] += 1;
                Vec::new()
            }
        };
        self.entries.insert(key.clone(), Entry::AtWork(Box::new(AtWork { active, queue, commit: None })));
        self.begin_calls(&key);
        self.drive(&key);
    }

    /// Stops an execution whose code cannot go on: its row says why and when it is tried again; its history stays as
    /// it is. Signals are stored for later, everything else is refused or comes again by itself.
    pub(super) fn block(&mut self, key: &WorkflowKey, fault: &ReplayFault) {
        let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
        tracing::error!(
            workflow.type = key.workflow_type(), workflow.id = key.id(), run.id = %work.active.row.run_id,
            error.type = fault.error_type(), error = %fault,
            "execution blocked; it is tried again by itself"
        );
        let inputs = std::mem::take(&mut work.queue);
        work.active.machine = None;
        work.active.pending.clear();
        let row = Active::blocked_row(&work.active.row, fault, self.now);
        let advance = Advance {
            key: key.clone(),
            shard: work.active.row.shard,
            run_id: work.active.row.run_id,
            rev: work.active.row.rev,
            record: None,
            row: Some(row.clone()),
            consume: Vec::new(),
            hold: Vec::new(),
            spawn: Vec::new(),
            emit: Vec::new(),
            guard_inbox: false,
        };
        work.active.apply_row(&row);
        self.commit(key, advance, Committing::of(CommitKind::Block));
        self.set_aside(key, inputs);
    }

    /// What an execution that cannot take anything up does with its inputs.
    pub(super) fn set_aside(&mut self, key: &WorkflowKey, inputs: Vec<Input>) {
        for input in inputs {
            match input {
                Input::Signal { signal, reply } => {
                    // Stored beside one of the same id, it would be dropped when it is taken up.
                    let workflow = self.code.workflows.get(key.workflow_type()).map(AsRef::as_ref);
                    let seen = self.at_work(key).map_or(&[][..], |active| &active.folded.signals);
                    match check_against(&signal, seen, workflow) {
                        SignalCheck::New => self.deposit(key, signal, reply),
                        SignalCheck::Duplicate => self.reply(reply, Answer::Duplicate),
                        SignalCheck::Conflict => self.reply(reply, Answer::Refused(RefusedInput::SignalConflict)),
                    }
                }
                other => {
                    if let Some(reply) = other.reply() {
                        self.reply(reply, Answer::Refused(RefusedInput::Blocked));
                    }
                }
            }
        }
    }

    /// Stores a signal that no execution can take now.
    pub(super) fn deposit(&mut self, key: &WorkflowKey, signal: IncomingSignal, reply: ReplyId) {
        let row = InboxRow {
            key: key.clone(),
            shard: key.shard(self.shards.number()),
            signal_id: signal.signal_id,
            name: signal.name,
            payload: signal.payload,
            identity: signal.identity,
            received_at: self.now,
            unchecked: false,
        };
        let ticket = self.ticket(Awaited::Deposit { reply });
        let write = Write::Deposit(Deposit { row });
        self.effects.push(Effect::Commit(Box::new(CommitRequest { write, reply_to: ReplyTo::Core(ticket) })));
    }
}
