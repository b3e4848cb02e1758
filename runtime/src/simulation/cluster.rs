//! Nodes on a simulated database: each a process of its own that is started, struck, drained and started again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use tokio::sync::oneshot;

use super::database::Database;
use super::dice::Dice;
use super::executor::Simulation;
use super::network::{LinkFaults, link, slot_of, url_of};
use super::node_clock::NodeClock;
use super::process::{Process, Strike};
use super::session::Session;
use crate::client::Client;
use crate::engine::{Engine, EngineConfig, Environment, Randomness, Registries, Spawner};
use crate::store::{Member, Sharing};

/// How long a node that could not join waits before it tries again, as a supervisor of processes would.
const STARTS_AGAIN: Duration = Duration::from_secs(1);

/// What kind of node stands in a slot.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// How it works; its address is set by the cluster.
    pub config: EngineConfig,
    /// How much its clock runs fast, in millionths.
    pub drift_ppm: i64,
    /// What its time of day is ahead by, in microseconds.
    pub ahead: i64,
}

/// What became of a request from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<T> {
    /// The node answered.
    Answered(T),
    /// It did not, or the answer did not arrive: nobody knows.
    NoAnswer,
}

/// A node that runs.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) process: Process,
    pub(super) client: Client,
    clock: NodeClock,
}

struct Place {
    plan: NodePlan,
    slot: Option<Slot>,
    /// The process that is starting, runs, or ran last.
    process: Option<Process>,
}

type Code = Box<dyn Fn(&Environment) -> Registries + Send + Sync>;

/// See the module.
pub struct Cluster {
    simulation: Simulation,
    database: Arc<Database>,
    code: Code,
    places: Mutex<Vec<Place>>,
    links: Mutex<LinkFaults>,
    dice: Dice,
}

impl Cluster {
    /// A cluster with a place for each plan; nothing runs yet.
    pub fn new(
        database: &Arc<Database>,
        plans: Vec<NodePlan>,
        code: impl Fn(&Environment) -> Registries + Send + Sync + 'static,
    ) -> Arc<Self> {
        let simulation = database.simulation().clone();
        let places = plans.into_iter().map(|plan| Place { plan, slot: None, process: None }).collect();
        let dice = simulation.dice();
        let links = Mutex::default();
        Arc::new(Self {
            simulation,
            database: Arc::clone(database),
            code: Box::new(code),
            places: Mutex::new(places),
            links,
            dice,
        })
    }

    /// The simulation.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// The database behind the nodes.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.lock().len()
    }

    /// From now on the nodes reach each other like this.
    pub fn set_links(&self, faults: LinkFaults) {
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Starts a process in a place, whatever was there before.
    pub fn start(self: &Arc<Self>, place: usize) {
        let process = self.simulation.process();
        let clock = {
            let mut places = self.lock();
            let Some(of) = places.get_mut(place) else { return };
            of.slot = None;
            of.process = Some(process);
            NodeClock::new(self.simulation.clone(), of.plan.drift_ppm, of.plan.ahead)
        };
        let cluster = Arc::clone(self);
        self.simulation.spawn(process, async move { cluster.serve(place, process, clock).await });
    }

    /// The life of a process.
    async fn serve(self: Arc<Self>, place: usize, process: Process, clock: NodeClock) {
        let Some(mut config) = self.lock().get(place).map(|of| of.plan.config.clone()) else { return };
        let is_shared = self.database.backing().store().facts().sharing == Sharing::Shared;
        config.url = is_shared.then(|| url_of(place));
        let environment = Environment {
            clock: Arc::new(clock.clone()),
            random: Arc::new(OwnDice(self.simulation.dice())),
            spawner: Arc::new(OwnSpawner { simulation: self.simulation.clone(), process }),
        };
        let code = (self.code)(&environment);
        let engine = loop {
            let store = Arc::new(Session::new(&self.database, process));
            match Engine::start(store, code.clone(), environment.clone(), config.clone()).await {
                Ok(engine) => break engine,
                Err(_) => self.simulation.sleep(STARTS_AGAIN).await,
            }
        };
        let client = Client::beside(Arc::clone(&engine), link(&self));
        if let Some(of) = self.lock().get_mut(place)
            && of.process == Some(process)
        {
            of.slot = Some(Slot { process, client, clock });
        }
        let cluster = Arc::downgrade(&self);
        drop(self);
        let why = engine.failed().await;
        let Some(cluster) = cluster.upgrade() else { return };
        // An embedded store is taken from a node by the next one; nothing else may make a node doubt what it knows.
        cluster.database.judge().expect("I28", !is_shared, || format!("node {place}: {why}"));
        cluster.kill(place);
        cluster.start(place);
    }

    /// Ends the process of a place as by SIGKILL.
    pub fn kill(&self, place: usize) {
        if let Some(process) = self.take(place) {
            self.simulation.strike(process, Strike::Kill);
        }
    }

    /// Ends or freezes the process of a place after so many more steps of it: in the middle of whatever it does then.
    pub fn strike_after(&self, place: usize, steps: u32, strike: Strike) {
        let process = self.lock().get(place).and_then(|of| of.process);
        if let Some(process) = process {
            self.simulation.strike_after(process, steps, strike);
        }
    }

    /// Whether the process of a place was killed.
    pub fn is_dead(&self, place: usize) -> bool {
        let process = self.lock().get(place).and_then(|of| of.process);
        process.is_none_or(|process| self.simulation.is_dead(process))
    }

    /// Lets the process of a place go on, and spares it what was still to strike it.
    pub fn thaw(&self, place: usize) {
        let process = self.lock().get(place).and_then(|of| of.process);
        if let Some(process) = process {
            self.simulation.spare(process);
            self.simulation.thaw(process);
        }
    }

    /// Drains the node of a place as SIGTERM does, and ends its process when that is done.
    pub async fn drain(&self, place: usize) {
        let Some(slot) = self.slot(place) else { return };
        let (done, drained) = oneshot::channel();
        let client = slot.client.clone();
        self.simulation.spawn(slot.process, async move {
            client.engine().drain().await;
            client.say_goodbye().await;
            let _ = done.send(());
        });
        if drained.await.is_ok() {
            self.database.judge().reach("node drained");
        }
        let is_same = self.lock().get(place).is_some_and(|of| of.process == Some(slot.process));
        if is_same {
            self.kill(place);
        }
    }

    /// Sets the clock of a place.
    pub fn step_clock(&self, place: usize, micros: i64) {
        if let Some(slot) = self.slot(place) {
            slot.clock.step(micros);
        }
    }

    /// Whether the node of a place is there to answer.
    pub fn is_up(&self, place: usize) -> bool {
        self.slot(place).is_some_and(|slot| !self.simulation.is_dead(slot.process))
    }

    /// Where every place stands, for a person.
    pub fn described(&self) -> String {
        let place = |place: usize| {
            let process = self.lock().get(place).and_then(|of| of.process);
            let state = match process {
                None => "never started",
                Some(process) if self.simulation.is_dead(process) => "dead",
                Some(process) if self.simulation.is_frozen(process) => "frozen",
                Some(_) => "alive",
            };
            let client = self.client(place);
            let shards = client.as_ref().map(|client| client.engine().shards_owned());
            let unready = client.and_then(|client| client.engine().unready_reason());
            format!("node {place} is {state}, shards {shards:?}, unready {unready:?}")
        };
        (0..self.places()).map(place).collect::<Vec<_>>().join("; ")
    }

    /// The client of a place, for a test to look at.
    pub fn client(&self, place: usize) -> Option<Client> {
        self.slot(place).map(|slot| slot.client)
    }

    /// Asks a node as a caller over the network does. When the caller's patience ends it hangs up, and what handles its
    /// request is dropped where it stands.
    pub async fn ask<T: Send + 'static>(
        &self,
        place: usize,
        patience: Duration,
        request: impl FnOnce(Client) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Asked<T> {
        let timeout = self.simulation.sleep(patience);
        let Some(slot) = self.slot(place) else {
            timeout.await;
            return Asked::NoAnswer;
        };
        let (answer, answered) = oneshot::channel();
        let (hang_up, hung_up) = oneshot::channel::<()>();
        let client = slot.client.clone();
        self.simulation.spawn(slot.process, async move {
            if let Either::Left((handled, _)) = select(request(client), hung_up).await {
                let _ = answer.send(handled);
            }
        });
        let asked = match select(answered, timeout).await {
            Either::Left((Ok(answer), _)) => Asked::Answered(answer),
            Either::Left((Err(_), _)) | Either::Right(_) => Asked::NoAnswer,
        };
        drop(hang_up);
        asked
    }

    pub(super) fn link_faults(&self) -> LinkFaults {
        *self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dice(&self) -> &Dice {
        &self.dice
    }

    /// The node that a member's address leads to, if it is the one that the member's secret is of.
    pub(super) fn reached_by(&self, member: &Member) -> Option<Slot> {
        let place = slot_of(member.url.as_deref()?)?;
        self.slot(place).filter(|slot| slot.client.engine().secret() == member.secret)
    }

    fn slot(&self, place: usize) -> Option<Slot> {
        self.lock().get(place).and_then(|of| of.slot.clone())
    }

    fn take(&self, place: usize) -> Option<Process> {
        let (process, slot) = {
            let mut places = self.lock();
            let of = places.get_mut(place)?;
            (of.process, of.slot.take())
        };
        drop(slot);
        process
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OwnDice(Dice);

impl Randomness for OwnDice {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}

struct OwnSpawner {
    simulation: Simulation,
    process: Process,
}

impl Spawner for OwnSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.simulation.spawn(self.process, task);
    }
}
