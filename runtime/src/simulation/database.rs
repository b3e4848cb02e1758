//! The database that the processes of a simulation share, and how badly it may behave.
//!
//! A transaction runs on the database's side: it goes on when the process that asked for it is frozen or killed, and it
//! holds its lane's lock from the fence to the end, as a row lock is held. Its fate is drawn from the seed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;

use super::dice::Dice;
use super::executor::Simulation;
use super::judge::Judge;
use super::process::{Process, Strike};
use super::session::Session;
use crate::fault::{Bug, planted};
use crate::store::{CommitError, Fence, ModelStore, Outcome, Store, StoreError, Write};

/// How long a change of an epoch waits for a transaction before it ends the session that holds it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a transaction of a frozen client looks whether its client is back, or its session was ended.
const FROZEN_LOOK: Duration = Duration::from_millis(100);

/// How often what goes wrong, as probabilities of one operation, and how long things take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreFaults {
    /// How long one way to the database, or one statement, takes at most.
    pub latency: Duration,
    /// How often it takes up to a hundred times as long.
    pub slow: f64,
    /// A request is lost on its way.
    pub request_lost: f64,
    /// An answer is lost: what was asked for is done.
    pub answer_lost: f64,
    /// The database refuses for now; nothing is done.
    pub busy: f64,
    /// The client hears of a broken connection, and the transaction still lands, later.
    pub limbo: f64,
    /// How much later at most.
    pub limbo_length: Duration,
    /// A transaction of a process that freezes meanwhile stays open until it thaws.
    pub held_by_the_frozen: bool,
    /// Writes of a batch that hold this cannot be stored.
    pub poison: bool,
}

/// What becomes of a commit and of the process that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFate {
    /// It goes its way.
    Goes,
    /// The process ends before it.
    CrashBefore,
    /// The process ends behind it, before it hears of it.
    CrashAfter,
}

/// Decides the fate of a commit, by a word about what it holds.
type Fates = Arc<dyn Fn(&str) -> CommitFate + Send + Sync>;

/// One lane's lock. Whoever ends its session raises `session`: transactions of earlier ones do not land.
#[derive(Default)]
struct Lane {
    lock: tokio::sync::Mutex<()>,
    session: AtomicU64,
}

/// See the module.
pub struct Database {
    simulation: Simulation,
    dice: Dice,
    backing: Backing,
    faults: Mutex<StoreFaults>,
    outage_until: Mutex<Duration>,
    up_since: Mutex<Duration>,
    lanes: Mutex<BTreeMap<String, Arc<Lane>>>,
    under_way: AtomicU64,
    fates: Mutex<Option<Fates>>,
    judge: Arc<Judge>,
}

/// What really keeps the rows.
#[derive(Clone)]
pub enum Backing {
    /// The model, in memory.
    Model(Arc<ModelStore>),
    /// A real store, each operation of which is run to its end before anything else happens.
    Inline(Arc<dyn Store>, Arc<tokio::runtime::Runtime>),
}

impl Backing {
    /// The store.
    pub fn store(&self) -> &dyn Store {
        match self {
            Self::Model(model) => model.as_ref(),
            Self::Inline(store, _) => store.as_ref(),
        }
    }

    /// Runs an operation of the store to its end.
    ///
    /// # Panics
    /// When the model waits for something, which it never does.
    pub fn inline<T>(&self, operation: impl Future<Output = T>) -> T {
        match self {
            Self::Model(_) => operation.now_or_never().expect("the model never waits"),
            Self::Inline(_, runtime) => runtime.block_on(operation),
        }
    }
}

impl Database {
    /// A database that behaves, over `backing`.
    pub fn new(simulation: &Simulation, backing: Backing, judge: Arc<Judge>) -> Arc<Self> {
        Arc::new(Self {
            simulation: simulation.clone(),
            dice: simulation.dice(),
            backing,
            faults: Mutex::default(),
            outage_until: Mutex::default(),
            up_since: Mutex::default(),
            lanes: Mutex::default(),
            under_way: AtomicU64::new(0),
            fates: Mutex::default(),
            judge,
        })
    }

    /// What really keeps the rows.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Connections of the world's own.
    pub fn connect(self: &Arc<Self>) -> Arc<dyn Store> {
        Arc::new(Session::new(self, Process::WORLD))
    }

    /// From now on it behaves like this.
    pub fn set_faults(&self, faults: StoreFaults) {
        *lock(&self.faults) = faults;
    }

    /// From now on this decides what becomes of every commit that holds anything.
    pub fn decide_commits(&self, fates: Fates) {
        *lock(&self.fates) = Some(fates);
    }

    /// It is gone for so long, with every transaction that was under way.
    pub fn restart(&self, gone_for: Duration) {
        let back = self.simulation.now() + gone_for;
        *lock(&self.outage_until) = back;
        *lock(&self.up_since) = back;
        if self.under_way.load(Ordering::Relaxed) > 0 {
            self.judge.reach("database restarted in mid-commit");
        }
        for lane in lock(&self.lanes).values() {
            lane.session.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn judge(&self) -> &Judge {
        &self.judge
    }

    pub(super) fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    pub(super) fn dice(&self) -> &Dice {
        &self.dice
    }

    pub(super) fn faults(&self) -> StoreFaults {
        *lock(&self.faults)
    }

    /// How long it has been up.
    pub(super) fn up(&self) -> Duration {
        self.simulation.now().saturating_sub(*lock(&self.up_since))
    }

    pub(super) fn is_out(&self) -> bool {
        self.simulation.now() < *lock(&self.outage_until)
    }

    /// One way, or one statement.
    pub(super) async fn travel(&self) {
        let faults = self.faults();
        let most = if self.dice.chance(faults.slow) { faults.latency * 100 } else { faults.latency };
        let takes = self.dice.up_to(most);
        if !takes.is_zero() {
            self.simulation.sleep(takes).await;
        }
    }

    fn lane(&self, node_id: &str) -> Arc<Lane> {
        Arc::clone(lock(&self.lanes).entry(node_id.to_owned()).or_default())
    }

    /// Changes something of a node under its lane's lock: waits for the transaction that holds it, and ends its session
    /// when that takes too long.
    pub(super) async fn in_lane<T>(&self, node_id: &str, change: impl FnOnce() -> T) -> T {
        let lane = self.lane(node_id);
        if planted(Bug::WeakLock) {
            return change();
        }
        let waited = {
            let acquire = std::pin::pin!(lane.lock.lock());
            let timeout = std::pin::pin!(self.simulation.sleep(LOCK_TIMEOUT));
            match futures::future::select(acquire, timeout).await {
                futures::future::Either::Left((guard, _)) => Some(guard),
                futures::future::Either::Right(_) => None,
            }
        };
        if waited.is_none() {
            lane.session.fetch_add(1, Ordering::Relaxed);
            self.judge.reach("session of a frozen node ended");
        }
        change()
    }

    /// One transaction, on the database's side; it stays open for `hold` between its fence and its end.
    pub(super) async fn transaction(
        &self,
        client: Process,
        fence: &Fence,
        writes: &[Write],
        hold: Duration,
    ) -> Result<Vec<Outcome>, CommitError> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let result = self.fenced(client, fence, writes, hold).await;
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        result
    }

    async fn fenced(
        &self,
        client: Process,
        fence: &Fence,
        writes: &[Write],
        hold: Duration,
    ) -> Result<Vec<Outcome>, CommitError> {
        let lane = self.lane(&fence.node_id);
        let session = lane.session.load(Ordering::Relaxed);
        let guard = lane.lock.lock().await;
        if !planted(Bug::NoEpochCheck) && !self.judge.holds(fence) {
            self.judge.reach("commit of a zombie refused");
            return Err(CommitError::FenceLost { expected: fence.epoch });
        }
        self.travel().await;
        self.simulation.sleep(hold).await;
        let is_ended = || lane.session.load(Ordering::Relaxed) != session;
        while self.faults().held_by_the_frozen && self.simulation.is_frozen(client) && !is_ended() {
            self.simulation.sleep(FROZEN_LOOK).await;
        }
        if (is_ended() && !planted(Bug::NoEpochCheck)) || self.is_out() {
            return Err(CommitError::Unknown("the session was ended".into()));
        }
        let result = self.apply(client, fence, writes);
        drop(guard);
        result
    }

    fn apply(&self, client: Process, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        let fates = lock(&self.fates).clone();
        let fate = match &fates {
            Some(fates) if !writes.is_empty() => fates(&described(writes)),
            _ => CommitFate::Goes,
        };
        if fate == CommitFate::CrashBefore {
            self.simulation.strike(client, Strike::Kill);
            return Err(CommitError::Unknown("its client ended".into()));
        }
        if self.faults().poison && writes.iter().any(super::poison::is_poison) {
            self.judge.reach("poison in a batch");
            return Err(CommitError::Rejected("a write that no database takes".into()));
        }
        let result = self.backing.inline(self.backing.store().commit(fence, writes));
        if let Ok(outcomes) = &result {
            self.judge.committed(&self.backing, self.simulation.time(), fence, writes, outcomes);
        }
        if fate == CommitFate::CrashAfter {
            self.simulation.strike(client, Strike::Kill);
        }
        result
    }

    pub(super) fn unavailable<T>(&self) -> Result<T, StoreError> {
        Err(StoreError::Unavailable("the simulated database does not answer".into()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A word about what a batch holds, for a person.
fn described(writes: &[Write]) -> String {
    let word = |write: &Write| match write {
        Write::Start(new) => format!("the start of {}", new.key),
        Write::Advance(advance) => format!("a transition of {}", advance.key),
        Write::Deposit(deposit) => format!("the stored signal {}", deposit.row.signal_id),
        Write::Refuse(refuse) => format!("a refusal for {}", refuse.key),
        Write::Retire(retire) => format!("the tombstone of {}", retire.key),
        Write::Forget(forget) => format!("the end of {}", forget.key),
        Write::Dispatch(dispatch) => format!("event {} of {} to {}", dispatch.place.event, dispatch.key, dispatch.place.sink),
    };
    writes.iter().map(word).collect::<Vec<_>>().join(", ")
}
