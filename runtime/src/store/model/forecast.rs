//! Counting what is due when.

use async_trait::async_trait;

use super::ModelStore;
use crate::store::{DueCount, Forecasts, StoreError};
use crate::time::Timestamp;

#[async_trait]
impl Forecasts for ModelStore {
    async fn due_counts(
        &self,
        edges: &[Timestamp],
        types: Option<&[String]>,
        rows_max: usize,
    ) -> Result<Vec<DueCount>, StoreError> {
        let inner = self.open()?;
        let count = |window: &[Timestamp]| {
            let is_in = |at: Timestamp| window[0] <= at && at < window[1];
            let rows = inner.state.executions.values().filter(|row| row.wake_at.is_some_and(is_in)).take(rows_max);
            let shown = |name: &str| types.is_none_or(|types| types.iter().any(|shown| shown == name));
            let (mut read, mut due) = (0, 0);
            for row in rows {
                read += 1;
                due += u64::from(shown(row.key.workflow_type()));
            }
            DueCount { due, is_cut: read >= rows_max }
        };
        Ok(edges.windows(2).map(count).collect())
    }
}
