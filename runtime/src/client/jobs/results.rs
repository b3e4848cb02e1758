//! Starting jobs, and reading how far they are and what became of each item: all of it from their histories.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::act::{ActOnItems, ItemOutcome, OutcomeOfItem};
use super::request::JobRequest;
use super::select::{SelectItems, SelectedItem, SelectedPage};
use super::workflow::JobProgress;
use super::{JOB_ITEMS_MAX, JOB_TYPE};
use crate::activity::Activity;
use crate::client::{ActionOutcome, Client, ClientError, Description, PAGE_MAX, StartRequest};
use crate::history::{Event, EventKind, Failure, Folded};
use crate::id::WorkflowKey;
use crate::payload::{InvalidField, Payload};
use crate::store::Status;
use crate::time::Timestamp;

/// A job, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Its id: the id of its workflow, of type `bulk-operation`.
    pub id: String,
    /// Where it stands.
    pub status: Status,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// What it was asked for; absent once retention has removed its history.
    #[serde(flatten)]
    pub request: Option<JobRequest>,
    /// How far it is.
    #[serde(flatten)]
    pub progress: JobProgress,
    /// Whether it cannot go on without a person.
    pub needs_attention: bool,
    /// Why it failed or was stopped.
    pub failure: Option<Failure>,
}

/// An item of a job and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobItem {
    /// Which item of the job, from 1.
    pub item: usize,
    /// What was selected.
    #[serde(flatten)]
    pub selected: SelectedItem,
    /// What became of it; `None` until the job has gone through it.
    pub outcome: Option<OutcomeOfItem>,
    /// Why, where it was not applied.
    pub detail: Option<String>,
}

/// A page of a job's items.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct JobItems {
    /// The items, in the order in which the job goes through them.
    pub items: Vec<JobItem>,
    /// Pass it as `after` to read on; `None` at the end.
    pub next: Option<usize>,
}

impl Client {
    /// Starts a bulk job, under this id or a new one, and tells whether it was started before: the same request under the
    /// same id is the same job.
    ///
    /// # Errors
    /// [`ClientError::Invalid`], with the fields; [`ClientError::Conflict`], where another job has the id.
    pub async fn start_job(&self, id: Option<String>, request: &JobRequest) -> Result<(JobView, bool), ClientError> {
        let code = self.engine().code();
        if code.workflows.get(JOB_TYPE).is_none() {
            return Err(ClientError::unknown_type(JOB_TYPE, &code.workflows));
        }
        let faults = request.faults(&code.workflows);
        if !faults.is_empty() {
            return Err(ClientError::Invalid(faults));
        }
        let environment = self.engine().environment();
        // Sorts by time, as the list does then.
        let new_id = || format!("{:012x}{:08x}", environment.clock.now().as_millis(), environment.random.next_u64() >> 32);
        let id = id.unwrap_or_else(new_id);
        let text = |text: &str| Payload::of(text).map_err(|_| ClientError::Rejected);
        let mut attributes = BTreeMap::from([("action".to_owned(), text(request.action.as_str())?)]);
        if let Some(name) = &request.filter.workflow_type {
            attributes.insert("type".to_owned(), text(name)?);
        }
        let started = self.start_unasked(StartRequest {
            workflow_type: JOB_TYPE.to_owned(),
            id: id.clone(),
            input: Payload::of(request).map_err(|_| ClientError::Rejected)?,
            start_at: None,
            attributes,
            traceparent: None,
        });
        let replayed = started.await?.replayed;
        Ok((self.job(&id).await?, replayed))
    }

    /// A bulk job.
    ///
    /// # Errors
    /// [`ClientError::NotFound`].
    pub async fn job(&self, id: &str) -> Result<JobView, ClientError> {
        let Description { id, status, started_at, closed_at, input, result, failure, progress, needs_attention, .. } =
            self.describe(JOB_TYPE, id).await?;
        let progress = result.or(progress).and_then(|progress| progress.parse().ok()).unwrap_or_default();
        let request = input.and_then(|input| input.parse().ok());
        Ok(JobView { id, status, started_at, closed_at, request, progress, needs_attention, failure })
    }

    /// The items of a job behind number `after`, at most `limit`. None when retention removed its history.
    ///
    /// # Errors
    /// [`ClientError::NotFound`]; [`ClientError::Malformed`] for a limit out of range.
    pub async fn job_items(&self, id: &str, after: usize, limit: usize) -> Result<JobItems, ClientError> {
        if limit == 0 || limit > PAGE_MAX {
            return Err(ClientError::Malformed(vec![InvalidField::new("limit", format!("1 to {}", PAGE_MAX))]));
        }
        let (_, events) = self.read(&self.key(JOB_TYPE, id)?).await?;
        let mut rest = items_of(&events).skip(after);
        let items: Vec<JobItem> = rest.by_ref().take(limit).collect();
        let next = rest.next().and_then(|_| items.last()).map(|last| last.item);
        Ok(JobItems { items, next })
    }

    /// Asks a job to stop: it does so before its next item, or within a second.
    ///
    /// # Errors
    /// [`ClientError::NotFound`].
    pub async fn cancel_job(&self, id: &str, reason: &str, actor: &str) -> Result<ActionOutcome, ClientError> {
        self.cancel(JOB_TYPE, id, reason, actor).await
    }

    /// What a job was asked for, and whether it is to stop.
    pub(super) async fn running_job(&self, key: &WorkflowKey) -> Result<(JobRequest, bool), ClientError> {
        let (loaded, events) = self.read(key).await?;
        let input = match events.first().map(|event| &event.kind) {
            Some(EventKind::WorkflowStarted { input, .. }) => input.parse().ok(),
            _ => None,
        };
        let request = input.ok_or_else(|| ClientError::not_found(key))?;
        let is_to_stop = Folded::of(&events).cancel_requested || !loaded.execution.status.is_open();
        Ok((request, is_to_stop))
    }
}

/// The items that a job's history selected, each with what came of it.
fn items_of(events: &[Event]) -> impl Iterator<Item = JobItem> {
    let (mut selected, mut outcomes): (Vec<SelectedItem>, Vec<ItemOutcome>) = (Vec::new(), Vec::new());
    let mut names = BTreeMap::new();
    for event in events {
        let (activity, result) = match &event.kind {
            EventKind::ActivityScheduled { name, .. } => {
                names.insert(event.number, name.as_str());
                continue;
            }
            EventKind::ActivityCompleted { activity, result, .. } | EventKind::ActivityResolved { activity, result, .. } => {
                (activity, result)
            }
            _ => continue,
        };
        match names.get(activity).copied() {
            Some(SelectItems::NAME) => {
                selected.extend(result.parse::<SelectedPage>().map(|page| page.items).unwrap_or_default());
            }
            Some(ActOnItems::NAME) => outcomes.extend(result.parse::<Vec<ItemOutcome>>().unwrap_or_default()),
            _ => {}
        }
    }
    let mut outcomes = outcomes.into_iter();
    selected.into_iter().take(JOB_ITEMS_MAX).enumerate().map(move |(at, selected)| {
        let (outcome, detail) = outcomes.next().map_or((None, None), |found| (Some(found.outcome), found.detail));
        JobItem { item: at + 1, selected, outcome, detail }
    })
}
