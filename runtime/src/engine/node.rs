//! The node as a program sees it: started once, drained once, with doors to whichever incarnation lives in between.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, Semaphore, broadcast, oneshot, watch};

use super::committer::LaneRequest;
use super::core::Message;
use super::incarnation::{End, Shared, is_shared};
use super::ownership::{Ownership, Route};
use super::retention::Retain;
use super::scanner::HORIZON_PERIODS;
use super::store_clock::StoreClock;
use super::{Answer, Clock, CommitFailure, CommitRequest, Environment, Input, Registries, ReplyId, ReplyTo};
use crate::fault::{Point, Whim, point, whim};
use crate::id::WorkflowKey;
use crate::store::{DeclaredType, Fence, Member, Outcome, Store, StoreError, Write};
use crate::time::Timestamp;

/// A workflow that computes longer than this without waiting makes the node unready.
const POLL_MAX: Duration = Duration::from_secs(1);
/// The most requests (starts, signals, operator actions) that wait for their commit; beyond it they are refused.
const REQUESTS_MAX: usize = 10_000;
/// After the store could not be joined again, it is tried this much later.
const PAUSE_BEFORE_JOINING: Duration = Duration::from_millis(500);
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
    /// How long the node counts as alive without a renewal, where nodes share the store.
    pub lease: Duration,
    /// Where other nodes reach this one.
    pub url: Option<String>,
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
            lease: Duration::from_secs(10),
            url: None,
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
    Request {
        key: WorkflowKey,
        input: Box<dyn FnOnce(ReplyId) -> Input + Send>,
        reply: oneshot::Sender<Answer>,
    },
    /// The lane is another node's.
    Lost(String),
    Fatal(String),
}

/// Where a node stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    Running,
    /// Between two incarnations: the store has to be joined again.
    Joining,
    Draining,
    Stopped,
    Failed(String),
}

/// What the core is computing, and since when by the monotonic clock.
pub(super) type Watched = Arc<Mutex<Option<(Duration, WorkflowKey)>>>;

/// A running node.
pub struct Engine {
    shared: Shared,
    /// What other nodes show when they forward a request.
    secret: String,
    requests: Arc<Semaphore>,
    draining: watch::Sender<bool>,
}

impl Engine {
    /// Joins the store and begins to advance executions.
    ///
    /// # Errors
    /// When the store cannot be joined.
    pub async fn start(
        store: Arc<dyn Store>,
        code: Registries,
        environment: Environment,
        config: EngineConfig,
    ) -> Result<Arc<Self>, EngineError> {
        let store_clock = Arc::new(StoreClock::new(Arc::clone(&environment.clock)));
        let secret = format!("{:016x}{:016x}", environment.random.next_u64(), environment.random.next_u64());
        let clock: Arc<dyn Clock> = if is_shared(store.as_ref()) { store_clock.clone() } else { environment.clock };
        let shared = Shared {
            ownership: Arc::new(Ownership::new(store.facts().shards)),
            store,
            code: Arc::new(code),
            environment: Environment { clock, ..environment },
            store_clock,
            config,
            changes: broadcast::channel(CHANGES_KEPT).0,
            phase: Arc::new(watch::channel(Phase::Running).0),
            poke: Arc::new(Notify::new()),
            watched: Watched::default(),
            at_work: Arc::default(),
            news: watch::Sender::new(()),
            door: watch::Sender::new(None),
        };
        shared.store.declare(&declared(&shared.code)).await?;
        let fence = shared.join(&secret, None).await?;
        let (draining, drain_asked) = watch::channel(false);
        let lives = live_on(shared.clone(), secret.clone(), fence, drain_asked);
        shared.environment.spawner.spawn(lives.boxed());
        let engine = Arc::new(Self { shared, secret, requests: Arc::new(Semaphore::new(REQUESTS_MAX)), draining });
        let mut door = engine.shared.door.subscribe();
        let _ = door.wait_for(Option::is_some).await;
        Ok(engine)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    pub(crate) fn code(&self) -> &Arc<Registries> {
        &self.shared.code
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.shared.environment
    }

    /// Where the owner of this execution is.
    pub(crate) fn route(&self, key: &WorkflowKey) -> Route {
        self.shared.ownership.route(key.shard(self.store().facts().shards))
    }

    /// Where the owner of this shard is; nowhere for one that the store does not have.
    pub(crate) fn route_of(&self, shard: u16) -> Route {
        self.shared.ownership.route(shard)
    }

    /// Has the couriers look into the outbox at once.
    pub(crate) fn outbox_news(&self) {
        self.shared.news.send_replace(());
    }

    /// Whether nodes can share the store.
    pub(crate) fn is_shared(&self) -> bool {
        is_shared(self.store().as_ref())
    }

    /// Whether an owner may not see in time, by its scans alone, what becomes due at `wake_at`.
    pub(crate) fn is_soon(&self, wake_at: Timestamp) -> bool {
        let horizon = self.shared.config.scan.saturating_mul(HORIZON_PERIODS);
        wake_at <= self.environment().clock.now().saturating_add(horizon)
    }

    /// The other living nodes that share the store.
    pub(crate) fn peers(&self) -> Vec<Member> {
        self.shared.ownership.peers()
    }

    /// What other nodes show when they forward a request.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Has the node look at once who is there and who owns what.
    pub(crate) fn poke(&self) {
        self.shared.poke.notify_one();
    }

    /// Executions whose history grew here, from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<WorkflowKey> {
        self.shared.changes.subscribe()
    }

    pub(crate) fn changed(&self, key: &WorkflowKey) {
        let _ = self.shared.changes.send(key.clone());
    }

    /// Tells the core something, if there is one now: what it misses is found again in the store.
    pub(crate) fn tell(&self, message: Message) {
        if matches!(message, Message::Nudge(_) | Message::Hint { .. }) && whim(Whim::LostWord) {
            return;
        }
        if let Some(door) = &*self.shared.door.borrow() {
            let _ = door.core.send(Incoming::Message(message));
        }
    }

    /// Hands an input to the core and waits for the answer; `None` when the node cannot take it now.
    pub(crate) async fn ask(&self, key: WorkflowKey, input: impl FnOnce(ReplyId) -> Input + Send + 'static) -> Option<Answer> {
        let _permit = self.requests.try_acquire().ok()?;
        let (reply, answer) = oneshot::channel();
        let request = Incoming::Request { key, input: Box::new(input), reply };
        self.shared.door.borrow().as_ref()?.core.send(request).ok()?;
        answer.await.ok()
    }

    /// Commits a write that only inserts and waits for its outcome; `None` when the node cannot take it now.
    pub(crate) async fn commit(&self, write: Write) -> Option<Result<Outcome, CommitFailure>> {
        let permit = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        let (reply, outcome) = oneshot::channel();
        let request = LaneRequest::Write(Box::new(CommitRequest { write, reply_to: ReplyTo::Request(reply) }));
        self.shared.door.borrow().as_ref()?.lane.send(request).ok()?;
        let outcome = outcome.await.ok();
        drop(permit);
        outcome
    }

    /// How many executions the node holds in memory: being read, folded, committed, or waiting for a call.
    pub fn executions_at_work(&self) -> usize {
        self.shared.at_work.load(Ordering::Relaxed)
    }

    /// How many shards the node owns.
    pub fn shards_owned(&self) -> usize {
        self.shared.ownership.owned()
    }

    /// Why the node should get no requests now; `None` when it is ready.
    pub fn unready_reason(&self) -> Option<String> {
        match &*self.shared.phase.borrow() {
            Phase::Running => {}
            Phase::Joining => return Some("the node lost its lease and joins the store again".into()),
            Phase::Draining => return Some("the node is draining".into()),
            Phase::Stopped => return Some("the node has stopped".into()),
            Phase::Failed(reason) => return Some(format!("the node had to stop: {reason}")),
        }
        let watched = self.shared.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, key) = watched.as_ref()?;
        let computing = self.environment().clock.monotonic().saturating_sub(*since);
        (computing > POLL_MAX).then(|| format!("{key} has been computing for {} ms without waiting", computing.as_millis()))
    }

    /// Waits until the node has stopped by itself, and says why.
    pub async fn failed(&self) -> EngineError {
        let mut phase = self.shared.phase.subscribe();
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
        self.draining.send_replace(true);
        self.tell(Message::Drain);
        let mut phase = self.shared.phase.subscribe();
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Stopped | Phase::Failed(_))).await;
        self.store().close().await;
        point(Point::DrainClosed);
    }
}

fn declared(code: &Registries) -> Vec<DeclaredType> {
    let declared = |name: &str| DeclaredType {
        name: name.to_owned(),
        signals: code
            .workflows
            .get(name)
            .map(|workflow| workflow.signal_names())
            .unwrap_or_default()
            .into_iter()
            .map(Into::into)
            .collect(),
    };
    code.workflows.open_types().map(declared).collect()
}

/// One incarnation after another, until the node is drained or has to stop.
async fn live_on(shared: Shared, secret: String, mut fence: Fence, draining: watch::Receiver<bool>) {
    loop {
        match shared.live(&fence, &draining).await {
            End::Drained(last) => {
                point(Point::DrainCommitted);
                if let Err(error) = shared.store.leave(&last).await {
                    tracing::warn!(error = %error, "the lane could not be given back; it is taken over when its lease is over");
                }
                point(Point::DrainLeft);
                tracing::info!(node.id = last.node_id, "node drained");
                shared.phase.send_replace(Phase::Stopped);
                return;
            }
            End::Fatal(reason) => {
                tracing::error!(reason, "node stops: what it believes is not what the store holds");
                shared.phase.send_replace(Phase::Failed(reason));
                return;
            }
            End::Lost(reason) => {
                tracing::warn!(node.id = fence.node_id, reason, "node lost its lane; it joins again and owns nothing until then");
                shared.phase.send_replace(Phase::Joining);
                match join_again(&shared, &secret, &fence.node_id, &draining).await {
                    Some(joined) => fence = joined,
                    None => {
                        shared.phase.send_replace(Phase::Stopped);
                        return;
                    }
                }
                shared.phase.send_replace(Phase::Running);
            }
        }
    }
}

/// Joins the store in the place of the former incarnation, however long that takes; `None` when the node is to stop.
async fn join_again(shared: &Shared, secret: &str, former: &str, draining: &watch::Receiver<bool>) -> Option<Fence> {
    while !*draining.borrow() {
        match shared.join(secret, Some(former.to_owned())).await {
            Ok(fence) => return Some(fence),
            Err(StoreError::Closed) => return None,
            Err(error) => tracing::error!(error = %error, "store not joined; it is tried again"),
        }
        shared.environment.clock.sleep(PAUSE_BEFORE_JOINING).await;
    }
    None
}
