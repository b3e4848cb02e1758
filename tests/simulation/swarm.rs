//! What a seed draws: how many nodes, how much time, and which kinds of trouble it has. Each seed leaves some kinds out, so
//! that none hides behind another.

use std::time::Duration;

use overdue_runtime::fault::Whim;
use overdue_runtime::simulation::{Dice, LinkFaults, StoreFaults};

/// What keeps the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The model, shared by several nodes, as PostgreSQL is.
    Shared,
    /// The model, one node's own, as SQLite is.
    Embedded,
    /// SQLite itself.
    Sqlite,
}

/// How badly the shop's services behave, as probabilities of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ShopFaults {
    /// How long one way takes at most.
    pub(crate) latency: Duration,
    /// The request does not arrive, and nobody says so.
    pub(crate) request_lost: f64,
    /// It is done, and no answer comes.
    pub(crate) answer_lost: f64,
    /// It is done, and the connection breaks in the middle of the answer.
    pub(crate) cut: f64,
    /// It arrives only when its caller has given it up, up to so much later.
    pub(crate) late: f64,
    /// How much later.
    pub(crate) late_by: Duration,
    /// It arrives twice.
    pub(crate) twice: f64,
    /// 429 or 503, with nothing done.
    pub(crate) refused: f64,
    /// The channel wants to be asked again, once or more, before it closes a payment or refunds it.
    pub(crate) asks_again: bool,
}

/// How often nodes are struck: the mean time between two strikes of a kind, if there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Strikes {
    pub(crate) kill: Option<Duration>,
    pub(crate) freeze: Option<Duration>,
    pub(crate) drain: Option<Duration>,
    pub(crate) database: Option<Duration>,
    pub(crate) service: Option<Duration>,
    pub(crate) clock: Option<Duration>,
}

/// In one of so many seeds nodes only come and go in good order.
const ONE_IS_SPARED_OF: u64 = 8;

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) kept: Kept,
    pub(crate) nodes: usize,
    pub(crate) shards: u16,
    pub(crate) lease: Duration,
    pub(crate) scan: Duration,
    pub(crate) timers: bool,
    pub(crate) retain: Option<Duration>,
    pub(crate) orders: u64,
    /// Over which time orders are placed; trouble lasts twice as long.
    pub(crate) span: Duration,
    pub(crate) clocks_are_wrong: bool,
    pub(crate) store: StoreFaults,
    pub(crate) links: LinkFaults,
    pub(crate) shop: ShopFaults,
    pub(crate) strikes: Strikes,
    pub(crate) whims: Vec<(Whim, f64)>,
    /// Whether trouble ends, and everything has to come to its end.
    pub(crate) heals: bool,
}

impl Swarm {
    /// What this seed draws.
    pub(crate) fn of(seed: u64) -> Self {
        let dice = Dice::new(seed ^ 0x5eed_0f0f_a5a6);
        let kept = match dice.below(8) {
            0 => Kept::Embedded,
            1 => Kept::Sqlite,
            _ => Kept::Shared,
        };
        let nodes = if kept == Kept::Shared { usize::try_from(dice.between(1, 3)).unwrap() } else { 1 };
        let is_calm = dice.below(12) == 0;
        let some = |probability: f64| !is_calm && dice.chance(probability);
        let rate = |most: f64| (dice.below(1_000) as f64 / 1_000.0) * most;
        let scan = Duration::from_millis(dice.between(500, 4_000));
        let latency = Duration::from_micros(dice.between(100, 20_000));
        let mean = |least: u64, most: u64| Duration::from_secs(dice.between(least, most));
        let if_some = |probability: f64, most: f64| if some(probability) { rate(most) } else { 0.0 };
        let is_shared = kept == Kept::Shared;
        let store = StoreFaults {
            latency,
            slow: if_some(0.3, 0.02),
            // An embedded store is in the process: nothing is lost on a way, and what fails is known to have failed.
            request_lost: if is_shared { if_some(0.4, 0.05) } else { 0.0 },
            answer_lost: if is_shared { if_some(0.5, 0.05) } else { 0.0 },
            busy: if_some(0.4, 0.1),
            limbo: if is_shared { if_some(0.4, 0.05) } else { 0.0 },
            limbo_length: mean(1, 60),
            held_by_the_frozen: some(0.5),
            poison: some(0.4),
        };
        let shop = ShopFaults {
            latency: Duration::from_micros(dice.between(100, 200_000)),
            request_lost: if_some(0.4, 0.2),
            answer_lost: if_some(0.5, 0.3),
            cut: if_some(0.3, 0.2),
            late: if_some(0.3, 0.1),
            late_by: mean(1, 90),
            twice: if_some(0.4, 0.2),
            refused: if_some(0.4, 0.4),
            asks_again: some(0.5),
        };
        let strike = |probability: f64, least: u64, most: u64| some(probability).then(|| mean(least, most));
        let strikes = Strikes {
            kill: strike(0.6, 10, 120),
            freeze: strike(0.5, 10, 120).filter(|_| is_shared),
            drain: strike(0.4, 20, 120),
            database: strike(0.3, 30, 200),
            service: strike(0.5, 30, 120),
            clock: strike(0.4, 10, 60).filter(|_| is_shared),
        };
        let drawn = |whim: &Whim| *whim != Whim::RetentionDawdles && some(0.35);
        let whims = Whim::ALL.into_iter().filter(drawn).map(|whim| (whim, whim_rate(whim, is_shared, &rate))).collect();
        let mut swarm = Self {
            kept,
            nodes,
            shards: u16::try_from(dice.between(4, 12)).unwrap(),
            lease: scan * 4,
            scan,
            timers: !some(0.2),
            retain: some(0.3).then(|| mean(20, 120)),
            orders: dice.between(15, 40),
            span: Duration::from_secs(dice.between(60, 240)),
            clocks_are_wrong: some(0.4),
            store,
            links: LinkFaults { latency, lost: if_some(0.4, 0.3) },
            shop,
            strikes,
            whims,
            heals: dice.chance(0.8),
        };
        if is_shared && Dice::new(seed ^ 0x0ba1_1ad0).below(ONE_IS_SPARED_OF) == 0 {
            swarm.spare_nodes(&Dice::new(seed ^ 0x0d15_a51e));
        }
        swarm
    }

    /// Nodes come and go in good order and nothing else befalls them, so that what they do then can be judged.
    fn spare_nodes(&mut self, dice: &Dice) {
        self.nodes = self.nodes.max(2);
        self.strikes = Strikes { kill: None, freeze: None, database: None, ..self.strikes };
        self.strikes.drain = Some(Duration::from_secs(dice.between(5, 20)));
        self.store = StoreFaults { request_lost: 0.0, answer_lost: 0.0, limbo: 0.0, ..self.store };
        self.shop.latency = Duration::from_millis(dice.between(200, 2_000));
        self.whims.retain(|(whim, _)| !matches!(whim, Whim::CoreHangs | Whim::RaiseEpoch));
        if dice.below(2) == 0 {
            // What retention has read may be another's when it writes.
            self.retain = Some(Duration::from_secs(dice.between(5, 30)));
            self.whims.push((Whim::RetentionDawdles, 0.5));
        }
    }

    /// Whether no node is killed or stopped, and none hangs or loses its lane.
    pub(crate) fn nodes_are_spared(&self) -> bool {
        let strikes = self.strikes;
        let is_struck = strikes.kill.or(strikes.freeze).or(strikes.database).is_some();
        let has_whims = self.whims.iter().any(|(whim, _)| matches!(whim, Whim::CoreHangs | Whim::RaiseEpoch));
        !is_struck && !has_whims && self.store.request_lost + self.store.answer_lost + self.store.limbo == 0.0
    }

    /// Whether nothing at all goes wrong.
    pub(crate) fn is_calm(&self) -> bool {
        let (store, shop) = (self.store, self.shop);
        self.strikes == Strikes::default()
            && self.whims.is_empty()
            && !self.clocks_are_wrong
            && self.links.lost == 0.0
            && shop == ShopFaults { latency: shop.latency, late_by: shop.late_by, ..ShopFaults::default() }
            && [store.slow, store.request_lost, store.answer_lost, store.busy, store.limbo].iter().all(|rate| *rate == 0.0)
    }
}

/// How often a whim strikes where it may.
fn whim_rate(whim: Whim, is_shared: bool, rate: &impl Fn(f64) -> f64) -> f64 {
    match whim {
        // A node that hangs is for others to take over.
        Whim::CoreHangs => {
            if is_shared {
                0.000_5
            } else {
                0.0
            }
        }
        // On an embedded store nobody raises epochs.
        Whim::RaiseEpoch => {
            if is_shared {
                rate(0.02)
            } else {
                0.0
            }
        }
        Whim::TinyBatch | Whim::WheelOff | Whim::LostWord | Whim::ScanOfOne | Whim::RetentionStops | Whim::RetentionDawdles => {
            rate(1.0)
        }
    }
}
