//! The outbox of the model.

use async_trait::async_trait;

use super::ModelStore;
use super::state::State;
use crate::store::{Dispatch, Outbox, OutboxChange, OutboxFilter, OutboxKey, OutboxRow, Outcome, StoreError};
use crate::time::Timestamp;

#[async_trait]
impl Outbox for ModelStore {
    async fn outbox_due(&self, sink: &str, shards: &[u16], until: Timestamp, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        let inner = self.open()?;
        let is_due = |row: &&OutboxRow| {
            row.place.sink == sink && shards.contains(&row.place.shard) && row.next_at.is_some_and(|at| at <= until)
        };
        let mut found: Vec<OutboxRow> = inner.state.outbox.values().filter(is_due).cloned().collect();
        found.sort_by_cached_key(|row| (row.next_at, row.place.run_id, row.place.event));
        found.truncate(limit);
        Ok(found)
    }

    async fn outbox_page(
        &self,
        filter: &OutboxFilter,
        after: Option<&OutboxKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let inner = self.open()?;
        let is_wanted = |row: &&OutboxRow| {
            after.is_none_or(|after| row.place > *after)
                && filter.sink.as_ref().is_none_or(|sink| row.place.sink == *sink)
                && filter.state.is_none_or(|state| row.state() == state)
        };
        Ok(inner.state.outbox.values().filter(is_wanted).take(limit).cloned().collect())
    }

    async fn outbox_row(&self, place: &OutboxKey) -> Result<Option<OutboxRow>, StoreError> {
        Ok(self.open()?.state.outbox.get(place).cloned())
    }
}

impl ModelStore {
    /// Everything in the outbox.
    pub fn outbox(&self) -> Vec<OutboxRow> {
        self.lock().state.outbox.values().cloned().collect()
    }
}

impl State {
    /// Stores what a transition emits.
    pub(super) fn emit(&mut self, rows: &[OutboxRow]) {
        for row in rows {
            if self.outbox.contains_key(&row.place) {
                continue;
            }
            let next_at = self.first_of(&row.place).is_none().then_some(row.emitted_at);
            self.outbox.insert(row.place.clone(), OutboxRow { next_at, ..row.clone() });
        }
    }

    /// The first row of the same run and sink.
    fn first_of(&self, place: &OutboxKey) -> Option<OutboxKey> {
        let from = OutboxKey { event: 0, ..place.clone() };
        let is_same = |key: &&OutboxKey| key.run_id == place.run_id && key.sink == place.sink && key.shard == place.shard;
        self.outbox.range(from..).map(|(key, _)| key).next().filter(is_same).cloned()
    }

    pub(super) fn dispatch(&mut self, dispatch: &Dispatch) -> Outcome {
        let Some(row) = self.outbox.get_mut(&dispatch.place).filter(|row| row.attempts == dispatch.attempts) else {
            return Outcome::Stale;
        };
        match &dispatch.change {
            OutboxChange::Update { next_at, attempts, failing_since, parked, failure } => {
                row.next_at = *next_at;
                row.attempts = *attempts;
                row.failing_since = *failing_since;
                row.parked = *parked;
                row.failure.clone_from(failure);
            }
            OutboxChange::Remove { now } => {
                self.outbox.remove(&dispatch.place);
                let next = self.first_of(&dispatch.place);
                if let Some(next) = next.and_then(|next| self.outbox.get_mut(&next))
                    && !next.parked
                {
                    next.next_at.get_or_insert(*now);
                }
            }
        }
        Outcome::Dispatched
    }
}
