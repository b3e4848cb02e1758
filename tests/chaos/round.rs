//! Rounds: faults come while callers ask, then everything heals, and the round is judged.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::time::sleep;

use crate::callers;
use crate::disks;
use crate::faults::Fault;
use crate::figures::Figures;
use crate::judge;
use crate::plan::{Plan, Step};
use crate::world::{NODES, World};

/// How long callers ask in a round of the fixed schedule.
const FIXED_ROUND: Duration = Duration::from_secs(36);
const FIXED_ROUNDS: usize = 2;
/// How often a long run says how it stands.
const SAYS_EVERY: Duration = Duration::from_secs(300);
/// In every so many rounds of a long run a disk is full.
const DISKS_EVERY: u64 = 5;
/// A run of this length has met every fault.
const MEETS_ALL: Duration = Duration::from_secs(1800);

/// Plays the fixed schedule, or faults at random for this long; whether all held.
pub(crate) async fn run(seed: u64, length: Option<Duration>) -> bool {
    let prefix = format!("chaos-{seed}-");
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let world = World::new(folder.path(), seed).await;
    let mut figures = Figures::new(NODES);
    let playing = async {
        match length {
            None => fixed(&world, seed, &mut figures).await,
            Some(length) => drawn(&world, seed, length, &mut figures).await,
        }
    };
    // Also then the evidence stays.
    if AssertUnwindSafe(playing).catch_unwind().await.is_err() {
        world.log.violated("the run itself panicked".into());
    }
    let every_fault = length.is_none_or(|length| length >= MEETS_ALL);
    if world.log.violations().is_empty() {
        for reason in figures.vacuous(&world.log, every_fault) {
            world.log.violated(format!("the run shows nothing: {reason}"));
        }
    }
    eprint!("{}", figures.table(&world.log));
    let violations = world.log.violations();
    std::fs::write(world.folder.join("database.log"), world.cluster.log()).unwrap();
    // Nothing may run any more when the folder goes.
    drop(world);
    if violations.is_empty() {
        eprintln!("chaos: all of it held, --seed {seed}");
        return true;
    }
    let folder = folder.keep();
    eprintln!("chaos: {} violations, --seed {seed}; the evidence is in {}", violations.len(), folder.display());
    violations.iter().for_each(|violation| eprintln!("  {violation}"));
    false
}

async fn fixed(world: &World, seed: u64, figures: &mut Figures) {
    let size = Fault::ALL.len().div_ceil(FIXED_ROUNDS);
    let rounds = Fault::ALL.chunks(size).enumerate();
    let play = async {
        for (n, faults) in rounds {
            round(world, &Plan::fixed(seed, n as u64, faults, FIXED_ROUND), figures).await;
        }
    };
    let (small, ()) = tokio::join!(disks::play(world), play);
    figures.disks.extend(small);
}

async fn drawn(world: &World, seed: u64, length: Duration, figures: &mut Figures) {
    eprintln!("chaos for {:.1} hours, --seed {seed}", length.as_secs_f64() / 3600.0);
    let mut said = Duration::ZERO;
    while figures.elapsed() < length && world.log.violations().is_empty() {
        let number = figures.rounds;
        round(world, &Plan::drawn(seed, number), figures).await;
        if number % DISKS_EVERY == 1 {
            for store in disks::play(world).await {
                *figures.disks.entry(store.0).or_default() += store.1;
            }
        }
        if figures.elapsed() >= said + SAYS_EVERY {
            said = figures.elapsed();
            eprintln!("{}", figures.line(&world.log));
        }
        world.log.forget();
    }
}

async fn round(world: &World, plan: &Plan, figures: &mut Figures) {
    let begun = Instant::now();
    let callers = futures::future::join_all(plan.orders.iter().map(|order| callers::play(world, order, begun)));
    let faults = async {
        for (number, step) in plan.steps.iter().enumerate() {
            strike(world, step, figures).await;
            if number == plan.steps.len() / 2 {
                judge::verify(world, &world.cluster.url("postgres"), false, figures).await;
            }
        }
        world.heal().await;
        Instant::now()
    };
    let (_, healed) = tokio::join!(callers, faults);
    judge::settled(world, plan, healed.max(begun + plan.ends_after()), figures).await;
    judge::judge(world, plan).await;
    judge::verify(world, &world.cluster.url("postgres"), true, figures).await;
    figures.caught.read(world);
    figures.rounds += 1;
    figures.orders += plan.orders.len() as u64;
}

async fn strike(world: &World, step: &Step, figures: &mut Figures) {
    let alone = step.faults.len() == 1;
    let at_once = step.faults.iter().map(|(fault, node)| async move {
        eprintln!("{:?}: {fault:?} of {}", jiff::Timestamp::now(), world.nodes[*node].name);
        (*fault, fault.strike(world, *node, alone).await)
    });
    for (fault, struck) in futures::future::join_all(at_once).await {
        if struck {
            *figures.struck.entry(fault).or_default() += 1;
        } else {
            figures.missed += 1;
        }
    }
    sleep(step.calm).await;
}
