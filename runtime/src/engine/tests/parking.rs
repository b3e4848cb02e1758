//! Calls that a breaker holds back: they wait in the store, cost nothing there, and come back in stages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::harness::{START, settle};
use crate::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions, RetryPolicy};
use crate::client::{ActivityState, Client, StartRequest};
use crate::engine::breaker::{Breaker, BreakerName, BreakerPolicy, Breakers, Setting, Verdict};
use crate::engine::{Clock, Engine, EngineConfig, Environment, Registries};
use crate::payload::Payload;
use crate::store::{Gates, ModelStore, Store};
use crate::testing::{ManualClock, manual_environment};
use crate::time::Timestamp;
use crate::workflow::*;

const OPEN: Duration = Duration::from_secs(30);
/// Calls a second that the service takes.
const RATE: usize = 200;
const POLICY: BreakerPolicy = BreakerPolicy {
    failures: 3,
    open: OPEN,
    ratio: None,
    spacing: Duration::from_millis(1_000 / RATE as u64),
    probe_max: Duration::from_secs(10),
    by_part: false,
};

/// Sleeps until its deadline, then has its stock released.
struct Releases;

#[async_trait]
impl Workflow for Releases {
    const TYPE: &'static str = "releases";
    type Input = Timestamp;
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, deadline: Timestamp) -> Result<String, WorkflowError> {
        ctx.sleep_until(deadline).await?;
        Ok(ctx.activity::<Stock>(&ctx.key().id().to_owned()).await?)
    }
}

/// A service behind its breaker.
#[derive(Clone)]
struct Stock {
    breaker: Breaker,
    clock: ManualClock,
    is_down: Arc<AtomicBool>,
    /// Sends: whose, in which attempt, when.
    sends: Arc<Mutex<Vec<(String, u32, Timestamp)>>>,
    held: Arc<AtomicUsize>,
}

#[async_trait]
impl Activity for Stock {
    const NAME: &'static str = "release-stock";
    type Input = String;
    type Output = String;

    fn options(&self) -> ActivityOptions {
        ActivityOptions { retry: RetryPolicy { jitter: false, ..RetryPolicy::default() }, ..ActivityOptions::default() }
    }

    async fn execute(&self, ctx: &ActivityContext, order: String) -> Result<String, ActivityFailure> {
        self.held.fetch_add(1, Ordering::Relaxed);
        let mut permit = self.breaker.admit(None).await?;
        self.sends.lock().unwrap().push((order, ctx.attempt(), self.clock.now()));
        if self.is_down.load(Ordering::Relaxed) {
            permit.settle(Verdict::Failed);
            return Err(ActivityFailure::transient("http-503", "down"));
        }
        permit.settle(Verdict::Healthy);
        Ok("released".into())
    }
}

/// A shop whose stock service can be down, and nodes on one store.
struct Shop {
    store: Arc<ModelStore>,
    environment: Environment,
    clock: ManualClock,
    stock: Stock,
    breakers: Breakers,
    client: Client,
}

impl Shop {
    async fn new() -> Self {
        Self::on(Arc::new(ModelStore::new(4)), manual_environment(START, 7)).await
    }

    async fn on(store: Arc<ModelStore>, (environment, clock): (Environment, ManualClock)) -> Self {
        let breakers = Breakers::new(environment.clock.clone());
        let breaker = breakers.add("stock", POLICY);
        let is_down = Arc::new(AtomicBool::new(true));
        let stock = Stock { breaker, clock: clock.clone(), is_down, sends: Arc::default(), held: Arc::default() };
        let client = Self::node(&store, &environment, &breakers, &stock).await;
        Self { store, environment, clock, stock, breakers, client }
    }

    async fn node(store: &Arc<ModelStore>, environment: &Environment, breakers: &Breakers, stock: &Stock) -> Client {
        let mut code = Registries { breakers: Some(breakers.clone()), ..Registries::default() };
        code.workflows.register(Releases);
        code.activities.register(stock.clone());
        let store: Arc<dyn Store> = store.clone();
        let engine = Engine::start(store, code, environment.clone(), EngineConfig::default()).await.unwrap();
        settle().await;
        Client::new(engine)
    }

    /// Ends the node without a word and starts another process in its place.
    async fn restart(&mut self) {
        self.breakers = Breakers::new(self.environment.clock.clone());
        self.stock.breaker = self.breakers.add("stock", POLICY);
        self.client = Self::node(&self.store, &self.environment, &self.breakers, &self.stock).await;
    }

    async fn order(&self, id: &str, deadline: Duration) {
        let request = StartRequest {
            workflow_type: "releases".into(),
            id: id.into(),
            input: Payload::of(&START.saturating_add(deadline)).unwrap(),
            start_at: None,
            attributes: BTreeMap::new(),
            traceparent: None,
        };
        self.client.start(request).await.unwrap();
    }

    async fn pass(&self, duration: Duration, step: Duration) {
        let mut left = duration;
        while !left.is_zero() {
            self.clock.advance(left.min(step));
            left = left.saturating_sub(step);
            settle().await;
        }
    }

    async fn seconds(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds), Duration::from_millis(100)).await;
    }

    async fn parked(&self) -> usize {
        self.store.parked(&[0, 1, 2, 3], "stock", usize::MAX).await.unwrap().len()
    }

    fn sends(&self) -> Vec<(String, u32, Timestamp)> {
        self.stock.sends.lock().unwrap().clone()
    }

    fn comes_up(&self) {
        self.stock.is_down.store(false, Ordering::Relaxed);
    }
}

/// `orders` orders behind an open breaker, of which the last were due last.
async fn outage(orders: usize) -> Shop {
    let shop = Shop::new().await;
    for number in 0..orders {
        shop.order(&format!("{number:06}"), Duration::from_millis(1_000 + number as u64)).await;
    }
    shop.seconds(2 + orders as u64 / 1_000).await;
    shop
}

#[tokio::test]
async fn while_it_is_open_nothing_is_sent_but_probes_and_nobody_is_tried_who_is_not_the_probe() {
    let shop = outage(300).await;
    let opening = shop.sends().len();
    assert!(opening >= 3, "it opened after three failures");
    let held = shop.stock.held.load(Ordering::Relaxed);
    shop.seconds(300).await;
    let probes = shop.sends().len() - opening;
    assert!((8..=10).contains(&probes), "one a reopening: {probes} in ten of them");
    let asked = shop.stock.held.load(Ordering::Relaxed) - held;
    // A probe that failed asks once more when its back-off is over, and is parked.
    assert!(asked <= 2 * probes + opening, "those asleep are not woken to be told no: {asked}");
    let probed: std::collections::BTreeSet<String> = shop.sends().split_off(opening).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(probed.len(), probes, "no order alone spends its attempts on probes");
    assert!(shop.parked().await >= 300 - opening - probes);
}

#[tokio::test]
async fn one_look_tells_what_holds_it_back_the_unchanged_attempt_and_when_the_next_probe_goes() {
    let shop = outage(20).await;
    let described = shop.client.describe("releases", "000019").await.unwrap();
    let step = &described.pending_activities[0];
    assert_eq!((step.state, step.attempt), (ActivityState::Parked, 0));
    assert_eq!(step.parked_by.as_deref(), Some("breaker of stock"));
    let probe_in = shop.breakers.views()[0].probe_in_ms.expect("it is open");
    let now = shop.clock.now();
    assert_eq!(step.next_attempt_at, Some(now.saturating_add(Duration::from_millis(probe_in))));
    let explained = shop.client.explain("releases", "000019").await.unwrap();
    assert!(explained.text.contains("is parked by the breaker of stock before its first attempt"), "{}", explained.text);
    shop.breakers.set(&BreakerName::new("stock", None), Setting::ForceOpen, "a wrong price list", "ops").await.unwrap();
    let described = shop.client.describe("releases", "000019").await.unwrap();
    assert_eq!(described.pending_activities[0].next_attempt_at, None, "only a person knows");
}

#[tokio::test]
async fn after_the_probe_the_backlog_comes_back_in_rising_stages_the_oldest_first_and_never_faster_than_the_rate() {
    let shop = outage(2_000).await;
    let before = shop.sends().len();
    shop.comes_up();
    shop.seconds(60).await;
    let sends = shop.sends().split_off(before);
    assert_eq!(shop.parked().await, 0);
    assert_eq!(shop.client.describe("releases", "001999").await.unwrap().result, Some(Payload::of(&"released").unwrap()));
    let mut per_second: BTreeMap<i64, usize> = BTreeMap::new();
    for (.., at) in &sends {
        *per_second.entry(at.as_micros() / 1_000_000).or_default() += 1;
    }
    let counts: Vec<usize> = per_second.into_values().collect();
    assert!(counts.iter().all(|count| *count <= RATE + RATE / 10), "{counts:?}");
    assert!(counts[0] <= 25, "a recovered service is not met by all at once: {counts:?}");
    let order = |id: &String| id.parse::<usize>().unwrap();
    let late = sends.windows(2).filter(|pair| order(&pair[0].0) > order(&pair[1].0) + RATE).count();
    assert!(late <= 6, "those tried before it opened may come when their back-off ends: {late}");
    assert!(sends.iter().filter(|(_, attempt, _)| *attempt > 2).count() <= 6, "parking costs no attempt");
}

#[tokio::test]
async fn a_node_that_ends_while_they_wait_forgets_none_of_them() {
    let mut shop = outage(500).await;
    shop.restart().await;
    shop.seconds(20).await;
    let before = shop.sends().len();
    assert!(shop.parked().await > 400);
    shop.comes_up();
    shop.seconds(40).await;
    shop.restart().await;
    shop.seconds(40).await;
    assert_eq!(shop.parked().await, 0);
    let sent: std::collections::BTreeSet<String> = shop.sends().split_off(before).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(sent.len(), 500, "each was sent after the service came up");
    for number in 0..500 {
        let described = shop.client.describe("releases", &format!("{number:06}")).await.unwrap();
        assert!(described.closed_at.is_some(), "{number} is still open");
    }
}

#[tokio::test]
async fn a_breaker_that_a_person_closes_lets_them_go_at_once_and_one_that_is_forced_open_lets_nobody() {
    let shop = outage(20).await;
    let stock = BreakerName::new("stock", None);
    shop.breakers.set(&stock, Setting::ForceOpen, "maintenance", "ops").await.unwrap();
    shop.comes_up();
    let before = shop.sends().len();
    shop.seconds(600).await;
    let own_back_off = 3;
    assert!(shop.sends().len() <= before + own_back_off && shop.parked().await >= 17);
    shop.breakers.set(&stock, Setting::Close, "done", "ops").await.unwrap();
    shop.seconds(5).await;
    assert_eq!(shop.parked().await, 0);
}

#[tokio::test]
async fn what_is_limited_for_the_fleet_is_divided_among_its_nodes_as_their_shards_are() {
    let (environment, clock) = manual_environment(START, 7);
    let time = clock.clone();
    let store = Arc::new(ModelStore::shared(4, Some(Arc::new(move || time.now()))));
    let mut shop = Shop::on(store, (environment, clock)).await;
    shop.seconds(5).await;
    let first = shop.stock.breaker.clone();
    assert_eq!(first.share(), 1.0, "a node alone makes all the calls");
    // Another node beside it.
    shop.restart().await;
    shop.seconds(15).await;
    assert_eq!([first.share(), shop.stock.breaker.share()], [0.5, 0.5]);
}
