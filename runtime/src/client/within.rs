//! Asking from within a caller's own transaction, in the database of a PostgreSQL store: what is asked for and what the
//! caller writes itself are committed together, or not at all. No node need be reachable.

use sqlx::postgres::PgConnection;

use super::{ClientError, SignalRequest, StartRequest};
use crate::payload::{InvalidField, Payload};
use crate::store::{Raised, signal_workflow, start_workflow};

/// Has a workflow started once the transaction of `connection` is committed: exactly once, by a node that finds it there
/// within a scan. What is rolled back was never asked for.
///
/// The same request again changes nothing. The input is checked by the node that makes the start; one that it refuses is
/// kept with the reason, for whoever asks about the id. The request's trace context is not kept.
///
/// After an error the transaction can only be rolled back, whole or to a savepoint.
///
/// ```no_run
/// use overdue_runtime::Payload;
/// use overdue_runtime::client::{StartRequest, start_in};
/// use overdue_runtime::sqlx::{self, PgPool};
///
/// # async fn place(pool: &PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// sqlx::query("INSERT INTO orders (id) VALUES ('4711')").execute(&mut *transaction).await?;
/// let request = StartRequest {
///     workflow_type: "order-timeout".into(),
///     id: "4711".into(),
///     input: Payload::from_json(r#"{"orderId": "4711", "payDeadline": "2026-11-30T18:30:00Z"}"#)?,
///     start_at: None,
///     attributes: Default::default(),
///     traceparent: None,
/// };
/// start_in(&mut transaction, &request).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ClientError::Invalid`], with the parameter; [`ClientError::UnknownType`], where no node that ran here has such a type;
/// [`ClientError::Conflict`], where another request waits under the same id; [`ClientError::Store`], where the database does
/// not answer, the role may not call the function, or the store is being copied or was moved.
pub async fn start_in(connection: &mut PgConnection, request: &StartRequest) -> Result<(), ClientError> {
    let StartRequest { workflow_type, id, input, start_at, attributes, traceparent: _ } = request;
    let attributes = match attributes.is_empty() {
        true => None,
        false => Some(Payload::of(attributes).map_err(|error| invalid("attributes", error.to_string()))?),
    };
    let attributes = attributes.as_ref().map(Payload::as_str);
    let asked = start_workflow(connection, workflow_type, id, input.as_str(), attributes, *start_at).await;
    asked.map_err(|raised| client_error(raised, workflow_type))
}

/// Sends a signal once the transaction of `connection` is committed, to a workflow that is started or not. What is rolled
/// back was never sent.
///
/// The same signal id again changes nothing. The payload is checked by the node that takes it up; one that it refuses is
/// held, and changes nothing. Whether the signal came in time is seen in the workflow alone.
///
/// After an error the transaction can only be rolled back, whole or to a savepoint.
///
/// # Errors
/// As of [`start_in`]; [`ClientError::Conflict`], where the signal id waits with another payload; [`ClientError::TooMany`],
/// where too many signals wait.
pub async fn signal_in(connection: &mut PgConnection, request: &SignalRequest) -> Result<(), ClientError> {
    let SignalRequest { workflow_type, id, name, signal_id, payload } = request;
    let sent = signal_workflow(connection, workflow_type, id, name, payload.as_str(), signal_id.as_deref()).await;
    sent.map_err(|raised| client_error(raised, workflow_type))
}

fn invalid(field: &str, message: String) -> ClientError {
    ClientError::Invalid(vec![InvalidField::new(field, message)])
}

fn client_error(raised: Raised, workflow_type: &str) -> ClientError {
    match raised {
        Raised::Invalid { parameter, message } => {
            let field = if parameter == "signal_id" { "signalId" } else { &parameter };
            // The functions begin most of their messages with the parameter, too.
            let message = message.strip_prefix(&format!("{parameter}: ")).map_or(message.clone(), str::to_owned);
            invalid(field, message)
        }
        Raised::UnknownType { known } => ClientError::UnknownType { found: workflow_type.to_owned(), known },
        Raised::Conflict(message) => ClientError::conflict(message, None),
        Raised::TooMany(message) => ClientError::TooMany(message),
        Raised::Store(error) => ClientError::Store(error),
    }
}
