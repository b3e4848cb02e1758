//! Starting workflows: the first transition is made here, in memory, and committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Client, ClientError};
use crate::engine::{Active, CommitFailure, Engine, Message, Start, new_run_id};
use crate::id::{RunId, WorkflowKey, check_id};
use crate::payload::{InvalidField, Payload};
use crate::store::{AttributeValue, Execution, Outcome, Status, Write};
use crate::time::Timestamp;

/// The most search attributes of one execution.
const ATTRIBUTES_MAX: usize = 20;
/// The longest name of a search attribute, and the longest text value, in bytes.
const ATTRIBUTE_BYTES_MAX: usize = 200;
/// The largest input, in bytes.
const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// A request to start a workflow.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// Workflow type.
    pub workflow_type: String,
    /// Workflow id: one execution an id, for ever.
    pub id: String,
    /// The workflow's input.
    pub input: Payload,
    /// When to begin, if not at once.
    pub start_at: Option<Timestamp>,
    /// Search attributes: strings, numbers, truth values.
    pub attributes: BTreeMap<String, Payload>,
    /// The caller's W3C trace context.
    pub traceparent: Option<String>,
}

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
        let engine = self.engine();
        let workflows = &engine.code().workflows;
        let Some(workflow) = workflows.get(&request.workflow_type) else {
            return Err(ClientError::unknown_type(&request.workflow_type, workflows));
        };
        check_id(&request.id).map_err(|error| ClientError::invalid_id(&error))?;
        if request.input.len() > INPUT_BYTES_MAX {
            return Err(ClientError::TooLarge(format!(
                "input has {} bytes, the limit is {INPUT_BYTES_MAX}",
                request.input.len()
            )));
        }
        let key = WorkflowKey::new(request.workflow_type.as_str(), request.id.as_str());
        let within = |fields: Vec<InvalidField>| fields.into_iter().map(|field| field.within("input")).collect();
        workflow.check(&key, &request.input).map_err(|fields| ClientError::Invalid(within(fields)))?;
        let attributes = check_attributes(&request.attributes)?;
        let request_hash = request_hash(&request)?;
        let environment = engine.environment();
        let now = environment.clock.now();
        Ok(Start {
            shard: key.shard(engine.store().facts().shards),
            run_id: new_run_id(now, &mut || environment.random.next_u64()),
            key,
            request_hash,
            input: request.input,
            start_at: request.start_at,
            attributes,
            traceparent: request.traceparent,
        })
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

fn check_attributes(attributes: &BTreeMap<String, Payload>) -> Result<BTreeMap<String, (Payload, AttributeValue)>, ClientError> {
    let invalid =
        |name: &str, message: String| ClientError::Invalid(vec![InvalidField::new(format!("attributes.{name}"), message)]);
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(ClientError::Invalid(vec![InvalidField::new("attributes", format!("at most {ATTRIBUTES_MAX} attributes"))]));
    }
    let mut checked = BTreeMap::new();
    for (name, payload) in attributes {
        if name.is_empty() || name.len() > ATTRIBUTE_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(invalid(name, format!("a name has 1 to {ATTRIBUTE_BYTES_MAX} bytes, without control characters")));
        }
        let value = match payload.parse::<serde_json::Value>() {
            Ok(serde_json::Value::String(text)) if text.len() <= ATTRIBUTE_BYTES_MAX => AttributeValue::Text(text),
            Ok(serde_json::Value::Number(_)) => AttributeValue::Number(payload.clone()),
            Ok(serde_json::Value::Bool(value)) => AttributeValue::Bool(value),
            _ => return Err(invalid(name, format!("a text of at most {ATTRIBUTE_BYTES_MAX} bytes, a number, true or false"))),
        };
        checked.insert(name.clone(), (payload.clone(), value));
    }
    Ok(checked)
}

/// The same request is one with the same input, `startAt` and attributes, as JSON values.
fn request_hash(request: &StartRequest) -> Result<[u8; 16], ClientError> {
    #[derive(Serialize)]
    struct Compared<'a>(&'a Payload, Option<Timestamp>, &'a BTreeMap<String, Payload>);
    let compared =
        Payload::of(&Compared(&request.input, request.start_at, &request.attributes)).map_err(|_| ClientError::Rejected)?;
    Ok(compared.canonical_hash())
}
