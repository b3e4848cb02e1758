//! The workflow of a bulk job: select page after page, then act batch after batch.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::act::{ActOnItems, ItemOutcome, OutcomeOfItem};
use super::request::JobRequest;
use super::select::{SelectItems, SelectedPage};
use super::{JOB_ITEMS_MAX, JOB_TYPE};
use crate::workflow::{Workflow, WorkflowContext, WorkflowError};

/// The most pages that a job selects from, so that its history stays within its limit whatever its filter passes.
const PAGES_MAX: usize = 1_000;
/// The most items of one batch: its outcomes are one event.
const BATCH_ITEMS_MAX: usize = 50;
/// How many seconds a batch may take at the job's rate, so that few items are gone through again after a crash.
const BATCH_SECONDS: usize = 5;

/// What a job is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// It looks for its items; nothing was changed yet.
    #[default]
    Selecting,
    /// It acts on them.
    Acting,
    /// It has ended by itself.
    Done,
}

/// How far a job is; its workflow's progress and, at the end, its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    /// What it is doing.
    pub phase: JobPhase,
    /// Items that it selected.
    pub selected: usize,
    /// Items that it has gone through.
    pub done: usize,
    /// How many of them came to which outcome.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub outcomes: BTreeMap<OutcomeOfItem, usize>,
    /// Whether there is more than one job may select: start another one after it.
    pub is_cut: bool,
}

impl JobProgress {
    fn take(&mut self, outcomes: &[ItemOutcome]) {
        self.done += outcomes.len();
        for outcome in outcomes {
            *self.outcomes.entry(outcome.outcome).or_default() += 1;
        }
    }
}

pub(super) struct BulkOperation;

#[async_trait]
impl Workflow for BulkOperation {
    const TYPE: &'static str = JOB_TYPE;
    type Input = JobRequest;
    type Output = JobProgress;

    async fn run(&self, ctx: WorkflowContext, job: JobRequest) -> Result<JobProgress, WorkflowError> {
        let mut progress = JobProgress::default();
        ctx.set_progress(&progress);
        let (mut items, mut place) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let SelectedPage { items: more, next } = ctx.activity::<SelectItems>(&place).await?;
            items.extend(more);
            place = next;
            progress.selected = items.len().min(JOB_ITEMS_MAX);
            ctx.set_progress(&progress);
            if place.is_none() || items.len() >= JOB_ITEMS_MAX {
                break;
            }
        }
        progress.is_cut = place.is_some() || items.len() > JOB_ITEMS_MAX;
        items.truncate(JOB_ITEMS_MAX);
        if !job.dry_run {
            progress.phase = JobPhase::Acting;
            ctx.set_progress(&progress);
            for batch in items.chunks(batch_items(job.per_second)) {
                // Cancelled, the batch stops by itself and tells how far it came.
                let outcomes = ctx.shielded(ctx.activity::<ActOnItems>(&batch.to_vec())).await?;
                progress.take(&outcomes);
                ctx.set_progress(&progress);
                if ctx.cancel_reason().is_some() {
                    return Err(WorkflowError::Cancelled);
                }
            }
        }
        progress.phase = JobPhase::Done;
        ctx.set_progress(&progress);
        Ok(progress)
    }

    fn is_open_to_callers(&self) -> bool {
        false
    }
}

fn batch_items(per_second: u32) -> usize {
    usize::try_from(per_second).unwrap_or(BATCH_ITEMS_MAX).saturating_mul(BATCH_SECONDS).clamp(1, BATCH_ITEMS_MAX)
}
