//! What callers ask for inside transactions of their own: the two functions that they may call, and what those raise.

use sqlx::postgres::{PgConnection, PgDatabaseError};

use super::error::{sqlstate, store_error};
use crate::store::StoreError;
use crate::time::Timestamp;

/// Why one of the two functions raised an error. The transaction that it was called in can only be rolled back, whole or to
/// a savepoint.
#[derive(Debug)]
pub(crate) enum Raised {
    /// A parameter is not as it must be.
    Invalid { parameter: String, message: String },
    /// No program runs such a type.
    UnknownType { known: String },
    /// Something else was asked for before, under the same id.
    Conflict(String),
    /// Too much waits to be taken up.
    TooMany(String),
    /// The database did not answer, or is no store that takes requests now.
    Store(StoreError),
}

impl Raised {
    /// Decided by the code; which parameter it is about is told beside it.
    fn of(error: sqlx::Error) -> Self {
        let Some(raised) = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) else {
            return Self::Store(store_error(error));
        };
        let message = raised.message().to_owned();
        match (sqlstate(&error), raised.column()) {
            (Some("42704"), Some("type")) => Self::UnknownType { known: raised.detail().unwrap_or_default().to_owned() },
            (Some("22023" | "22004" | "42704"), parameter) => {
                Self::Invalid { parameter: parameter.unwrap_or_default().to_owned(), message }
            }
            (Some("23505"), _) => Self::Conflict(message),
            (Some("54000"), _) => Self::TooMany(message),
            // The store is being copied, or was moved.
            (Some("55000"), _) => Self::Store(StoreError::Refused(format!("{message}: {}", raised.hint().unwrap_or_default()))),
            _ => Self::Store(store_error(error)),
        }
    }
}

/// Has a workflow started once the connection's transaction is committed.
pub(crate) async fn start_workflow(
    connection: &mut PgConnection,
    workflow_type: &str,
    id: &str,
    input: &str,
    attributes: Option<&str>,
    start_at: Option<Timestamp>,
) -> Result<(), Raised> {
    sqlx::query(
        "SELECT overdue.start_workflow($1, $2, $3::text::json, $4::text::json,
                                       'epoch'::timestamptz + $5::bigint * interval '1 microsecond')",
    )
    .bind(workflow_type)
    .bind(id)
    .bind(input)
    .bind(attributes)
    .bind(start_at.map(Timestamp::as_micros))
    .execute(connection)
    .await
    .map(drop)
    .map_err(Raised::of)
}

/// Sends a signal once the connection's transaction is committed.
pub(crate) async fn signal_workflow(
    connection: &mut PgConnection,
    workflow_type: &str,
    id: &str,
    name: &str,
    payload: &str,
    signal_id: Option<&str>,
) -> Result<(), Raised> {
    sqlx::query("SELECT overdue.signal_workflow($1, $2, $3, $4::text::json, $5)")
        .bind(workflow_type)
        .bind(id)
        .bind(name)
        .bind(payload)
        .bind(signal_id)
        .execute(connection)
        .await
        .map(drop)
        .map_err(Raised::of)
}
