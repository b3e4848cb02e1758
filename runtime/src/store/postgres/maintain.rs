//! What is done to a database beside serving it.

use sqlx::Connection;

use super::connection::Target;
use super::schema::{self, OlderSchema};
use super::{PostgresStore, distribute, requests};
use crate::store::StoreError;

impl PostgresStore {
    /// Brings the database to this program's schema. One that is current, or newer and compatible, is left as it is.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the database cannot be reached or used, or when another session holds a lock for
    /// longer than five seconds; it is named then, and the migration can be repeated.
    pub async fn migrate(url: &str) -> Result<(), StoreError> {
        let target = Target::parse(url)?;
        let mut connection = Self::session(&target).await?;
        let migrated = schema::prepare(&mut connection, &target, OlderSchema::Migrate).await;
        let _ = connection.close().await;
        migrated
    }

    /// Distributes the tables by shard over the workers of Citus, which is installed in the database. What is distributed
    /// already is left as it is.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the database cannot be reached, has no Citus or no worker, or while a node uses it.
    pub async fn distribute(url: &str) -> Result<(), StoreError> {
        let target = Target::parse(url)?;
        let mut connection = target.open_migrator(distribute::LOCK_WAIT_MAX).await?;
        let distributed = distribute::distribute(&mut connection, target.durability).await;
        let _ = connection.close().await;
        distributed
    }

    /// Lets a database role start workflows and send signals by `overdue.start_workflow` and `overdue.signal_workflow`, and
    /// nothing else.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the database cannot be reached, has no such role, or this user may not grant it.
    pub async fn allow(url: &str, role: &str) -> Result<(), StoreError> {
        let mut connection = Target::parse(url)?.open_plain().await?;
        let allowed = requests::allow(&mut connection, role).await;
        let _ = connection.close().await;
        allowed.map_err(|error| StoreError::Refused(format!("role {role:?} cannot be allowed to start workflows: {error}")))
    }

    /// Whether a store was created in the database that `url` names.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the database cannot be reached.
    pub async fn exists(url: &str) -> Result<bool, StoreError> {
        let mut connection = Target::parse(url)?.open_plain().await?;
        let exists = schema::exists(&mut connection).await;
        let _ = connection.close().await;
        exists
    }
}
