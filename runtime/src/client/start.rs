//! Starting workflows: the first transition is made here, in memory, and committed.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Client, ClientError};
pub use crate::engine::StartRequest;
use crate::engine::{Active, CommitFailure, Engine, Message, Start, StartRefused};
use crate::id::{RunId, WorkflowKey};
use crate::store::{Execution, Outcome, Status, Write};
use crate::time::Timestamp;
use crate::workflow::WorkflowRegistry;

/// A workflow that was started, now or before.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartResponse {
    /// Workflow type.
    #[serde(rename = "type")]
    pub workflow_type: String,
    /// Workflow id.
    pub id: String,
    /// The run.
    pub run_id: RunId,
    /// Where it stands now.
    pub status: Status,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it is looked at next.
    pub wake_at: Option<Timestamp>,
    /// Present, and true, when the same request had started it before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

impl Client {
    /// Starts a workflow. The same request again gives the same run; another one under the same id is a conflict.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Unavailable`] leaves open whether it was started: repeat the request.
    pub async fn start(&self, request: StartRequest) -> Result<StartResponse, ClientError> {
        let workflows = &self.engine().code().workflows;
        request.check_is_open(workflows).map_err(|refused| refused_start(refused, workflows))?;
        self.start_unasked(request).await
    }

    /// Starts a workflow of any type, also one that callers cannot start.
    pub(super) async fn start_unasked(&self, request: StartRequest) -> Result<StartResponse, ClientError> {
        let engine = self.engine();
        let start = self.check_start(request)?;
        let hash = start.request_hash;
        let key = start.key.clone();
        let (new, active) = Active::start(engine.code(), start).map_err(|fault| {
            tracing::error!(workflow.type = key.workflow_type(), workflow.id = key.id(), error = %fault, "workflow cannot start");
            ClientError::Rejected
        })?;
        let expected = active.has_calls().then(|| Expected::of(engine, &key));
        match engine.commit(Write::Start(new)).await {
            Some(Ok(Outcome::Started { inbox })) => {
                let response = response(&active.row, false);
                self.started(active, inbox, expected);
                Ok(response)
            }
            Some(Ok(Outcome::Exists(existing))) if existing.request_hash == hash => Ok(response(&existing, true)),
            Some(Ok(Outcome::Exists(existing))) => Err(ClientError::conflict(
                format!("{key} was started by another request (run {}); ids are used once", existing.run_id),
                Some(existing.run_id),
            )),
            Some(Err(CommitFailure::Rejected(_))) => Err(ClientError::Rejected),
            Some(Ok(_) | Err(_)) | None => Err(ClientError::Unavailable),
        }
    }

    fn started(&self, active: Active, inbox: bool, expected: Option<Expected>) {
        let engine = self.engine();
        let key = active.row.key.clone();
        engine.changed(&key);
        self.nudge_owner(&key, active.row.wake_at, inbox);
        if let Some(expected) = expected {
            expected.adopt(active, inbox);
        } else if inbox {
            engine.tell(Message::Nudge(key));
        } else if let Some(wake_at) = active.next_due() {
            engine.tell(Message::Hint { key, wake_at });
        }
    }

    fn check_start(&self, request: StartRequest) -> Result<Start, ClientError> {
        let environment = self.engine().environment();
        let (code, shards) = (self.engine().code(), self.engine().store().facts().shards);
        Start::checked(code, shards, request, environment.clock.now(), &mut || environment.random.next_u64())
            .map_err(|refused| refused_start(refused, &code.workflows))
    }
}

fn refused_start(refused: StartRefused, workflows: &WorkflowRegistry) -> ClientError {
    match refused {
        StartRefused::UnknownType(found) => ClientError::unknown_type(&found, workflows),
        StartRefused::Id(error) => ClientError::invalid_id(&error),
        StartRefused::TooLarge(message) => ClientError::TooLarge(message),
        StartRefused::Invalid(fields) => ClientError::Invalid(fields),
        StartRefused::Unreadable | StartRefused::Unstorable(_) => ClientError::Rejected,
    }
}

/// The place that the node holds for an execution whose calls are to be begun here. Given up when it is dropped, as by a
/// caller that went away.
struct Expected {
    engine: Arc<Engine>,
    key: Option<WorkflowKey>,
}

impl Expected {
    fn of(engine: &Arc<Engine>, key: &WorkflowKey) -> Self {
        engine.tell(Message::Expect(key.clone()));
        Self { engine: Arc::clone(engine), key: Some(key.clone()) }
    }

    fn adopt(mut self, active: Active, inbox: bool) {
        let key = self.key.take();
        self.engine.tell(Message::Adopt(Box::new(active)));
        // Signals that were stored before the start are read beside it.
        if let Some(key) = key.filter(|_| inbox) {
            self.engine.tell(Message::Nudge(key));
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.engine.tell(Message::Unexpect(key));
        }
    }
}

fn response(row: &Execution, replayed: bool) -> StartResponse {
    StartResponse {
        workflow_type: row.key.workflow_type().to_owned(),
        id: row.key.id().to_owned(),
        run_id: row.run_id,
        status: row.status,
        started_at: row.run_id.created_at(),
        wake_at: row.wake_at,
        replayed,
    }
}
