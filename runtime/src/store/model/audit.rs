//! What the model tells of itself to whoever checks it.

use super::state::State;
use crate::id::{RunId, WorkflowKey};
use crate::store::audit::shard_fault;
use crate::store::{Belonging, RunPlace, Stray, StrayPlace};

impl State {
    pub(super) fn recorded_runs(&self, place: RunPlace, limit: usize) -> (Vec<RunId>, Option<RunPlace>) {
        let mut runs: Vec<RunId> = self.records.keys().map(|(run_id, _)| *run_id).collect();
        runs.dedup();
        runs.retain(|run_id| place.after.is_none_or(|after| *run_id > after));
        runs.truncate(limit);
        let next = runs.last().map(|last| RunPlace { shard: 0, after: Some(*last) });
        (runs, next)
    }

    pub(super) fn strays(&self, place: &StrayPlace, limit: usize, shards: u16) -> (Vec<Stray>, Option<StrayPlace>) {
        // Each row by its key and name, with what is wrong with it.
        let rows: Vec<(&WorkflowKey, &str, Option<String>)> = match place.of {
            Belonging::Types => Vec::new(),
            Belonging::Attributes => {
                let named = self.attributes.iter().flat_map(|(key, all)| all.keys().map(move |name| (key, name)));
                named.map(|(key, name)| (key, name.as_str(), self.attribute_fault(key, name))).collect()
            }
            Belonging::Signals => {
                let fault = |signal_id: &str, id: &str, shard| shard_fault(&format!("signal {signal_id:?}"), id, shard, shards);
                let rows = self.inbox.iter();
                rows.map(|((key, signal_id), stored)| (key, &signal_id[..], fault(signal_id, key.id(), stored.row.shard)))
                    .collect()
            }
            Belonging::Starts => {
                let fault = |id: &str, shard| shard_fault("the start that was asked for", id, shard, shards);
                self.requests.iter().map(|(key, request)| (key, "", fault(key.id(), request.shard))).collect()
            }
        };
        let at = |key: &WorkflowKey, name: &str| (key.workflow_type().to_owned(), key.id().to_owned(), name.to_owned());
        let behind = rows.into_iter().filter(|(key, name, _)| place.after.as_ref().is_none_or(|after| at(key, name) > *after));
        let (mut found, mut last) = (Vec::new(), None);
        for (key, name, fault) in behind.take(limit) {
            last = Some(at(key, name));
            found.extend(fault.map(|what| Stray { key: Some(key.clone()), what }));
        }
        let next = match last {
            Some(last) => Some(StrayPlace { after: Some(last), ..place.clone() }),
            None => place.of.next().map(StrayPlace::of),
        };
        (found, next)
    }

    fn attribute_fault(&self, key: &WorkflowKey, name: &str) -> Option<String> {
        match self.executions.get(key) {
            None => Some(format!("attribute {name:?} is of no execution")),
            Some(execution) if execution.retired => Some(format!("attribute {name:?} is of a retired execution")),
            Some(_) => None,
        }
    }
}
