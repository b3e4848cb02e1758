//! How many executions are due when: counts along the index of times, cut where they would grow with the sleepers.

use async_trait::async_trait;

use super::StoreError;
use crate::time::Timestamp;

/// How many executions of one window are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueCount {
    /// So many, of the rows that were read.
    pub due: u64,
    /// Whether as many rows were read as may be: there can be more.
    pub is_cut: bool,
}

/// What is counted ahead of time.
///
/// # Errors
/// Every method fails with [`StoreError`] when the database does not answer.
#[async_trait]
pub trait Forecasts {
    /// Open executions with `edges[i] <= wake_at < edges[i + 1]` for each `i`, of these types, or of all. `edges` ascend. Of
    /// each window at most `rows_max` rows are read, whatever their type; which ones, where there are more, is the store's
    /// choice. One count less than there are edges, in their order.
    async fn due_counts(
        &self,
        edges: &[Timestamp],
        types: Option<&[String]>,
        rows_max: usize,
    ) -> Result<Vec<DueCount>, StoreError>;
}
