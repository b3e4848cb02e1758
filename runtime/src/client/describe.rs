//! Describing one execution: its row, its history, what it waits for, the workflow's own account.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Client, ClientError};
use crate::engine::{AttemptNote, Notes, Tombstone};
use crate::history::{Closing, Event, EventKind, Failure, Folded};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::replay::Machine;
use crate::store::{AttributeValue, Loaded, Status, StoreError};
use crate::time::Timestamp;

/// The most linked executions that a description names.
const LINKS_MAX: usize = 100;

/// An execution, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Workflow type.
    #[serde(rename = "type")]
    pub workflow_type: String,
    /// Workflow id.
    pub id: String,
    /// The run.
    pub run_id: RunId,
    /// Where it stands.
    pub status: Status,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// When it is looked at next.
    pub wake_at: Option<Timestamp>,
    /// Search attributes.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// The input it was started with.
    pub input: Option<Payload>,
    /// What it returned.
    pub result: Option<Payload>,
    /// Why it failed, was stopped or is blocked.
    pub failure: Option<Failure>,
    /// The workflow's own account of where it stands.
    pub progress: Option<Payload>,
    /// Whether a step waits for a person.
    pub needs_attention: bool,
    /// Executions that act for the same order.
    pub linked: Vec<Link>,
    /// Activities without outcome.
    pub pending_activities: Vec<PendingActivityView>,
    /// Timers that are armed.
    pub pending_timers: Vec<PendingTimerView>,
    /// Number of its last event.
    pub last_event: u64,
    /// When its history was removed by retention, with its input, attributes and progress; `None` while it is there.
    pub retired_at: Option<Timestamp>,
    /// Why another start under this id, which was asked for inside the store, is not made. Present if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_start: Option<String>,
}

/// Names a linked execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Link {
    /// Workflow type.
    #[serde(rename = "type")]
    pub workflow_type: String,
    /// Workflow id.
    pub id: String,
}

/// Where an activity stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActivityState {
    /// Asked for; its first attempt has not been sent yet, as far as is known.
    Scheduled,
    /// An attempt is under way.
    Running,
    /// Waits for its next attempt.
    BackingOff,
    /// Waits behind a breaker or limit, at no cost of attempts.
    Parked,
    /// Waits for a person.
    NeedsAttention,
}

/// An activity without outcome.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingActivityView {
    /// Number of its `ActivityScheduled`.
    pub number: u64,
    /// Name of the activity.
    pub name: String,
    /// Where it stands.
    pub state: ActivityState,
    /// Attempts spent or under way; 0 while it is parked before the first.
    pub attempt: u32,
    /// The most attempts that its policy allows.
    pub max_attempts: Option<u32>,
    /// How the last attempt failed, or why a person is needed.
    pub last_failure: Option<Failure>,
    /// When the next attempt is due.
    pub next_attempt_at: Option<Timestamp>,
    /// What holds it back.
    pub parked_by: Option<String>,
    /// Since when it stands so.
    pub since: Timestamp,
    /// The key that every attempt sends.
    pub idempotency_key: String,
    /// Its input.
    pub input: Payload,
}

/// A timer that is armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingTimerView {
    /// Number of its `TimerStarted`.
    pub number: u64,
    /// What the workflow calls it.
    pub name: Option<String>,
    /// When it is due.
    pub fire_at: Timestamp,
}

impl Client {
    /// Describes an execution.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe(&self, workflow_type: &str, id: &str) -> Result<Description, ClientError> {
        let key = self.key(workflow_type, id)?;
        let (loaded, events) = self.read(&key).await?;
        let attributes = self.engine().store().attributes(&key).await?.into_iter().collect();
        let linked = self.linked(&key).await?;
        let requested = self.engine().store().requested_start(&key).await?;
        let refused_start = requested.and_then(|requested| requested.refused);
        Ok(Description { refused_start, ..self.description(&key, &loaded, &events, attributes, linked)? })
    }

    /// The executions that act for the same order: those derived from it, and the one that they were derived from.
    async fn linked(&self, key: &WorkflowKey) -> Result<Vec<Link>, ClientError> {
        let store = self.engine().store();
        let mut linked = store.derived(key.root_id(), LINKS_MAX).await?;
        if key.root_id() != key.id() {
            for workflow_type in self.engine().code().workflows.types() {
                let root = WorkflowKey::new(workflow_type, key.root_id());
                if store.find(&root).await?.is_some() {
                    linked.push(root);
                }
            }
        }
        linked.retain(|other| other != key);
        let link = |key: WorkflowKey| Link { workflow_type: key.workflow_type().to_owned(), id: key.id().to_owned() };
        Ok(linked.into_iter().map(link).collect())
    }

    fn description(
        &self,
        key: &WorkflowKey,
        loaded: &Loaded,
        events: &[Event],
        attributes: BTreeMap<String, AttributeValue>,
        linked: Vec<Link>,
    ) -> Result<Description, ClientError> {
        let row = &loaded.execution;
        let notes = Notes::decode(&row.attempts).map_err(|error| StoreError::Corrupt(format!("{key}: {error}")))?;
        let folded = Folded::of(events);
        let tombstone = row.retired.then(|| Tombstone::decode(&loaded.tombstone)).transpose();
        let tombstone = tombstone.map_err(|error| StoreError::Corrupt(format!("{key}: {error}")))?;
        let machine = match &tombstone {
            Some(_) => None,
            None => Machine::replay(&self.engine().code().workflows, key, row.run_id, events).ok(),
        };
        let input = match events.first().map(|event| &event.kind) {
            Some(EventKind::WorkflowStarted { input, .. }) => Some(input.clone()),
            _ => None,
        };
        let closing = match &tombstone {
            Some(tombstone) => tombstone.closing(),
            None => folded.closing.as_ref().map(|(_, closing)| closing.clone()),
        };
        let (result, failure) = match closing {
            Some(Closing::Completed(result)) => (Some(result), None),
            Some(Closing::Failed(failure)) => (None, Some(failure)),
            Some(Closing::Cancelled { reason }) => (None, Some(ended("cancelled", &reason))),
            Some(Closing::Terminated { reason }) => (None, Some(ended("terminated", &reason))),
            None => (None, notes.blocked.as_ref().map(|blocked| blocked.failure.clone())),
        };
        Ok(Description {
            workflow_type: key.workflow_type().to_owned(),
            id: key.id().to_owned(),
            run_id: row.run_id,
            status: row.status,
            started_at: row.run_id.created_at(),
            closed_at: row.closed_at,
            wake_at: row.wake_at,
            attributes,
            input,
            result,
            failure,
            progress: machine.as_ref().and_then(Machine::progress),
            needs_attention: row.needs_attention,
            linked,
            pending_activities: self.pending_activities(&folded, &notes, machine.as_ref()),
            pending_timers: pending_timers(&folded),
            last_event: tombstone.as_ref().map_or(folded.last_event, |tombstone| tombstone.last_event),
            retired_at: tombstone.map(|tombstone| tombstone.retired_at),
            refused_start: None,
        })
    }

    fn pending_activities(&self, folded: &Folded, notes: &Notes, machine: Option<&Machine>) -> Vec<PendingActivityView> {
        let registry = &self.engine().code().activities;
        let view = |(number, activity): (&u64, &crate::history::PendingActivity)| {
            let options = registry.get(&activity.name).map(|activity| activity.options()).unwrap_or_default();
            let call = machine.map(|machine| machine.call_options(*number)).unwrap_or_default();
            let retry = call.retry.unwrap_or(options.retry);
            let note = notes.activities.get(number);
            let by_hand = activity.by_hand.as_ref().map(|why| ended("by-hand", why));
            let attention = activity.attention.as_ref().map(|(_, failure)| failure.clone()).or(by_hand);
            let first = AttemptNote::first(activity.since);
            let attempt = if attention.is_some() { activity.spent_before.0 } else { note.unwrap_or(&first).attempts };
            PendingActivityView {
                number: *number,
                name: activity.name.clone(),
                state: state(attention.is_some(), note),
                attempt,
                max_attempts: retry.attempts,
                last_failure: attention.or_else(|| note.and_then(|note| note.last_failure.clone())),
                next_attempt_at: note.and_then(|note| self.next_attempt_at(note)),
                parked_by: note.and_then(|note| note.parked_by.clone()),
                since: activity.attention.as_ref().map_or(activity.since, |(since, _)| *since),
                idempotency_key: activity.idempotency_key.clone(),
                input: activity.input.clone(),
            }
        };
        folded.activities.iter().map(view).collect()
    }
}

impl Client {
    /// When the next attempt is due: behind a breaker, when that lets somebody go; `None` where only a person knows.
    fn next_attempt_at(&self, note: &AttemptNote) -> Option<Timestamp> {
        match (&note.gate, &self.engine().code().breakers) {
            (Some(gate), Some(breakers)) => breakers.lets_go_at(gate, self.engine().environment().clock.now()),
            _ => note.next_at,
        }
    }
}

fn state(attention: bool, note: Option<&AttemptNote>) -> ActivityState {
    match note {
        _ if attention => ActivityState::NeedsAttention,
        None => ActivityState::Running,
        Some(note) if note.is_under_way() => ActivityState::Running,
        Some(note) if note.parked_by.is_some() => ActivityState::Parked,
        Some(_) => ActivityState::BackingOff,
    }
}

fn pending_timers(folded: &Folded) -> Vec<PendingTimerView> {
    let view = |(number, timer): (&u64, &crate::history::PendingTimer)| PendingTimerView {
        number: *number,
        name: timer.name.clone(),
        fire_at: timer.fire_at,
    };
    folded.timers.iter().map(view).collect()
}

fn ended(error_type: &str, reason: &str) -> Failure {
    Failure::new(crate::history::FailureClass::Permanent, error_type, reason)
}
