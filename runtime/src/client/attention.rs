//! The work list: steps that wait for a person, with what is wrong with each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::list::{Cursor, stored_forms};
use super::{Client, ClientError, PAGE_MAX};
use crate::history::{Folded, PendingActivity, decode};
use crate::id::WorkflowKey;
use crate::payload::InvalidField;
use crate::store::{Filter, Listed, Loaded, Position};
use crate::time::Timestamp;

/// The error type that a step has which the workflow itself leaves to a person.
pub const BY_HAND: &str = "by-hand";
/// The most steps of one workflow that are told; a workflow with more is in trouble of another kind.
pub(super) const STEPS_PER_WORKFLOW_MAX: usize = 100;
/// How many histories are read at once: what that takes of memory is bounded.
pub(super) const HISTORIES_AT_ONCE: usize = 50;

/// Which steps to list; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttentionFilter {
    /// Of this workflow type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub workflow_type: Option<String>,
    /// Of workflows with these search attributes; a text matches a text, a number or a truth value that is spelled so.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Of this name, such as `release-stock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// With a last failure of this kind, such as `http-422`; `by-hand` for steps that are left to a person from the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A part of the work list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionQuery {
    /// Which steps.
    pub filter: AttentionFilter,
    /// How many workflows to look at, 1 to [`PAGE_MAX`]; each may have several steps, or none that the filter wants.
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// Only of these types, when the caller may see no others.
    pub visible_types: Option<Vec<String>>,
}

/// A page of the work list. It may be short, or empty, and not be the last one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct AttentionPage {
    /// The steps, by type and id of their workflows, then by number.
    pub steps: Vec<StepInNeed>,
    /// Pass it as `cursor` to read on; `None` on the last page.
    pub next: Option<String>,
}

/// A step that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepInNeed {
    /// Workflow type.
    #[serde(rename = "type")]
    pub workflow_type: String,
    /// Workflow id.
    pub id: String,
    /// Number of its `ActivityScheduled`: what retry, resolve and skip take.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// Since when it waits.
    pub since: Timestamp,
    /// The kind of its last failure, such as `http-422`, or `by-hand`.
    pub failure: String,
    /// What happened, for a person.
    pub message: String,
}

impl Client {
    /// A page of the steps that wait for a person.
    ///
    /// # Errors
    /// [`ClientError::Malformed`] for a limit out of range, or a cursor of another query.
    pub async fn attention(&self, query: &AttentionQuery) -> Result<AttentionPage, ClientError> {
        if query.limit == 0 || query.limit > PAGE_MAX {
            return Err(ClientError::Malformed(vec![InvalidField::new("limit", format!("1 to {PAGE_MAX}"))]));
        }
        let cursor = Cursor::of(&AttentionQuery { cursor: None, ..query.clone() });
        let after = query.cursor.as_deref().map(|text| cursor.read(text)).transpose()?;
        let filter = query.filter.listing(query.visible_types.clone());
        let page = self.engine().store().list(&filter, after.as_ref(), query.limit).await?;
        let mut steps = Vec::new();
        for rows in page.rows.chunks(HISTORIES_AT_ONCE) {
            for (_, loaded) in self.load_listed(rows).await? {
                steps.extend(query.filter.steps_of(&loaded));
            }
        }
        Ok(AttentionPage { steps, next: page.next.map(|position| cursor.write(&position)).transpose()? })
    }

    /// The listed executions whole, those that are still there.
    pub(super) async fn load_listed<'a>(&self, rows: &'a [Listed]) -> Result<Vec<(&'a Listed, Loaded)>, ClientError> {
        let keys: Vec<WorkflowKey> = rows.iter().map(|listed| listed.execution.key.clone()).collect();
        let loaded = self.engine().store().load(&keys).await?;
        Ok(rows.iter().zip(loaded).filter_map(|(listed, loaded)| Some((listed, loaded?))).collect())
    }
}

impl AttentionFilter {
    /// The listing of the workflows that may have such a step.
    pub(super) fn listing(&self, visible_types: Option<Vec<String>>) -> Filter {
        Filter {
            workflow_type: self.workflow_type.clone(),
            needs_attention: Some(true),
            attributes: self.attributes.iter().map(|(name, value)| (name.clone(), stored_forms(value))).collect(),
            visible_types,
            ..Filter::default()
        }
    }

    /// The steps of a workflow that the filter wants.
    pub(super) fn steps_of(&self, loaded: &Loaded) -> Vec<StepInNeed> {
        let key = &loaded.execution.key;
        let steps = folded(loaded).activities.into_iter().filter_map(|(number, activity)| step(key, number, &activity));
        let is_wanted = |step: &StepInNeed| {
            self.activity.as_ref().is_none_or(|name| *name == step.name)
                && self.failure.as_ref().is_none_or(|failure| *failure == step.failure)
        };
        steps.filter(is_wanted).take(STEPS_PER_WORKFLOW_MAX).collect()
    }
}

/// What the history of an execution adds up to. One that cannot be read hides no other: it adds up to nothing, and `verify`
/// tells of it.
pub(super) fn folded(loaded: &Loaded) -> Folded {
    let row = &loaded.execution;
    match decode(row.run_id, &loaded.records) {
        Ok((events, _)) => Folded::of(&events),
        Err(error) => {
            let (workflow_type, id) = (row.key.workflow_type(), row.key.id());
            tracing::error!(workflow.type = workflow_type, workflow.id = id, error = %error, "history left out: it cannot be read");
            Folded::default()
        }
    }
}

/// The activity as the work list has it, if it waits for a person.
pub(super) fn step(key: &WorkflowKey, number: u64, activity: &PendingActivity) -> Option<StepInNeed> {
    let (since, failure, message) = match (&activity.attention, &activity.by_hand) {
        (Some((since, failure)), _) => (*since, failure.error_type.clone(), failure.message.clone()),
        (None, Some(why)) => (activity.since, BY_HAND.to_owned(), why.clone()),
        (None, None) => return None,
    };
    Some(StepInNeed {
        workflow_type: key.workflow_type().to_owned(),
        id: key.id().to_owned(),
        number,
        name: activity.name.clone(),
        since,
        failure,
        message,
    })
}

/// Where a listing goes on, as an activity keeps it between two pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    at: Option<i64>,
    r#type: String,
    id: String,
}

impl From<Position> for Place {
    fn from(position: Position) -> Self {
        Self { at: position.wake_at.map(Timestamp::as_micros), r#type: position.workflow_type, id: position.id }
    }
}

impl From<Place> for Position {
    fn from(place: Place) -> Self {
        Self { wake_at: place.at.map(Timestamp::from_micros), workflow_type: place.r#type, id: place.id }
    }
}
