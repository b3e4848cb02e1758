//! What is still to be delivered to those outside, and what a person decides about it.
//!
//! A decision is the owner's write like any other: a node that is not the owner forwards it once. It is logged with who and
//! why; a skipped event leaves nothing but that line, and its event in the history.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Client, ClientError, PAGE_MAX, check_reason};
use crate::engine::{Answer, CommitFailure, RefusedInput, Route};
use crate::id::RunId;
use crate::outbox::event_id;
use crate::payload::{InvalidField, Payload};
use crate::store::{Dispatch, OutboxChange, OutboxFilter, OutboxKey, OutboxRow, OutboxState, Outcome, Write};
use crate::time::Timestamp;

/// How often a decision is made anew because the event was sent at the same moment.
const DECISIONS_MAX: usize = 3;
/// The most pages that are read to fill one, where a caller may see few of the types.
const PAGES_MAX: usize = 10;

/// Which events to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutboxQuery {
    /// For this sink.
    pub sink: Option<String>,
    /// In this state.
    pub state: Option<OutboxState>,
    /// At most so many, 1 to [`PAGE_MAX`].
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// Only of these workflow types, when the caller may see no others.
    pub visible_types: Option<Vec<String>>,
}

/// A page of events that sinks do not have yet.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OutboxPage {
    /// The events.
    pub events: Vec<OutboxEntry>,
    /// Pass it as `cursor` to read on; `None` on the last page.
    pub next: Option<String>,
}

/// An event that a sink does not have yet.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutboxEntry {
    /// Names it for `retry` and `skip`.
    pub id: String,
    /// Who is to be told.
    pub sink: String,
    /// What receivers know the event by.
    pub event_id: String,
    /// What happened.
    pub event: String,
    /// What is told of it.
    #[schema(value_type = Object)]
    pub data: Payload,
    /// Workflow type of the execution.
    #[serde(rename = "type")]
    pub workflow_type: String,
    /// Workflow id of the execution.
    pub workflow_id: String,
    /// The run.
    pub run_id: RunId,
    /// Number of the event in the history.
    pub number: u64,
    /// When it happened.
    pub emitted_at: Timestamp,
    /// Where it stands.
    pub state: OutboxState,
    /// Attempts that failed, since a person last had it tried again.
    pub attempts: u32,
    /// When it is sent next; `None` while it waits for one before it, or for a person.
    pub next_attempt_at: Option<Timestamp>,
    /// When the first of the attempts ended.
    pub failing_since: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_failure: Option<String>,
}

/// What a person decides about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutboxAction {
    /// Send it now; attempts and time count from the beginning.
    Retry,
    /// The sink is not to have it.
    Skip,
}

/// A decision on its way to the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxDecision {
    pub(crate) place: OutboxKey,
    pub(crate) action: OutboxAction,
    pub(crate) reason: String,
    pub(crate) actor: String,
}

impl Client {
    /// A page of events that sinks do not have yet.
    ///
    /// # Errors
    /// [`ClientError::Malformed`] for a limit or a cursor that cannot be.
    pub async fn outbox(&self, query: &OutboxQuery) -> Result<OutboxPage, ClientError> {
        if query.limit == 0 || query.limit > PAGE_MAX {
            return Err(malformed("limit", &format!("1 to {PAGE_MAX}")));
        }
        let cursor = query.cursor.as_deref().map(read_id).transpose();
        let mut after = cursor.map_err(|_| malformed("cursor", "not a cursor of this list; begin again without it"))?;
        let filter = OutboxFilter { sink: query.sink.clone(), state: query.state };
        let is_visible = |row: &OutboxRow| {
            query.visible_types.as_ref().is_none_or(|types| types.iter().any(|visible| visible == row.key.workflow_type()))
        };
        let mut events = Vec::new();
        for _ in 0..PAGES_MAX {
            let wanted = query.limit - events.len();
            let rows = self.engine().store().outbox_page(&filter, after.as_ref(), wanted).await?;
            let is_last = rows.len() < wanted;
            after = rows.last().map(|row| row.place.clone()).or(after);
            events.extend(rows.into_iter().filter(is_visible).map(entry));
            if is_last {
                return Ok(OutboxPage { events, next: None });
            }
            if events.len() >= query.limit {
                break;
            }
        }
        Ok(OutboxPage { events, next: after.as_ref().map(write_id) })
    }

    /// The workflow type of the event that is named by `id`.
    ///
    /// # Errors
    /// [`ClientError::NotFound`].
    pub async fn outbox_type(&self, id: &str) -> Result<String, ClientError> {
        let row = self.engine().store().outbox_row(&read_id(id)?).await?.ok_or_else(|| not_found(id))?;
        Ok(row.key.workflow_type().to_owned())
    }

    /// Has an event sent now, or not at all.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn outbox_decide(&self, id: &str, action: OutboxAction, reason: &str, actor: &str) -> Result<(), ClientError> {
        check_reason(reason)?;
        let decision = OutboxDecision { place: read_id(id)?, action, reason: reason.to_owned(), actor: actor.to_owned() };
        let answer = match self.engine().route_of(decision.place.shard) {
            Route::Here => self.decide_here(&decision).await,
            Route::Peer(peer) => match self.peers() {
                Some(peers) => peers.decide(&peer, &decision).await,
                None => None,
            },
            Route::Nowhere => None,
        };
        match answer {
            Some(Answer::Applied) => Ok(()),
            Some(Answer::Refused(RefusedInput::NotFound)) => Err(not_found(id)),
            Some(Answer::Refused(RefusedInput::NotPending)) => Err(ClientError::conflict(
                "it waits for an event of the same workflow before it: decide about that one, or skip this one",
                None,
            )),
            Some(Answer::Refused(RefusedInput::Rejected)) => Err(ClientError::Rejected),
            _ => Err(ClientError::Unavailable),
        }
    }

    /// Decides on this node, which may turn out not to be the owner.
    pub(crate) async fn decide_here(&self, decision: &OutboxDecision) -> Option<Answer> {
        for _ in 0..DECISIONS_MAX {
            let row = self.engine().store().outbox_row(&decision.place).await.ok()?;
            let Some(row) = row else { return Some(Answer::Refused(RefusedInput::NotFound)) };
            let now = self.engine().environment().clock.now();
            let change = match decision.action {
                OutboxAction::Skip => OutboxChange::Remove { now },
                OutboxAction::Retry if row.next_at.is_none() && !row.parked => {
                    return Some(Answer::Refused(RefusedInput::NotPending));
                }
                OutboxAction::Retry => OutboxChange::Update {
                    next_at: Some(now),
                    attempts: 0,
                    failing_since: None,
                    parked: false,
                    failure: row.failure.clone(),
                },
            };
            let dispatch = Dispatch { key: row.key.clone(), place: row.place.clone(), attempts: row.attempts, change };
            match self.engine().commit(Write::Dispatch(dispatch)).await? {
                Ok(Outcome::Dispatched) => {
                    report(decision, &row);
                    self.engine().outbox_news();
                    return Some(Answer::Applied);
                }
                Ok(Outcome::Stale) => {}
                Ok(Outcome::NotOwned) => return Some(Answer::Refused(RefusedInput::NotOwner)),
                Err(CommitFailure::Rejected(_)) => return Some(Answer::Refused(RefusedInput::Rejected)),
                Ok(_) | Err(CommitFailure::NotApplied) => return None,
            }
        }
        None
    }
}

fn report(decision: &OutboxDecision, row: &OutboxRow) {
    let how = match decision.action {
        OutboxAction::Retry => "tried again",
        OutboxAction::Skip => "skipped",
    };
    tracing::warn!(
        sink = row.place.sink, event.id = event_id(row.place.run_id, row.place.event), event.name = row.name,
        workflow.type = row.key.workflow_type(), workflow.id = row.key.id(), actor = decision.actor, reason = decision.reason,
        "an event is {how} by hand"
    );
}

fn entry(row: OutboxRow) -> OutboxEntry {
    OutboxEntry {
        id: write_id(&row.place),
        event_id: event_id(row.place.run_id, row.place.event),
        state: row.state(),
        sink: row.place.sink,
        event: row.name,
        data: row.data,
        workflow_type: row.key.workflow_type().to_owned(),
        workflow_id: row.key.id().to_owned(),
        run_id: row.place.run_id,
        number: row.place.event,
        emitted_at: row.emitted_at,
        attempts: row.attempts,
        next_attempt_at: row.next_at,
        failing_since: row.failing_since,
        last_failure: row.failure,
    }
}

/// A row's name as callers write it. No sink has a dot in its name.
fn write_id(place: &OutboxKey) -> String {
    format!("{}.{}.{}.{}", place.shard, place.sink, place.run_id.0, place.event)
}

fn read_id(id: &str) -> Result<OutboxKey, ClientError> {
    let parts: Vec<&str> = id.split('.').collect();
    let read = || {
        let [shard, sink, run_id, event] = parts[..] else { return None };
        let (shard, run_id, event) = (shard.parse().ok()?, run_id.parse().ok()?, event.parse().ok()?);
        Some(OutboxKey { shard, sink: sink.to_owned(), run_id: RunId(run_id), event })
    };
    read().ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> ClientError {
    ClientError::NotFound(format!("there is no event {id:?} in the outbox: it was delivered or skipped, or never there"))
}

fn malformed(field: &str, message: &str) -> ClientError {
    ClientError::Malformed(vec![InvalidField::new(field, message)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_row_reads_back_as_written_and_nothing_else_does() {
        let place = OutboxKey { shard: 63, sink: "crm-1".into(), run_id: RunId::new(1, [7; 10]), event: 12 };
        assert_eq!(read_id(&write_id(&place)).unwrap(), place);
        for text in
            ["", "1", "1.a.b.c", "1.crm.00000000-0000-0000-0000-000000000000", "x.crm.00000000-0000-0000-0000-000000000000.1"]
        {
            assert!(matches!(read_id(text), Err(ClientError::NotFound(_))), "{text}");
        }
    }
}
