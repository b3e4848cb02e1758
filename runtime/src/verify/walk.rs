//! The walk over a whole store: a page at a time, each execution in one snapshot, and a second look at whatever seems wrong.
//!
//! Beside nodes at work, nothing that holds for a moment only is reported: a violation is one that was there at both looks.

use std::time::Duration;

use super::report::Report;
use super::strays::{self, Runs};
use super::violation::{Invariant, Violation};
use super::{Look, Verdict, judged, membership, taken_up};
use crate::engine::{Clock, Registries};
use crate::id::WorkflowKey;
use crate::store::{Filter, InboxRow, Listed, Loaded, Position, Roster, Store, StoreError};
use crate::time::Timestamp;

/// How many rows are listed at once.
pub(super) const ROWS_PER_PAGE: usize = 500;
/// How many executions are read whole at once: their histories are in memory for a moment.
const EXECUTIONS_PER_READ_MAX: usize = 50;
/// So many that seem wrong are looked at again together.
const SUSPECTS_MAX: usize = 1_000;
/// How often a stored signal that nobody takes up is looked at again before it is reported: under load a scan takes longer.
const LOOKS_AT_UNREAD: usize = 3;

/// How a store is looked at.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only executions of this type; what is of no execution is then not looked for.
    pub workflow_type: Option<String>,
    /// How long what seems wrong is left alone before it is looked at again: longer than a node's scan.
    pub patience: Duration,
}

/// Looks at everything that a store holds. Beside nodes that run on it, or off line; `clock` is that of whoever wrote, unless
/// the store has one of its own. Memory is bounded: a page, and the runs of at most a million executions.
///
/// # Errors
/// [`StoreError`] when the store does not answer.
pub async fn everything(
    store: &dyn Store,
    code: &Registries,
    clock: &dyn Clock,
    options: &Options,
) -> Result<Report, StoreError> {
    let roster = store.roster().await?;
    let ahead = roster.now.map_or(0, |now| now.as_micros().saturating_sub(clock.now().as_micros()));
    let mut walk = Walk { store, code, clock, options, ahead, roster, report: Report::default(), suspects: Vec::new() };
    let began = walk.now();
    walk.membership().await?;
    let mut runs = options.workflow_type.is_none().then(Runs::default);
    walk.executions(runs.as_mut()).await?;
    walk.look_again().await?;
    if let Some(runs) = runs {
        strays::rows(store, &mut walk.report).await?;
        strays::histories(store, runs, began, &mut walk.report).await?;
    }
    Ok(walk.report)
}

struct Walk<'a> {
    store: &'a dyn Store,
    code: &'a Registries,
    clock: &'a dyn Clock,
    options: &'a Options,
    /// How far the store's clock is ahead of ours, in microseconds.
    ahead: i64,
    roster: Roster,
    report: Report,
    suspects: Vec<Suspect>,
}

/// An execution with which something seems wrong.
struct Suspect {
    /// As it was listed: attributes change only when the execution is retired.
    listed: Listed,
    violations: Vec<Violation>,
    /// The living node that had its shard, and what it should have taken up.
    unread: Option<(String, Vec<InboxRow>)>,
}

impl Walk<'_> {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.now().as_micros().saturating_add(self.ahead))
    }

    fn look(&self) -> Look<'_> {
        Look { code: self.code, shards: self.store.facts().shards, now: self.now() }
    }

    async fn membership(&mut self) -> Result<(), StoreError> {
        let shards = self.store.facts().shards;
        self.report.nodes_alive = self.roster.nodes.iter().filter(|(_, alive)| *alive).count() as u64;
        self.report.checks.count(Invariant::Epochs, self.roster.lanes.len() as u64);
        self.report.checks.count(Invariant::OneOwner, self.roster.owners.len() as u64);
        let found = membership::faults(&self.roster, shards);
        if found.is_empty() {
            return Ok(());
        }
        self.clock.sleep(self.options.patience).await;
        self.roster = self.store.roster().await?;
        let again = membership::faults(&self.roster, shards);
        found.into_iter().filter(|violation| again.contains(violation)).for_each(|violation| self.report.violated(violation));
        Ok(())
    }

    async fn executions(&mut self, mut runs: Option<&mut Runs>) -> Result<(), StoreError> {
        let filter = Filter { workflow_type: self.options.workflow_type.clone(), ..Filter::default() };
        let mut after: Option<Position> = None;
        let mut last: Option<WorkflowKey> = None;
        loop {
            let page = self.store.list(&filter, after.as_ref(), ROWS_PER_PAGE).await?;
            for listed in &page.rows {
                let row = &listed.execution;
                self.report.checks.count(Invariant::OneRun, 1);
                if last.as_ref() == Some(&row.key) {
                    let message = format!("there is another run of it, {}", row.run_id);
                    self.report.violated(Violation::of(Invariant::OneRun, &row.key, None, message));
                }
                if runs.as_mut().is_some_and(|runs| !runs.note(row.run_id)) {
                    let message = "another execution has the same run".to_owned();
                    self.report.violated(Violation::of(Invariant::OneRun, &row.key, Some(row.run_id), message));
                }
                last = Some(row.key.clone());
            }
            for part in page.rows.chunks(EXECUTIONS_PER_READ_MAX) {
                self.part(part).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Looks at a few executions.
    async fn part(&mut self, part: &[Listed]) -> Result<(), StoreError> {
        let keys: Vec<WorkflowKey> = part.iter().map(|listed| listed.execution.key.clone()).collect();
        let loaded = self.store.load(&keys).await?;
        for (listed, loaded) in part.iter().zip(loaded) {
            self.found_by_its_key(listed, loaded.as_ref());
            // It was forgotten since it was listed.
            let Some(loaded) = loaded else { continue };
            let verdict = judge(self.look(), listed, &loaded);
            self.report.count(loaded.execution.key.workflow_type(), loaded.execution.retired, &verdict);
            let unread = self.unread(&loaded);
            if !verdict.violations.is_empty() || unread.is_some() {
                self.suspects.push(Suspect { listed: listed.clone(), violations: verdict.violations, unread });
            }
        }
        if self.suspects.len() >= SUSPECTS_MAX { self.look_again().await } else { Ok(()) }
    }

    /// A row that lies in a shard where nobody looks for it.
    fn found_by_its_key(&mut self, listed: &Listed, loaded: Option<&Loaded>) {
        let row = &listed.execution;
        let expected = row.key.shard(self.store.facts().shards);
        if row.shard != expected && loaded.is_none_or(|loaded| loaded.execution.shard != row.shard) {
            let message = format!("its shard is {}, and its id says {expected}: nobody finds it", row.shard);
            self.report.violated(Violation::of(Invariant::RowIsFold, &row.key, Some(row.run_id), message));
        }
    }

    /// What is stored for an execution that has ended, where a living node is to take it up.
    fn unread(&mut self, loaded: &Loaded) -> Option<(String, Vec<InboxRow>)> {
        let attendant = self.roster.attendant(loaded.execution.shard)?;
        let rows = taken_up::unread_after_the_end(self.code, loaded)?;
        self.report.checks.count(Invariant::InboxTakenUp, 1);
        (!rows.is_empty()).then(|| (attendant.to_owned(), rows.to_vec()))
    }

    /// Looks at the suspects again, and reports what is still wrong.
    async fn look_again(&mut self) -> Result<(), StoreError> {
        let mut suspects = std::mem::take(&mut self.suspects);
        for _ in 0..LOOKS_AT_UNREAD {
            if suspects.is_empty() {
                return Ok(());
            }
            self.clock.sleep(self.options.patience).await;
            self.roster = self.store.roster().await?;
            let mut left = Vec::new();
            for part in suspects.chunks(EXECUTIONS_PER_READ_MAX) {
                let keys: Vec<WorkflowKey> = part.iter().map(|suspect| suspect.listed.execution.key.clone()).collect();
                for (suspect, loaded) in part.iter().zip(self.store.load(&keys).await?) {
                    left.extend(loaded.and_then(|loaded| self.still_wrong(suspect, &loaded)));
                }
            }
            suspects = left;
        }
        for Suspect { listed, unread, .. } in suspects {
            let (key, run_id) = (&listed.execution.key, Some(listed.execution.run_id));
            for row in unread.into_iter().flat_map(|(_, rows)| rows) {
                self.report.violated(Violation::of(Invariant::InboxTakenUp, key, run_id, taken_up::message(&row)));
            }
        }
        Ok(())
    }

    /// Reports what was found at both looks; what is to be looked at once more.
    fn still_wrong(&mut self, suspect: &Suspect, loaded: &Loaded) -> Option<Suspect> {
        if !suspect.violations.is_empty() {
            let again = judge(self.look(), &suspect.listed, loaded).violations;
            for violation in suspect.violations.iter().filter(|violation| again.contains(violation)) {
                self.report.violated(violation.clone());
            }
        }
        let (attendant, rows) = suspect.unread.as_ref()?;
        let same_owner = self.roster.attendant(loaded.execution.shard) == Some(attendant);
        let left: Vec<InboxRow> = rows.iter().filter(|row| loaded.inbox.contains(row)).cloned().collect();
        let unread = (same_owner && !left.is_empty()).then(|| (attendant.clone(), left))?;
        Some(Suspect { listed: suspect.listed.clone(), violations: Vec::new(), unread: Some(unread) })
    }
}

fn judge(look: Look<'_>, listed: &Listed, loaded: &Loaded) -> Verdict {
    let (before, now) = (&listed.execution, &loaded.execution);
    let same = before.run_id == now.run_id && !before.retired && !now.retired;
    judged(look, loaded, same.then_some(&listed.attributes[..]))
}
