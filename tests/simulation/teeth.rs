//! The simulation's teeth: mistakes that others have made are put back into the code, and the seeds have to find them.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use overdue_runtime::fault::Bug;

use crate::invariants::{INVARIANTS, Invariant};
use crate::runs::guarded;

/// The seed that a search begins with.
const FIRST: u64 = 0;

/// So many seeds find each of the quick ones.
const SEEDS_FOR_QUICK: u64 = 40;
/// Mistakes that take more seeds than a test has time for; `--bugs` looks for them too.
const SLOW: [Bug; 7] = [
    Bug::WatermarkInboxScan,
    Bug::CloseIgnoresInbox,
    Bug::PoisonFailsBatch,
    Bug::PoisonSkipped,
    Bug::MoveWithoutDrain,
    Bug::HeartbeatAlone,
    Bug::CommitInRequest,
];

/// How a mistake was found.
struct Found {
    bug: Bug,
    /// How many seeds it took.
    seeds: u64,
    invariant: &'static str,
    message: String,
}

/// Searches for a mistake; `None` when so many seeds do not find it. How often invariants were looked at is added up.
fn search(bug: Bug, jobs: usize, patience: u64, looks: &Mutex<BTreeMap<&'static str, u64>>) -> Option<Found> {
    let next = AtomicU64::new(FIRST);
    let best: Mutex<Option<Found>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // Seeds below the one that found it are still finished, so that the number does not depend on the threads.
                    let is_over = best.lock().unwrap().as_ref().is_some_and(|found| found.seeds <= seed - FIRST + 1);
                    if is_over || seed - FIRST >= patience {
                        return;
                    }
                    let ran = guarded(seed, Some(bug));
                    let mut looks = looks.lock().unwrap();
                    for (invariant, times) in &ran.findings.looks {
                        *looks.entry(invariant).or_default() += times;
                    }
                    drop(looks);
                    if let Some(broken) = ran.findings.broken.first() {
                        let found = Found {
                            bug,
                            seeds: seed - FIRST + 1,
                            invariant: broken.invariant,
                            message: broken.message.lines().next().unwrap_or_default().to_owned(),
                        };
                        let mut best = best.lock().unwrap();
                        if best.as_ref().is_none_or(|other| found.seeds < other.seeds) {
                            *best = Some(found);
                        }
                    }
                }
            });
        }
    });
    best.into_inner().unwrap()
}

/// Puts every mistake back and prints the table of invariants.
pub(crate) fn every_bug(bugs: &[Bug], jobs: usize, patience: u64) -> ExitCode {
    let looks = Mutex::new(BTreeMap::new());
    let mut found = Vec::new();
    let mut missed = Vec::new();
    for bug in bugs.iter().copied() {
        match search(bug, jobs, patience, &looks) {
            Some(one) => {
                println!("{bug:?}: found by seed {} of {patience}, {}: {}", one.seeds, one.invariant, one.message);
                found.push(one);
            }
            None => {
                println!("{bug:?}: not found by {patience} seeds");
                missed.push(bug);
            }
        }
    }
    print_table(&found, &looks.into_inner().unwrap());
    let mut seeds: Vec<u64> = found.iter().map(|one| one.seeds).collect();
    seeds.sort_unstable();
    let median = seeds.get(seeds.len() / 2).copied().unwrap_or(0);
    println!("mistakes found: {} of {}, by {median} seeds in the median", found.len(), bugs.len());
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Puts those of the mistakes back that few seeds find.
pub(crate) fn quick_bugs(jobs: usize) -> ExitCode {
    let looks = Mutex::new(BTreeMap::new());
    let mut missed = Vec::new();
    let quick: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| !SLOW.contains(bug)).collect();
    for bug in &quick {
        match search(*bug, jobs, SEEDS_FOR_QUICK, &looks) {
            Some(one) => println!("put back and found: {bug:?}, by seed {} ({})", one.seeds, one.invariant),
            None => missed.push(bug),
        }
    }
    println!("mistakes found: {} of {}", quick.len() - missed.len(), quick.len());
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("put back and not found by {SEEDS_FOR_QUICK} seeds: {missed:?}");
    ExitCode::FAILURE
}

fn print_table(found: &[Found], looks: &BTreeMap<&'static str, u64>) {
    println!("\n| invariant | checked | looks | a mistake that made it fail |\n|---|---|---|---|");
    for Invariant { id, says, checked } in INVARIANTS {
        let times = looks.get(id).copied().unwrap_or(0);
        let by: Vec<String> = found.iter().filter(|one| one.invariant == id).map(|one| format!("{:?}", one.bug)).collect();
        let by = if by.is_empty() { "never seen to fail here".to_owned() } else { by.join(", ") };
        println!("| {id} {says} | {checked} | {times} | {by} |");
    }
}
