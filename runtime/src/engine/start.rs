//! Checking a request to start a workflow, wherever it comes from. Pure: time and randomness are arguments.

use std::collections::BTreeMap;

use serde::Serialize;

use super::active::Registries;
use super::transition::new_run_id;
use crate::id::{InvalidId, RunId, WorkflowKey, check_id};
use crate::payload::{InvalidField, Payload};
use crate::store::{AttributeValue, RequestedStart};
use crate::time::Timestamp;
use crate::workflow::WorkflowRegistry;

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

/// A start that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) key: WorkflowKey,
    pub(crate) shard: u16,
    pub(crate) run_id: RunId,
    pub(crate) request_hash: [u8; 16],
    pub(crate) input: Payload,
    pub(crate) start_at: Option<Timestamp>,
    pub(crate) attributes: BTreeMap<String, (Payload, AttributeValue)>,
    pub(crate) traceparent: Option<String>,
}

/// Why a workflow is not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartRefused {
    #[error("there is no workflow type {0:?}")]
    UnknownType(String),
    #[error("{0}")]
    Id(InvalidId),
    #[error("{0}")]
    TooLarge(String),
    #[error("{}", list(.0))]
    Invalid(Vec<InvalidField>),
    #[error("the request cannot be read")]
    Unreadable,
    #[error("it cannot be stored: {0}")]
    Unstorable(String),
}

fn list(fields: &[InvalidField]) -> String {
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Start {
    /// The start that `request` asks for.
    pub(crate) fn checked(
        code: &Registries,
        shards: u16,
        request: StartRequest,
        now: Timestamp,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Self, StartRefused> {
        let Some(workflow) = code.workflows.get(&request.workflow_type) else {
            return Err(StartRefused::UnknownType(request.workflow_type));
        };
        check_id(&request.id).map_err(StartRefused::Id)?;
        if request.input.len() > INPUT_BYTES_MAX {
            let message = format!("input has {} bytes, the limit is {INPUT_BYTES_MAX}", request.input.len());
            return Err(StartRefused::TooLarge(message));
        }
        let key = WorkflowKey::new(request.workflow_type.as_str(), request.id.as_str());
        let within = |fields: Vec<InvalidField>| fields.into_iter().map(|field| field.within("input")).collect();
        workflow.check(&key, &request.input).map_err(|fields| StartRefused::Invalid(within(fields)))?;
        let attributes = check_attributes(&request.attributes)?;
        let request_hash = request_hash(&request.input, request.start_at, &request.attributes).ok_or(StartRefused::Unreadable)?;
        Ok(Self {
            shard: key.shard(shards),
            run_id: new_run_id(now, random),
            key,
            request_hash,
            input: request.input,
            start_at: request.start_at,
            attributes,
            traceparent: request.traceparent,
        })
    }
}

impl StartRequest {
    /// Refuses a type that only the program itself starts.
    pub(crate) fn check_is_open(&self, workflows: &WorkflowRegistry) -> Result<(), StartRefused> {
        match workflows.get(&self.workflow_type) {
            Some(workflow) if !workflow.is_open_to_callers() => {
                let message = format!("workflows of type {} are started by the program alone", self.workflow_type);
                Err(StartRefused::Invalid(vec![InvalidField::new("type", message)]))
            }
            _ => Ok(()),
        }
    }

    /// The request that was left in the store.
    pub(crate) fn of(requested: &RequestedStart) -> Result<Self, StartRefused> {
        let malformed = |field: &str, message: String| StartRefused::Invalid(vec![InvalidField::new(field, message)]);
        let read = |field: &str, text: &str| Payload::from_json(text).map_err(|error| malformed(field, error.to_string()));
        let attributes = match &requested.attributes {
            None => BTreeMap::new(),
            Some(text) => {
                read("attributes", text)?.parse().map_err(|error| StartRefused::Invalid(vec![error.within("attributes")]))?
            }
        };
        Ok(Self {
            workflow_type: requested.key.workflow_type().to_owned(),
            id: requested.key.id().to_owned(),
            input: read("input", &requested.input)?,
            start_at: requested.start_at,
            attributes,
            traceparent: None,
        })
    }
}

fn check_attributes(attributes: &BTreeMap<String, Payload>) -> Result<BTreeMap<String, (Payload, AttributeValue)>, StartRefused> {
    let invalid =
        |name: &str, message: String| StartRefused::Invalid(vec![InvalidField::new(format!("attributes.{name}"), message)]);
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(StartRefused::Invalid(vec![InvalidField::new("attributes", format!("at most {ATTRIBUTES_MAX} attributes"))]));
    }
    let mut checked = BTreeMap::new();
    for (name, payload) in attributes {
        if name.is_empty() || name.len() > ATTRIBUTE_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(invalid(name, format!("a name has 1 to {ATTRIBUTE_BYTES_MAX} bytes, without control characters")));
        }
        let value = attribute_value(payload).filter(|value| match value {
            AttributeValue::Text(text) => text.len() <= ATTRIBUTE_BYTES_MAX,
            AttributeValue::Number(_) | AttributeValue::Bool(_) => true,
        });
        let Some(value) = value else {
            return Err(invalid(name, format!("a text of at most {ATTRIBUTE_BYTES_MAX} bytes, a number, true or false")));
        };
        checked.insert(name.clone(), (payload.clone(), value));
    }
    Ok(checked)
}

/// A search attribute as it is stored; `None` for what is neither a text nor a number nor a truth value.
pub(crate) fn attribute_value(payload: &Payload) -> Option<AttributeValue> {
    match payload.parse::<serde_json::Value>() {
        Ok(serde_json::Value::String(text)) => Some(AttributeValue::Text(text)),
        Ok(serde_json::Value::Number(_)) => Some(AttributeValue::Number(payload.clone())),
        Ok(serde_json::Value::Bool(value)) => Some(AttributeValue::Bool(value)),
        _ => None,
    }
}

/// The same request is one with the same input, `startAt` and attributes, as JSON values. `None` when they cannot be read.
pub(crate) fn request_hash(
    input: &Payload,
    start_at: Option<Timestamp>,
    attributes: &BTreeMap<String, Payload>,
) -> Option<[u8; 16]> {
    #[derive(Serialize)]
    struct Compared<'a>(&'a Payload, Option<Timestamp>, &'a BTreeMap<String, Payload>);
    Payload::of(&Compared(input, start_at, attributes)).ok().map(|compared| compared.canonical_hash())
}
