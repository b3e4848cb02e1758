//! The connections that read.
//!
//! Every read is one statement, which is its own snapshot and its own transaction. So a caller may go away at any moment:
//! the connection never stands in a transaction, and what is left of the answer is read away before its next use.

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPool;

use super::error::store_error;
use crate::store::StoreError;

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
