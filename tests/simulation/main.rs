//! The deterministic simulation of the flagship on the whole runtime: seeds, their verdicts, and the mistakes that they
//! have to find.
//!
//! ```text
//! cargo test --test simulation                     a set of seeds, and a few of the mistakes
//! cargo test --test simulation -- --seed 4711      one seed, from the beginning, with what was found
//! cargo test --test simulation -- --hours 2        new seeds for two hours
//! cargo test --test simulation -- --bugs           every mistake, and the table of invariants
//! ```
#![allow(clippy::unwrap_used, reason = "everything here is a test")]
#![allow(clippy::disallowed_methods, reason = "how long seeds take is real time")]

mod callers;
mod goals;
mod shop;
mod swarm;
mod troubles;
mod verdict;
mod world;

fn main() {
    let from: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let until: u64 = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(from + 1);
    let mut all = overdue_runtime::simulation::Findings::default();
    let began = std::time::Instant::now();
    for seed in from..until {
        let one = std::time::Instant::now();
        let ran = world::run(seed, None);
        println!(
            "seed {seed}: {} steps, {:?} virtual, {:?}, {:?}, broken {:#?}",
            ran.steps,
            ran.virtual_time,
            one.elapsed(),
            swarm::Swarm::of(seed).kept,
            ran.findings.broken
        );
        all.add(ran.findings);
    }
    println!("{:?} {:#?} {:#?}", began.elapsed(), all.looks, all.reached);
    println!("missing: {:?}", goals::GOALS.iter().filter(|goal| !all.reached.contains_key(*goal)).collect::<Vec<_>>());
}
