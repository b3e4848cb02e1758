//! The deterministic simulation of the flagship on the whole runtime: seeds, their verdicts, and the mistakes that they
//! have to find.
//!
//! ```text
//! cargo test --test simulation                            the corpus, a set of seeds, and every mistake
//! cargo test --test simulation -- --seed 4711             one seed, from the beginning, with what was found
//! cargo test --profile sim --test simulation -- --hours 2 new seeds for two hours, on every core
//! cargo test --profile sim --test simulation -- --bugs    every mistake, and the table of invariants
//! ```
#![allow(clippy::unwrap_used, reason = "everything here is a test")]
#![allow(clippy::disallowed_methods, reason = "how long seeds take is real time")]

mod callers;
mod goals;
mod invariants;
mod receiver;
#[path = "../harness/runner.rs"]
mod runner;
mod runs;
mod shop;
mod swarm;
mod teeth;
mod troubles;
mod verdict;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use overdue_runtime::fault::Bug;

use crate::runner::Runner;
use crate::runs::{Until, run_all};

/// The seeds that failed once: each is run for ever, first of all.
const CORPUS: &str = include_str!("corpus.txt");
/// So many seeds are run by the tests.
const SEEDS: u64 = 120;
const HOUR: f64 = 3600.0;

#[derive(Parser)]
#[command(about = "Runs seeds of the simulation", disable_version_flag = true)]
struct Options {
    /// Run this seed alone and show what it found.
    #[arg(long)]
    seed: Option<u64>,
    /// With this mistake put back; with --bugs, this one alone.
    #[arg(long, value_parser = bug_named)]
    bug: Option<Bug>,
    /// Run new seeds for so many hours.
    #[arg(long)]
    hours: Option<f64>,
    /// The first seed of a long run.
    #[arg(long, default_value_t = 1_000_000)]
    from: u64,
    /// Put every mistake back, one after the other, and print which seed and which invariant found it.
    #[arg(long)]
    bugs: bool,
    /// How many seeds a mistake may take to be found.
    #[arg(long, default_value_t = 3_000)]
    patience: u64,
    /// How many seeds are run side by side.
    #[arg(long)]
    jobs: Option<usize>,
    #[command(flatten)]
    runner: Runner,
}

fn bug_named(name: &str) -> Result<Bug, String> {
    let known = || Bug::ALL.map(|bug| format!("{bug:?}")).join(", ");
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name).ok_or_else(|| format!("the mistakes are {}", known()))
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.runner.is_elsewhere("simulation") {
        return ExitCode::SUCCESS;
    }
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if let Some(seed) = options.seed {
        return runs::show(seed, options.bug);
    }
    if options.bugs {
        let bugs = options.bug.map_or(Bug::ALL.to_vec(), |bug| vec![bug]);
        return teeth::every_bug(&bugs, jobs, options.patience);
    }
    if let Some(hours) = options.hours {
        return run_all(options.from.., &Until::Time(Duration::from_secs_f64(hours * HOUR)), jobs, false);
    }
    let corpus: Vec<u64> = CORPUS.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let seeds = corpus.into_iter().chain(0..SEEDS);
    let ran = run_all(seeds, &Until::End, jobs, true);
    if ran == ExitCode::SUCCESS { teeth::each_is_found(jobs) } else { ran }
}
