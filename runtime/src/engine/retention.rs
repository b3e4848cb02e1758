//! Retention: closed executions lose their history after a while, and much later the rest.
//!
//! A walk along the ends of the node's shards, a small batch at a time, in the node's own lane. It keeps nothing between
//! two walks: what it was interrupted in is found again by the next one, and what was retired is not found again. It is the
//! lowest of all work: it waits while the node has much to do and takes a small share of the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::active::Registries;
use super::committer::{CommitFailure, CommitRequest, LaneRequest, ReplyTo};
use super::environment::Clock;
use super::tombstone::Tombstone;
use crate::fault::{Whim, whim};
use crate::history::decode;
use crate::store::{Closed, Forget, Loaded, Outcome, Retire, Store, StoreError, Write};

/// The most executions that are read at once: their histories are in memory for a moment.
const EXECUTIONS_PER_BATCH_MAX: usize = 50;
/// The most history rows that one commit removes, so that it holds up those behind it for milliseconds only. An execution
/// that has more goes alone.
const ROWS_PER_COMMIT_MAX: usize = 500;
/// The least time between two batches, whatever the clock says that one took.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Retention takes at most one part in so many of the time.
const SHARE: u32 = 10;
/// Beyond so many executions at work, retention waits: more than one read's worth of urgent work is there.
const AT_WORK_MAX: usize = 500;
/// How long it waits then, and after a failure.
const WAIT: Duration = Duration::from_secs(1);
/// The longest time between two walks.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// There are so many walks in the time for which a history is kept.
const WALKS_PER_RETAIN: u32 = 10;

/// How long what is left of closed executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retain {
    /// The history, from the end on.
    pub history: Duration,
    /// The tombstone, from the end on.
    pub tombstone: Duration,
}

pub(crate) struct Retention {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) code: Arc<Registries>,
    pub(crate) retain: Retain,
    /// The shards to walk over, as they change.
    pub(crate) owned: watch::Receiver<Arc<[u16]>>,
    pub(crate) at_work: Arc<AtomicUsize>,
    pub(crate) lane: mpsc::UnboundedSender<LaneRequest>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Which of the two things that happen to closed executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Retire,
    Forget,
}

/// Where a walk stands.
struct Walk {
    /// The shards that were owned when it began.
    shards: Arc<[u16]>,
    /// How many of the stretches (a duty and a shard) are behind it.
    stretch: usize,
    /// The last execution that it looked at in the present stretch.
    after: Option<Closed>,
    retired: usize,
    forgotten: usize,
}

/// Why a batch ended early.
enum Halt {
    /// The node stops.
    Stop,
    /// Try again later.
    Later,
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::Closed) {
            return Self::Stop;
        }
        tracing::error!(error = %error, "retention could not read; it goes on later");
        Self::Later
    }
}

impl Retention {
    /// Walks until told to stop.
    pub(crate) async fn run(mut self) {
        let mut walk = self.begin();
        loop {
            let began = self.clock.monotonic();
            let pause = match self.step(&mut walk).await {
                Ok(true) => {
                    let took = self.clock.monotonic().saturating_sub(began);
                    took.saturating_mul(SHARE - 1).clamp(PAUSE_MIN, IDLE_MAX)
                }
                Ok(false) => {
                    report(&walk);
                    walk = self.begin();
                    (self.retain.history / WALKS_PER_RETAIN).clamp(PAUSE_MIN, IDLE_MAX)
                }
                Err(Halt::Later) => WAIT,
                Err(Halt::Stop) => return,
            };
            let clock = Arc::clone(&self.clock);
            tokio::select! {
                biased;
                _ = self.stop.changed() => return,
                () = clock.sleep(pause) => {}
            }
        }
    }

    fn begin(&self) -> Walk {
        Walk { shards: Arc::clone(&self.owned.borrow()), stretch: 0, after: None, retired: 0, forgotten: 0 }
    }

    /// Deals with one batch. False when the walk is over.
    async fn step(&self, walk: &mut Walk) -> Result<bool, Halt> {
        if *self.stop.borrow() {
            return Err(Halt::Stop);
        }
        if self.at_work.load(Ordering::Relaxed) > AT_WORK_MAX || whim(Whim::RetentionStops) {
            return Err(Halt::Later);
        }
        let now = self.clock.now();
        loop {
            let (duty, place) = match walk.stretch.checked_sub(walk.shards.len()) {
                None => (Duty::Retire, walk.stretch),
                Some(place) => (Duty::Forget, place),
            };
            let Some(shard) = walk.shards.get(place).copied() else { return Ok(false) };
            if !self.owned.borrow().contains(&shard) {
                (walk.stretch, walk.after) = (walk.stretch + 1, None);
                continue;
            }
            let (after, limit) = (walk.after.as_ref(), EXECUTIONS_PER_BATCH_MAX);
            let batch = match duty {
                Duty::Retire => self.store.retirable(shard, now.saturating_sub(self.retain.history), after, limit).await?,
                Duty::Forget => self.store.forgettable(shard, now.saturating_sub(self.retain.tombstone), after, limit).await?,
            };
            if batch.is_empty() {
                (walk.stretch, walk.after) = (walk.stretch + 1, None);
                continue;
            }
            match duty {
                Duty::Retire => walk.retired += self.retire(shard, &batch).await?,
                Duty::Forget => walk.forgotten += self.forget(shard, &batch).await?,
            }
            walk.after = batch.into_iter().next_back();
            return Ok(true);
        }
    }

    /// Retires those of the executions that can be; how many.
    async fn retire(&self, shard: u16, batch: &[Closed]) -> Result<usize, Halt> {
        // Without its type's code a signal could not be told from another one later.
        let known = |closed: &&Closed| self.code.workflows.get(closed.key.workflow_type()).is_some();
        let keys: Vec<_> = batch.iter().filter(known).map(|closed| closed.key.clone()).collect();
        let (mut done, mut rows, mut writes) = (0, 0, Vec::new());
        for loaded in self.store.load(&keys).await?.into_iter().flatten() {
            let removes = loaded.records.len();
            let Some(tombstone) = self.tombstone(&loaded) else { continue };
            if rows + removes > ROWS_PER_COMMIT_MAX {
                done += self.commit(std::mem::take(&mut writes)).await?;
                rows = 0;
            }
            rows += removes;
            let row = loaded.execution;
            let tombstone = tombstone.encode();
            writes.push(Write::Retire(Retire { key: row.key, shard, run_id: row.run_id, rev: row.rev, tombstone }));
        }
        Ok(done + self.commit(writes).await?)
    }

    /// What is to be left of an execution; `None` when it is to be kept whole.
    fn tombstone(&self, loaded: &Loaded) -> Option<Tombstone> {
        let row = &loaded.execution;
        let workflow = self.code.workflows.get(row.key.workflow_type())?;
        if row.status.is_open() || row.retired || !loaded.inbox.is_empty() {
            return None;
        }
        match decode(row.run_id, &loaded.records) {
            Ok((events, _)) => Tombstone::of(row.run_id, &events, workflow.as_ref(), self.clock.now()),
            Err(error) => {
                tracing::warn!(
                    workflow.type = row.key.workflow_type(), workflow.id = row.key.id(), run.id = %row.run_id, error = %error,
                    "a history that cannot be read is kept"
                );
                None
            }
        }
    }

    async fn forget(&self, shard: u16, batch: &[Closed]) -> Result<usize, Halt> {
        let forget =
            |closed: &Closed| Write::Forget(Forget { key: closed.key.clone(), shard, run_id: closed.run_id, rev: closed.rev });
        self.commit(batch.iter().map(forget).collect()).await
    }

    /// Commits writes and waits for their outcomes; how many were applied. What was refused is looked at by the next walk.
    async fn commit(&self, writes: Vec<Write>) -> Result<usize, Halt> {
        if whim(Whim::RetentionDawdles) {
            self.clock.sleep(WAIT).await;
        }
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            let (reply, outcome) = oneshot::channel();
            let request = CommitRequest { write, reply_to: ReplyTo::Request(reply) };
            self.lane.send(LaneRequest::Write(Box::new(request))).map_err(|_| Halt::Stop)?;
            outcomes.push(outcome);
        }
        let mut applied = 0;
        for outcome in outcomes {
            match outcome.await {
                Ok(Ok(Outcome::Retired | Outcome::Forgotten)) => applied += 1,
                Ok(Ok(_)) => {}
                Ok(Err(CommitFailure::Rejected(reason))) => tracing::error!(reason, "an execution could not be retired"),
                Ok(Err(CommitFailure::NotApplied)) => return Err(Halt::Later),
                Err(_) => return Err(Halt::Stop),
            }
        }
        Ok(applied)
    }
}

fn report(walk: &Walk) {
    if walk.retired + walk.forgotten > 0 {
        tracing::info!(retired = walk.retired, forgotten = walk.forgotten, "closed executions retired and forgotten");
    }
}
