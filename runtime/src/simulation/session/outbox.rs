//! What a node reads of the outbox over its connection.

use async_trait::async_trait;

use super::Session;
use crate::store::{Outbox, OutboxFilter, OutboxKey, OutboxRow, StoreError};
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
