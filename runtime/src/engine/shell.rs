//! The task that runs the core: takes messages in, lets time pass, carries effects out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};

use super::call::call_activity;
use super::committer::LaneRequest;
use super::core::{Core, Effect, Message};
use super::lease::Lease;
use super::node::{Incoming, Phase, Watched};
use super::ownership::Ownership;
use super::{Answer, Clock, Environment, Registries, ReplyId};
use crate::fault::{Point, Whim, point, whim};
use crate::id::WorkflowKey;
use crate::store::Store;

/// No wait in memory is longer, whatever the clocks say.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The most messages that are taken in before effects are carried out.
const MESSAGES_PER_FLUSH: usize = 1_024;

/// Why the core runs no more.
#[derive(Debug)]
pub(super) enum ShellEnd {
    /// The node was asked to stop, and has come to rest.
    Drained,
    /// Another node has the lane.
    Lost(String),
    /// What the node believes is not what the store holds.
    Fatal(String),
}

/// The core with its channels.
pub(super) struct Shell {
    pub(super) core: Core,
    pub(super) store: Arc<dyn Store>,
    pub(super) code: Arc<Registries>,
    pub(super) environment: Environment,
    pub(super) drain: Duration,
    pub(super) from_outside: mpsc::UnboundedReceiver<Incoming>,
    pub(super) incoming: mpsc::UnboundedSender<Incoming>,
    pub(super) lane: mpsc::UnboundedSender<LaneRequest>,
    pub(super) lease: Arc<Lease>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) loads: Arc<Semaphore>,
    pub(super) changes: broadcast::Sender<WorkflowKey>,
    pub(super) phase: Arc<watch::Sender<Phase>>,
    pub(super) limit: Arc<AtomicUsize>,
    pub(super) at_work: Arc<AtomicUsize>,
    pub(super) watched: Watched,
    pub(super) replies: HashMap<ReplyId, oneshot::Sender<Answer>>,
    pub(super) next_reply: u64,
    /// By the monotonic clock.
    pub(super) drain_until: Option<Duration>,
}

impl Shell {
    /// Runs until the node is drained, has lost its lane, or has to stop.
    pub(super) async fn run(mut self) -> ShellEnd {
        let clock = Arc::clone(&self.environment.clock);
        let mut messages = Vec::with_capacity(MESSAGES_PER_FLUSH);
        loop {
            let now = clock.now();
            let wait = self.core.next_due().map_or(WAIT_MAX, |due| due.since(now).min(WAIT_MAX));
            tokio::select! {
                biased;
                received = self.from_outside.recv_many(&mut messages, MESSAGES_PER_FLUSH) => {
                    if received == 0 {
                        return ShellEnd::Drained;
                    }
                }
                () = clock.sleep(wait) => {}
            }
            if whim(Whim::CoreHangs) {
                return std::future::pending().await;
            }
            self.lease.beat(clock.monotonic());
            for incoming in messages.drain(..) {
                if let Some(end) = self.take(incoming, &*clock) {
                    return end;
                }
            }
            self.watch(&*clock, None);
            let effects = self.core.flush(clock.now());
            self.limit.store(self.core.scan_limit(), Ordering::Relaxed);
            self.at_work.store(self.core.held(), Ordering::Relaxed);
            for effect in effects {
                if let Some(reason) = self.carry_out(effect, &*clock) {
                    return ShellEnd::Fatal(reason);
                }
            }
            if self.is_drained(&*clock) {
                point(Point::DrainAtRest);
                return ShellEnd::Drained;
            }
        }
    }

    /// Takes a message in. How the node's life ends, when that is what it says.
    fn take(&mut self, incoming: Incoming, clock: &dyn Clock) -> Option<ShellEnd> {
        let message = match incoming {
            Incoming::Message(message) => message,
            Incoming::Request { key, input, reply } => {
                self.next_reply += 1;
                let id = ReplyId(self.next_reply);
                self.replies.insert(id, reply);
                Message::Input { key, input: input(id) }
            }
            Incoming::Lost(reason) => return Some(ShellEnd::Lost(reason)),
            Incoming::Fatal(reason) => return Some(ShellEnd::Fatal(reason)),
        };
        if matches!(message, Message::Gain(_)) {
            point(Point::ShardsUnread);
        }
        if matches!(message, Message::Drain) {
            point(Point::DrainAsked);
            self.phase.send_replace(Phase::Draining);
            self.drain_until = Some(clock.monotonic().saturating_add(self.drain));
        }
        let subject = match &message {
            Message::Input { key, .. } | Message::CallEnded { key, .. } => Some(key.clone()),
            _ => None,
        };
        self.watch(clock, subject);
        self.core.step(message, clock.now());
        None
    }

    fn watch(&self, clock: &dyn Clock, key: Option<WorkflowKey>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = key.map(|key| (clock.monotonic(), key));
    }

    fn is_drained(&self, clock: &dyn Clock) -> bool {
        self.drain_until.is_some_and(|until| self.core.is_idle() || clock.monotonic() >= until)
    }

    /// Does what the core wants done. The reason, when the node must stop.
    fn carry_out(&mut self, effect: Effect, clock: &dyn Clock) -> Option<String> {
        match effect {
            Effect::Load { number, keys } => self
                .environment
                .spawner
                .spawn(load(Arc::clone(&self.store), Arc::clone(&self.loads), number, keys, self.incoming.clone()).boxed()),
            Effect::Commit(request) => drop(self.lane.send(LaneRequest::Write(request))),
            Effect::Call(call) => {
                let (code, clock) = (Arc::clone(&self.code), Arc::clone(&self.environment.clock));
                let call = call_activity(*call, code, clock, Arc::clone(&self.lease), self.incoming.clone());
                self.environment.spawner.spawn(call.boxed());
            }
            Effect::Owned(shards) => self.ownership.owns(shards, clock.monotonic()),
            Effect::Given(shards) => self.ownership.given(&shards, clock.monotonic()),
            Effect::HandOver { shard, to } => {
                point(Point::HandOverUnsent);
                tracing::info!(shard, node.id = to, "shard handed over");
                drop(self.lane.send(LaneRequest::HandOver { shards: vec![shard], to: Some(to) }));
            }
            Effect::Reply(reply, answer) => {
                if let Some(sender) = self.replies.remove(&reply) {
                    if !matches!(answer, Answer::Refused(_)) {
                        point(Point::CallerUnanswered);
                    }
                    // A sender that gave up is told nothing; what it asked for is done all the same.
                    let _ = sender.send(answer);
                }
            }
            Effect::Changed(key) => drop(self.changes.send(key)),
            Effect::Fatal(reason) => return Some(reason),
        }
        None
    }
}

/// Reads executions and hands them to the core.
async fn load(
    store: Arc<dyn Store>,
    loads: Arc<Semaphore>,
    number: u64,
    keys: Vec<WorkflowKey>,
    core: mpsc::UnboundedSender<Incoming>,
) {
    let Ok(_permit) = loads.acquire().await else { return };
    let loaded = store.load(&keys).await;
    point(Point::ExecutionsUnfolded);
    let message = match loaded {
        Ok(loaded) => Message::Loaded { number, results: keys.into_iter().zip(loaded).collect() },
        Err(error) => {
            tracing::error!(error = %error, executions = keys.len(), "executions could not be read; they are read again");
            Message::LoadFailed { number, keys }
        }
    };
    let _ = core.send(Incoming::Message(message));
}
