//! What reaches an execution after its end, or one that nobody ever started.

use super::{Awaited, CommitKind, Committing, Core, Effect, Entry};
use crate::engine::{
    Active, Answer, CommitRequest, IncomingSignal, Input, RefusedInput, ReplyId, ReplyTo, SignalCheck, Step, is_readable,
    late_execution, report_held, signal_of,
};
use crate::fault::{Bug, Point, planted, point};
use crate::id::WorkflowKey;
use crate::store::{Advance, InboxRow, NewExecution, Refuse, Write};
use crate::workflow::{Lateness, SignalView};

impl Core {
    pub(super) fn drive_closed(&mut self, key: &WorkflowKey, inputs: Vec<Input>) {
        let mut rows = Vec::new();
        for input in inputs {
            match input {
                Input::Signal { signal, reply } => self.signal_closed(key, &signal, reply),
                Input::Cancel { reply, .. } | Input::Terminate { reply, .. } => self.reply(reply, Answer::Late),
                Input::Operate { reply, .. } => {
                    let run_id = self.at_work(key).map(|active| active.row.run_id);
                    let refused = run_id.map_or(RefusedInput::NotFound, RefusedInput::Closed);
                    self.reply(reply, Answer::Refused(refused));
                }
                Input::Inbox(row) => rows.push(row),
                Input::Recover | Input::Due | Input::LetGo | Input::Attempt { .. } => {}
            }
        }
        if rows.is_empty() {
            self.rest(key);
        } else {
            self.route_inbox(key, rows);
        }
    }

    pub(super) fn at_work(&self, key: &WorkflowKey) -> Option<&Active> {
        match self.entries.get(key) {
            Some(Entry::AtWork(work)) => Some(&work.active),
            _ => None,
        }
    }

    /// A signal after the end: a repeated one is told so, a new one goes to the type's late handler.
    fn signal_closed(&mut self, key: &WorkflowKey, signal: &IncomingSignal, reply: ReplyId) {
        let Some(active) = self.at_work(key) else { return };
        let workflow = self.code.workflows.get(key.workflow_type());
        match active.check(signal, workflow.map(AsRef::as_ref)) {
            Some(SignalCheck::Duplicate) => return self.reply(reply, Answer::Duplicate),
            Some(SignalCheck::Conflict) => return self.reply(reply, Answer::Refused(RefusedInput::SignalConflict)),
            Some(SignalCheck::New) if planted(Bug::LateSignalNotFound) => {
                return self.reply(reply, Answer::Refused(RefusedInput::NotFound));
            }
            Some(SignalCheck::New) => {}
            // It might be one that was acted on.
            None => return self.reply(reply, Answer::Refused(RefusedInput::Blocked)),
        }
        let (input, shard) = (active.input.clone(), active.row.shard);
        let view = SignalView {
            name: &signal.name,
            signal_id: &signal.signal_id,
            payload: &signal.payload,
            lateness: Lateness::AfterTheEnd,
            input: input.as_ref(),
        };
        match self.late(key, shard, &view) {
            Some((new, active)) => self.start_late(new, active, Some(reply)),
            None => self.reply(reply, Answer::Refused(RefusedInput::Blocked)),
        }
    }

    fn late(&mut self, key: &WorkflowKey, shard: u16, signal: &SignalView<'_>) -> Option<(NewExecution, Active)> {
        let mut step = Step { code: &self.code, now: self.now, random: &mut *self.random };
        late_execution(&mut step, key, shard, signal)
            .inspect(|_| point(Point::LateSignalUncommitted))
            .inspect_err(|fault| {
                tracing::error!(
                    workflow.type = key.workflow_type(), workflow.id = key.id(), signal.name = signal.name, error = %fault,
                    "late signal not taken up; it is tried again"
                );
            })
            .ok()
    }

    fn start_late(&mut self, new: NewExecution, active: Active, reply: Option<ReplyId>) {
        let ticket = self.ticket(Awaited::LateStart { reply, active: Box::new(active) });
        self.effects.push(Effect::Commit(Box::new(CommitRequest { write: Write::Start(new), reply_to: ReplyTo::Core(ticket) })));
    }

    /// Stored signals of an execution that has ended: each goes to the late handler in the commit that removes its row.
    fn route_inbox(&mut self, key: &WorkflowKey, mut rows: Vec<InboxRow>) {
        if self.careful.contains(key) {
            // The others are found again by the next scan.
            rows.truncate(1);
        }
        let Some(active) = self.at_work(key) else { return };
        let (shard, run_id, rev) = (active.row.shard, active.row.run_id, active.row.rev);
        let input = active.input.clone();
        let workflow = self.code.workflows.get(key.workflow_type()).map(AsRef::as_ref);
        let checks: Vec<_> = rows.iter().map(|row| active.check(&signal_of(row.clone(), workflow), workflow)).collect();
        let (mut consume, mut hold) = (Vec::new(), Vec::new());
        let (mut spawn, mut spawned) = (Vec::<NewExecution>::new(), Vec::new());
        for (row, check) in rows.into_iter().zip(checks) {
            if !is_readable(&self.code, &row) {
                hold.push(row.signal_id);
                continue;
            }
            match check {
                Some(SignalCheck::Duplicate) => {}
                // It might be one that was acted on. A program that can read what is left may tell.
                None => continue,
                Some(SignalCheck::Conflict) => {
                    report_held(key, &row);
                    hold.push(row.signal_id);
                    continue;
                }
                Some(SignalCheck::New) => {
                    let lateness = Lateness::AfterTheEnd;
                    let view = SignalView {
                        name: &row.name,
                        signal_id: &row.signal_id,
                        payload: &row.payload,
                        lateness,
                        input: input.as_ref(),
                    };
                    let Some((new, active)) = self.late(key, shard, &view) else { continue };
                    if spawn.iter().all(|other| other.key != new.key) {
                        spawn.push(new);
                        spawned.push(active);
                    }
                }
            }
            consume.push(row.signal_id);
        }
        if consume.is_empty() && hold.is_empty() {
            self.rest(key);
            return;
        }
        let consumed = consume.clone();
        let advance = Advance {
            key: key.clone(),
            shard,
            run_id,
            rev,
            record: None,
            row: None,
            consume,
            hold,
            spawn,
            emit: Vec::new(),
            guard_inbox: false,
        };
        let committing = Committing { spawned, consumed, row_changed: false, ..Committing::of(CommitKind::Transition) };
        self.commit(key, advance, committing);
    }

    /// A stored signal whose execution nobody started for too long: the late handler takes it up.
    pub(super) fn unclaimed(&mut self, row: InboxRow) {
        if self.draining || !self.shards.owns(&row.key) {
            return;
        }
        if !is_readable(&self.code, &row) {
            let refuse =
                Refuse { shard: row.shard, signal_id: Some(row.signal_id), reason: "it cannot be read".into(), key: row.key };
            let reply_to = ReplyTo::Core(self.ticket(Awaited::Refusal));
            self.effects.push(Effect::Commit(Box::new(CommitRequest { write: Write::Refuse(refuse), reply_to })));
            return;
        }
        let lateness = Lateness::NeverStarted { received_at: row.received_at };
        let view = SignalView { name: &row.name, signal_id: &row.signal_id, payload: &row.payload, lateness, input: None };
        let (key, shard) = (row.key.clone(), row.shard);
        if let Some((mut new, active)) = self.late(&key, shard, &view) {
            tracing::warn!(
                workflow.type = key.workflow_type(), workflow.id = key.id(), signal.name = row.name,
                "signal for an execution that was never started goes to the late handler"
            );
            new.consume = vec![(key, row.signal_id)];
            self.start_late(new, active, None);
        }
    }
}
