//! Acting on a batch of a job's items, one after the other and no faster than its rate.
//!
//! A batch may run again after a crash. An item that the job has acted on is known by the item's own history, so that
//! nothing is done twice; one that is not any more as it was selected is left alone.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::request::{JobAction, JobRequest};
use super::select::{SelectedItem, job_options, not_now, waits_until};
use super::{JOB_TYPE, Jobs};
use crate::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions, DispatchLimit};
use crate::client::attention::step;
use crate::client::{ActionOutcome, Client, ClientError, DeadlineRequest};
use crate::engine::OperatorAction;
use crate::history::{Event, EventKind, Folded};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::time::Timestamp;

/// How long a batch may take, its pauses included.
const BATCH_TIME_MAX: Duration = Duration::from_secs(300);
/// How often a batch looks whether its job was asked to stop.
const LOOK_AT_JOB: Duration = Duration::from_secs(1);
/// The most attempts of a batch with items that nobody can take now; they are then given up, so that the others go on.
const ATTEMPTS_MAX: u32 = 5;
/// The longest detail of an outcome that is kept, in bytes.
const DETAIL_BYTES_MAX: usize = 300;
/// How many batches a node carries out at once, whatever the number of jobs.
const BATCHES_AT_ONCE: usize = 4;

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeOfItem {
    /// It is part of the workflow's history.
    Applied,
    /// It is stored, and applied as soon as the workflow can be run again.
    Buffered,
    /// It came after the decision or the end; nothing changed.
    Late,
    /// It was not any more as it was selected, and was left alone.
    Changed,
    /// It was refused, and nothing changed.
    Refused,
    /// Nobody could take it, time and again.
    Unavailable,
}

impl OutcomeOfItem {
    /// The word that the API and the command line use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Buffered => "buffered",
            Self::Late => "late",
            Self::Changed => "changed",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What became of an item, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ItemOutcome {
    /// What became of it.
    pub outcome: OutcomeOfItem,
    /// Why, where it was not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl ItemOutcome {
    fn new(outcome: OutcomeOfItem) -> Self {
        Self { outcome, detail: None }
    }

    fn because(outcome: OutcomeOfItem, detail: &str) -> Self {
        let mut end = detail.len().min(DETAIL_BYTES_MAX);
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        Self { outcome, detail: Some(detail[..end].to_owned()) }
    }
}

impl From<ActionOutcome> for ItemOutcome {
    fn from(outcome: ActionOutcome) -> Self {
        Self::new(match outcome {
            // The duplicate of what this very job asked for before.
            ActionOutcome::Applied | ActionOutcome::Duplicate => OutcomeOfItem::Applied,
            ActionOutcome::Buffered => OutcomeOfItem::Buffered,
            ActionOutcome::Late => OutcomeOfItem::Late,
        })
    }
}

pub(super) struct ActOnItems(pub(super) Jobs);

#[async_trait]
impl Activity for ActOnItems {
    const NAME: &'static str = "act-on-items";
    type Input = Vec<SelectedItem>;
    /// One for each item, in their order; fewer when the job was asked to stop.
    type Output = Vec<ItemOutcome>;

    fn options(&self) -> ActivityOptions {
        let limit = Some(DispatchLimit { name: JOB_TYPE.to_owned(), concurrency: BATCHES_AT_ONCE });
        ActivityOptions { start_to_close: BATCH_TIME_MAX, limit, ..job_options() }
    }

    async fn execute(&self, ctx: &ActivityContext, items: Vec<SelectedItem>) -> Result<Vec<ItemOutcome>, ActivityFailure> {
        let client = self.0.client()?;
        let (request, mut is_to_stop) = client.running_job(ctx.workflow()).await.map_err(not_now)?;
        let job = Job { request, key: ctx.workflow().clone(), run_id: ctx.run_id() };
        let clock = &client.engine().environment().clock;
        let pause = Duration::from_secs(1) / job.request.per_second.max(1);
        let mut looked_at = clock.monotonic();
        let (mut outcomes, mut put_off) = (Vec::with_capacity(items.len()), None);
        for item in &items {
            if clock.monotonic().saturating_sub(looked_at) >= LOOK_AT_JOB {
                (_, is_to_stop) = client.running_job(ctx.workflow()).await.map_err(not_now)?;
                looked_at = clock.monotonic();
            }
            if is_to_stop {
                break;
            }
            match client.act_on(&job, item).await {
                Ok(Acted::Before) => outcomes.push(ItemOutcome::new(OutcomeOfItem::Applied)),
                Ok(Acted::Now(outcome)) => {
                    outcomes.push(outcome);
                    clock.sleep(pause).await;
                }
                Err(error) => {
                    outcomes.push(ItemOutcome::because(OutcomeOfItem::Unavailable, &error.to_string()));
                    put_off = Some(error);
                }
            }
        }
        match put_off {
            Some(error) if !is_to_stop && ctx.attempt() < ATTEMPTS_MAX => Err(not_now(error)),
            _ => Ok(outcomes),
        }
    }
}

/// A job at work.
struct Job {
    request: JobRequest,
    key: WorkflowKey,
    run_id: RunId,
}

impl Job {
    /// Why, as the item's history has it; it names the job.
    fn reason(&self) -> String {
        format!("{}{}", self.request.reason, self.mark())
    }

    fn mark(&self) -> String {
        format!(" ({JOB_TYPE} {})", self.key.id())
    }

    /// The same whenever the job asks: what was taken once is not taken again.
    fn signal_id(&self) -> String {
        format!("{JOB_TYPE}/{}", self.run_id)
    }

    /// Whether this job has decided about the step before.
    fn has_acted(&self, number: u64, events: &[Event]) -> bool {
        let mark = self.mark();
        events.iter().any(|event| match &event.kind {
            EventKind::ActivityRetried { activity, reason, .. }
            | EventKind::ActivityResolved { activity, reason, .. }
            | EventKind::ActivitySkipped { activity, reason, .. } => *activity == number && reason.ends_with(&mark),
            _ => false,
        })
    }

    fn decision(&self) -> OperatorAction {
        match self.request.action {
            JobAction::Resolve => OperatorAction::Resolve(self.request.result.clone().unwrap_or_else(Payload::null)),
            JobAction::Skip => OperatorAction::Skip,
            JobAction::Retry | JobAction::SetDeadline | JobAction::MoveDeadline => OperatorAction::Retry,
        }
    }
}

/// Whether an item still has the instant that it was selected with: what was selected is kept to the millisecond.
fn is_same(now: Option<Timestamp>, selected: Option<Timestamp>) -> bool {
    now.zip(selected).is_some_and(|(now, selected)| now.as_millis() == selected.as_millis())
}

enum Acted {
    /// By an attempt of the batch that was cut off.
    Before,
    Now(ItemOutcome),
}

impl Client {
    /// Acts on one item. An error is one of the node's, not of the item.
    async fn act_on(&self, job: &Job, item: &SelectedItem) -> Result<Acted, ClientError> {
        let acted = match item.number {
            Some(number) => self.decide(job, item, number).await,
            None => self.move_deadline(job, item).await,
        };
        match acted {
            Err(error @ (ClientError::Unavailable | ClientError::Store(_))) => Err(error),
            Err(refused) => Ok(Acted::Now(ItemOutcome::because(OutcomeOfItem::Refused, &refused.to_string()))),
            acted => acted,
        }
    }

    async fn decide(&self, job: &Job, item: &SelectedItem, number: u64) -> Result<Acted, ClientError> {
        let key = WorkflowKey::new(item.workflow_type.as_str(), item.id.as_str());
        let (_, events) = self.read(&key).await?;
        if job.has_acted(number, &events) {
            return Ok(Acted::Before);
        }
        let folded = Folded::of(&events);
        let now = folded.activities.get(&number).and_then(|activity| step(&key, number, activity));
        if now.is_none_or(|now| !is_same(Some(now.since), item.since)) {
            let detail = "it does not wait for a person any more, or did something else since";
            return Ok(Acted::Now(ItemOutcome::because(OutcomeOfItem::Changed, detail)));
        }
        let (reason, actor) = (job.reason(), &job.request.actor);
        let decided = self.operate(&item.workflow_type, &item.id, number, job.decision(), &reason, actor).await?;
        Ok(Acted::Now(decided.into()))
    }

    async fn move_deadline(&self, job: &Job, item: &SelectedItem) -> Result<Acted, ClientError> {
        let key = WorkflowKey::new(item.workflow_type.as_str(), item.id.as_str());
        let (_, events) = self.read(&key).await?;
        let folded = Folded::of(&events);
        let signal_id = job.signal_id();
        if folded.signals.iter().any(|signal| signal.signal_id == signal_id) {
            return Ok(Acted::Before);
        }
        let timer = self.declared_deadline(&key)?.timer;
        let (true, Some(deadline)) = (is_same(waits_until(&folded, timer), item.from), item.to) else {
            let detail = "it does not wait for that deadline any more";
            return Ok(Acted::Now(ItemOutcome::because(OutcomeOfItem::Changed, detail)));
        };
        let request = DeadlineRequest {
            workflow_type: item.workflow_type.clone(),
            id: item.id.clone(),
            deadline,
            reason: job.reason(),
            actor: job.request.actor.clone(),
            signal_id: Some(signal_id),
        };
        Ok(Acted::Now(self.set_deadline(request).await?.into()))
    }
}
