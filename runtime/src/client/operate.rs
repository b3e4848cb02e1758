//! What a person does: cancel, terminate, retry, resolve, skip. Each is recorded with who and why.

use serde::Serialize;
use utoipa::ToSchema;

use super::signal::refused_error;
use super::{Client, ClientError, REASON_BYTES_MAX};
use crate::engine::{Answer, Ask, IncomingSignal, OperatorAction, RefusedInput};
use crate::id::WorkflowKey;
use crate::payload::InvalidField;

/// What became of a cancel or terminate request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ActionOutcome {
    /// It is part of the history.
    Applied,
    /// It is stored, and applied as soon as the execution can be run again.
    Buffered,
    /// It came after the end or after the decision; nothing changed.
    Late,
    /// It was there already; nothing changed.
    Duplicate,
}

/// The signal id of every cancel request: the second one is a duplicate of the first.
const CANCEL_SIGNAL_ID: &str = "cancel-request";

impl Client {
    /// Asks a workflow to stop; what that means is the workflow's own decision.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel(&self, workflow_type: &str, id: &str, reason: &str, actor: &str) -> Result<ActionOutcome, ClientError> {
        let key = self.key(workflow_type, id)?;
        check_reason(reason)?;
        let workflow = self.engine().code().workflows.get(workflow_type);
        let Some((name, payload)) = workflow.and_then(|workflow| workflow.cancel_signal(reason, actor)) else {
            let (reason, actor) = (reason.to_owned(), actor.to_owned());
            let answer = self.ask_owner(&key, Ask::Cancel { reason, actor }).await;
            return outcome(&key, answer);
        };
        // A signal would wait for an execution that does not exist yet; a cancel request needs one.
        match self.engine().store().find(&key).await? {
            None => return Err(ClientError::not_found(&key)),
            Some(row) if !row.status.is_open() => return Ok(ActionOutcome::Late),
            Some(_) => {}
        }
        let signal = IncomingSignal {
            name: name.to_owned(),
            signal_id: CANCEL_SIGNAL_ID.to_owned(),
            identity: payload.canonical_hash(),
            payload,
            subject: None,
        };
        match self.ask_owner(&key, Ask::Signal(signal)).await {
            Some(Answer::Refused(RefusedInput::SignalConflict)) => Ok(ActionOutcome::Duplicate),
            answer => outcome(&key, answer),
        }
    }

    /// Ends an execution at once, without asking its workflow. What it had under way is left as it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn terminate(
        &self,
        workflow_type: &str,
        id: &str,
        reason: &str,
        actor: &str,
    ) -> Result<ActionOutcome, ClientError> {
        let key = self.key(workflow_type, id)?;
        check_reason(reason)?;
        let (reason, actor) = (reason.to_owned(), actor.to_owned());
        let answer = self.ask_owner(&key, Ask::Terminate { reason, actor }).await;
        outcome(&key, answer)
    }

    /// Decides about a pending activity: try it again, give its result, or leave it undone.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Conflict`] when it has ended or is being called right now.
    pub async fn operate(
        &self,
        workflow_type: &str,
        id: &str,
        number: u64,
        action: OperatorAction,
        reason: &str,
        actor: &str,
    ) -> Result<ActionOutcome, ClientError> {
        let key = self.key(workflow_type, id)?;
        check_reason(reason)?;
        let (reason, actor) = (reason.to_owned(), actor.to_owned());
        let answer = self.ask_owner(&key, Ask::Operate { number, action, reason, actor }).await;
        outcome(&key, answer)
    }
}

fn outcome(key: &WorkflowKey, answer: Option<Answer>) -> Result<ActionOutcome, ClientError> {
    match answer {
        Some(Answer::Applied) => Ok(ActionOutcome::Applied),
        Some(Answer::Buffered) => Ok(ActionOutcome::Buffered),
        Some(Answer::Late) => Ok(ActionOutcome::Late),
        Some(Answer::Duplicate) => Ok(ActionOutcome::Duplicate),
        Some(Answer::Refused(refused)) => Err(refused_error(key, refused)),
        None => Err(ClientError::Unavailable),
    }
}

/// Checks why a person acts.
pub(crate) fn check_reason(reason: &str) -> Result<(), ClientError> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX || reason.contains('\0') {
        let message = format!("say why, in 1 to {REASON_BYTES_MAX} bytes: it is recorded in the history");
        return Err(ClientError::Invalid(vec![InvalidField::new("reason", message)]));
    }
    Ok(())
}
