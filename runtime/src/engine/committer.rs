//! The one writer of a node: gathers transitions of many executions and commits them in one database transaction.
//!
//! While one commit waits for the disk, the next batch gathers; there is no artificial delay. A write that can never be
//! stored is found by halving the batch, and its neighbours are stored without it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::core::{Message, Ticket};
use super::environment::Clock;
use super::node::Incoming;
use crate::id::WorkflowKey;
use crate::store::{CommitError, Fence, Outcome, Store, Write};

/// The most writes of one batch: beyond that, a batch takes longer without costing less per write.
const WRITES_PER_BATCH_MAX: usize = 500;
/// The most bytes of history in one batch, so that a few large payloads do not hold everybody up.
const BYTES_PER_BATCH_MAX: usize = 4 * 1024 * 1024;
/// After the store could not take a batch, the next one is tried this much later.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

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
    /// Nothing was applied; it may be tried again.
    NotApplied,
    /// It can never be stored; nothing of it was applied.
    Rejected(String),
    /// This node must stop: it is no longer the writer, or does not know what it wrote.
    Fatal(String),
}

pub(crate) struct Committer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) fence: Fence,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) requests: mpsc::UnboundedReceiver<CommitRequest>,
    pub(crate) core: mpsc::UnboundedSender<Incoming>,
}

impl Committer {
    /// Runs until all senders are gone and all that they sent is committed.
    pub(crate) async fn run(mut self) {
        let mut carried = Vec::new();
        loop {
            if carried.is_empty() {
                match self.requests.recv().await {
                    Some(request) => carried.push(request),
                    None => break,
                }
            }
            let batch = self.gather(&mut carried);
            if !self.commit(batch).await {
                break;
            }
        }
    }

    /// A batch of writes about different executions; what does not fit is carried over.
    fn gather(&mut self, carried: &mut Vec<CommitRequest>) -> Vec<CommitRequest> {
        let mut batch = Vec::new();
        let mut keys: HashSet<WorkflowKey> = HashSet::new();
        let mut bytes = 0;
        let mut next_round = Vec::new();
        let mut waiting = std::mem::take(carried).into_iter();
        while batch.len() < WRITES_PER_BATCH_MAX && bytes < BYTES_PER_BATCH_MAX {
            let Some(request) = waiting.next().or_else(|| self.requests.try_recv().ok()) else { break };
            let touched = keys_of(&request.write);
            if touched.iter().any(|key| keys.contains(*key)) || next_round.iter().any(|other| overlap(other, &touched)) {
                next_round.push(request);
                if next_round.len() >= WRITES_PER_BATCH_MAX {
                    break;
                }
                continue;
            }
            keys.extend(touched.into_iter().cloned());
            bytes += bytes_of(&request.write);
            batch.push(request);
        }
        next_round.extend(waiting);
        *carried = next_round;
        batch
    }

    /// Commits a batch, in parts if one of its writes is rejected. False when the node must stop.
    async fn commit(&self, batch: Vec<CommitRequest>) -> bool {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            let (writes, replies): (Vec<Write>, Vec<ReplyTo>) =
                part.drain(..).map(|request| (request.write, request.reply_to)).unzip();
            match self.store.commit(&self.fence, &writes).await {
                Ok(outcomes) => {
                    for (reply_to, outcome) in replies.into_iter().zip(outcomes) {
                        self.answer(reply_to, Ok(outcome));
                    }
                }
                Err(CommitError::Rejected(reason)) if writes.len() == 1 => {
                    for reply_to in replies {
                        self.answer(reply_to, Err(CommitFailure::Rejected(reason.clone())));
                    }
                }
                Err(CommitError::Rejected(_)) => {
                    let mut halves: Vec<CommitRequest> =
                        writes.into_iter().zip(replies).map(|(write, reply_to)| CommitRequest { write, reply_to }).collect();
                    let second = halves.split_off(halves.len() / 2);
                    parts.push(second);
                    parts.push(halves);
                }
                Err(error @ (CommitError::DiskFull(_) | CommitError::Unavailable(_))) => {
                    tracing::error!(error = %error, writes = writes.len(), "commit not applied");
                    self.answer_all(replies, &CommitFailure::NotApplied);
                    self.clock.sleep(PAUSE_AFTER_FAILURE).await;
                }
                Err(error @ (CommitError::FenceLost { .. } | CommitError::Unknown(_))) => {
                    self.answer_all(replies, &CommitFailure::Fatal(error.to_string()));
                    for part in parts {
                        let replies = part.into_iter().map(|request| request.reply_to).collect();
                        self.answer_all(replies, &CommitFailure::Fatal(error.to_string()));
                    }
                    return false;
                }
            }
        }
        true
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
                if let Err(CommitFailure::Fatal(reason)) = &outcome {
                    let _ = self.core.send(Incoming::Fatal(reason.clone()));
                }
                let _ = sender.send(outcome);
            }
        }
    }
}

/// The executions that a write is about. Deposits may stand beside anything.
fn keys_of(write: &Write) -> Vec<&WorkflowKey> {
    match write {
        Write::Start(new) => vec![&new.key],
        Write::Advance(advance) => std::iter::once(&advance.key).chain(advance.spawn.iter().map(|new| &new.key)).collect(),
        Write::Deposit(_) => Vec::new(),
        Write::Retire(retire) => vec![&retire.key],
        Write::Forget(forget) => vec![&forget.key],
    }
}

fn overlap(request: &CommitRequest, keys: &[&WorkflowKey]) -> bool {
    keys_of(&request.write).iter().any(|key| keys.contains(key))
}

fn bytes_of(write: &Write) -> usize {
    match write {
        Write::Start(new) => new.record.bytes.len(),
        Write::Advance(advance) => advance.record.as_ref().map_or(0, |record| record.bytes.len()),
        Write::Deposit(deposit) => deposit.row.payload.len(),
        Write::Retire(retire) => retire.tombstone.len(),
        Write::Forget(_) => 0,
    }
}
