//! What a node reads over its connection beside its executions: the outbox, and counts of what will be due.

use async_trait::async_trait;

use super::Session;
use crate::store::{DueCount, Forecasts, Outbox, OutboxFilter, OutboxKey, OutboxRow, StoreError};
use crate::time::Timestamp;

#[async_trait]
impl Outbox for Session {
    async fn outbox_due(&self, sink: &str, shards: &[u16], until: Timestamp, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(self.database.backing().store().outbox_due(sink, shards, until, limit)).await
    }

    async fn outbox_page(
        &self,
        filter: &OutboxFilter,
        after: Option<&OutboxKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(self.database.backing().store().outbox_page(filter, after, limit)).await
    }

    async fn outbox_row(&self, place: &OutboxKey) -> Result<Option<OutboxRow>, StoreError> {
        self.read(self.database.backing().store().outbox_row(place)).await
    }
}

#[async_trait]
impl Forecasts for Session {
    async fn due_counts(
        &self,
        edges: &[Timestamp],
        types: Option<&[String]>,
        rows_max: usize,
    ) -> Result<Vec<DueCount>, StoreError> {
        self.read(self.database.backing().store().due_counts(edges, types, rows_max)).await
    }
}
