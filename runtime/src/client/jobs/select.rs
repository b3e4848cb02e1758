//! Selecting a job's items, a page at a time. Changes nothing.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::request::JobRequest;
use super::{JOB_TYPE, Jobs};
use crate::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions, Exhausted, RetryPolicy};
use crate::client::attention::{HISTORIES_AT_ONCE, Place, StepInNeed, folded};
use crate::client::list::stored_forms;
use crate::client::{Client, ClientError, END_OF_TIME};
use crate::history::Folded;
use crate::store::{Filter, Listed, Loaded, Position};
use crate::time::Timestamp;

/// How many items end a page; the last workflow of it may bring some more.
const ITEMS_MAX: usize = 200;
/// The most workflows that are looked at for one page: it may be short.
const LOOKED_AT_MAX: usize = 1_000;
/// How long one page may take.
const PAGE_TIME_MAX: Duration = Duration::from_secs(120);

/// An item of a job, as it was when it was selected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectedItem {
    /// Workflow type.
    #[serde(rename = "type")]
    pub workflow_type: String,
    /// Workflow id.
    pub id: String,
    /// Number of the step, where the item is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Name of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The kind of the step's last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Since when the step waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the workflow was due, where the item is a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// When it is to be due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
}

impl SelectedItem {
    fn of_step(step: StepInNeed) -> Self {
        let StepInNeed { workflow_type, id, number, name, since, failure, message: _ } = step;
        let (number, name, failure, since) = (Some(number), Some(name), Some(failure), Some(since));
        Self { workflow_type, id, number, name, failure, since, from: None, to: None }
    }
}

/// A page of items, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SelectedPage {
    pub(super) items: Vec<SelectedItem>,
    pub(super) next: Option<Place>,
}

pub(super) struct SelectItems(pub(super) Jobs);

#[async_trait]
impl Activity for SelectItems {
    const NAME: &'static str = "select-items";
    type Input = Option<Place>;
    type Output = SelectedPage;

    fn options(&self) -> ActivityOptions {
        ActivityOptions { start_to_close: PAGE_TIME_MAX, ..job_options() }
    }

    async fn execute(&self, ctx: &ActivityContext, place: Option<Place>) -> Result<SelectedPage, ActivityFailure> {
        let client = self.0.client()?;
        let (job, _) = client.running_job(ctx.workflow()).await.map_err(not_now)?;
        client.select(&job, place).await.map_err(not_now)
    }
}

/// Tried again for as long as it takes; what cannot succeed waits for a person.
pub(super) fn job_options() -> ActivityOptions {
    let retry = RetryPolicy { cap: Duration::from_secs(60), give_up_after: None, ..RetryPolicy::default() };
    ActivityOptions { retry, exhausted: Exhausted::NeedsAttention, ..ActivityOptions::default() }
}

/// What keeps a job from going on is tried again: nothing of it is the job's own fault.
pub(super) fn not_now(error: ClientError) -> ActivityFailure {
    ActivityFailure::transient("not-available", error.to_string())
}

impl Client {
    async fn select(&self, job: &JobRequest, place: Option<Place>) -> Result<SelectedPage, ClientError> {
        let filter = listing(job);
        let mut after = place.map(Position::from).or_else(|| job.filter.due_after.map(Position::at));
        let mut items = Vec::new();
        for _ in 0..LOOKED_AT_MAX / HISTORIES_AT_ONCE {
            let page = self.engine().store().list(&filter, after.as_ref(), HISTORIES_AT_ONCE).await?;
            for (listed, loaded) in self.load_listed(&page.rows).await? {
                items.extend(self.items_of(job, &loaded));
                if items.len() >= ITEMS_MAX {
                    return Ok(SelectedPage { items, next: Some(behind(&filter, listed).into()) });
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(SelectedPage { items, next: after.map(Place::from) })
    }

    fn items_of(&self, job: &JobRequest, loaded: &Loaded) -> Vec<SelectedItem> {
        let key = &loaded.execution.key;
        if key.workflow_type() == JOB_TYPE {
            return Vec::new();
        }
        if !job.action.is_about_deadlines() {
            return job.filter.of_steps().steps_of(loaded).into_iter().map(SelectedItem::of_step).collect();
        }
        // What declares no deadline, or does not wait for it now, has none that could be moved.
        let Ok(declared) = self.declared_deadline(key) else { return Vec::new() };
        let item = waits_until(&folded(loaded), declared.timer).and_then(|from| {
            let to = Some(job.moved(from)?);
            let (workflow_type, id) = (key.workflow_type().to_owned(), key.id().to_owned());
            Some(SelectedItem { workflow_type, id, number: None, name: None, failure: None, since: None, from: Some(from), to })
        });
        item.into_iter().collect()
    }
}

/// What a timer of this name waits for, if there is one.
pub(super) fn waits_until(folded: &Folded, timer: &str) -> Option<Timestamp> {
    folded.timers.values().find(|pending| pending.name.as_deref() == Some(timer)).map(|pending| pending.fire_at)
}

fn listing(job: &JobRequest) -> Filter {
    let filter = &job.filter;
    if !job.action.is_about_deadlines() {
        return filter.of_steps().listing(None);
    }
    Filter {
        workflow_type: filter.workflow_type.clone(),
        due_before: Some(filter.due_before.unwrap_or(END_OF_TIME)),
        attributes: filter.attributes.iter().map(|(name, value)| (name.clone(), stored_forms(value))).collect(),
        ..Filter::default()
    }
}

/// The position behind a row of this listing.
fn behind(filter: &Filter, listed: &Listed) -> Position {
    let row = &listed.execution;
    Position {
        wake_at: filter.due_before.and(row.wake_at),
        workflow_type: row.key.workflow_type().to_owned(),
        id: row.key.id().to_owned(),
    }
}
