//! Sending signals.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Client, ClientError};
use crate::engine::{Answer, Ask, IncomingSignal, RefusedInput};
use crate::id::{ID_BYTES_MAX, WorkflowKey};
use crate::payload::{InvalidField, Payload};
use crate::workflow::SignalDeclaration;

/// The largest payload of a signal, in bytes.
const SIGNAL_BYTES_MAX: usize = 64 * 1024;

/// A signal to be sent.
#[derive(Clone, Debug)]
pub struct SignalRequest {
    /// Workflow type.
    pub workflow_type: String,
    /// Workflow id; it need not have been started yet.
    pub id: String,
    /// Name of the signal, one that the workflow type declares.
    pub name: String,
    /// Identifies the delivery: a second one with the same id is a duplicate. By default the signal's subject, if it has
    /// one, else a new random id.
    pub signal_id: Option<String>,
    /// What it says.
    pub payload: Payload,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignalOutcome {
    /// It is part of the open execution's history.
    Applied,
    /// It is stored, and applied as soon as the execution starts or can be run again.
    Buffered,
    /// It came after the end or after the decision; what it takes is done.
    Late,
    /// It was there already; nothing more happens.
    Duplicate,
}

/// The answer to a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignalResponse {
    /// What became of it.
    pub outcome: SignalOutcome,
    /// The id under which it is known.
    pub signal_id: String,
}

impl Client {
    /// Sends a signal. Once this returns, it is durable and certain to be acted on.
    ///
    /// # Errors
    /// [`ClientError`]; after [`ClientError::Unavailable`] repeat it with the same signal id.
    pub async fn signal(&self, request: SignalRequest) -> Result<SignalResponse, ClientError> {
        let key = self.key(&request.workflow_type, &request.id)?;
        let signal = self.check_signal(&key, request)?;
        let (name, signal_id) = (signal.name.clone(), signal.signal_id.clone());
        let answer = self.ask_owner(&key, Ask::Signal(signal)).await;
        let outcome = match answer {
            Some(Answer::Applied) => SignalOutcome::Applied,
            Some(Answer::Buffered) => SignalOutcome::Buffered,
            Some(Answer::Late) => SignalOutcome::Late,
            Some(Answer::Duplicate) => SignalOutcome::Duplicate,
            Some(Answer::Refused(RefusedInput::SignalConflict)) => {
                let message = format!("{key} has received signal {signal_id:?} before, saying something else than this {name}");
                return Err(ClientError::conflict(message, None));
            }
            Some(Answer::Refused(refused)) => return Err(refused_error(&key, refused)),
            None => return Err(ClientError::Unavailable),
        };
        Ok(SignalResponse { outcome, signal_id })
    }

    fn check_signal(&self, key: &WorkflowKey, request: SignalRequest) -> Result<IncomingSignal, ClientError> {
        let declared = self.declared_signal(key, &request.name)?;
        if request.payload.len() > SIGNAL_BYTES_MAX {
            let message = format!("payload has {} bytes, the limit is {SIGNAL_BYTES_MAX}", request.payload.len());
            return Err(ClientError::TooLarge(message));
        }
        let checked = declared
            .check(&request.payload)
            .map_err(|fields| ClientError::Invalid(fields.into_iter().map(|field| field.within("payload")).collect()))?;
        let signal_id = match request.signal_id.or_else(|| checked.subject.clone()) {
            Some(signal_id) => signal_id,
            None => {
                let random = &self.engine().environment().random;
                format!("{:016x}{:016x}", random.next_u64(), random.next_u64())
            }
        };
        if signal_id.is_empty() || signal_id.len() > ID_BYTES_MAX || signal_id.chars().any(char::is_control) {
            let message = format!("a signal id has 1 to {ID_BYTES_MAX} bytes, without control characters");
            return Err(ClientError::Invalid(vec![InvalidField::new("signalId", message)]));
        }
        Ok(IncomingSignal {
            name: request.name,
            signal_id,
            payload: request.payload,
            subject: checked.subject,
            identity: checked.identity,
        })
    }

    fn declared_signal(&self, key: &WorkflowKey, name: &str) -> Result<SignalDeclaration, ClientError> {
        let workflow = self.engine().code().workflows.get(key.workflow_type());
        let declared = workflow.and_then(|workflow| workflow.signal(name));
        declared.ok_or_else(|| {
            let known = workflow.map(|workflow| workflow.signal_names().join(", ")).unwrap_or_default();
            let message = format!("{} takes no signal {name:?}; it takes {known}", key.workflow_type());
            ClientError::Invalid(vec![InvalidField::new("name", message)])
        })
    }
}

/// What a refused input means to its sender.
pub(super) fn refused_error(key: &WorkflowKey, refused: RefusedInput) -> ClientError {
    match refused {
        RefusedInput::NotFound => ClientError::not_found(key),
        RefusedInput::SignalConflict => {
            ClientError::conflict(format!("{key} has received this before, saying something else"), None)
        }
        RefusedInput::TooManySignals => ClientError::TooMany(format!("{key} has reached its limit of signals")),
        RefusedInput::NoSuchActivity => ClientError::NotFound(format!("{key} has no activity of this number")),
        RefusedInput::NotPending => ClientError::conflict(format!("this activity of {key} has ended already"), None),
        RefusedInput::UnderWay => {
            ClientError::conflict(format!("this activity of {key} is being called right now; look again when it has ended"), None)
        }
        RefusedInput::InvalidResult(field) => ClientError::Invalid(vec![field.within("result")]),
        RefusedInput::Closed(run_id) => ClientError::conflict(format!("{key} has ended"), Some(run_id)),
        RefusedInput::Blocked => {
            ClientError::conflict(format!("{key} cannot be run by this program now; describe says why, terminate ends it"), None)
        }
        RefusedInput::Rejected => ClientError::Rejected,
        RefusedInput::NotOwner | RefusedInput::Unavailable => ClientError::Unavailable,
    }
}
