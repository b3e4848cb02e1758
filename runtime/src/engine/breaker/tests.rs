//! Breakers that several nodes share, on a model store and a clock that only moves when it is told to.

use futures::FutureExt;
use tokio::sync::watch;

use super::*;
use crate::activity::ActivityFailure;
use crate::engine::Environment;
use crate::store::{ModelStore, Store};
use crate::testing::{ManualClock, manual_environment};
use crate::time::Timestamp;

const OPEN: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(10);
const POLICY: BreakerPolicy =
    BreakerPolicy { failures: 2, open: OPEN, ratio: None, spacing: Duration::ZERO, probe_max: PROBE_MAX, by_part: false };

/// A fleet on one store.
struct Fleet {
    store: Arc<ModelStore>,
    environment: Environment,
    clock: ManualClock,
}

/// A node of it, as far as breakers are concerned.
struct Node {
    breakers: Breakers,
    stock: Breaker,
    stop: watch::Sender<bool>,
}

impl Fleet {
    fn new() -> Self {
        let (environment, clock) = manual_environment(Timestamp::from_micros(1_700_000_000_000_000), 1);
        Self { store: Arc::new(ModelStore::shared(4, None)), environment, clock }
    }

    async fn node(&self, name: &str) -> Node {
        self.node_with(name, POLICY).await
    }

    async fn node_with(&self, name: &str, policy: BreakerPolicy) -> Node {
        let breakers = Breakers::new(self.environment.clock.clone());
        let stock = breakers.add("stock", policy);
        let (stop, stopped) = watch::channel(false);
        let (store, clock) = (self.store.clone() as Arc<dyn Store>, self.environment.clock.clone());
        let keeper = Keeper::of(&breakers, store, clock, name.to_owned(), PERIOD, stopped);
        self.environment.spawner.spawn(keeper.run().boxed());
        settle().await;
        Node { breakers, stock, stop }
    }

    async fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
        settle().await;
    }
}

impl Node {
    async fn call(&self, verdict: Verdict) {
        self.stock.admit(None).await.unwrap().settle(verdict);
        settle().await;
    }

    fn position(&self) -> BreakerPosition {
        self.breakers.views()[0].position
    }
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn opened(fleet: &Fleet) -> (Node, Node) {
    let (one, other) = (fleet.node("one").await, fleet.node("other").await);
    for _ in 0..2 {
        one.call(Verdict::Failed).await;
    }
    fleet.pass(PERIOD).await;
    (one, other)
}

#[tokio::test]
async fn what_one_node_finds_out_the_others_know_within_a_round() {
    let (one, other) = opened(&Fleet::new()).await;
    assert_eq!([one.position(), other.position()], [BreakerPosition::Open; 2]);
    let parked = other.stock.admit(None).await.err().unwrap();
    assert_eq!(parked.parked_by.as_deref(), Some("breaker of stock"));
    assert_eq!(parked.gate.as_deref(), Some("stock"), "it waits in the store until that lets it go");
    let probe_in = |node: &Node| node.breakers.views()[0].probe_in_ms.map(Duration::from_millis);
    assert_eq!([probe_in(&one), probe_in(&other)], [Some(OPEN - PERIOD); 2], "it reopens at the same instant for all");
}

#[tokio::test]
async fn a_fleet_sends_one_probe_and_not_one_a_node() {
    let fleet = Fleet::new();
    let (one, other) = opened(&fleet).await;
    fleet.pass(OPEN).await;
    let mut probe = other.stock.admit(None).await.expect("the first that asks probes");
    for _ in 0..5 {
        assert!(one.stock.admit(None).await.is_err(), "a second probe was sent beside the first");
        assert!(other.stock.admit(None).await.is_err());
        fleet.pass(PERIOD).await;
    }
    probe.settle(Verdict::Healthy);
    drop(probe);
    fleet.pass(PERIOD).await;
    assert_eq!([one.position(), other.position()], [BreakerPosition::Closed; 2]);
}

#[tokio::test]
async fn a_probe_that_fails_keeps_all_of_them_open() {
    let fleet = Fleet::new();
    let (one, other) = opened(&fleet).await;
    fleet.pass(OPEN).await;
    one.call(Verdict::Failed).await;
    fleet.pass(PERIOD).await;
    assert!(one.stock.admit(None).await.is_err());
    assert!(other.stock.admit(None).await.is_err());
    fleet.pass(OPEN).await;
    assert!(other.stock.admit(None).await.is_ok(), "and then another one may");
}

#[tokio::test]
async fn the_place_of_a_probe_whose_node_died_comes_back() {
    let fleet = Fleet::new();
    let (one, other) = opened(&fleet).await;
    fleet.pass(OPEN).await;
    let probe = one.stock.admit(None).await.ok().unwrap();
    // A process that ends gives nothing back.
    std::mem::forget(probe);
    let _ = one.stop.send(true);
    fleet.pass(PERIOD).await;
    assert!(other.stock.admit(None).await.is_err());
    fleet.pass(PROBE_MAX).await;
    assert!(other.stock.admit(None).await.is_ok());
}

#[tokio::test]
async fn a_probe_that_says_nothing_gives_its_place_to_the_next_of_all_nodes() {
    let fleet = Fleet::new();
    let (one, other) = opened(&fleet).await;
    fleet.pass(OPEN).await;
    one.call(Verdict::Neutral).await;
    fleet.pass(PERIOD).await;
    assert!(other.stock.admit(None).await.is_ok());
}

#[tokio::test]
async fn what_a_person_decides_holds_on_all_nodes_and_outlives_them_with_who_and_why() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.node("one").await, fleet.node("other").await);
    let bank = BreakerName::new("stock", Some("bank"));
    one.breakers.set(&bank, Setting::ForceOpen, "wrong signature", "ops").await.unwrap();
    fleet.pass(PERIOD).await;
    for node in [&one, &other, &fleet.node("later").await] {
        let views = node.breakers.views();
        assert_eq!(views.len(), 2, "{views:?}");
        assert_eq!((views[1].key.as_deref(), views[1].position), (Some("bank"), BreakerPosition::ForcedOpen));
        assert_eq!((views[1].reason.as_deref(), views[1].actor.as_deref()), (Some("wrong signature"), Some("ops")));
        let parked = node.stock.admit(Some("bank")).await.err().unwrap();
        assert!(parked.failure.message.contains("until a person closes it: wrong signature"), "{parked}");
        assert!(node.stock.admit(Some("another")).await.is_ok());
    }
    other.breakers.set(&bank, Setting::Close, "mended", "ops").await.unwrap();
    fleet.pass(PERIOD).await;
    assert!(one.stock.admit(Some("bank")).await.is_ok());
}

#[tokio::test]
async fn a_breaker_that_is_forced_closed_lets_everything_through_whatever_comes_of_it() {
    let fleet = Fleet::new();
    let (one, other) = opened(&fleet).await;
    one.breakers.set(&BreakerName::new("stock", None), Setting::ForceClosed, "we know", "ops").await.unwrap();
    fleet.pass(PERIOD).await;
    for _ in 0..20 {
        other.call(Verdict::Failed).await;
    }
    assert_eq!(other.position(), BreakerPosition::ForcedClosed);
}

#[tokio::test]
async fn a_downstream_that_nobody_has_is_named_with_those_that_there_are() {
    let fleet = Fleet::new();
    let set = fleet.node("one").await;
    let error = set.breakers.set(&BreakerName::new("stocks", None), Setting::Close, "r", "ops").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no downstream \"stocks\": they are stock");
}

#[tokio::test]
async fn no_probe_is_sent_that_the_store_has_not_granted() {
    let fleet = Fleet::new();
    let (one, _) = opened(&fleet).await;
    fleet.store.close().await;
    fleet.pass(OPEN).await;
    assert!(one.stock.admit(None).await.is_err());
}

#[tokio::test]
async fn without_a_node_they_work_by_themselves() {
    let (environment, clock) = manual_environment(Timestamp::from_micros(0), 1);
    let breakers = Breakers::new(environment.clock.clone());
    let stock = breakers.add("stock", POLICY);
    for _ in 0..2 {
        stock.admit(None).await.ok().unwrap().settle(Verdict::Failed);
    }
    assert!(stock.admit(None).await.is_err());
    clock.advance(OPEN);
    stock.admit(None).await.ok().unwrap().settle(Verdict::Healthy);
    assert_eq!(breakers.views()[0].position, BreakerPosition::Closed);
}

const BY_PART: BreakerPolicy = BreakerPolicy { by_part: true, ..POLICY };

fn held_by(admitted: Result<Permit, ActivityFailure>) -> Option<String> {
    admitted.err().and_then(|failure| failure.parked_by)
}

#[tokio::test]
async fn a_part_that_fails_holds_no_other_back_where_parts_count_for_themselves() {
    let (environment, clock) = manual_environment(Timestamp::from_micros(0), 1);
    let stock = Breakers::new(environment.clock.clone()).add("stock", BY_PART);
    for _ in 0..2 {
        stock.admit(Some("north")).await.unwrap().settle(Verdict::Failed);
        stock.admit(Some("south")).await.unwrap().settle(Verdict::Healthy);
    }
    assert_eq!(held_by(stock.admit(Some("north")).await).as_deref(), Some("breaker of stock/north"));
    assert!(stock.admit(Some("south")).await.is_ok() && stock.admit(None).await.is_ok());
    clock.advance(OPEN);
    let mut probe = stock.admit(Some("north")).await.unwrap();
    assert!(held_by(stock.admit(Some("north")).await).is_some(), "a second probe went beside the first");
    probe.settle(Verdict::Healthy);
    drop(probe);
    assert!(stock.admit(Some("north")).await.is_ok());
}

#[tokio::test]
async fn the_whole_holds_all_parts_back_and_is_probed_before_one_of_them() {
    let (environment, clock) = manual_environment(Timestamp::from_micros(0), 1);
    let stock = Breakers::new(environment.clock.clone()).add("stock", BY_PART);
    for key in [Some("north"), None].into_iter().cycle().take(4) {
        stock.admit(key).await.unwrap().settle(Verdict::Failed);
    }
    assert_eq!(held_by(stock.admit(Some("south")).await).as_deref(), Some("breaker of stock"));
    clock.advance(OPEN);
    assert_eq!(held_by(stock.admit(Some("north")).await).as_deref(), Some("breaker of stock/north"));
    stock.admit(Some("south")).await.unwrap().settle(Verdict::Healthy);
    assert!(stock.admit(None).await.is_ok(), "that was the probe of the whole");
    stock.admit(Some("north")).await.unwrap().settle(Verdict::Healthy);
    assert!(stock.admit(Some("north")).await.is_ok());
}

#[tokio::test]
async fn where_a_part_stands_all_nodes_know_too_and_one_of_them_probes_it() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.node_with("one", BY_PART).await, fleet.node_with("other", BY_PART).await);
    for _ in 0..2 {
        one.stock.admit(Some("north")).await.unwrap().settle(Verdict::Failed);
        settle().await;
    }
    fleet.pass(PERIOD).await;
    assert_eq!(held_by(other.stock.admit(Some("north")).await).as_deref(), Some("breaker of stock/north"));
    assert!(other.stock.admit(Some("south")).await.is_ok());
    fleet.pass(OPEN).await;
    let probe = other.stock.admit(Some("north")).await;
    assert!(probe.is_ok() && one.stock.admit(Some("north")).await.is_err());
}
