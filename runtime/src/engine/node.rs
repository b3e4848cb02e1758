//! The shell around the core: channels, tasks, and the life of a node from joining to draining.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};

use super::committer::Committer;
use super::core::{Core, Effect, Message};
use super::scanner::{Scanner, blocked_executions};
use super::{Answer, Call, CommitFailure, CommitRequest, Environment, Input, Registries, ReplyId, ReplyTo};
use crate::activity::ActivityFailure;
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Fence, Outcome, Store, StoreError, Write};
use crate::time::Timestamp;

/// No wait in memory is longer, whatever the clocks say.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// A workflow that computes longer than this without waiting makes the node unready.
const POLL_MAX: Duration = Duration::from_secs(1);
/// The most messages that are taken in before effects are carried out.
const MESSAGES_PER_FLUSH: usize = 1_024;
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
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            scan: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            buffer: Duration::from_secs(24 * 3600),
            timers: true,
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
enum Phase {
    Running,
    Draining,
    Stopped,
    Failed(String),
}

/// What the core is computing, and since when by the monotonic clock.
type Watched = Arc<Mutex<Option<(Duration, WorkflowKey)>>>;

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
        let fence = store.join(&node_id, 0).await?;
        let code = Arc::new(code);
        let (incoming, from_outside) = mpsc::unbounded_channel();
        let (commits, commit_requests) = mpsc::unbounded_channel();
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        let (phase_sender, phase) = watch::channel(Phase::Running);
        let (stop_scanner, stop) = watch::channel(false);
        let limit = Arc::new(AtomicUsize::new(0));
        let watched = Watched::default();

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
            watched: Arc::clone(&watched),
            replies: HashMap::new(),
            next_reply: 0,
            drain_until: None,
        };
        for key in blocked_executions(store.as_ref()).await? {
            let _ = incoming.send(Incoming::Message(Message::Nudge(key)));
        }
        environment.spawner.spawn(committer.run().boxed());
        environment.spawner.spawn(scanner.run().boxed());
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

/// The task that runs the core.
struct Shell {
    core: Core,
    store: Arc<dyn Store>,
    code: Arc<Registries>,
    environment: Environment,
    drain: Duration,
    from_outside: mpsc::UnboundedReceiver<Incoming>,
    incoming: mpsc::UnboundedSender<Incoming>,
    commits: mpsc::UnboundedSender<CommitRequest>,
    loads: Arc<Semaphore>,
    changes: broadcast::Sender<WorkflowKey>,
    phase: watch::Sender<Phase>,
    limit: Arc<AtomicUsize>,
    watched: Watched,
    replies: HashMap<ReplyId, oneshot::Sender<Answer>>,
    next_reply: u64,
    /// By the monotonic clock.
    drain_until: Option<Duration>,
}

impl Shell {
    async fn run(mut self) {
        let clock = Arc::clone(&self.environment.clock);
        let mut messages = Vec::with_capacity(MESSAGES_PER_FLUSH);
        loop {
            let now = clock.now();
            let wait = self.core.next_due().map_or(WAIT_MAX, |due| due.since(now).min(WAIT_MAX));
            tokio::select! {
                biased;
                received = self.from_outside.recv_many(&mut messages, MESSAGES_PER_FLUSH) => {
                    if received == 0 {
                        return;
                    }
                }
                () = clock.sleep(wait) => {}
            }
            for incoming in messages.drain(..) {
                self.take(incoming, &*clock);
            }
            self.watch(&*clock, None);
            let effects = self.core.flush(clock.now());
            self.limit.store(self.core.scan_limit(), Ordering::Relaxed);
            for effect in effects {
                if let Some(reason) = self.carry_out(effect) {
                    tracing::error!(reason, "node stops: what it believes is not what the store holds");
                    let _ = self.phase.send(Phase::Failed(reason));
                    return;
                }
            }
            if self.is_drained(&*clock) {
                let _ = self.phase.send(Phase::Stopped);
                return;
            }
        }
    }

    fn take(&mut self, incoming: Incoming, clock: &dyn super::Clock) {
        let message = match incoming {
            Incoming::Message(message) => message,
            Incoming::Request { key, input, reply } => {
                self.next_reply += 1;
                let id = ReplyId(self.next_reply);
                self.replies.insert(id, reply);
                Message::Input { key, input: input(id) }
            }
            Incoming::Fatal(reason) => {
                let _ = self.phase.send(Phase::Failed(reason));
                return;
            }
        };
        if matches!(message, Message::Drain) {
            let _ = self.phase.send(Phase::Draining);
            self.drain_until = Some(clock.monotonic().saturating_add(self.drain));
        }
        let subject = match &message {
            Message::Input { key, .. } | Message::CallEnded { key, .. } => Some(key.clone()),
            _ => None,
        };
        self.watch(clock, subject);
        self.core.step(message, clock.now());
    }

    fn watch(&self, clock: &dyn super::Clock, key: Option<WorkflowKey>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = key.map(|key| (clock.monotonic(), key));
    }

    fn is_drained(&self, clock: &dyn super::Clock) -> bool {
        self.drain_until.is_some_and(|until| self.core.is_idle() || clock.monotonic() >= until)
    }

    /// Does what the core wants done. The reason, when the node must stop.
    fn carry_out(&mut self, effect: Effect) -> Option<String> {
        match effect {
            Effect::Load(keys) => self
                .environment
                .spawner
                .spawn(load(Arc::clone(&self.store), Arc::clone(&self.loads), keys, self.incoming.clone()).boxed()),
            Effect::Commit(request) => drop(self.commits.send(*request)),
            Effect::Call(call) => self.environment.spawner.spawn(
                call_activity(*call, Arc::clone(&self.code), Arc::clone(&self.environment.clock), self.incoming.clone()).boxed(),
            ),
            Effect::Reply(reply, answer) => {
                if let Some(sender) = self.replies.remove(&reply) {
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

async fn load(store: Arc<dyn Store>, loads: Arc<Semaphore>, keys: Vec<WorkflowKey>, core: mpsc::UnboundedSender<Incoming>) {
    let Ok(_permit) = loads.acquire().await else { return };
    let message = match store.load(&keys).await {
        Ok(loaded) => Message::Loaded(keys.into_iter().zip(loaded).collect()),
        Err(error) => {
            tracing::error!(error = %error, executions = keys.len(), "executions could not be read; they are read again");
            Message::LoadFailed(keys)
        }
    };
    let _ = core.send(Incoming::Message(message));
}

/// Makes one attempt, within its time, and tells the core how it ended.
async fn call_activity(call: Call, code: Arc<Registries>, clock: Arc<dyn super::Clock>, core: mpsc::UnboundedSender<Incoming>) {
    let Call { key, number, name, input, options, ctx } = call;
    let sends = Arc::clone(&ctx.sends);
    let outcome = match code.activities.get(&name) {
        None => Err(ActivityFailure::transient("unknown-activity", format!("no activity {name:?} is known to this program"))),
        Some(_) if is_too_late(&ctx, &options, clock.now()) => {
            Err(ActivityFailure::permanent("schedule-to-start", "its first attempt could not begin in time"))
        }
        Some(activity) => {
            let attempt = AssertUnwindSafe(activity.execute(&ctx, input)).catch_unwind();
            tokio::select! {
                biased;
                outcome = attempt => outcome.unwrap_or_else(|_| Err(ActivityFailure::transient("panic", format!("activity {name} panicked")))),
                () = clock.sleep(options.start_to_close) => Err(ActivityFailure::transient(
                    "start-to-close",
                    format!("no outcome within {} ms", options.start_to_close.as_millis()),
                )),
            }
        }
    };
    let outcome = outcome.and_then(|result| within_limit(result, options.result_bytes_max));
    let limit = options.limit.map(|limit| limit.name);
    let sends = sends.load(Ordering::Relaxed);
    let _ = core.send(Incoming::Message(Message::CallEnded { key, number, limit, outcome, sends }));
}

fn is_too_late(ctx: &crate::activity::ActivityContext, options: &crate::activity::ActivityOptions, now: Timestamp) -> bool {
    ctx.attempt() <= 1 && options.schedule_to_start.is_some_and(|limit| now > ctx.scheduled_at().saturating_add(limit))
}

fn within_limit(result: Payload, bytes_max: usize) -> Result<Payload, ActivityFailure> {
    if result.len() <= bytes_max {
        return Ok(result);
    }
    let message = format!("the result has {} bytes, the limit is {bytes_max}; the activity is maybe done", result.len());
    Err(ActivityFailure::permanent("result", message))
}
