//! An execution at work: its row, what its history adds up to, and the machine that runs its workflow.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::attempt::effective;
use super::breaker::Breakers;
use super::notes::{BlockedNote, Notes};
use super::start::Start;
use super::tombstone::Tombstone;
use super::wake::wake_at;
use super::{BLOCKED_BACKOFF, Call};
use crate::activity::{ActivityContext, ActivityOptions, ActivityRegistry, StartCheck};
use crate::fault::{Bug, planted};
use crate::history::{Chain, Event, EventKind, Failure, FailureClass, Folded, Record, decode, encode};
use crate::outbox::SinkRegistry;
use crate::payload::Payload;
use crate::replay::Machine;
use crate::store::{Execution, InboxRow, Loaded, NewExecution, Parked, RowChange, Status};
use crate::time::Timestamp;
use crate::workflow::{ReplayFault, WorkflowRegistry};

/// The code that executions run.
#[derive(Clone, Default)]
pub struct Registries {
    /// By workflow type.
    pub workflows: WorkflowRegistry,
    /// By activity name.
    pub activities: ActivityRegistry,
    /// The breakers behind the activities, if there are any.
    pub breakers: Option<Breakers>,
    /// What is to be looked at before a node serves.
    pub start_checks: Vec<Arc<dyn StartCheck>>,
    /// Who is told of events.
    pub sinks: SinkRegistry,
}

/// An execution in memory. What it holds may be ahead of the store by the one transition that is being committed.
pub(crate) struct Active {
    pub(crate) row: Execution,
    pub(crate) folded: Folded,
    pub(crate) notes: Notes,
    /// Absent while the execution is blocked, and once it is closed.
    pub(crate) machine: Option<Machine>,
    pub(crate) traceparent: Option<String>,
    pub(crate) input: Option<Payload>,
    /// What is left of it, once it is retired; `None` also when that cannot be read.
    pub(crate) tombstone: Option<Tombstone>,
    /// Activities whose call this process has begun, or has queued.
    pub(crate) running: BTreeSet<u64>,
    chain: Chain,
    /// Events of the transition that is being built.
    pub(crate) pending: Vec<EventKind>,
    pending_at: Timestamp,
}

impl Active {
    /// Makes the first transition: pure, nothing is stored yet.
    pub(crate) fn start(code: &Registries, start: Start) -> Result<(NewExecution, Self), ReplayFault> {
        let now = start.run_id.created_at();
        let machine = Machine::new(&code.workflows, &start.key, start.run_id)?;
        let attributes = start.attributes.iter().map(|(name, (payload, _))| (name.clone(), payload.clone())).collect();
        let mut active = Self {
            row: Execution {
                key: start.key.clone(),
                shard: start.shard,
                run_id: start.run_id,
                status: Status::Running,
                wake_at: None,
                closed_at: None,
                rev: 0,
                request_hash: start.request_hash,
                needs_attention: false,
                attempts: Default::default(),
                retired: false,
            },
            folded: Folded::default(),
            notes: Notes::default(),
            machine: Some(machine),
            traceparent: start.traceparent.clone(),
            input: Some(start.input.clone()),
            tombstone: None,
            running: BTreeSet::new(),
            chain: Chain::beginning(start.run_id),
            pending: Vec::new(),
            pending_at: now,
        };
        active.push(EventKind::WorkflowStarted {
            input: start.input,
            start_at: start.start_at,
            attributes,
            traceparent: start.traceparent,
        })?;
        let row = active.next_row(now);
        active.apply_row(&row);
        active.row.rev = 0;
        let emit = active.emitted(code);
        let record = active.take_record().expect("a first transition has events");
        let new = NewExecution {
            key: start.key,
            shard: start.shard,
            run_id: start.run_id,
            request_hash: start.request_hash,
            record,
            row,
            attributes: start.attributes.into_iter().map(|(name, (_, value))| (name, value)).collect(),
            consume: Vec::new(),
            emit,
            requested: false,
        };
        Ok((new, active))
    }

    /// Takes up a stored execution. When it cannot be replayed, the fault comes with it and it has no machine.
    pub(crate) fn open(code: &Registries, loaded: Loaded) -> (Self, Vec<InboxRow>, Option<ReplayFault>) {
        let Loaded { execution: row, records, inbox, tombstone } = loaded;
        let mut fault = None;
        let (events, chain) = decode(row.run_id, &records).unwrap_or_else(|error| {
            fault = Some(ReplayFault::History(error.to_string()));
            (Vec::new(), Chain::beginning(row.run_id))
        });
        let notes = Notes::decode(&row.attempts).unwrap_or_else(|error| {
            fault = Some(ReplayFault::History(format!("the notes on its activities cannot be read: {error}")));
            Notes::default()
        });
        let tombstone = row.retired.then(|| Tombstone::decode(&tombstone)).transpose().unwrap_or_else(|error| {
            fault = Some(ReplayFault::History(error.to_string()));
            None
        });
        let mut folded = Folded::of(&events);
        if planted(Bug::DedupeInMemory) {
            folded.signals.clear();
        }
        let mut machine = None;
        if fault.is_none() && row.status.is_open() {
            match Machine::replay(&code.workflows, &row.key, row.run_id, &events) {
                Ok(replayed) => machine = Some(replayed),
                Err(found) => fault = Some(found),
            }
        }
        let (input, traceparent) = match events.first().map(|event| &event.kind) {
            Some(EventKind::WorkflowStarted { input, traceparent, .. }) => (Some(input.clone()), traceparent.clone()),
            _ => (None, None),
        };
        let active = Self {
            row,
            folded,
            notes,
            machine,
            traceparent,
            input,
            tombstone,
            running: BTreeSet::new(),
            chain,
            pending: Vec::new(),
            pending_at: Timestamp::default(),
        };
        (active, inbox, fault)
    }

    /// Begins a transition at `now`, or at the last recorded time when the clock was set back.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        debug_assert!(self.pending.is_empty(), "one transition at a time");
        self.pending_at = now.max(self.folded.last_at);
    }

    /// Records an event and, directly behind it, what the workflow asks for in answer.
    pub(crate) fn push(&mut self, kind: EventKind) -> Result<u64, ReplayFault> {
        let number = self.folded.last_event + 1;
        let event = Event { number, at: self.pending_at, kind };
        self.folded.apply(&event);
        let commands = match &mut self.machine {
            Some(machine) => machine.feed(&event)?,
            None => Vec::new(),
        };
        self.pending.push(event.kind);
        for (kind, number) in commands.into_iter().zip(number + 1..) {
            let event = Event { number, at: self.pending_at, kind };
            self.folded.apply(&event);
            self.pending.push(event.kind);
        }
        self.notes.activities.retain(|number, _| self.folded.activities.contains_key(number));
        Ok(number)
    }

    /// The time of the transition that is being built.
    pub(super) fn pending_at(&self) -> Timestamp {
        self.pending_at
    }

    /// The history row of the transition, if it has events.
    pub(crate) fn take_record(&mut self) -> Option<Record> {
        let kinds = std::mem::take(&mut self.pending);
        let first_event = self.folded.last_event + 1 - kinds.len() as u64;
        (!kinds.is_empty()).then(|| Record { first_event, bytes: encode(self.pending_at, &kinds, &mut self.chain) })
    }

    /// The row as it must be after the transition.
    pub(crate) fn next_row(&self, now: Timestamp) -> RowChange {
        use crate::history::Closing;
        let status = match self.folded.closing.as_ref().map(|(_, closing)| closing) {
            None if self.notes.blocked.is_some() => Status::Blocked,
            None => Status::Running,
            Some(Closing::Completed(_)) => Status::Completed,
            Some(Closing::Failed(_)) => Status::Failed,
            Some(Closing::Cancelled { .. }) => Status::Cancelled,
            Some(Closing::Terminated { .. }) => Status::Terminated,
        };
        RowChange {
            status,
            wake_at: wake_at(&self.folded, &self.notes, now, self.row.wake_at),
            closed_at: self.folded.closing.as_ref().map(|(at, _)| *at),
            needs_attention: self.folded.needs_attention(),
            attempts: if status.is_open() { self.notes.encode() } else { Default::default() },
            parked: if status == Status::Running { self.parked() } else { None },
        }
    }

    /// What its calls wait behind. Of several gates it is that of the call which waits the longest; when that one opens, all of
    /// them go. Whoever was sent as the probe and failed waits behind those that were not: one alone would spend its attempts.
    fn parked(&self) -> Option<Parked> {
        let waiting = self.notes.activities.iter().filter_map(|(number, note)| {
            let since = note.tried_at.unwrap_or(self.folded.activities.get(number)?.since);
            Some(Parked { gate: note.gate.clone()?, since })
        });
        waiting.min_by_key(|parked| parked.since)
    }

    /// Whether the stored row is already like that. What it is parked behind follows from the rest.
    pub(crate) fn is_row(&self, row: &RowChange) -> bool {
        self.row.status == row.status
            && self.row.wake_at == row.wake_at
            && self.row.closed_at == row.closed_at
            && self.row.needs_attention == row.needs_attention
            && self.row.attempts == row.attempts
    }

    /// Takes over a row change that is on its way to the store.
    pub(crate) fn apply_row(&mut self, row: &RowChange) {
        self.row.status = row.status;
        self.row.wake_at = row.wake_at;
        self.row.closed_at = row.closed_at;
        self.row.needs_attention = row.needs_attention;
        self.row.attempts = row.attempts.clone();
        self.row.rev += 1;
    }

    /// The row of an execution that a fault stopped, tried again later at growing gaps.
    pub(crate) fn blocked_row(stored: &Execution, fault: &ReplayFault, now: Timestamp) -> RowChange {
        let notes = Notes::decode(&stored.attempts).unwrap_or_default();
        let (since, tries) = notes.blocked.as_ref().map_or((now, 0), |blocked| (blocked.since, blocked.tries));
        let next_at = now.saturating_add(BLOCKED_BACKOFF.delay(tries + 1, 0));
        let failure = Failure::new(FailureClass::Permanent, fault.error_type(), fault.to_string());
        let blocked = BlockedNote { failure, since, tries: tries + 1, next_at };
        RowChange {
            status: Status::Blocked,
            wake_at: Some(next_at),
            closed_at: None,
            needs_attention: stored.needs_attention,
            attempts: Notes { blocked: Some(blocked), ..notes }.encode(),
            parked: None,
        }
    }

    /// Whether a timer or an attempt of it is due.
    pub(crate) fn has_due(&self, now: Timestamp) -> bool {
        self.next_due().is_some_and(|due| due <= now)
    }

    /// When its earliest timer or next attempt is due; for a blocked one, when it is tried again.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        if let Some(blocked) = &self.notes.blocked {
            return Some(blocked.next_at);
        }
        let timers = self.folded.timers.values().map(|timer| timer.fire_at);
        let attempts = self.notes.activities.values().filter_map(|note| note.next_at);
        timers.chain(attempts).min()
    }

    /// The options of a pending activity, with what the workflow says otherwise.
    pub(crate) fn options(&self, code: &Registries, number: u64) -> ActivityOptions {
        let name = self.folded.activities.get(&number).map(|activity| activity.name.as_str()).unwrap_or_default();
        let options = code.activities.get(name).map(|activity| activity.options()).unwrap_or_default();
        let call = self.machine.as_ref().map(|machine| machine.call_options(number)).unwrap_or_default();
        effective(options, &call)
    }

    /// Whether there are calls to be begun.
    pub(crate) fn has_calls(&self) -> bool {
        let idle = |number: &u64| self.notes.activities.get(number).is_some_and(|note| !note.is_under_way());
        let mut activities = self.folded.activities.iter();
        self.machine.is_some() && activities.any(|(number, activity)| activity.by_hand.is_none() && !idle(number))
    }

    /// The calls to be begun once what was recorded is durable: pending, noted as under way, not yet begun.
    pub(crate) fn calls_to_begin(&mut self, code: &Registries) -> Vec<Call> {
        let mut calls = Vec::new();
        if self.machine.is_none() || self.folded.closing.is_some() {
            return calls;
        }
        for (number, activity) in &self.folded.activities {
            let note = self.notes.activities.get(number);
            let under_way = note.is_none_or(|note| note.is_under_way());
            if activity.by_hand.is_some() || activity.attention.is_some() || !under_way || self.running.contains(number) {
                continue;
            }
            calls.push(Call {
                key: self.row.key.clone(),
                number: *number,
                name: activity.name.clone(),
                input: activity.input.clone(),
                options: self.options(code, *number),
                ctx: ActivityContext {
                    workflow: self.row.key.clone(),
                    run_id: self.row.run_id,
                    number: *number,
                    attempt: note.map_or(1, |note| note.attempts),
                    idempotency_key: match note.map_or(1, |note| note.attempts) {
                        attempt if attempt > 1 && planted(Bug::AttemptInKey) => {
                            format!("{}#attempt-{attempt}", activity.idempotency_key)
                        }
                        _ => activity.idempotency_key.clone(),
                    },
                    traceparent: self.traceparent.clone(),
                    scheduled_at: activity.since,
                    sends: Default::default(),
                },
            });
        }
        self.running.extend(calls.iter().map(|call| call.number));
        calls
    }
}
