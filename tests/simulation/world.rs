//! One seed: nodes, a database, a shop, callers and trouble, from the beginning to the verdict.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use overdue_activities::{DownstreamsConfig, register_over};
use overdue_runtime::engine::{EngineConfig, Environment, Registries, Retain};
use overdue_runtime::fault::{self, Bug};
use overdue_runtime::history::decode;
use overdue_runtime::simulation::{
    Backing, Cluster, Database, Dice, Findings, Judge, LinkFaults, NodeClock, NodePlan, Process, Simulation, StoreFaults,
    TRANSACTION_TIME,
};
use overdue_runtime::store::{Loaded, ModelStore, RequestedStart, Sharing, SqliteStore, Status, Store};
use overdue_runtime::{Timestamp, WorkflowKey, verify};
use overdue_workflows::sandbox::{FaultPlan, Shop};
use overdue_workflows::{ORDER_TIMEOUT, Settings, register};
use serde_json::json;

use crate::callers::{Caller, Log, Planned};
use crate::receiver::Way;
use crate::shop::{Connections, Street};
use crate::swarm::{Kept, ShopFaults, Swarm};
use crate::{troubles, verdict};

/// No seed takes more steps than this; one that does spins.
const STEPS_MAX: u64 = 20_000_000;
/// When trouble has ended, everything comes to its end within this.
pub(crate) const SETTLES_WITHIN: Duration = Duration::from_secs(2 * 3600);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_secs(30);
/// How long one service stays away when trouble has ended.
const SECOND_WAVE: Duration = Duration::from_secs(120);
/// How many orders come meanwhile.
const ORDERS_OF_SECOND_WAVE: u64 = 6;
/// How long signals wait for a start.
const BUFFER: Duration = Duration::from_secs(120);

/// What a seed showed.
pub(crate) struct Ran {
    pub(crate) findings: Findings,
    /// What was done to it, by kind.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) trace: u64,
    pub(crate) steps: u64,
    pub(crate) virtual_time: Duration,
}

/// See the module.
pub(crate) struct World {
    pub(crate) simulation: Simulation,
    pub(crate) swarm: Swarm,
    pub(crate) judge: Arc<Judge>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) street: Arc<Street>,
    pub(crate) orders: Vec<Planned>,
    pub(crate) log: Mutex<Log>,
    model: Option<Arc<ModelStore>>,
    calm: AtomicBool,
    over: AtomicBool,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl World {
    /// The database's time.
    pub(crate) fn time(&self) -> Timestamp {
        self.simulation.time()
    }

    /// Whether trouble has ended.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Whether nobody is to try anything any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Any node's place.
    pub(crate) fn any_place(&self, dice: &Dice) -> usize {
        usize::try_from(dice.below(self.cluster.places() as u64)).unwrap()
    }

    /// Counts a fault.
    pub(crate) fn note(&self, fault: &'static str) {
        *self.faults.lock().unwrap().entry(fault).or_default() += 1;
    }

    /// Asks for a start inside the store.
    pub(crate) fn request_start(&self, id: &str, input: &str) {
        let Some(model) = &self.model else { return };
        let key = WorkflowKey::new(ORDER_TIMEOUT, id);
        let shard = key.shard(model.facts().shards);
        model.request_start(RequestedStart { key, shard, input: input.into(), attributes: None, start_at: None, refused: None });
    }

    /// Whether an execution is stored now.
    pub(crate) fn is_stored(&self, key: &WorkflowKey) -> bool {
        let backing = self.cluster.database().backing();
        backing.inline(backing.store().find(key)).unwrap().is_some()
    }

    /// How often nodes were struck.
    pub(crate) fn strikes(&self) -> u64 {
        self.faults.lock().unwrap().values().sum()
    }

    /// Whether a signal is anywhere: in a history of the order, in the inbox, or maybe in what retention left of it.
    pub(crate) fn knows_signal(&self, order_id: &str, signal_id: &str) -> bool {
        let backing = self.cluster.database().backing();
        let mut keys = backing.inline(backing.store().derived(order_id, 1_000)).unwrap();
        keys.push(WorkflowKey::new(ORDER_TIMEOUT, order_id));
        let wanted = format!("\"{signal_id}\"");
        let holds = |loaded: Loaded| {
            let events = decode(loaded.execution.run_id, &loaded.records).map(|(events, _)| events).unwrap_or_default();
            loaded.execution.retired || serde_json::to_string(&events).unwrap().contains(&wanted)
        };
        let in_a_history = backing.inline(backing.store().load(&keys)).unwrap().into_iter().flatten().any(holds);
        in_a_history || self.swarm.retain.is_some() || self.is_unread(order_id, signal_id)
    }

    fn is_unread(&self, order_id: &str, signal_id: &str) -> bool {
        let backing = self.cluster.database().backing();
        let key = WorkflowKey::new(ORDER_TIMEOUT, order_id);
        let shards: Vec<u16> = vec![key.shard(backing.store().facts().shards)];
        let of_open = backing.inline(backing.store().load(std::slice::from_ref(&key))).unwrap();
        let in_inbox = of_open.into_iter().flatten().flat_map(|loaded| loaded.inbox).any(|row| row.signal_id == signal_id);
        let later = self.time().saturating_add(Duration::from_secs(1));
        let unclaimed = backing.inline(backing.store().unclaimed(&shards, later, 10_000)).unwrap();
        in_inbox || unclaimed.into_iter().any(|row| row.key == key && row.signal_id == signal_id)
    }
}

/// Runs a seed, with a mistake put back into the code if there is to be one.
pub(crate) fn run(seed: u64, bug: Option<Bug>) -> Ran {
    let swarm = Swarm::of(seed);
    let simulation = Simulation::new(seed);
    let sharing = if swarm.kept == Kept::Shared { Sharing::Shared } else { Sharing::Embedded };
    let judge = Arc::new(Judge::new(sharing, swarm.shards));
    let folder = tempfile::tempdir().unwrap();
    let (backing, model) = backing(&swarm, &simulation, folder.path());
    let database = Database::new(&simulation, backing.clone(), Arc::clone(&judge));
    let shop_time = simulation.clone();
    let shop = Shop::in_memory(FaultPlan::none(), move || {
        jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_micros(shop_time.time().as_micros())
    });
    let street = Street::new(&simulation, &judge, Arc::new(shop));
    street.ledger.beside(&backing);
    let connections = Arc::clone(&street);
    let cluster = Cluster::new(&database, plans(&swarm, &simulation), move |environment| program(environment, &connections));
    let dice = simulation.dice();
    let orders = (0..swarm.orders).map(|number| Planned::new(number, swarm.span, swarm.kept, &dice)).collect();
    let world = Arc::new(World {
        simulation: simulation.clone(),
        swarm,
        judge: Arc::clone(&judge),
        cluster,
        street,
        orders,
        log: Mutex::default(),
        model,
        calm: AtomicBool::new(false),
        over: AtomicBool::new(false),
        faults: Mutex::default(),
    });
    judge.know(workflows());
    if world.swarm.nodes_are_spared() {
        judge.expect_moves_at_rest(EngineConfig::default().drain);
    }
    let armed = arm(&world, bug);
    let ended = simulation.run(STEPS_MAX, play(Arc::clone(&world)));
    judge.expect("I33", ended.is_some(), || format!("not over after {STEPS_MAX} steps"));
    if ended == Some(true) {
        verdict::at_rest(&world);
    }
    verdict::always(&world);
    drop(armed);
    simulation.end();
    if let Backing::Inline(store, runtime) = &backing {
        runtime.block_on(store.close());
    }
    let faults = world.faults.lock().unwrap().clone();
    Ran {
        findings: judge.findings(),
        faults,
        trace: simulation.trace(),
        steps: simulation.steps(),
        virtual_time: simulation.now(),
    }
}

/// The whole course of events; whether everything has come to rest.
async fn play(world: Arc<World>) -> bool {
    let (simulation, swarm) = (&world.simulation, &world.swarm);
    world.cluster.database().set_faults(swarm.store);
    world.cluster.set_links(swarm.links);
    world.street.set_faults(swarm.shop);
    (0..world.cluster.places()).for_each(|place| world.cluster.start(place));
    for planned in &world.orders {
        let caller = Caller { world: Arc::clone(&world), dice: simulation.dice(), planned: planned.clone() };
        simulation.spawn(Process::WORLD, caller.play());
    }
    simulation.spawn(Process::WORLD, Arc::clone(&world.street).watch_breakers());
    troubles::begin(&world);
    simulation.sleep(swarm.span * 2).await;
    if !swarm.heals {
        world.over.store(true, Ordering::Relaxed);
        return false;
    }
    heal(&world).await;
    second_wave(&world).await;
    let healed = simulation.now();
    while simulation.now() - healed < SETTLES_WITHIN && !world.judge.is_broken() {
        simulation.sleep(LOOK).await;
        verdict::help(&world).await;
        if world.log.lock().unwrap().busy == 0 && verdict::is_settled(&world) {
            return walk(&world).await;
        }
    }
    verdict::not_settled(&world);
    false
}

/// Trouble has ended but for one service, which answers nobody: orders that come now are cancelled in time all the same.
async fn second_wave(world: &Arc<World>) {
    let simulation = &world.simulation;
    world.street.close_service("coupons", SECOND_WAVE);
    let dice = simulation.dice();
    let wave: Vec<Planned> = (0..ORDERS_OF_SECOND_WAVE).map(|number| Planned::when_all_is_well(number, &dice)).collect();
    let began = simulation.now();
    for planned in &wave {
        let caller = Caller { world: Arc::clone(world), dice: simulation.dice(), planned: planned.clone() };
        simulation.spawn(Process::WORLD, caller.play());
    }
    simulation.sleep(SECOND_WAVE).await;
    verdict::second_wave(world, &wave, began);
}

/// Looks at the whole store, as `overdue verify` does. Whether that could be done.
async fn walk(world: &World) -> bool {
    let clock = NodeClock::new(world.simulation.clone(), 0, 0);
    let options = verify::Options { workflow_type: None, patience: world.swarm.scan * 2 };
    let code = workflows();
    match verify::everything(world.cluster.database().connect().as_ref(), &code, &clock, &options).await {
        Ok(report) => world.judge.walked(&report),
        Err(error) => world.judge.expect("I12", false, || format!("the store could not be walked over: {error}")),
    }
    true
}

/// The code that histories are held against.
fn workflows() -> Registries {
    let mut code = Registries::default();
    register(&mut code.workflows, Settings::default());
    code
}

/// Trouble ends: what is frozen goes on, what is down is started. What hangs goes on hanging.
async fn heal(world: &Arc<World>) {
    world.calm.store(true, Ordering::Relaxed);
    let latency = world.swarm.store.latency;
    world.cluster.database().set_faults(StoreFaults { latency, poison: world.swarm.store.poison, ..StoreFaults::default() });
    world.cluster.set_links(LinkFaults { latency, lost: 0.0 });
    world.street.set_faults(ShopFaults { latency: world.swarm.shop.latency, ..ShopFaults::default() });
    // Longer than any strike that is still under way.
    world.simulation.sleep(world.swarm.lease * 6 + Duration::from_secs(30)).await;
    for place in 0..world.cluster.places() {
        world.cluster.thaw(place);
        if world.cluster.is_dead(place) {
            world.cluster.start(place);
        }
    }
}

fn backing(swarm: &Swarm, simulation: &Simulation, folder: &std::path::Path) -> (Backing, Option<Arc<ModelStore>>) {
    let time = simulation.clone();
    let model = match swarm.kept {
        Kept::Shared => {
            let now = move || {
                let of_transaction = fault::recall(TRANSACTION_TIME).and_then(|text| text.parse().ok());
                of_transaction.map_or_else(|| time.time(), Timestamp::from_micros)
            };
            Arc::new(ModelStore::shared(swarm.shards, Some(Arc::new(now))))
        }
        Kept::Embedded => Arc::new(ModelStore::new(swarm.shards)),
        Kept::Sqlite => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let store = runtime.block_on(SqliteStore::open(&folder.join("overdue.db"), swarm.shards)).unwrap();
            return (Backing::Inline(Arc::new(store), Arc::new(runtime)), None);
        }
    };
    (Backing::Model(Arc::clone(&model)), Some(model))
}

fn plans(swarm: &Swarm, simulation: &Simulation) -> Vec<NodePlan> {
    let dice = simulation.dice();
    let plan = |_| {
        let (drift, ahead) = if swarm.clocks_are_wrong && swarm.kept == Kept::Shared {
            (i64::try_from(dice.below(1_000)).unwrap() - 500, i64::try_from(dice.below(600_000_000)).unwrap() - 300_000_000)
        } else {
            (0, 0)
        };
        NodePlan {
            config: EngineConfig {
                scan: swarm.scan,
                lease: swarm.lease,
                timers: swarm.timers,
                buffer: BUFFER,
                retain: swarm.retain.map(|after| Retain { history: after, tombstone: after * 3 }),
                ..EngineConfig::default()
            },
            drift_ppm: drift,
            ahead,
        }
    };
    (0..swarm.nodes).map(plan).collect()
}

/// The flagship, as its program registers it, over a wire of ours.
fn program(environment: &Environment, street: &Arc<Street>) -> Registries {
    let service =
        |name: &str| json!({ "url": format!("http://{name}"), "timeout": "3s", "retry": { "initial": "500ms", "cap": "20s" } });
    let config: DownstreamsConfig = serde_json::from_value(json!({
        "orders": service("orders"), "stock": service("stock"), "coupons": service("coupons"), "payments": service("payments"),
    }))
    .unwrap();
    let mut code = Registries::default();
    let wire = Arc::new(Connections(Arc::clone(street)));
    let breakers = register_over(&mut code.activities, &config, environment, wire).unwrap().breakers;
    street.watch(&breakers);
    code.breakers = Some(breakers);
    code.sinks.register(Way(Arc::clone(street))).unwrap();
    register(&mut code.workflows, Settings::default());
    code
}

/// Arms the thread with the seed's whims, which end with the trouble, and with the mistake, which does not.
fn arm(world: &Arc<World>, bug: Option<Bug>) -> fault::Armed {
    let (dice, whims, armed) = (world.simulation.dice(), world.swarm.whims.clone(), Arc::clone(world));
    let rates: BTreeMap<fault::Whim, f64> = whims.into_iter().collect();
    let mut hangs = false;
    fault::arm(bug, move |whim| {
        // One that hangs is for the others to take over from: there have to be some.
        if whim == fault::Whim::CoreHangs && (hangs || armed.swarm.nodes < 2) {
            return false;
        }
        let strikes = !armed.is_calm() && rates.get(&whim).is_some_and(|rate| dice.chance(*rate));
        if strikes {
            hangs |= whim == fault::Whim::CoreHangs;
            armed.judge.reach(verdict::goal_of(whim));
        }
        strikes
    })
}

/// The number of events of every execution, for the verdict.
pub(crate) fn histories(world: &World) -> Vec<verdict::History> {
    let backing = world.cluster.database().backing();
    let rows = backing.inline(backing.store().list(&Default::default(), None, 100_000)).unwrap().rows;
    let keys: Vec<WorkflowKey> = rows.into_iter().map(|row| row.execution.key).collect();
    let loaded = backing.inline(backing.store().load(&keys)).unwrap();
    loaded
        .into_iter()
        .flatten()
        .map(|loaded| {
            let events = decode(loaded.execution.run_id, &loaded.records).map(|(events, _)| events).unwrap_or_default();
            verdict::History { events, is_open: loaded.execution.status.is_open(), row: loaded.execution }
        })
        .collect()
}

pub(crate) fn is_running(history: &verdict::History) -> bool {
    history.row.status == Status::Running
}
