//! The one writer of a node: gathers transitions of many executions and commits them in one database transaction.
//!
//! While one commit waits for the disk, the next batch gathers; there is no artificial delay. A write that can never be
//! stored is found by halving the batch, and its neighbours are stored without it. Owners of shards change in the same
//! lane, between batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::core::{Message, Ticket};
use super::environment::Clock;
use super::gather::Gathering;
use super::lease::Lease;
use super::mistakes;
use super::node::Incoming;
use super::settle;
use crate::fault::{Bug, Point, Whim, planted, point, whim};
use crate::store::{CommitError, Fence, Outcome, Sharing, Store, StoreError, Write};

/// After the store could not take a batch, the next one is tried this much later.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// With nothing to write, a store that took nothing is asked again this much later.
const PAUSE_BEFORE_ASKING: Duration = Duration::from_millis(500);

/// A write and who waits for its outcome.
pub(crate) struct CommitRequest {
    pub(crate) write: Write,
    pub(crate) reply_to: ReplyTo,
}

/// Who waits for the outcome of a write.
pub(crate) enum ReplyTo {
    /// The core.
    Core(Ticket),
    /// A request that starts an execution.
    Request(oneshot::Sender<Result<Outcome, CommitFailure>>),
}

/// Why a write has no outcome.
#[derive(Clone, Debug)]
pub(crate) enum CommitFailure {
    /// It may be tried again: nothing was applied, as far as this node can still find out.
    NotApplied,
    /// It can never be stored; nothing of it was applied.
    Rejected(String),
}

/// What the lane is asked for besides writes of executions: changes of owners.
pub(crate) enum LaneRequest {
    /// A write.
    Write(Box<CommitRequest>),
    /// Claim free shards; the core is told which. The turn ends with it.
    Claim { most: usize, _turn: OwnedSemaphorePermit },
    /// Give shards away.
    HandOver { shards: Vec<u16>, to: Option<String> },
    /// Nothing comes after this.
    Finish,
}

pub(crate) struct Committer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) fence: Fence,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) requests: mpsc::UnboundedReceiver<LaneRequest>,
    pub(crate) core: mpsc::UnboundedSender<Incoming>,
    /// Told when there are events to be delivered.
    pub(crate) news: watch::Sender<()>,
}

/// Why the committer cannot go on.
enum Stop {
    /// The lane is another's: the node starts again under a new id.
    Lost(String),
    /// The store does not hold what this node believes.
    Fatal(String),
}

impl Committer {
    /// Runs until told that nothing comes any more, or until the lane is lost. The fence as it is then.
    pub(crate) async fn run(mut self) -> Fence {
        let mut carried = Vec::new();
        let mut of_shards = VecDeque::new();
        loop {
            if carried.is_empty() && of_shards.is_empty() {
                match self.next().await {
                    Ok(Some(LaneRequest::Write(request))) => carried.push(*request),
                    Ok(Some(of_shard)) => of_shards.push_back(of_shard),
                    Ok(None) => break,
                    Err(stop) => {
                        self.stop(stop, carried);
                        break;
                    }
                }
            }
            let batch = self.gather(&mut carried, &mut of_shards);
            let mut done = if batch.is_empty() { Ok(()) } else { self.commit(batch).await };
            if done.is_ok() && whim(Whim::RaiseEpoch) {
                done = self.raise("nothing").await;
            }
            // What was carried over came before what is asked for shards.
            while done.is_ok() && carried.is_empty() {
                let Some(request) = of_shards.pop_front() else { break };
                if matches!(request, LaneRequest::Finish) {
                    return self.fence;
                }
                done = self.change_owners(request).await;
            }
            if let Err(stop) = done {
                self.stop(stop, carried);
                break;
            }
        }
        self.fence
    }

    /// What is asked for next. While the store took nothing, it is asked meanwhile whether it would: a node with nothing to
    /// write must not lose its lease for the last thing that it wrote.
    async fn next(&mut self) -> Result<Option<LaneRequest>, Stop> {
        loop {
            if !self.lease.is_committing() {
                return Ok(self.requests.recv().await);
            }
            let clock = Arc::clone(&self.clock);
            tokio::select! {
                biased;
                request = self.requests.recv() => return Ok(request),
                () = clock.sleep(PAUSE_BEFORE_ASKING) => {}
            }
            self.commit(Vec::new()).await?;
        }
    }

    fn stop(&mut self, stop: Stop, carried: Vec<CommitRequest>) {
        self.requests.close();
        for request in carried {
            self.answer(request.reply_to, Err(CommitFailure::NotApplied));
        }
        let _ = self.core.send(match stop {
            Stop::Lost(reason) => Incoming::Lost(reason),
            Stop::Fatal(reason) => Incoming::Fatal(reason),
        });
    }

    /// A batch of writes about different executions in one place; what does not fit is carried over.
    fn gather(&mut self, carried: &mut Vec<CommitRequest>, of_shards: &mut VecDeque<LaneRequest>) -> Vec<CommitRequest> {
        let mut gathering = Gathering::new(self.store.as_ref());
        let mut waiting = std::mem::take(carried).into_iter();
        while !gathering.is_full() {
            if let Some(request) = waiting.next() {
                gathering.offer(request);
                continue;
            }
            match of_shards.is_empty().then(|| self.requests.try_recv().ok()).flatten() {
                Some(LaneRequest::Write(request)) => gathering.offer(*request),
                Some(of_shard) => of_shards.push_back(of_shard),
                None => break,
            }
        }
        let (batch, put_off) = gathering.finish();
        *carried = put_off;
        carried.extend(waiting);
        batch
    }

    /// Commits a batch, in parts if one of its writes is rejected.
    async fn commit(&mut self, batch: Vec<CommitRequest>) -> Result<(), Stop> {
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            let (writes, mut replies): (Vec<Write>, Vec<ReplyTo>) =
                mistakes::answer_early(part).into_iter().map(|request| (request.write, request.reply_to)).unzip();
            self.lease.committing(self.clock.monotonic());
            let commit = self.store.commit(&self.fence, &writes);
            let Some(committed) = mistakes::as_long_as_asked_for(commit, &mut replies).await else { continue };
            // One that was not taken now, or of which nothing is known, is no progress.
            if !matches!(committed, Err(CommitError::Unavailable(_) | CommitError::Unknown(_))) {
                self.lease.committed();
            }
            match committed {
                Ok(outcomes) => {
                    point(Point::OutcomesUnapplied);
                    if writes.iter().any(emits) {
                        self.news.send_replace(());
                    }
                    for (reply_to, outcome) in replies.into_iter().zip(outcomes) {
                        self.answer(reply_to, Ok(outcome));
                    }
                }
                Err(CommitError::Rejected(_)) if planted(Bug::PoisonSkipped) && writes.len() <= 1 => {
                    for (reply_to, write) in replies.into_iter().zip(&writes) {
                        self.answer(reply_to, Ok(mistakes::hoped_for(write)));
                    }
                }
                Err(CommitError::Rejected(reason)) if writes.len() <= 1 || planted(Bug::PoisonFailsBatch) => {
                    self.answer_all(replies, &CommitFailure::Rejected(reason));
                }
                Err(CommitError::Rejected(_)) => {
                    point(Point::BatchUnhalved);
                    let mut halves = joined(writes, replies);
                    let second = halves.split_off(halves.len() / 2);
                    parts.push(second);
                    parts.push(halves);
                }
                Err(error @ (CommitError::DiskFull(_) | CommitError::Unavailable(_))) => {
                    tracing::error!(error = %error, writes = writes.len(), "commit not applied");
                    self.answer_all(replies, &CommitFailure::NotApplied);
                    self.clock.sleep(PAUSE_AFTER_FAILURE).await;
                }
                Err(CommitError::Unknown(_)) if planted(Bug::BlindRetry) => parts.push(joined(writes, replies)),
                Err(CommitError::Unknown(reason)) => {
                    tracing::error!(error = %reason, writes = writes.len(), "outcome of a commit unknown; it is looked up");
                    match self.settle(&reason, writes, replies).await {
                        Ok(left) if left.is_empty() => {}
                        Ok(left) => parts.push(left),
                        Err(stop) => return self.give_up(parts, stop),
                    }
                }
                Err(error @ CommitError::FenceLost { .. }) => {
                    self.answer_all(replies, &CommitFailure::NotApplied);
                    return self.give_up(parts, self.lost(error.to_string()));
                }
            }
        }
        Ok(())
    }

    fn give_up(&self, parts: Vec<Vec<CommitRequest>>, stop: Stop) -> Result<(), Stop> {
        for request in parts.into_iter().flatten() {
            self.answer(request.reply_to, Err(CommitFailure::NotApplied));
        }
        Err(stop)
    }

    /// A node that is alone with its store can have lost its lane only to a fault.
    fn lost(&self, reason: String) -> Stop {
        match self.store.facts().sharing {
            Sharing::Embedded => Stop::Fatal(reason),
            Sharing::Shared => Stop::Lost(reason),
        }
    }

    /// Finds out what became of a batch: first its commit is ended for good by raising the own epoch, then what it would
    /// have written is looked for. What is there is answered; the rest comes back, to be committed again.
    async fn settle(&mut self, reason: &str, writes: Vec<Write>, replies: Vec<ReplyTo>) -> Result<Vec<CommitRequest>, Stop> {
        point(Point::OutcomeUnknown);
        self.raise(reason).await?;
        let found = loop {
            match settle::applied(self.store.as_ref(), &writes).await {
                Ok(found) => break found,
                Err(StoreError::Closed) => return Err(Stop::Fatal(reason.to_owned())),
                Err(error) => tracing::error!(error = %error, "the store cannot be read; it is tried again"),
            }
            self.clock.sleep(PAUSE_AFTER_FAILURE).await;
        };
        point(Point::OutcomeSettled);
        let mut left = Vec::new();
        for (request, found) in joined(writes, replies).into_iter().zip(found) {
            match found {
                Some(outcome) => self.answer(request.reply_to, Ok(outcome)),
                None => left.push(request),
            }
        }
        Ok(left)
    }

    async fn raise(&mut self, reason: &str) -> Result<(), Stop> {
        loop {
            match self.store.raise(&self.fence).await {
                Ok(Some(fence)) => {
                    self.fence = fence;
                    return Ok(());
                }
                Ok(None) => return Err(self.lost(format!("taken over after {reason}"))),
                Err(error @ (StoreError::Refused(_) | StoreError::Closed)) => {
                    return Err(Stop::Fatal(format!("the outcome of a commit is unknown: {reason}: {error}")));
                }
                Err(error) => tracing::error!(error = %error, "own epoch not raised; it is tried again"),
            }
            self.clock.sleep(PAUSE_AFTER_FAILURE).await;
        }
    }

    /// Claims shards or gives them away. What fails is repeated: both are states, not steps.
    async fn change_owners(&mut self, request: LaneRequest) -> Result<(), Stop> {
        loop {
            self.lease.committing(self.clock.monotonic());
            let changed = match &request {
                LaneRequest::Write(_) | LaneRequest::Finish => return Ok(()),
                LaneRequest::Claim { most, .. } => match self.store.claim(&self.fence, *most).await {
                    Ok(claimed) if claimed.is_empty() => Ok(()),
                    Ok(claimed) => {
                        let _ = self.core.send(Incoming::Message(Message::Gain(claimed)));
                        Ok(())
                    }
                    // What was claimed all the same is seen in the next membership round.
                    Err(CommitError::Unavailable(_)) => return Ok(()),
                    Err(error) => Err(error),
                },
                LaneRequest::HandOver { shards, to } => {
                    let given = self.store.hand_over(&self.fence, shards, to.as_deref()).await;
                    if given.is_ok() {
                        let _ = self.core.send(Incoming::Message(Message::Given(shards.clone())));
                    }
                    given
                }
            };
            match changed {
                Ok(()) => {
                    self.lease.committed();
                    return Ok(());
                }
                Err(error @ CommitError::FenceLost { .. }) => return Err(self.lost(error.to_string())),
                Err(CommitError::Unknown(reason)) => self.raise(&reason).await?,
                Err(error) => tracing::error!(error = %error, "owners not changed; it is tried again"),
            }
            self.clock.sleep(PAUSE_AFTER_FAILURE).await;
        }
    }

    fn answer_all(&self, replies: Vec<ReplyTo>, failure: &CommitFailure) {
        for reply_to in replies {
            self.answer(reply_to, Err(failure.clone()));
        }
    }

    fn answer(&self, reply_to: ReplyTo, outcome: Result<Outcome, CommitFailure>) {
        // Whoever is gone needs no answer: what was committed is found again in the store.
        match reply_to {
            ReplyTo::Core(ticket) => drop(self.core.send(Incoming::Message(Message::Committed { ticket, outcome }))),
            ReplyTo::Request(sender) => {
                if outcome.is_ok() {
                    point(Point::CallerUnanswered);
                }
                drop(sender.send(outcome));
            }
        }
    }
}

/// Whether there may be something to be delivered.
fn emits(write: &Write) -> bool {
    match write {
        Write::Start(new) => !new.emit.is_empty(),
        Write::Advance(advance) => !advance.emit.is_empty() || advance.spawn.iter().any(|new| !new.emit.is_empty()),
        _ => false,
    }
}

fn joined(writes: Vec<Write>, replies: Vec<ReplyTo>) -> Vec<CommitRequest> {
    writes.into_iter().zip(replies).map(|(write, reply_to)| CommitRequest { write, reply_to }).collect()
}
