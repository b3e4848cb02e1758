//! The connections that read.
//!
//! Every read is one statement, which is its own snapshot and its own transaction. So a caller may go away at any moment:
//! the connection never stands in a transaction, and what is left of the answer is read away before its next use.

use std::time::Duration;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPool;

use super::error::{silent, store_error};
use crate::store::StoreError;

/// The longest wait for an answer. The server ends a statement earlier; one that says nothing at all may be gone.
const ANSWER_MAX: Duration = Duration::from_secs(45);

/// What a read comes to. One that is given up gives its connection up as well: it does not answer when it is put back.
pub(super) async fn answer<T>(read: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    tokio::time::timeout(ANSWER_MAX, read).await.unwrap_or_else(|_| Err(silent())).map_err(store_error)
}

pub(super) struct Readers {
    /// What the engine needs to go on.
    pub(super) engine: PgPool,
    /// What people look at. A filter that few rows pass can keep a connection for long; the engine must not wait for it.
    pub(super) people: PgPool,
}

impl Readers {
    pub(super) async fn connection(&self) -> Result<PoolConnection<Postgres>, StoreError> {
        self.engine.acquire().await.map_err(store_error)
    }

    /// For a page that somebody looks at.
    pub(super) async fn page(&self) -> Result<PoolConnection<Postgres>, StoreError> {
        self.people.acquire().await.map_err(store_error)
    }

    /// Waits for the reads under way; later ones are refused.
    pub(super) async fn close(&self) {
        self.people.close().await;
        self.engine.close().await;
    }
}
