//! Chaos for real: three nodes, a PostgreSQL, a shop and its callers, each of them as it is in production, and what can
//! happen to them. Judged by the callers' own log, the shop's ledgers, the stored histories and `overdue verify`.
//!
//! ```text
//! cargo test --test chaos                          the fixed schedule: every fault once
//! cargo test --test chaos -- --hours 4             faults at random for four hours, figures every five minutes
//! cargo test --test chaos -- --hours 4 --seed 4711 the same plan of faults and orders again
//! ```
//!
//! A run that fails leaves its evidence in a folder that it names; one that passes leaves nothing.
#![allow(clippy::unwrap_used, reason = "everything here is a test")]
#![allow(clippy::disallowed_methods, reason = "chaos takes real time")]

mod callers;
mod caught;
mod disks;
mod faults;
mod figures;
mod judge;
mod log;
mod node;
mod plan;
mod round;
#[path = "../harness/runner.rs"]
mod runner;
mod standstill;
mod world;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::runner::Runner;

/// Says that this process is in a mount namespace of its own already.
const APART: &str = "OVERDUE_CHAOS_APART";
/// The seed of the fixed schedule: what the callers do follows from it.
const FIXED_SEED: u64 = 7;
const HOUR: f64 = 3600.0;
/// What a shell says of a process that was interrupted.
const INTERRUPTED: u8 = 130;

#[derive(Parser)]
#[command(about = "Real nodes, a real database, and what can happen to them", disable_version_flag = true)]
struct Options {
    /// Faults at random for so many hours.
    #[arg(long)]
    hours: Option<f64>,
    /// Which faults and which orders; random unless given.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    runner: Runner,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.runner.is_elsewhere("chaos") {
        return ExitCode::SUCCESS;
    }
    go_apart();
    overdue_activities::init_crypto();
    let length = options.hours.map(|hours| Duration::from_secs_f64(hours * HOUR));
    let seed = options.seed.unwrap_or_else(|| if length.is_some() { rand::random() } else { FIXED_SEED });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // Whichever ends first drops the other, and with it the nodes and the database.
        tokio::select! {
            held = round::run(seed, length) => if held { ExitCode::SUCCESS } else { ExitCode::FAILURE },
            () = interrupted() => ExitCode::from(INTERRUPTED),
        }
    })
}

/// Goes on in a mount namespace of its own, where that is allowed: disks that are mounted here are gone with this process,
/// however it ends, and nobody else sees them.
fn go_apart() {
    if std::env::var_os(APART).is_some() {
        return;
    }
    let apart = ["--mount", "--propagation", "private", "--"];
    let allowed = Command::new("unshare").args(apart).arg("true").stderr(Stdio::null()).status();
    if allowed.is_ok_and(|status| status.success()) {
        let program = std::env::current_exe().unwrap();
        let error = Command::new("unshare").args(apart).arg(program).args(std::env::args_os().skip(1)).env(APART, "1").exec();
        eprintln!("it goes on among the mounts of everybody: {error}");
    }
}

/// Resolves when somebody wants this process to end.
async fn interrupted() {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
