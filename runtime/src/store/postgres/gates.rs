//! The gates of the shared store.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::layout::Layout;
use super::readers::answer;
use super::statement::Statement;
use super::values::{limit_of, stored_shards};
use super::writer::Command;
use super::{PostgresStore, controls};
use crate::id::WorkflowKey;
use crate::store::{Control, Gates, StoreError};

#[async_trait]
impl Gates for PostgresStore {
    async fn controls(&self) -> Result<Vec<Control>, StoreError> {
        answer(controls::all(&mut *self.readers.connection().await?)).await
    }

    async fn replace_control(&self, control: &Control) -> Result<bool, StoreError> {
        self.ask(|answer| Command::ReplaceControl(controls::Replace(control.clone()), answer)).await
    }

    async fn parked(&self, shards: &[u16], gate: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        let shards = stored_shards(shards);
        answer(parked(&mut *self.readers.connection().await?, &self.layout, &shards, gate, limit)).await
    }
}

pub(super) static PARKED: Statement = Statement::new(
    "SELECT p.parked_since, t.name, p.id
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT e.type, e.id, e.parked_since FROM overdue.executions AS e
         WHERE e.shard = s.shard /*citus AND e.shard = ANY ($1)*/ AND e.parked_by = $2
         ORDER BY e.parked_since LIMIT $3) AS p
     JOIN overdue.types AS t ON t.code = p.type
     ORDER BY p.parked_since, t.name, p.id LIMIT $3",
);

/// Executions of `shards` that wait behind `gate`, those of them all that have waited the longest.
async fn parked(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    gate: &str,
    limit: usize,
) -> Result<Vec<WorkflowKey>, sqlx::Error> {
    let mut found = Vec::new();
    for part in layout.parts_of(shards) {
        let rows = sqlx::query(PARKED.on(layout)).bind(part).bind(gate).bind(limit_of(limit)).fetch_all(&mut *connection).await?;
        let of_part = rows.iter().map(|row: &PgRow| {
            let key = WorkflowKey::new(row.try_get::<&str, _>(1)?, row.try_get::<&str, _>(2)?);
            Ok((row.try_get::<i64, _>(0)?, key))
        });
        found.extend(of_part.collect::<Result<Vec<_>, sqlx::Error>>()?);
    }
    // Each part is in order already.
    found.sort();
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, key)| key).collect())
}
