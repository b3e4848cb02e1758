//! Reading histories.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Client, ClientError};
use crate::fault::{Bug, planted, recall, remember};
use crate::history::{Event, decode};
use crate::id::WorkflowKey;
use crate::store::{Loaded, RequestedStart, StoreError};

/// A page of a history.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct HistoryPage {
    /// Its events, in order.
    pub events: Vec<Event>,
    /// Pass it as `after` to read on; `None` at the end.
    pub next: Option<u64>,
    /// Whether nothing can come behind these events any more.
    #[serde(skip)]
    pub(crate) is_last: bool,
}

impl Client {
    /// The events behind number `after`, at most `limit`. None when retention removed them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn history(&self, workflow_type: &str, id: &str, after: u64, limit: usize) -> Result<HistoryPage, ClientError> {
        let key = self.key(workflow_type, id)?;
        let (loaded, events) = self.read(&key).await?;
        let mut events = events.into_iter().filter(|event| event.number > after);
        let page: Vec<Event> = events.by_ref().take(limit).collect();
        let next = events.next().and_then(|_| page.last()).map(|event| event.number);
        let is_last = next.is_none() && !loaded.execution.status.is_open();
        Ok(HistoryPage { events: page, next, is_last })
    }

    /// The whole of an execution, as it is stored.
    pub(super) async fn read(&self, key: &WorkflowKey) -> Result<(Loaded, Vec<Event>), ClientError> {
        let mut loaded = self.engine().store().load(std::slice::from_ref(key)).await?;
        let Some(mut loaded) = loaded.pop().flatten() else { return Err(self.missing(key).await) };
        if planted(Bug::StaleRead) {
            let name = format!("{key} as {:p} read it", Arc::as_ptr(self.engine()));
            let rows = recall(&name).and_then(|rows| rows.parse().ok()).unwrap_or(loaded.records.len());
            remember(&name, rows.to_string());
            loaded.records.truncate(rows);
        }
        let (events, _) =
            decode(loaded.execution.run_id, &loaded.records).map_err(|error| StoreError::Corrupt(format!("{key}: {error}")))?;
        Ok((loaded, events))
    }

    /// Why there is no such execution, if that is known.
    async fn missing(&self, key: &WorkflowKey) -> ClientError {
        match self.engine().store().requested_start(key).await {
            Err(error) => error.into(),
            Ok(None) => ClientError::not_found(key),
            Ok(Some(RequestedStart { refused: None, .. })) => {
                ClientError::NotFound(format!("{key} was asked for inside the store and is about to be started"))
            }
            Ok(Some(RequestedStart { refused: Some(reason), .. })) => {
                ClientError::NotFound(format!("{key} was asked for inside the store and not started: {reason}"))
            }
        }
    }
}
