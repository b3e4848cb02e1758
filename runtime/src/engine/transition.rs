//! One transition of one execution: inputs in, events and commands out. Pure: time and randomness are arguments.

use super::active::{Active, Registries};
use super::attempt::{AfterFailure, after_failure, after_recovery};
use super::notes::AttemptNote;
use super::signal::{SignalCheck, check_against, is_readable, report_held, signal_of};
use super::start::Start;
use super::{Answer, Input, OperatorAction, RefusedInput, ReplyId};
use crate::activity::ActivityFailure;
use crate::fault::{Bug, planted, recall, remember};
use crate::history::{EventKind, FailureClass};
use crate::id::RunId;
use crate::payload::{InvalidField, Payload};
use crate::replay::{Machine, UnreadSignal};
use crate::store::{Advance, InboxRow, NewExecution};
use crate::time::Timestamp;
use crate::workflow::{LateStart, Lateness, ReplayFault, SignalView};

/// The most inputs that are folded into one transition.
pub(crate) const INPUTS_PER_TRANSITION_MAX: usize = 100;
/// A transition that has taken in so many bytes takes in no more; the rest goes into the next one.
pub(crate) const BYTES_PER_TRANSITION_MAX: usize = 256 * 1024;
/// The most signals of one execution; above it they are answered 429.
pub(crate) const SIGNALS_PER_EXECUTION_MAX: usize = 1_000;
/// The most events of one execution above which no signal is taken any more.
pub(crate) const EVENTS_PER_EXECUTION_MAX: u64 = 10_000;

/// What a transition needs besides the execution.
pub(crate) struct Step<'a> {
    pub(crate) code: &'a Registries,
    pub(crate) now: Timestamp,
    pub(crate) random: &'a mut dyn FnMut() -> u64,
}

/// What a transition comes to: one write, and what may be said and done once it is durable.
pub(crate) struct Draft {
    pub(crate) advance: Option<Advance>,
    pub(crate) answers: Vec<(ReplyId, Answer)>,
    /// Executions that are created with it.
    pub(crate) spawned: Vec<Active>,
    /// Inputs for which there was no room, or which came behind the end.
    pub(crate) left: Vec<Input>,
}

/// What a transition takes with it besides its events.
struct Taken {
    consume: Vec<String>,
    hold: Vec<String>,
    spawn: Vec<NewExecution>,
    fired: bool,
}

impl Active {
    /// Folds `inputs` into one transition.
    ///
    /// # Errors
    /// A fault of the workflow's code; this `Active` is then of no further use, and nothing of it must be stored.
    pub(crate) fn transition(&mut self, inputs: Vec<Input>, step: &mut Step<'_>) -> Result<Draft, ReplayFault> {
        self.begin(step.now);
        let mut draft = Draft { advance: None, answers: Vec::new(), spawned: Vec::new(), left: Vec::new() };
        let (mut consume, mut hold) = (Vec::new(), Vec::new());
        if planted(Bug::OnePollForTwo) && inputs.len() > 1 {
            remember("one poll for two", "skip".into());
        }
        let mut fired = false;
        let mut bytes = 0;
        let mut behind = Vec::new();
        for (position, input) in inputs.into_iter().enumerate() {
            let is_full = position >= INPUTS_PER_TRANSITION_MAX || bytes >= BYTES_PER_TRANSITION_MAX;
            bytes += input.bytes();
            if self.folded.closing.is_some() || is_full {
                match input {
                    // A stored signal behind the end is late in this very commit: the end would otherwise be refused for it.
                    Input::Inbox(row) if self.folded.closing.is_some() => match self.check_behind(&row, step.code) {
                        None | Some(SignalCheck::Conflict) => hold.push(row.signal_id),
                        Some(SignalCheck::Duplicate) => consume.push(row.signal_id),
                        Some(SignalCheck::New) => {
                            consume.push(row.signal_id.clone());
                            behind.push(row);
                        }
                    },
                    input => draft.left.push(input),
                }
                continue;
            }
            match input {
                Input::Recover => self.recover(step)?,
                Input::Due => fired |= self.fall_due(step)?,
                Input::LetGo => self.let_go(step.now),
                Input::Attempt { number, outcome, sends } => self.end_attempt(number, outcome, sends, step)?,
                Input::Inbox(row) if !is_readable(step.code, &row) => hold.push(row.signal_id),
                Input::Inbox(row) => self.take_inbox(row, step.code, &mut consume, &mut hold)?,
                Input::Signal { signal, reply } => {
                    let answer = self.take_signal(&signal, step.code)?;
                    draft.answers.push((reply, answer));
                }
                Input::Cancel { reason, actor, reply } => {
                    let repeated = self.folded.cancel_requested;
                    if !repeated {
                        self.push(EventKind::CancelRequested { reason, actor })?;
                    }
                    draft.answers.push((reply, if repeated { Answer::Duplicate } else { Answer::Applied }));
                }
                Input::Terminate { reason, actor, reply } => {
                    self.notes.blocked = None;
                    self.push(EventKind::WorkflowTerminated { reason, actor })?;
                    draft.answers.push((reply, Answer::Applied));
                }
                Input::Operate { number, action, reason, actor, reply } => {
                    let answer = self.operate(number, action, reason, actor, step)?;
                    draft.answers.push((reply, answer));
                }
            }
        }
        let spawn = self.hand_over_unread(behind, step, &mut draft.spawned)?;
        draft.advance = self.seal(Taken { consume, hold, spawn, fired }, step);
        Ok(draft)
    }

    /// The write, unless nothing changed.
    fn seal(&mut self, taken: Taken, step: &Step<'_>) -> Option<Advance> {
        let now = step.now;
        let Taken { consume, hold, spawn, fired } = taken;
        let closes = self.folded.closing.is_some();
        let rev = self.row.rev;
        let emit = self.emitted(step.code);
        let record = self.take_record();
        let mut row = self.next_row(now);
        if planted(Bug::EarlyTimerDropped) && recall("looked at too early") == Some(self.row.key.to_string()) {
            row.wake_at = row.wake_at.filter(|wake_at| *wake_at <= now);
        }
        let row = (!self.is_row(&row)).then_some(row);
        if let Some(row) = &row {
            self.apply_row(row);
        }
        if record.is_none() && row.is_none() && consume.is_empty() && hold.is_empty() {
            return None;
        }
        Some(Advance {
            key: self.row.key.clone(),
            shard: self.row.shard,
            run_id: self.row.run_id,
            rev,
            record,
            row,
            consume,
            hold,
            spawn,
            emit,
            // Without its code an execution takes no signal up: those that wait are late ones after its end.
            guard_inbox: (fired || (closes && self.machine.is_some())) && !planted(Bug::CloseIgnoresInbox),
        })
    }

    /// Fires what is due and begins attempts whose time has come. Tells whether a timer fired.
    fn fall_due(&mut self, step: &mut Step<'_>) -> Result<bool, ReplayFault> {
        let mut fired = false;
        // One at a time: what one timer sets off may cancel the next.
        while self.folded.closing.is_none() {
            let due = self.folded.timers.iter().filter(|(_, timer)| timer.fire_at <= step.now);
            let Some((_, timer)) = due.map(|(number, timer)| (timer.fire_at, *number)).min() else { break };
            self.push(EventKind::TimerFired { timer })?;
            fired = true;
        }
        if self.folded.closing.is_some() {
            return Ok(fired);
        }
        if planted(Bug::EarlyTimerDropped) {
            remember("looked at too early", if fired { String::new() } else { self.row.key.to_string() });
        }
        for note in self.notes.activities.values_mut() {
            if note.next_at.is_some_and(|due| due <= step.now) {
                note.begin(step.now);
            }
        }
        Ok(fired)
    }

    /// Begins attempts that wait behind a gate. Those whose gate holds them back are parked again.
    fn let_go(&mut self, now: Timestamp) {
        let waiting = self.notes.activities.values_mut().filter(|note| note.gate.is_some());
        waiting.for_each(|note| note.begin(now));
    }

    /// Notes attempts that another process had begun as ended with an unknown outcome.
    fn recover(&mut self, step: &mut Step<'_>) -> Result<(), ReplayFault> {
        let pending: Vec<u64> = self.folded.activities.keys().copied().collect();
        for number in pending {
            let Some(activity) = self.folded.activities.get(&number) else { continue };
            let note = self.notes.activities.get(&number);
            let idle = activity.by_hand.is_some() || activity.attention.is_some() || self.running.contains(&number);
            if idle || note.is_some_and(|note| !note.is_under_way()) {
                continue;
            }
            let note = note.cloned().unwrap_or_else(|| AttemptNote::first(activity.since));
            let options = self.options(step.code, number);
            let outcome = after_recovery(note.clone(), &options, activity.since, step.now, (step.random)());
            self.settle_failure(number, note.attempts, note.sends + 1, outcome)?;
        }
        Ok(())
    }

    fn end_attempt(
        &mut self,
        number: u64,
        outcome: Result<Payload, ActivityFailure>,
        sends: u32,
        step: &mut Step<'_>,
    ) -> Result<(), ReplayFault> {
        self.running.remove(&number);
        let Some(activity) = self.folded.activities.get(&number) else { return Ok(()) };
        if activity.attention.is_some() {
            return Ok(());
        }
        let since = activity.since;
        let mut note = self.notes.activities.get(&number).cloned().unwrap_or_else(|| AttemptNote::first(since));
        note.sends = note.sends.saturating_add(sends);
        let (attempts, sends) = (note.attempts, note.sends);
        match outcome {
            Ok(result) => {
                self.push(EventKind::ActivityCompleted { activity: number, result, attempts, sends })?;
                Ok(())
            }
            Err(failure) => {
                let spent = if failure.failure.class == FailureClass::Neutral { attempts.saturating_sub(1) } else { attempts };
                let options = self.options(step.code, number);
                let outcome = after_failure(note, failure, &options, since, step.now, (step.random)());
                self.settle_failure(number, spent, sends, outcome)
            }
        }
    }

    fn settle_failure(&mut self, number: u64, attempts: u32, sends: u32, outcome: AfterFailure) -> Result<(), ReplayFault> {
        match outcome {
            AfterFailure::Wait(note) => {
                self.notes.activities.insert(number, note);
            }
            AfterFailure::Fail(failure) => {
                self.push(EventKind::ActivityFailed { activity: number, failure, attempts, sends })?;
            }
            AfterFailure::NeedAttention(failure) => {
                self.notes.activities.remove(&number);
                self.push(EventKind::AttentionRequested { activity: number, failure, attempts, sends })?;
            }
        }
        Ok(())
    }

    fn operate(
        &mut self,
        number: u64,
        action: OperatorAction,
        reason: String,
        actor: String,
        step: &mut Step<'_>,
    ) -> Result<Answer, ReplayFault> {
        let Some(activity) = self.folded.activities.get(&number) else {
            let known = number <= self.folded.last_event;
            return Ok(Answer::Refused(if known { RefusedInput::NotPending } else { RefusedInput::NoSuchActivity }));
        };
        let by_hand = activity.by_hand.is_some();
        let name = activity.name.clone();
        match action {
            OperatorAction::Retry => {
                let note = self.notes.activities.get(&number);
                let waits = activity.attention.is_some() || note.is_some_and(|note| !note.is_under_way());
                if !by_hand && !waits {
                    return Ok(Answer::Refused(RefusedInput::UnderWay));
                }
                let (attempts, sends) = match note {
                    Some(note) => (note.attempts, note.sends),
                    None => activity.spent_before,
                };
                self.push(EventKind::ActivityRetried { activity: number, reason, actor })?;
                if !by_hand && self.folded.activities.contains_key(&number) {
                    // The policy's attempts and time begin anew; the count goes on.
                    let first_at = Some(step.now);
                    let note =
                        AttemptNote { attempts: attempts + 1, before_retry: attempts, sends, first_at, ..AttemptNote::default() };
                    self.notes.activities.insert(number, note);
                }
            }
            OperatorAction::Resolve(result) => {
                if let Err(error) = self.check_result(step.code, &name, by_hand, &result) {
                    return Ok(Answer::Refused(RefusedInput::InvalidResult(error)));
                }
                self.push(EventKind::ActivityResolved { activity: number, result, reason, actor })?;
            }
            OperatorAction::Skip => {
                self.push(EventKind::ActivitySkipped { activity: number, reason, actor })?;
            }
        }
        Ok(Answer::Applied)
    }

    /// What a stored signal behind the end is to those that were received; `None` when it cannot be read.
    fn check_behind(&self, row: &InboxRow, code: &Registries) -> Option<SignalCheck> {
        let workflow = code.workflows.get(self.row.key.workflow_type()).map(AsRef::as_ref);
        let check = || check_against(&signal_of(row.clone(), workflow), &self.folded.signals, workflow);
        let checked = is_readable(code, row).then(check);
        if checked == Some(SignalCheck::Conflict) {
            report_held(&self.row.key, row);
        }
        checked
    }

    /// Signals that the workflow ended without taking, and stored ones behind its end, go the way of late ones, in the same
    /// commit.
    fn hand_over_unread(
        &mut self,
        behind: Vec<InboxRow>,
        step: &mut Step<'_>,
        spawned: &mut Vec<Active>,
    ) -> Result<Vec<NewExecution>, ReplayFault> {
        if self.folded.closing.is_none() {
            return Ok(Vec::new());
        }
        let mut late = self.machine.as_ref().map(Machine::unread_signals).unwrap_or_default();
        late.extend(behind.into_iter().map(|row| UnreadSignal {
            name: row.name,
            signal_id: row.signal_id,
            payload: row.payload,
        }));
        let mut spawn: Vec<NewExecution> = Vec::new();
        for unread in late {
            let view = SignalView {
                name: &unread.name,
                signal_id: &unread.signal_id,
                payload: &unread.payload,
                lateness: Lateness::AfterTheEnd,
                input: self.input.as_ref(),
            };
            let (new, active) = late_execution(step, &self.row.key, self.row.shard, &view)?;
            if spawn.iter().all(|other| other.key != new.key) {
                spawn.push(new);
                spawned.push(active);
            }
        }
        Ok(spawn)
    }

    fn check_result(&self, code: &Registries, name: &str, by_hand: bool, result: &Payload) -> Result<(), InvalidField> {
        if by_hand {
            let workflow = code.workflows.get(self.row.key.workflow_type());
            return workflow.and_then(|workflow| workflow.by_hand_step(name)).map_or(Ok(()), |step| step.check(result));
        }
        code.activities.get(name).map_or(Ok(()), |activity| activity.check_output(result))
    }
}

/// The first transition of the execution that acts on a late signal.
pub(crate) fn late_execution(
    step: &mut Step<'_>,
    key: &crate::id::WorkflowKey,
    shard: u16,
    signal: &SignalView<'_>,
) -> Result<(NewExecution, Active), ReplayFault> {
    let workflow = step.code.workflows.get(key.workflow_type());
    let Some(workflow) = workflow else { return Err(ReplayFault::UnknownType(key.workflow_type().to_owned())) };
    let LateStart { workflow_type, subject, input } = workflow.late_signal(key, signal);
    // The same signal delivered again is the same request, whatever else it says.
    let identity = workflow.signal(signal.name).and_then(|declared| declared.check(signal.payload).ok());
    let request_hash = identity.map_or_else(|| signal.payload.canonical_hash(), |checked| checked.identity);
    let start = Start {
        key: key.derived(workflow_type, &subject),
        shard,
        run_id: new_run_id(step.now, step.random),
        request_hash,
        input,
        start_at: None,
        attributes: Default::default(),
        traceparent: None,
    };
    Active::start(step.code, start)
}

/// A run id for an execution that begins now.
pub(crate) fn new_run_id(now: Timestamp, random: &mut dyn FnMut() -> u64) -> RunId {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&random().to_le_bytes());
    bytes[8..].copy_from_slice(&random().to_le_bytes()[..2]);
    RunId::new(u64::try_from(now.as_millis()).unwrap_or(0), bytes)
}
