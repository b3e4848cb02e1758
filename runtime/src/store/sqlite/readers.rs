//! The connections that read. Each read is short: a long one would keep the log from being copied back.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{Sqlite, Transaction};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::error::store_error;
use crate::store::StoreError;

/// Held in common by reads, and alone by a checkpoint that needs all readers out of the log.
pub(super) type Gate = Arc<RwLock<()>>;

pub(super) struct Readers {
    /// What the engine needs to go on.
    pub(super) engine: SqlitePool,
    /// What people look at. A filter that few rows pass can keep a connection for long; the engine must not wait for it.
    pub(super) people: SqlitePool,
    pub(super) gate: Gate,
}

/// A connection that reads; with `T` a transaction, all its reads see one state.
pub(super) struct Reading<T> {
    connection: T,
    _turn: OwnedRwLockReadGuard<()>,
}

impl Readers {
    /// For a single statement, which is its own snapshot.
    pub(super) async fn connection(&self) -> Result<Reading<PoolConnection<Sqlite>>, StoreError> {
        let turn = Arc::clone(&self.gate).read_owned().await;
        let connection = self.engine.acquire().await.map_err(store_error)?;
        Ok(Reading { connection, _turn: turn })
    }

    /// For several statements that must see one state. Ends when dropped.
    pub(super) async fn snapshot(&self) -> Result<Reading<Transaction<'static, Sqlite>>, StoreError> {
        self.snapshot_of(&self.engine).await
    }

    /// A snapshot for a page that somebody looks at.
    pub(super) async fn page(&self) -> Result<Reading<Transaction<'static, Sqlite>>, StoreError> {
        self.snapshot_of(&self.people).await
    }

    async fn snapshot_of(&self, pool: &SqlitePool) -> Result<Reading<Transaction<'static, Sqlite>>, StoreError> {
        let turn = Arc::clone(&self.gate).read_owned().await;
        let connection = pool.begin().await.map_err(store_error)?;
        Ok(Reading { connection, _turn: turn })
    }

    /// Waits for the reads under way; later ones are refused.
    pub(super) async fn close(&self) {
        self.people.close().await;
        self.engine.close().await;
    }
}

impl<T: Deref<Target = SqliteConnection>> Deref for Reading<T> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl<T: DerefMut<Target = SqliteConnection>> DerefMut for Reading<T> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}
