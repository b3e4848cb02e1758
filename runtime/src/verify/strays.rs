//! I42: what belongs to executions belongs to one that is there.
//!
//! No index leads from a run to its execution, so the runs of all executions are kept in memory while the runs that have
//! histories are walked along; of a store with more than a million executions a million at a time.

use std::collections::BTreeSet;

use super::report::{Report, VIOLATIONS_MAX};
use super::violation::{Invariant, Violation};
use super::walk::ROWS_PER_PAGE;
use crate::id::RunId;
use crate::store::{Execution, Filter, Position, RunPlace, Store, StoreError, StrayPlace};
use crate::time::Timestamp;

/// How many runs are kept in memory: some fifty megabytes.
const RUNS_AT_ONCE_MAX: usize = 1_000_000;
/// How many rows or runs are looked at with one read.
const PER_READ: usize = 2_000;

/// The lowest runs above a floor, as many as are kept at once.
pub(super) struct Runs {
    known: BTreeSet<RunId>,
    floor: Option<RunId>,
    /// The highest that is kept, once others were left out.
    ceiling: Option<RunId>,
    at_once: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self::at_most(RUNS_AT_ONCE_MAX)
    }
}

impl Runs {
    pub(super) fn at_most(at_once: usize) -> Self {
        Self { known: BTreeSet::new(), floor: None, ceiling: None, at_once }
    }

    /// Takes a run in; false when it is there already.
    pub(super) fn note(&mut self, run_id: RunId) -> bool {
        if !self.covers(run_id) {
            return true;
        }
        let new = self.known.insert(run_id);
        if self.known.len() > self.at_once {
            self.known.pop_last();
            self.ceiling = self.known.last().copied();
        }
        new
    }

    fn covers(&self, run_id: RunId) -> bool {
        self.floor.is_none_or(|floor| run_id > floor) && self.ceiling.is_none_or(|ceiling| run_id <= ceiling)
    }

    /// Those above the highest that was kept; `None` when all were.
    fn above(&self) -> Option<Self> {
        self.ceiling.map(|floor| Self { floor: Some(floor), ..Self::at_most(self.at_once) })
    }
}

/// Rows of types without a name, in a wrong shard, of what is not there or is retired. Each is found in one snapshot.
pub(super) async fn rows(store: &dyn Store, report: &mut Report) -> Result<(), StoreError> {
    let mut place = Some(StrayPlace::START);
    while let Some(from) = place {
        let (found, next) = store.strays(&from, PER_READ).await?;
        report.checks.count(Invariant::NothingLeft, 1);
        for stray in found {
            report.violated(match &stray.key {
                Some(key) => Violation::of(Invariant::NothingLeft, key, None, stray.what),
                None => Violation::of_store(Invariant::NothingLeft, stray.what),
            });
        }
        place = next;
    }
    Ok(())
}

/// Histories of no execution. `runs` are those of the executions that were seen; what began after `began` may be of one that
/// came later.
pub(super) async fn histories(
    store: &dyn Store,
    mut runs: Runs,
    began: Timestamp,
    report: &mut Report,
) -> Result<(), StoreError> {
    let mut unknown = BTreeSet::new();
    loop {
        let mut place = Some(RunPlace::default());
        while let Some(from) = place {
            let (recorded, next) = store.recorded_runs(from, PER_READ).await?;
            let covered = recorded.into_iter().filter(|run_id| runs.covers(*run_id));
            for run_id in covered {
                report.checks.count(Invariant::NothingLeft, 1);
                if !runs.known.contains(&run_id) && run_id.created_at() < began && unknown.len() < VIOLATIONS_MAX {
                    unknown.insert(run_id);
                }
            }
            place = next;
        }
        let Some(mut above) = runs.above() else { break };
        each(store, |row| {
            above.note(row.run_id);
        })
        .await?;
        runs = above;
    }
    if !unknown.is_empty() {
        // A start that took long may have been stored behind the walk.
        each(store, |row| {
            unknown.remove(&row.run_id);
        })
        .await?;
    }
    for run_id in unknown {
        let message = "it has history rows, and no execution is there".to_owned();
        report.violated(Violation { run_id: Some(run_id), ..Violation::of_store(Invariant::NothingLeft, message) });
    }
    Ok(())
}

/// Lists every execution's row.
async fn each(store: &dyn Store, mut take: impl FnMut(&Execution)) -> Result<(), StoreError> {
    let mut after: Option<Position> = None;
    loop {
        let page = store.list(&Filter::default(), after.as_ref(), ROWS_PER_PAGE).await?;
        page.rows.iter().for_each(|listed| take(&listed.execution));
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
