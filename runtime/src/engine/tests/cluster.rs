//! Nodes that share the model store. The store's clock is right; each node's own may be wrong. A node is stopped by
//! freezing every task of it.

use std::sync::Arc;
use std::time::Duration;

use super::harness::*;
use crate::client::{Client, Description, SignalOutcome, SignalRequest};
use crate::engine::{Clock, Engine, EngineConfig, Environment};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{ModelStore, Store};
use crate::testing::{FreezingSpawner, ManualClock, SeededRandom, WrongClock, eventually};
use crate::time::Timestamp;

/// How long a lease is here.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// Enough shards for three nodes.
pub(super) const SHARDS: u16 = 12;

/// A node's own clock against the store's.
#[derive(Clone, Copy)]
pub(super) enum Offset {
    Right,
    Ahead(Duration),
    Behind(Duration),
}

pub(super) struct Member {
    pub(super) client: Client,
    pub(super) tasks: FreezingSpawner,
}

impl Member {
    pub(super) fn shards(&self) -> usize {
        self.client.engine().shards_owned()
    }
}

pub(super) struct Cluster {
    pub(super) store: Arc<ModelStore>,
    pub(super) clock: ManualClock,
    pub(super) script: Script,
    pub(super) nodes: Vec<Member>,
    config: EngineConfig,
}

impl Cluster {
    pub(super) async fn of(nodes: usize) -> Self {
        Self::with(nodes, EngineConfig::default()).await
    }

    pub(super) async fn with(nodes: usize, config: EngineConfig) -> Self {
        let clock = ManualClock::at(START);
        let time = clock.clone();
        let store = Arc::new(ModelStore::shared(SHARDS, Some(Arc::new(move || time.now()))));
        let script = Script { clock: Some(clock.clone()), ..Script::default() };
        let mut cluster = Self { store, clock, script, nodes: Vec::new(), config };
        for _ in 0..nodes {
            cluster.join(Offset::Right).await;
        }
        cluster.until_even().await;
        cluster
    }

    pub(super) async fn join(&mut self, offset: Offset) {
        let (ahead, behind) = match offset {
            Offset::Right => (Duration::ZERO, Duration::ZERO),
            Offset::Ahead(by) => (by, Duration::ZERO),
            Offset::Behind(by) => (Duration::ZERO, by),
        };
        let tasks = FreezingSpawner::default();
        let clock = WrongClock { right: self.clock.clone(), ahead, behind };
        let environment = Environment {
            clock: Arc::new(clock),
            random: Arc::new(SeededRandom::new(100 + self.nodes.len() as u64)),
            spawner: Arc::new(tasks.clone()),
        };
        let config = EngineConfig { lease: LEASE, ..self.config.clone() };
        let store: Arc<dyn Store> = self.store.clone();
        let engine = Engine::start(store, registries(Waits, &self.script), environment, config).await.unwrap();
        self.nodes.push(Member { client: Client::new(engine), tasks });
        settle().await;
    }

    /// The store's time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets time pass in small steps, letting everything settle after each.
    pub(super) async fn pass(&self, duration: Duration) {
        let step = Duration::from_millis(250);
        let mut left = duration;
        while !left.is_zero() {
            self.clock.advance(left.min(step));
            left = left.saturating_sub(step);
            settle().await;
        }
    }

    pub(super) async fn until_even(&self) {
        let share = usize::from(SHARDS) / self.nodes.len();
        for _ in 0..40 {
            if self.nodes.iter().all(|node| node.shards() == share) {
                return;
            }
            self.pass(Duration::from_millis(500)).await;
        }
        panic!("uneven after 20 s: {:?}", self.nodes.iter().map(Member::shards).collect::<Vec<_>>());
    }

    /// The node that owns this order's shard, by its place among `nodes`.
    pub(super) fn owner_of(&self, id: &str) -> usize {
        let key = WorkflowKey::new("waits", id);
        let owns = |node: &Member| node.client.engine().route(&key) == crate::engine::Route::Here;
        self.nodes.iter().position(owns).unwrap_or_else(|| panic!("nobody owns {id}"))
    }

    /// An id whose shard this node owns.
    pub(super) fn id_owned_by(&self, node: usize) -> String {
        (0..).map(|n| format!("order-{n}")).find(|id| self.owner_of(id) == node).unwrap()
    }

    pub(super) async fn order(&self, through: usize, id: &str, seconds: u64) {
        let input = Payload::of(&Order { deadline: self.clock.now().saturating_add(Duration::from_secs(seconds)) }).unwrap();
        self.nodes[through].client.start(start_request(id, input)).await.unwrap();
    }

    pub(super) async fn pay(&self, through: usize, id: &str, by: &str) -> SignalOutcome {
        let request = SignalRequest {
            workflow_type: "waits".into(),
            id: id.into(),
            name: "paid".into(),
            signal_id: None,
            payload: Payload::of(&Paid { by: by.into() }).unwrap(),
        };
        self.nodes[through].client.signal(request).await.unwrap().outcome
    }

    pub(super) fn calls_of(&self, id: &str) -> usize {
        let calls = self.script.calls.lock().unwrap();
        calls.iter().filter(|(key, ..)| *key == format!("waits/{id}/script")).count()
    }

    pub(super) fn calls(&self) -> usize {
        self.script.calls.lock().unwrap().len()
    }

    pub(super) async fn until(
        &self,
        through: usize,
        id: &str,
        what: &str,
        condition: impl Fn(&Description) -> bool,
    ) -> Description {
        let describe = || async {
            let description = self.nodes[through].client.describe("waits", id).await.ok()?;
            condition(&description).then_some(description)
        };
        eventually(what, describe).await
    }

    pub(super) async fn kinds(&self, through: usize, id: &str) -> Vec<&'static str> {
        let history = self.nodes[through].client.history("waits", id, 0, 1000).await.unwrap();
        history.events.iter().map(|event| event.kind.name()).collect()
    }
}
