//! What a node sees of the gates over its connection.

use async_trait::async_trait;

use super::Session;
use crate::id::WorkflowKey;
use crate::store::{Control, Gates, StoreError};

#[async_trait]
impl Gates for Session {
    async fn controls(&self) -> Result<Vec<Control>, StoreError> {
        self.read(self.database.backing().store().controls()).await
    }

    async fn replace_control(&self, control: &Control) -> Result<bool, StoreError> {
        let control = control.clone();
        self.change_or_unavailable(move |database| {
            Box::pin(async move {
                let backing = database.backing();
                backing.inline(backing.store().replace_control(&control))
            })
        })
        .await
    }

    async fn parked(&self, shards: &[u16], gate: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        self.read(self.database.backing().store().parked(shards, gate, limit)).await
    }
}
