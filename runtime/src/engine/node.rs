//! The life of a node, from joining its store to draining, and the doors to its core.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};

use super::committer::Committer;
use super::core::{Core, Message};
use super::retention::{Retain, Retention};
use super::scanner::{Scanner, blocked_executions};
use super::shell::Shell;
use super::{Answer, CommitFailure, CommitRequest, Environment, Input, Registries, ReplyId, ReplyTo};
use crate::id::WorkflowKey;
use crate::store::{Fence, NewNode, Outcome, Store, StoreError, Write};

/// A workflow that computes longer than this without waiting makes the node unready.
const POLL_MAX: Duration = Duration::from_secs(1);
/// The most requests (starts, signals, operator actions) that wait for their commit; beyond it they are refused.
const REQUESTS_MAX: usize = 10_000;
/// The most reads of executions under way at once.
const LOADS_MAX: usize = 2;
/// How many changes a follower may lag behind before it has to read again.
const CHANGES_KEPT: usize = 1_024;

/// How a node works.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Time between scans.
    pub scan: Duration,
    /// How long calls under way may take to end when the node stops.
    pub drain: Duration,
    /// How long a signal waits for its execution to be started before the late handler takes it up.
    pub buffer: Duration,
    /// Whether timers are also kept in memory. The scan alone is enough to fire them, up to a scan later.
    pub timers: bool,
    /// How long what is left of closed executions; all of it for ever, if not given.
    pub retain: Option<Retain>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            scan: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            buffer: Duration::from_secs(24 * 3600),
            timers: true,
            retain: None,
        }
    }
}

/// Why a node cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the node believed was not what the store held; it stopped at once and changed nothing more.
    #[error("the node had to stop: {0}")]
    Fatal(String),
}

/// What reaches the core's loop.
pub(crate) enum Incoming {
    Message(Message),
    Request { key: WorkflowKey, input: Box<dyn FnOnce(ReplyId) -> Input + Send>, reply: oneshot::Sender<Answer> },
    Fatal(String),
}

/// Where a node stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    Running,
    Draining,
    Stopped,
    Failed(String),
}

/// What the core is computing, and since when by the monotonic clock.
pub(super) type Watched = Arc<Mutex<Option<(Duration, WorkflowKey)>>>;

/// A running node.
pub struct Engine {
    store: Arc<dyn Store>,
    code: Arc<Registries>,
    environment: Environment,
    fence: Fence,
    incoming: mpsc::UnboundedSender<Incoming>,
    commits: Mutex<Option<mpsc::UnboundedSender<CommitRequest>>>,
    requests: Arc<Semaphore>,
    changes: broadcast::Sender<WorkflowKey>,
    phase: watch::Receiver<Phase>,
    stop_scanner: watch::Sender<bool>,
    watched: Watched,
    at_work: Arc<AtomicUsize>,
}

impl Engine {
    /// Joins the store as its writer and begins to advance executions.
    ///
    /// # Errors
    /// When the store cannot be joined.
    pub async fn start(
        store: Arc<dyn Store>,
        code: Registries,
        environment: Environment,
        config: EngineConfig,
    ) -> Result<Arc<Self>, EngineError> {
        let shards = store.facts().shards;
        let node_id = format!("{:016x}{:016x}", environment.random.next_u64(), environment.random.next_u64());
        let secret = format!("{:016x}{:016x}", environment.random.next_u64(), environment.random.next_u64());
        let fence = store.join(&NewNode { secret, ..NewNode::new(node_id, Duration::MAX) }).await?;
        let code = Arc::new(code);
        let (incoming, from_outside) = mpsc::unbounded_channel();
        let (commits, commit_requests) = mpsc::unbounded_channel();
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        let (phase_sender, phase) = watch::channel(Phase::Running);
        let (stop_scanner, stop) = watch::channel(false);
        let limit = Arc::new(AtomicUsize::new(0));
        let watched = Watched::default();
        let at_work = Arc::<AtomicUsize>::default();

        let committer = Committer {
            store: Arc::clone(&store),
            fence: fence.clone(),
            clock: Arc::clone(&environment.clock),
            requests: commit_requests,
            core: incoming.clone(),
        };
        let scanner = Scanner {
            store: Arc::clone(&store),
            clock: Arc::clone(&environment.clock),
            shards: (0..shards).collect(),
            period: config.scan,
            timers: config.timers,
            buffer: config.buffer,
            limit: Arc::clone(&limit),
            core: incoming.clone(),
            stop,
        };
        let random = Arc::clone(&environment.random);
        let core = Core::new(Arc::clone(&code), shards, Box::new(move || random.next_u64()));
        limit.store(core.scan_limit(), Ordering::Relaxed);
        let shell = Shell {
            core,
            store: Arc::clone(&store),
            code: Arc::clone(&code),
            environment: environment.clone(),
            drain: config.drain,
            from_outside,
            incoming: incoming.clone(),
            commits: commits.clone(),
            loads: Arc::new(Semaphore::new(LOADS_MAX)),
            changes: changes.clone(),
            phase: phase_sender,
            limit,
            at_work: Arc::clone(&at_work),
            watched: Arc::clone(&watched),
            replies: HashMap::new(),
            next_reply: 0,
            drain_until: None,
        };
        for key in blocked_executions(store.as_ref()).await? {
            let _ = incoming.send(Incoming::Message(Message::Input { key, input: Input::Due }));
        }
        environment.spawner.spawn(committer.run().boxed());
        environment.spawner.spawn(scanner.run().boxed());
        if let Some(retain) = config.retain {
            let retention = Retention {
                store: Arc::clone(&store),
                clock: Arc::clone(&environment.clock),
                code: Arc::clone(&code),
                retain,
                shards: (0..shards).collect(),
                at_work: Arc::clone(&at_work),
                commits: commits.clone(),
                stop: stop_scanner.subscribe(),
            };
            environment.spawner.spawn(retention.run().boxed());
        }
        environment.spawner.spawn(shell.run().boxed());
        tracing::info!(node.id = fence.node_id, node.epoch = fence.epoch, shards, "node joined");
        Ok(Arc::new(Self {
            store,
            code,
            environment,
            fence,
            incoming,
            commits: Mutex::new(Some(commits)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            changes,
            phase,
            stop_scanner,
            watched,
            at_work,
        }))
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn code(&self) -> &Arc<Registries> {
        &self.code
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Executions whose history grew, from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<WorkflowKey> {
        self.changes.subscribe()
    }

    pub(crate) fn changed(&self, key: &WorkflowKey) {
        let _ = self.changes.send(key.clone());
    }

    pub(crate) fn tell(&self, message: Message) {
        let _ = self.incoming.send(Incoming::Message(message));
    }

    /// Hands an input to the core and waits for the answer; `None` when the node cannot take it now.
    pub(crate) async fn ask(&self, key: WorkflowKey, input: impl FnOnce(ReplyId) -> Input + Send + 'static) -> Option<Answer> {
        let _permit = self.requests.try_acquire().ok()?;
        let (reply, answer) = oneshot::channel();
        self.incoming.send(Incoming::Request { key, input: Box::new(input), reply }).ok()?;
        answer.await.ok()
    }

    /// Commits a start and waits for its outcome; `None` when the node cannot take it now.
    pub(crate) async fn commit_start(&self, write: Write) -> Option<Result<Outcome, CommitFailure>> {
        let permit = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        let (reply, outcome) = oneshot::channel();
        {
            let commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
            commits.as_ref()?.send(CommitRequest { write, reply_to: ReplyTo::Request(reply) }).ok()?;
        }
        let outcome = outcome.await.ok();
        drop(permit);
        outcome
    }

    /// How many executions the node holds in memory: being read, folded, committed, or waiting for a call.
    pub fn executions_at_work(&self) -> usize {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Why the node should get no requests now; `None` when it is ready.
    pub fn unready_reason(&self) -> Option<String> {
        match &*self.phase.borrow() {
            Phase::Running => {}
            Phase::Draining => return Some("the node is draining".into()),
            Phase::Stopped => return Some("the node has stopped".into()),
            Phase::Failed(reason) => return Some(format!("the node had to stop: {reason}")),
        }
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, key) = watched.as_ref()?;
        let computing = self.environment.clock.monotonic().saturating_sub(*since);
        (computing > POLL_MAX).then(|| format!("{key} has been computing for {} ms without waiting", computing.as_millis()))
    }

    /// Waits until the node has stopped by itself, and says why.
    pub async fn failed(&self) -> EngineError {
        let mut phase = self.phase.clone();
        let failed = phase.wait_for(|phase| matches!(phase, Phase::Failed(_))).await.map(|phase| phase.clone());
        match failed {
            Ok(Phase::Failed(reason)) => EngineError::Fatal(reason),
            // Stopped in good order: there is nothing to report.
            _ => std::future::pending().await,
        }
    }

    /// Stops in good order: begins no more calls, waits for those under way (at most `drain`), commits what ended, and
    /// gives the store back. Equal in effect to being killed, only kinder.
    pub async fn drain(&self) {
        let _ = self.stop_scanner.send(true);
        self.tell(Message::Drain);
        let mut phase = self.phase.clone();
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Stopped | Phase::Failed(_))).await;
        self.commits.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(error) = self.store.leave(&self.fence).await {
            tracing::warn!(error = %error, "the lane could not be given back; the next node takes it anyway");
        }
        self.store.close().await;
        tracing::info!(node.id = self.fence.node_id, "node drained");
    }
}
