//! Listing executions, page by page.
//!
//! A cursor holds the position and a hash of the filter and limit that it was made for, so that it cannot be used with others.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{Client, ClientError, PAGE_MAX};
use crate::id::RunId;
use crate::payload::{InvalidField, Payload};
use crate::store::{AttributeValue, Filter, Listed, Position, Status};
use crate::time::Timestamp;

/// Later than every stored instant.
pub(crate) const END_OF_TIME: Timestamp = Timestamp::from_micros(i64::MAX);

/// Which executions to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListQuery {
    /// Of this workflow type.
    pub workflow_type: Option<String>,
    /// With this status.
    pub status: Option<Status>,
    /// With, or without, a step that waits for a person.
    pub needs_attention: Option<bool>,
    /// Open, and due at this instant or later.
    pub due_after: Option<Timestamp>,
    /// Open, and due before this.
    pub due_before: Option<Timestamp>,
    /// With these search attributes; a text matches a text, a number or a truth value that is spelled so.
    pub attributes: BTreeMap<String, String>,
    /// At most so many, 1 to [`PAGE_MAX`].
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// Only these types, when the caller may see no others.
    pub visible_types: Option<Vec<String>>,
}

/// A page of executions.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WorkflowPage {
    /// The executions, by type and id, or by `wakeAt` when the query has `due_after` or `due_before`.
    pub workflows: Vec<ListedWorkflow>,
    /// Pass it as `cursor` to read on; `None` on the last page.
    pub next: Option<String>,
}

/// A listed execution.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedWorkflow {
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
    /// Whether a step waits for a person.
    pub needs_attention: bool,
    /// Search attributes.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Whether its history was removed by retention.
    pub retired: bool,
}

/// The cursors of one query.
pub(super) struct Cursor {
    fingerprint: String,
}

#[derive(Serialize, Deserialize)]
struct Written {
    query: String,
    at: Option<i64>,
    r#type: String,
    id: String,
}

impl Client {
    /// A page of executions.
    ///
    /// # Errors
    /// [`ClientError::Malformed`] for a limit out of range, or a cursor of another query.
    pub async fn list(&self, query: &ListQuery) -> Result<WorkflowPage, ClientError> {
        if query.limit == 0 || query.limit > PAGE_MAX {
            return Err(malformed("limit", &format!("1 to {PAGE_MAX}")));
        }
        let cursor = Cursor::of(&ListQuery { cursor: None, ..query.clone() });
        let after = query.cursor.as_deref().map(|text| cursor.read(text)).transpose()?;
        let after = after.or_else(|| query.due_after.map(Position::at));
        let filter = Filter {
            workflow_type: query.workflow_type.clone(),
            status: query.status,
            needs_attention: query.needs_attention,
            due_before: query.due_before.or(query.due_after.and(Some(END_OF_TIME))),
            attributes: query.attributes.iter().map(|(name, value)| (name.clone(), stored_forms(value))).collect(),
            visible_types: query.visible_types.clone(),
        };
        let page = self.engine().store().list(&filter, after.as_ref(), query.limit).await?;
        let next = page.next.map(|position| cursor.write(&position)).transpose()?;
        Ok(WorkflowPage { workflows: page.rows.into_iter().map(view).collect(), next })
    }
}

fn view(listed: Listed) -> ListedWorkflow {
    let row = listed.execution;
    ListedWorkflow {
        workflow_type: row.key.workflow_type().to_owned(),
        id: row.key.id().to_owned(),
        run_id: row.run_id,
        status: row.status,
        started_at: row.run_id.created_at(),
        closed_at: row.closed_at,
        wake_at: row.wake_at,
        needs_attention: row.needs_attention,
        attributes: listed.attributes.into_iter().collect(),
        retired: row.retired,
    }
}

/// What a query's text may mean as a stored value.
pub(super) fn stored_forms(text: &str) -> Vec<String> {
    let mut forms = vec![AttributeValue::Text(text.to_owned()).stored()];
    if let Ok(truth) = text.parse() {
        forms.push(AttributeValue::Bool(truth).stored());
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && let Ok(number) = Payload::from_json(text)
    {
        forms.push(AttributeValue::Number(number).stored());
    }
    forms
}

impl Cursor {
    /// Those of `query`, which holds no cursor itself.
    pub(super) fn of(query: &impl Debug) -> Self {
        Self { fingerprint: hex::encode(&Sha256::digest(format!("{query:?}").as_bytes())[..8]) }
    }

    pub(super) fn write(&self, position: &Position) -> Result<String, ClientError> {
        let written = Written {
            query: self.fingerprint.clone(),
            at: position.wake_at.map(Timestamp::as_micros),
            r#type: position.workflow_type.clone(),
            id: position.id.clone(),
        };
        serde_json::to_vec(&written).map(hex::encode).map_err(|_| ClientError::Rejected)
    }

    pub(super) fn read(&self, text: &str) -> Result<Position, ClientError> {
        let written: Option<Written> = hex::decode(text).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match written {
            Some(Written { query, at, r#type, id }) if query == self.fingerprint => {
                Ok(Position { wake_at: at.map(Timestamp::from_micros), workflow_type: r#type, id })
            }
            Some(_) => Err(malformed("cursor", "it belongs to another filter or limit; begin again without it")),
            None => Err(malformed("cursor", "not a cursor of this list; begin again without it")),
        }
    }
}

fn malformed(field: &str, message: &str) -> ClientError {
    ClientError::Malformed(vec![InvalidField::new(field, message)])
}
