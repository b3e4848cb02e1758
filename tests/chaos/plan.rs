//! What happens in a round, all of it drawn from the seed: orders, acts of their buyers, and faults.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::faults::Fault;
use crate::world::NODES;

/// So many orders are placed in a second.
const ORDERS_PER_SECOND: f64 = 3.0;
/// Faults of a round of a long run, and how long a round takes by the plan.
const FAULTS: std::ops::RangeInclusive<usize> = 6..=11;
const ROUND: Duration = Duration::from_secs(45);
/// For so long a workflow watches for late payments: as the nodes' configuration says.
const WATCHES: Duration = Duration::from_secs(1);
/// How often two faults come at once.
const TOGETHER: f64 = 0.25;
/// Between one fault and the next.
const CALM_MS: std::ops::Range<u64> = 200..2500;

/// How a workflow is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starts {
    Once,
    /// By two callers at once.
    Twice,
    /// In a transaction of the order service's.
    InSql,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Pay { twice: bool, in_sql: bool },
    Cancel,
}

#[derive(Clone, Debug)]
pub(crate) struct Act {
    /// Milliseconds from the deadline on; the least number for what comes before the start.
    pub(crate) at_ms: i64,
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedOrder {
    pub(crate) id: String,
    pub(crate) placed_after: Duration,
    pub(crate) time_to_pay: Duration,
    pub(crate) starts: Starts,
    pub(crate) acts: Vec<Act>,
}

/// Faults that come at once, and the calm after them.
pub(crate) struct Step {
    pub(crate) faults: Vec<(Fault, usize)>,
    pub(crate) calm: Duration,
}

pub(crate) struct Plan {
    pub(crate) prefix: String,
    pub(crate) orders: Vec<PlannedOrder>,
    pub(crate) steps: Vec<Step>,
}

impl Plan {
    /// A round of a long run.
    pub(crate) fn drawn(seed: u64, round: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut left = dice.random_range(FAULTS);
        let mut steps = Vec::new();
        while left > 0 {
            let together = if left > 1 && dice.random_bool(TOGETHER) { 2 } else { 1 };
            let mut all = Fault::ALL.to_vec();
            all.shuffle(&mut dice);
            let mut faults: Vec<(Fault, usize)> = Vec::new();
            for fault in all {
                let node = dice.random_range(0..NODES);
                if faults.iter().all(|(other, at)| fault.goes_with(*other) && node != *at) {
                    faults.push((fault, node));
                }
                if faults.len() == together {
                    break;
                }
            }
            left -= faults.len().min(left);
            steps.push(Step { faults, calm: Duration::from_millis(dice.random_range(CALM_MS)) });
        }
        Self::with(seed, round, steps, ROUND, &mut dice)
    }

    /// When the last order ends by itself, from the beginning of the round.
    pub(crate) fn ends_after(&self) -> Duration {
        let ends = self.orders.iter().map(|order| {
            let last_act = order.acts.iter().map(|act| u64::try_from(act.at_ms).unwrap_or(0)).max().unwrap_or(0);
            order.placed_after + order.time_to_pay + WATCHES.max(Duration::from_millis(last_act))
        });
        ends.max().unwrap_or_default()
    }

    /// A round of the fixed schedule: these faults, one after the other.
    pub(crate) fn fixed(seed: u64, round: u64, faults: &[Fault], length: Duration) -> Self {
        let mut dice = StdRng::seed_from_u64(seed.wrapping_add(round));
        let calm = Duration::from_millis(CALM_MS.start);
        let step = |(n, fault): (usize, &Fault)| Step { faults: vec![(*fault, n % NODES)], calm };
        let steps = faults.iter().enumerate().map(step).collect();
        Self::with(seed, round, steps, length, &mut dice)
    }

    fn with(seed: u64, round: u64, steps: Vec<Step>, length: Duration, dice: &mut StdRng) -> Self {
        let prefix = format!("c{seed}-{round}-");
        let count = (length.as_secs_f64() * ORDERS_PER_SECOND) as usize;
        let orders = (0..count)
            .map(|n| PlannedOrder {
                id: format!("{prefix}{n}"),
                placed_after: length.mul_f64(n as f64 / count as f64),
                time_to_pay: Duration::from_millis(dice.random_range(1500..5000)),
                starts: match dice.random_range(0..10) {
                    0..5 => Starts::Once,
                    5..8 => Starts::Twice,
                    _ => Starts::InSql,
                },
                acts: acts(dice),
            })
            .collect();
        Self { prefix, orders, steps }
    }
}

fn acts(dice: &mut StdRng) -> Vec<Act> {
    let twice = dice.random_bool(0.3);
    let in_sql = dice.random_bool(0.2);
    let pay = |at_ms| Act { at_ms, deed: Deed::Pay { twice, in_sql } };
    match dice.random_range(0..100) {
        // Nobody pays.
        0..25 => Vec::new(),
        25..30 => vec![pay(i64::MIN)],
        30..45 => vec![pay(dice.random_range(-1200..-100))],
        // At the deadline, on both sides of it.
        45..62 => vec![pay(dice.random_range(-16..=6))],
        62..72 => vec![pay(dice.random_range(200..900))],
        // When the late payments are no longer watched for.
        72..80 => vec![pay(dice.random_range(2500..5000))],
        80..90 => vec![pay(dice.random_range(-900..-100)), pay(dice.random_range(-100..900))],
        _ => vec![Act { at_ms: dice.random_range(-900..-5), deed: Deed::Cancel }],
    }
}
