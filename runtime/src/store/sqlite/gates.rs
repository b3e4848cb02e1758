//! The gates of the embedded store.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::error::store_error;
use super::values::limit_of;
use super::writer::Command;
use super::{SqliteStore, controls, shards_as_json};
use crate::id::WorkflowKey;
use crate::store::{Control, Gates, StoreError};

#[async_trait]
impl Gates for SqliteStore {
    async fn controls(&self) -> Result<Vec<Control>, StoreError> {
        controls::all(&mut *self.readers.connection().await?).await.map_err(store_error)
    }

    async fn replace_control(&self, control: &Control) -> Result<bool, StoreError> {
        self.ask(|answer| Command::ReplaceControl { control: control.clone(), answer }).await
    }

    async fn parked(&self, shards: &[u16], gate: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        let shards = shards_as_json(shards);
        parked(&mut *self.readers.connection().await?, &shards, gate, limit).await.map_err(store_error)
    }
}

pub(super) const PARKED: &str = "SELECT t.name, e.id
         FROM json_each(?1) AS s
         CROSS JOIN executions AS e ON e.number IN (
             SELECT p.number FROM executions AS p INDEXED BY executions_parked
             WHERE p.shard = s.value AND p.parked_by = ?2
             ORDER BY p.parked_since LIMIT ?3)
         CROSS JOIN types AS t ON t.code = e.type
         ORDER BY e.parked_since, t.name, e.id LIMIT ?3";

/// Executions of `shards` (a JSON array) that wait behind `gate`, those of them all that have waited the longest.
async fn parked(
    connection: &mut SqliteConnection,
    shards: &str,
    gate: &str,
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    let rows = sqlx::query(PARKED).bind(shards).bind(gate).bind(limit_of(limit)).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?))).collect()
}
