//! The gates of the model.

use async_trait::async_trait;

use super::ModelStore;
use crate::id::WorkflowKey;
use crate::store::{Control, Gates, StoreError};

#[async_trait]
impl Gates for ModelStore {
    async fn controls(&self) -> Result<Vec<Control>, StoreError> {
        Ok(self.open()?.state.controls.values().cloned().collect())
    }

    async fn replace_control(&self, control: &Control) -> Result<bool, StoreError> {
        let mut inner = self.open()?;
        let standing = inner.state.controls.get(&control.name).map_or(0, |standing| standing.rev);
        let follows = control.rev == standing + 1;
        if follows {
            inner.state.controls.insert(control.name.clone(), control.clone());
        }
        Ok(follows)
    }

    async fn parked(&self, shards: &[u16], gate: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        let inner = self.open()?;
        let behind = inner.state.parked.iter().filter(|(_, parked)| parked.gate == gate);
        let is_asked = |key: &WorkflowKey| inner.state.executions.get(key).is_some_and(|row| shards.contains(&row.shard));
        let mut found: Vec<_> =
            behind.filter(|(key, _)| is_asked(key)).map(|(key, parked)| (parked.since, key.clone())).collect();
        found.sort();
        found.truncate(limit);
        Ok(found.into_iter().map(|(_, key)| key).collect())
    }
}
