//! What follows from the outcome of a write.

use super::load::RETRY_AFTER_FAILURE;
use super::{AtWork, Awaited, CommitKind, Committing, Core, Effect, Entry, Ticket};
use crate::engine::{Active, Answer, CommitFailure, Input, RefusedInput, ReplyId};
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::store::{Advance, Outcome};
use crate::workflow::ReplayFault;

impl Core {
    pub(super) fn committed(&mut self, ticket: Ticket, outcome: Result<Outcome, CommitFailure>) {
        match self.awaited.remove(&ticket) {
            None => {}
            Some(Awaited::Advance(key)) => self.advanced(&key, outcome),
            Some(Awaited::Deposit { reply }) => self.deposited(reply, &outcome),
            Some(Awaited::LateStart { reply, active }) => self.late_started(reply, *active, outcome),
            Some(Awaited::RequestedStart { key, active }) => self.request_settled(&key, active.map(|active| *active), outcome),
            // One that was not noted is found again by the next scan.
            Some(Awaited::Refusal) => {}
        }
    }

    fn advanced(&mut self, key: &WorkflowKey, outcome: Result<Outcome, CommitFailure>) {
        let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
        let Some(committing) = work.commit.take() else { return };
        match outcome {
            Ok(Outcome::Advanced) => self.transition_stored(key, committing),
            Ok(Outcome::UnreadInbox) => self.read_again(key, committing.inputs),
            // Its tombstone went meanwhile, as nothing waited for it any more.
            Ok(Outcome::Stale) if !work.active.row.status.is_open() && !committing.row_changed => {
                self.read_again(key, committing.inputs);
            }
            Ok(Outcome::NotOwned) => {
                work.commit = Some(committing);
                self.lose(key);
            }
            Ok(other) => {
                // The fence should have made this impossible: somebody else wrote this execution.
                self.effects.push(Effect::Fatal(format!("{key}: the store answered {other:?} to the owner's transition")));
            }
            Err(CommitFailure::NotApplied) => {
                let (waited_for, kept): (Vec<_>, Vec<_>) =
                    committing.inputs.into_iter().partition(|input| input.reply().is_some());
                for reply in waited_for.iter().filter_map(Input::reply) {
                    self.refuse_unavailable(reply);
                }
                self.read_later(key, kept);
            }
            Err(CommitFailure::Rejected(reason)) => self.poisoned(key, committing, reason),
        }
    }

    fn transition_stored(&mut self, key: &WorkflowKey, committing: Committing) {
        if committing.asks_for_a_person
            && let Some(Entry::AtWork(work)) = self.entries.get(key)
        {
            report_attention(&work.active);
        }
        self.effects.push(Effect::Changed(key.clone()));
        for (reply, answer) in committing.answers {
            self.reply(reply, answer);
        }
        for active in committing.spawned {
            self.effects.push(Effect::Changed(active.row.key.clone()));
            self.adopt_if_ours(active);
        }
        if committing.kind == CommitKind::Block {
            // Whatever came meanwhile finds it blocked, or healed, when it is read again.
            let Some(Entry::AtWork(work)) = self.entries.get_mut(key) else { return };
            let mut queue = std::mem::take(&mut work.queue);
            queue.retain(|input| !matches!(input, Input::Recover | Input::Due));
            let wake_at = work.active.row.wake_at;
            self.forget(key);
            if let Some(wake_at) = wake_at {
                self.horizon.hint(wake_at, key, self.now);
            }
            if !queue.is_empty() {
                self.begin_loading(key.clone(), queue);
            }
            return;
        }
        self.begin_calls(key);
        self.drive(key);
    }

    /// The memory of the execution is ahead of what was stored: it is read again and the inputs are folded anew.
    fn read_again(&mut self, key: &WorkflowKey, mut inputs: Vec<Input>) {
        if let Some(Entry::AtWork(work)) = self.forget(key) {
            inputs.extend(work.queue);
        }
        inputs.retain(|input| !matches!(input, Input::Inbox(_) | Input::Recover | Input::Due));
        self.begin_loading(key.clone(), inputs);
    }

    fn read_later(&mut self, key: &WorkflowKey, inputs: Vec<Input>) {
        self.read_again(key, inputs);
        self.to_load.retain(|waiting| waiting != key);
        self.later.insert((self.now.saturating_add(RETRY_AFTER_FAILURE), key.clone()));
    }

    /// The transition can never be stored: a minimal one takes its place, and the stored signals in it are held.
    fn poisoned(&mut self, key: &WorkflowKey, committing: Committing, reason: String) {
        if committing.kind == CommitKind::Block {
            self.effects.push(Effect::Fatal(format!("{key}: not even the minimal transition can be stored: {reason}")));
            return;
        }
        if committing.inputs.len() > 1 || committing.consumed.len() > 1 {
            // Of what it took in together, one may be to blame.
            self.read_again(key, committing.inputs);
            self.careful.insert(key.clone());
            return;
        }
        for reply in committing.inputs.iter().filter_map(Input::reply) {
            self.reply(reply, Answer::Refused(RefusedInput::Rejected));
        }
        let Some(Entry::AtWork(work)) = self.forget(key) else { return };
        let AtWork { mut active, queue, .. } = *work;
        let fault = ReplayFault::History(format!("its next transition cannot be stored: {reason}"));
        tracing::error!(
            workflow.type = key.workflow_type(), workflow.id = key.id(), error.type = "rejected",
            "transition rejected by the store; the execution is blocked, or its late signals are held"
        );
        // The row that was rejected is in memory only.
        if let Some(before) = committing.before {
            active.row = *before;
        }
        active.machine = None;
        // What has ended is not reopened: its signals are held, and that is all.
        let is_over = !committing.row_changed && !active.row.status.is_open();
        let row = (!is_over).then(|| Active::blocked_row(&active.row, &fault, self.now));
        let advance = Advance {
            key: key.clone(),
            shard: active.row.shard,
            run_id: active.row.run_id,
            rev: active.row.rev,
            record: None,
            row: row.clone(),
            consume: Vec::new(),
            hold: committing.consumed,
            spawn: Vec::new(),
            emit: Vec::new(),
            guard_inbox: false,
        };
        if let Some(row) = &row {
            active.apply_row(row);
        }
        self.held_by_shard[usize::from(active.row.shard)] += 1;
        self.entries.insert(key.clone(), Entry::AtWork(Box::new(AtWork { active, queue, commit: None })));
        point(Point::BlockUncommitted);
        self.commit(key, advance, Committing::of(CommitKind::Block));
    }

    fn deposited(&mut self, reply: ReplyId, outcome: &Result<Outcome, CommitFailure>) {
        let answer = match outcome {
            Ok(Outcome::Deposited) => {
                point(Point::DepositUntold);
                Answer::Buffered
            }
            Ok(Outcome::Duplicate) => Answer::Duplicate,
            Ok(Outcome::Conflict) => Answer::Refused(RefusedInput::SignalConflict),
            Ok(Outcome::InboxFull) => Answer::Refused(RefusedInput::TooManySignals),
            Err(CommitFailure::Rejected(_)) => Answer::Refused(RefusedInput::Rejected),
            Ok(_) | Err(_) => Answer::Refused(RefusedInput::Unavailable),
        };
        self.reply(reply, answer);
    }

    fn late_started(&mut self, reply: Option<ReplyId>, active: Active, outcome: Result<Outcome, CommitFailure>) {
        let answer = match outcome {
            Ok(Outcome::Started { .. }) => {
                self.effects.push(Effect::Changed(active.row.key.clone()));
                self.adopt(active);
                Answer::Late
            }
            Ok(Outcome::Exists(other)) if other.request_hash == active.row.request_hash => Answer::Duplicate,
            Ok(Outcome::Exists(_)) => Answer::Refused(RefusedInput::SignalConflict),
            Err(CommitFailure::Rejected(_)) => Answer::Refused(RefusedInput::Rejected),
            Ok(_) | Err(_) => Answer::Refused(RefusedInput::Unavailable),
        };
        if let Some(reply) = reply {
            self.reply(reply, answer);
        }
    }
}

/// One line for each step that waits for a person: what an alert on the log looks for.
fn report_attention(active: &Active) {
    for (number, activity) in &active.folded.activities {
        let error_type = match (&activity.attention, &activity.by_hand) {
            (Some((_, failure)), _) => failure.error_type.as_str(),
            (None, Some(_)) => "by-hand",
            (None, None) => continue,
        };
        tracing::warn!(
            workflow.type = active.row.key.workflow_type(), workflow.id = active.row.key.id(), run.id = %active.row.run_id,
            activity.name = activity.name, event.number = number, error.type = error_type,
            "a step waits for a person"
        );
    }
}
