//! The simulation's teeth: mistakes that others have made are put back into the code, and the seeds have to find them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use overdue_runtime::fault::Bug;

use crate::invariants::{INVARIANTS, Invariant, SHOWN_BY_DAMAGE, SHOWN_BY_MODEL};
use crate::runs::guarded;

/// The seed that a search begins with.
const FIRST: u64 = 0;

/// So many seeds find each of them.
const SEEDS_FOR_EACH: u64 = 60;

/// Each mistake and the seed that found it first, as `--bugs` prints them.
const FOUND: &str = include_str!("found.txt");

/// How a mistake was found.
struct Found {
    bug: Bug,
    /// How many seeds it took.
    seeds: u64,
    /// The first that was found broken.
    invariant: &'static str,
    message: String,
    /// All that were broken by the seed that found it.
    broken: BTreeSet<&'static str>,
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
                            broken: ran.findings.broken.iter().map(|broken| broken.invariant).collect(),
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

impl Found {
    fn seed(&self) -> u64 {
        FIRST + self.seeds - 1
    }
}

/// Puts every mistake back and prints the table of invariants.
pub(crate) fn every_bug(bugs: &[Bug], jobs: usize, patience: u64) -> ExitCode {
    let looks = Mutex::new(BTreeMap::new());
    let mut found = Vec::new();
    let mut missed = Vec::new();
    for bug in bugs.iter().copied() {
        match search(bug, jobs, patience, &looks) {
            Some(one) => {
                println!(
                    "{bug:?} {}: found by {} seeds of {patience}, {}: {}",
                    one.seed(),
                    one.seeds,
                    one.invariant,
                    one.message
                );
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

/// Puts every mistake back, as a test: the seed that found it once has to find it again. One that it does not find any more,
/// because the code has changed around it, must be found by few others.
pub(crate) fn each_is_found(jobs: usize) -> ExitCode {
    let (next, escaped) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                    let broken = found_once(bug).map(|seed| (seed, guarded(seed, Some(bug)).findings.broken));
                    match broken.as_ref().and_then(|(seed, broken)| Some((seed, broken.first()?))) {
                        Some((seed, broken)) => println!("put back and found: {bug:?}, by seed {seed} ({})", broken.invariant),
                        None => escaped.lock().unwrap().push(bug),
                    }
                }
            });
        }
    });
    let looks = Mutex::new(BTreeMap::new());
    let mut missed = Vec::new();
    for bug in escaped.into_inner().unwrap() {
        match search(bug, jobs, SEEDS_FOR_EACH, &looks) {
            Some(one) => println!("put back and found: {bug:?}, by seed {} of a new search ({})", one.seed(), one.invariant),
            None => missed.push(bug),
        }
    }
    println!("mistakes found: {} of {}", Bug::ALL.len() - missed.len(), Bug::ALL.len());
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("put back and not found by {SEEDS_FOR_EACH} seeds: {missed:?}");
    ExitCode::FAILURE
}

/// The seed that found it when mistakes were last searched for.
fn found_once(bug: Bug) -> Option<u64> {
    let name = format!("{bug:?}");
    let seed = FOUND.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
    seed.parse().ok()
}

fn print_table(found: &[Found], looks: &BTreeMap<&'static str, u64>) {
    println!("\n| invariant | checked | looks | what made it fail |\n|---|---|---|---|");
    for Invariant { id, says, checked } in INVARIANTS {
        let times = looks.get(id).copied().unwrap_or(0);
        let mut by: Vec<String> =
            found.iter().filter(|one| one.broken.contains(id)).map(|one| format!("{:?}", one.bug)).collect();
        by.extend(SHOWN_BY_DAMAGE.contains(&id).then(|| "damaged stores".to_owned()));
        by.extend(SHOWN_BY_MODEL.contains(&id).then(|| "the model's mutants".to_owned()));
        let by = if by.is_empty() { "never seen to fail".to_owned() } else { by.join(", ") };
        println!("| {id} {says} | {checked} | {times} | {by} |");
    }
}
