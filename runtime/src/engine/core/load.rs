//! Reading executions: what was asked for arrives, or does not.

use std::time::Duration;

use super::{AtWork, Core, Entry};
use crate::engine::{Active, Input};
use crate::id::WorkflowKey;
use crate::store::{Loaded, Status};
use crate::workflow::ReplayFault;

/// After a read or a commit failed, the execution is read again this much later.
pub(super) const RETRY_AFTER_FAILURE: Duration = Duration::from_millis(250);

impl Core {
    pub(super) fn loaded(&mut self, number: u64, key: WorkflowKey, loaded: Option<Loaded>) {
        match self.entries.get_mut(&key) {
            Some(Entry::AtWork(work)) => {
                // Only its inbox was asked for.
                let rows = loaded.map(|loaded| loaded.inbox).unwrap_or_default();
                work.queue.extend(rows.into_iter().map(Input::Inbox));
                self.drive(&key);
            }
            // Another read is on its way, or the execution is about to be adopted.
            Some(Entry::Loading { after, .. }) if number <= *after => {}
            Some(Entry::Loading { inputs, .. }) => {
                let inputs = std::mem::take(inputs);
                match (loaded, self.spawned.remove(&key)) {
                    (Some(loaded), Some(spawned)) if is_as_started(&spawned, &loaded) => {
                        let inbox = loaded.inbox.into_iter().map(Input::Inbox);
                        let queue = inbox.chain(inputs).collect();
                        self.entries
                            .insert(key.clone(), Entry::AtWork(Box::new(AtWork { active: *spawned, queue, commit: None })));
                        self.begin_calls(&key);
                        self.drive(&key);
                    }
                    (Some(loaded), _) => self.take_up(key, loaded, inputs),
                    (None, _) => self.unknown(&key, inputs),
                }
            }
            None => {}
        }
    }

    /// Takes in an execution that a transition started, unless one of its key was there before: then the store has left
    /// that as it is, and what this node made is nobody's.
    pub(super) fn adopt_if_ours(&mut self, active: Active) {
        let key = active.row.key.clone();
        if !self.shards.owns(&key) {
            return;
        }
        match self.entries.get_mut(&key) {
            // It is ahead of what was just committed.
            Some(Entry::AtWork(_)) => return,
            // What was asked for before may be older than the commit.
            Some(Entry::Loading { after, .. }) => {
                *after = self.reads;
                self.to_load.push_back(key.clone());
            }
            None => self.begin_loading(key.clone(), Vec::new()),
        }
        self.spawned.insert(key, Box::new(active));
    }

    fn take_up(&mut self, key: WorkflowKey, loaded: Loaded, inputs: Vec<Input>) {
        // Blocked, and not to be tried again yet: what reaches it meanwhile does not make its time come later or sooner.
        let is_due = inputs.iter().any(|input| matches!(input, Input::Due));
        let rests =
            loaded.execution.status == Status::Blocked && loaded.execution.wake_at.is_some_and(|at| at > self.now) && !is_due;
        let (mut active, inbox, fault) = Active::open(&self.code, loaded);
        active.running = self.begun.get(&key).cloned().unwrap_or_default();
        // An attempt whose end is among the inputs was not cut off.
        active.running.extend(inputs.iter().filter_map(|input| match input {
            Input::Attempt { number, .. } => Some(*number),
            _ => None,
        }));
        let mut queue = Vec::with_capacity(inputs.len() + inbox.len() + 2);
        if active.row.status.is_open() {
            queue.push(Input::Recover);
            queue.push(Input::Due);
        }
        queue.extend(inbox.into_iter().map(Input::Inbox));
        queue.extend(inputs);
        let is_open = active.row.status.is_open();
        let ends = queue.iter().any(|input| matches!(input, Input::Terminate { .. }));
        self.entries.insert(key.clone(), Entry::AtWork(Box::new(AtWork { active, queue, commit: None })));
        // A history that can be read can be ended without its code.
        let is_readable = !matches!(fault, Some(ReplayFault::History(_)));
        match fault {
            Some(_) if is_open && rests && !is_readable => self.leave_blocked(&key),
            Some(fault) if is_open && !rests && (!ends || !is_readable) => self.block(&key, &fault),
            _ => self.drive(&key),
        }
    }

    /// Nothing can be done with it: not even its end can be recorded.
    fn leave_blocked(&mut self, key: &WorkflowKey) {
        let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
        let inputs = std::mem::take(&mut work.queue);
        self.set_aside(key, inputs);
        self.rest(key);
    }

    /// There is no such execution: signals wait for it, everything else has nothing to act on.
    fn unknown(&mut self, key: &WorkflowKey, inputs: Vec<Input>) {
        self.forget(key);
        for input in inputs {
            match input {
                Input::Signal { signal, reply } => self.deposit(key, signal, reply),
                other => {
                    if let Some(reply) = other.reply() {
                        self.reply(reply, crate::engine::Answer::Refused(crate::engine::RefusedInput::NotFound));
                    }
                }
            }
        }
    }

    /// Those who wait are told; what nobody waits for is tried again.
    pub(super) fn load_failed(&mut self, number: u64, key: WorkflowKey) {
        let Some(Entry::Loading { after, inputs }) = self.entries.get_mut(&key) else { return };
        if number <= *after {
            return;
        }
        let (waited_for, kept): (Vec<_>, Vec<_>) = std::mem::take(inputs).into_iter().partition(|input| input.reply().is_some());
        if kept.is_empty() {
            self.forget(&key);
        } else if let Some(Entry::Loading { inputs, .. }) = self.entries.get_mut(&key) {
            *inputs = kept;
            self.later.insert((self.now.saturating_add(RETRY_AFTER_FAILURE), key));
        }
        for reply in waited_for.iter().filter_map(Input::reply) {
            self.refuse_unavailable(reply);
        }
    }
}

/// Whether what is stored is this very execution, and has not moved on.
fn is_as_started(spawned: &Active, loaded: &Loaded) -> bool {
    loaded.execution.run_id == spawned.row.run_id && loaded.execution.rev == spawned.row.rev && loaded.records.len() == 1
}
