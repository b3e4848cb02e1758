//! Moving the model.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use super::ModelStore;
use super::state::{State, Stored};
use crate::id::WorkflowKey;
use crate::store::transfer::{CarriedExecution, CarriedSignal, Counts, Imported, Parcel, Place, Portable, Standing, StoreName};
use crate::store::{StoreError, StoreFacts};

/// The marks of a store in memory.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    id: [u8; 16],
    copying_from: Option<StoreName>,
    moved_to: Option<StoreName>,
}

impl Marks {
    /// The marks of a new store.
    pub(super) fn new() -> Self {
        static STORES: AtomicU64 = AtomicU64::new(1);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        Self { id: u128::from(number).to_be_bytes(), copying_from: None, moved_to: None }
    }

    pub(super) fn standing(&self, in_use_by: Option<String>) -> Standing {
        let Self { id, copying_from, moved_to } = self.clone();
        Standing { name: StoreName { id, url: format!("memory:{}", hex::encode(&id[8..])) }, copying_from, moved_to, in_use_by }
    }
}

#[async_trait]
impl Portable for ModelStore {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        let now = self.now();
        let inner = self.open()?;
        Ok(inner.marks.standing(inner.state.nodes.holder(now)))
    }

    async fn mark(&self, copying_from: Option<&StoreName>, moved_to: Option<&StoreName>) -> Result<(), StoreError> {
        let mut inner = self.open()?;
        inner.marks.copying_from = copying_from.cloned();
        inner.marks.moved_to = moved_to.cloned();
        inner.state.nodes.end_all();
        Ok(())
    }

    async fn export(&self, place: &Place, limit: usize) -> Result<(Parcel, Option<Place>), StoreError> {
        Ok(self.open()?.state.export(place, limit))
    }

    async fn import(&self, parcel: &Parcel) -> Result<Imported, StoreError> {
        Ok(self.open()?.state.import(parcel))
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.open()?.state.clear();
        Ok(())
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.open()?.state.counts())
    }

    async fn close(&self) {
        self.lock().closed = true;
    }
}

impl State {
    fn export(&self, place: &Place, limit: usize) -> (Parcel, Option<Place>) {
        match place {
            Place::Executions(after) => {
                let keys = self.executions.keys().filter(|key| after.as_ref().is_none_or(|after| *key > after)).take(limit);
                let carried: Vec<_> = keys.filter_map(|key| self.carried(key)).collect();
                let next =
                    carried.last().map_or(Place::Signals(None), |last| Place::Executions(Some(last.execution.key.clone())));
                (Parcel::Executions(carried), Some(next))
            }
            Place::Signals(after) => {
                let rows = self.inbox.iter().filter(|(at, _)| after.as_ref().is_none_or(|after| *at > after)).take(limit);
                let carried: Vec<_> =
                    rows.map(|(_, stored)| CarriedSignal { row: stored.row.clone(), held: stored.held }).collect();
                let next = carried.last().map_or(Place::Requests(None), |last| {
                    Place::Signals(Some((last.row.key.clone(), last.row.signal_id.clone())))
                });
                (Parcel::Signals(carried), Some(next))
            }
            Place::Requests(after) => {
                let requests = self.requests.iter().filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
                let carried: Vec<_> = requests.take(limit).map(|(_, request)| request.clone()).collect();
                let next = carried.last().map_or(Place::Outbox(None), |last| Place::Requests(Some(last.key.clone())));
                (Parcel::Requests(carried), Some(next))
            }
            Place::Outbox(after) => {
                let rows = self.outbox.values().filter(|row| after.as_ref().is_none_or(|after| row.place > *after));
                let carried: Vec<_> = rows.take(limit).cloned().collect();
                let next = carried.last().map_or(Place::Tokens, |last| Place::Outbox(Some(last.place.clone())));
                (Parcel::Outbox(carried), Some(next))
            }
            Place::Tokens => (Parcel::Tokens(self.tokens.values().cloned().collect()), Some(Place::Controls)),
            Place::Controls => (Parcel::Controls(self.controls.values().cloned().collect()), None),
        }
    }

    fn carried(&self, key: &WorkflowKey) -> Option<CarriedExecution> {
        let loaded = self.load(key)?;
        Some(CarriedExecution {
            execution: loaded.execution,
            tombstone: loaded.tombstone,
            parked: self.parked.get(key).cloned(),
            records: loaded.records,
            attributes: self.attributes_of(key),
        })
    }

    fn import(&mut self, parcel: &Parcel) -> Imported {
        let differs = match parcel {
            Parcel::Executions(all) => all
                .iter()
                .find(|one| self.carried(&one.execution.key).is_some_and(|there| there != **one))
                .map(|one| one.execution.key.to_string()),
            Parcel::Signals(all) => all
                .iter()
                .find(|one| {
                    let there = self.inbox.get(&(one.row.key.clone(), one.row.signal_id.clone()));
                    there.is_some_and(|there| (&there.row, there.held) != (&one.row, one.held))
                })
                .map(|one| format!("signal {} of {}", one.row.signal_id, one.row.key)),
            Parcel::Requests(all) => all
                .iter()
                .find(|one| self.requests.get(&one.key).is_some_and(|there| there != *one))
                .map(|one| format!("the request for {}", one.key)),
            Parcel::Outbox(all) => all
                .iter()
                .find(|one| self.outbox.get(&one.place).is_some_and(|there| there != *one))
                .map(|one| format!("event {} of {} for {}", one.place.event, one.key, one.place.sink)),
            Parcel::Tokens(all) => all
                .iter()
                .find(|one| self.tokens.get(&one.name).is_some_and(|there| there != *one))
                .map(|one| format!("token {}", one.name)),
            Parcel::Controls(all) => {
                all.iter().find(|one| self.controls.get(&one.name).is_some_and(|there| there != *one)).map(|one| one.name.clone())
            }
        };
        if let Some(differs) = differs {
            return Imported::Differs(differs);
        }
        match parcel.clone() {
            Parcel::Executions(all) => all.into_iter().for_each(|one| self.put(one)),
            Parcel::Signals(all) => {
                for CarriedSignal { row, held } in all {
                    self.inbox.insert((row.key.clone(), row.signal_id.clone()), Stored { row, held });
                }
            }
            Parcel::Requests(all) => self.requests.extend(all.into_iter().map(|request| (request.key.clone(), request))),
            Parcel::Outbox(all) => self.outbox.extend(all.into_iter().map(|row| (row.place.clone(), row))),
            Parcel::Tokens(all) => self.tokens.extend(all.into_iter().map(|token| (token.name.clone(), token))),
            Parcel::Controls(all) => self.controls.extend(all.into_iter().map(|one| (one.name.clone(), one))),
        }
        Imported::Whole
    }

    fn put(&mut self, carried: CarriedExecution) {
        let CarriedExecution { execution, tombstone, parked, records, attributes } = carried;
        let (key, run_id) = (execution.key.clone(), execution.run_id);
        self.records.extend(records.into_iter().map(|record| ((run_id, record.first_event), record.bytes)));
        if !attributes.is_empty() {
            self.attributes.insert(key.clone(), attributes.into_iter().collect());
        }
        if execution.retired {
            self.tombstones.insert(key.clone(), tombstone);
        }
        self.parked.extend(parked.map(|parked| (key.clone(), parked)));
        self.executions.insert(key, execution);
    }

    fn clear(&mut self) {
        *self = Self::new(self.nodes.clone());
    }

    fn counts(&self) -> Counts {
        Counts {
            executions: self.executions.len() as u64,
            history_rows: self.records.len() as u64,
            attributes: self.attributes.values().map(|all| all.len() as u64).sum(),
            inbox_rows: self.inbox.len() as u64,
            requested_starts: self.requests.len() as u64,
            outbox_rows: self.outbox.len() as u64,
            tokens: self.tokens.len() as u64,
            controls: self.controls.len() as u64,
        }
    }
}
