//! What a server must be before anything is trusted to it.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Row};

use super::connection::{Durability, IDLE_IN_TRANSACTION_MAX, Target};
use super::error::store_error;
use crate::store::StoreError;

/// The oldest server that is tested, as the server writes its version.
const SERVER_VERSION_MIN: i32 = 150_000;

/// A session without a pooler in between answers at once. With one, it may wait for another session's transaction.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Checks the server behind a session that has our settings, and tells its version.
pub(super) async fn check_server(connection: &mut PgConnection, durability: Durability) -> Result<String, StoreError> {
    let row = connection
        .fetch_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
                    current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'),
                    current_setting('synchronous_commit'), pg_is_in_recovery(),
                    current_setting('idle_in_transaction_session_timeout')",
        )
        .await
        .map_err(store_error)?;
    let text = |column: usize| row.try_get::<String, _>(column).map_err(store_error);
    let (version, encoding) = (text(0)?, text(2)?);
    let refused = |why: String| Err(StoreError::Refused(why));
    if row.try_get::<i32, _>(1).map_err(store_error)? < SERVER_VERSION_MIN {
        return refused(format!("the server is PostgreSQL {version}: overdue needs 15 or later"));
    }
    if row.try_get::<bool, _>(6).map_err(store_error)? {
        return refused("the server is a standby (it is in recovery): give the URL of the primary".into());
    }
    if encoding != "UTF8" {
        return refused(format!("the database has the encoding {encoding}: create one with ENCODING 'UTF8'"));
    }
    if text(7)? != IDLE_IN_TRANSACTION_MAX {
        return refused(
            "the server does not get the settings of our sessions: something in between drops the connection \
                        option 'options'; connect to PostgreSQL itself, not through a pooler"
                .into(),
        );
    }
    if durability == Durability::Unchecked {
        return Ok(version);
    }
    for (column, setting) in [(3, "fsync"), (4, "full_page_writes"), (5, "synchronous_commit")] {
        if text(column)? == "off" {
            return refused(format!(
                "the server runs with {setting} = off and would lose what it acknowledged in a crash: set it to on"
            ));
        }
    }
    Ok(version)
}

/// Refuses a pooler that gives one session's transactions to different backends: prepared statements, session settings and
/// the fence's recorded backend need a session of PostgreSQL's own.
///
/// Two sessions tell: while the second is in a transaction, the first must still be at the backend that it was at before.
pub(super) async fn check_no_pooler(target: &Target) -> Result<(), StoreError> {
    let mut one = target.open_plain().await?;
    let mut other = target.open_plain().await?;
    let before = backend(&mut one).await?;
    other.execute(sqlx::raw_sql("BEGIN")).await.map_err(store_error)?;
    backend(&mut other).await?;
    let after = tokio::time::timeout(ANSWER_MAX, backend(&mut one)).await;
    let same = matches!(after, Ok(Ok(pid)) if pid == before);
    // Neither is used again; a server that is gone has ended them already.
    let _ = other.close().await;
    let _ = one.close().await;
    match after {
        Ok(Err(error)) => Err(error),
        _ if same => Ok(()),
        _ => Err(StoreError::Refused(format!(
            "a pooler between overdue and {} shares backends between sessions (pool_mode = transaction or statement): give \
             the URL of PostgreSQL itself, or set pool_mode = session for this database",
            target.name()
        ))),
    }
}

/// By the simple protocol, which every pooler lets pass.
async fn backend(connection: &mut PgConnection) -> Result<i32, StoreError> {
    let row = connection.fetch_one(sqlx::raw_sql("SELECT pg_backend_pid()")).await.map_err(store_error)?;
    row.try_get(0).map_err(store_error)
}
