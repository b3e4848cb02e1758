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
    pub(super) pool: SqlitePool,
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
        let connection = self.pool.acquire().await.map_err(store_error)?;
        Ok(Reading { connection, _turn: turn })
    }

    /// For several statements that must see one state. Ends when dropped.
    pub(super) async fn snapshot(&self) -> Result<Reading<Transaction<'static, Sqlite>>, StoreError> {
        let turn = Arc::clone(&self.gate).read_owned().await;
        let connection = self.pool.begin().await.map_err(store_error)?;
        Ok(Reading { connection, _turn: turn })
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
