//! Retiring and forgetting in the model.

use super::state::{State, refuse};
use crate::fault::{Bug, planted};
use crate::store::{Closed, Execution, Forget, Outcome, Retire};
use crate::time::Timestamp;

impl State {
    pub(super) fn retire(&mut self, retire: &Retire) -> Result<Outcome, String> {
        let is_whole = |execution: &&Execution| {
            !execution.status.is_open() && !execution.retired && execution.run_id == retire.run_id && execution.rev == retire.rev
        };
        if self.executions.get(&retire.key).filter(is_whole).is_none() {
            return Ok(Outcome::Stale);
        }
        if self.inbox_of(&retire.key).next().is_some() {
            return Ok(Outcome::UnreadInbox);
        }
        refuse(unstorable(retire))?;
        if planted(Bug::RowBeforeHistory) {
            self.executions.remove(&retire.key);
            return Ok(Outcome::Retired);
        }
        self.records.retain(|(run_id, _), _| *run_id != retire.run_id);
        self.attributes.remove(&retire.key);
        self.tombstones.insert(retire.key.clone(), retire.tombstone.clone());
        if let Some(execution) = self.executions.get_mut(&retire.key) {
            execution.rev += 1;
            execution.needs_attention = false;
            execution.attempts.clear();
            execution.retired = true;
        }
        Ok(Outcome::Retired)
    }

    pub(super) fn forget(&mut self, forget: &Forget) -> Outcome {
        let is_tombstone =
            |execution: &&Execution| execution.retired && execution.run_id == forget.run_id && execution.rev == forget.rev;
        if self.executions.get(&forget.key).filter(is_tombstone).is_none() {
            return Outcome::Stale;
        }
        if self.inbox_of(&forget.key).next().is_some() {
            return Outcome::UnreadInbox;
        }
        self.executions.remove(&forget.key);
        self.tombstones.remove(&forget.key);
        Outcome::Forgotten
    }

    pub(super) fn closed(
        &self,
        shard: u16,
        retired: bool,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Vec<Closed> {
        let mut found: Vec<Closed> = self
            .executions
            .values()
            .filter(|execution| execution.shard == shard && execution.retired == retired)
            .filter_map(|execution| {
                let closed_at = execution.closed_at.filter(|closed_at| *closed_at < before)?;
                Some(Closed { key: execution.key.clone(), run_id: execution.run_id, rev: execution.rev, closed_at })
            })
            .filter(|closed| after.is_none_or(|after| (closed.closed_at, &closed.key) > (after.closed_at, &after.key)))
            .collect();
        found.sort_by(|a, b| (a.closed_at, &a.key).cmp(&(b.closed_at, &b.key)));
        found.truncate(limit);
        found
    }

    pub(super) fn orphans(&self) -> Vec<String> {
        let whole = |execution: &&Execution| !execution.retired;
        let runs: Vec<_> = self.executions.values().filter(whole).map(|execution| execution.run_id).collect();
        let is_whole = |key| self.executions.get(key).is_some_and(|execution| !execution.retired);
        let is_retired = |key| self.executions.get(key).is_some_and(|execution| execution.retired);
        let records = self.records.keys().filter(|(run_id, _)| !runs.contains(run_id));
        let attributes = self.attributes.keys().filter(|key| !is_whole(*key));
        let tombstones = self.tombstones.keys().filter(|key| !is_retired(*key));
        let bare = self.executions.values().filter(|execution| match execution.retired {
            true => !self.tombstones.contains_key(&execution.key),
            false => !self.records.keys().any(|(run_id, _)| *run_id == execution.run_id),
        });
        (records.map(|(run_id, first_event)| format!("history {run_id} {first_event}")))
            .chain(attributes.map(|key| format!("attributes of {key}")))
            .chain(tombstones.map(|key| format!("tombstone of {key}")))
            .chain(bare.map(|execution| format!("{} without a history", execution.key)))
            .collect()
    }
}

/// Why the databases' constraints may refuse it.
pub(super) fn unstorable(retire: &Retire) -> Option<String> {
    retire.tombstone.is_empty().then(|| "an empty tombstone".to_owned())
}
