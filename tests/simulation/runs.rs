//! Many seeds on many threads, and what they add up to.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use overdue_runtime::fault::Bug;
use overdue_runtime::simulation::{Broken, Findings};

use crate::goals::GOALS;
use crate::swarm::{Kept, Swarm};
use crate::world::{self, Ran};

/// Each seed that this divides is run twice, and both runs have to be the same to the last step.
const TWICE_EVERY: u64 = 50;
/// After so many failing seeds a run ends.
const FAILURES_MAX: usize = 10;
/// How often a long run says where it stands.
const REPORT_EVERY: Duration = Duration::from_secs(300);
const SECONDS_PER_YEAR: f64 = 365.25 * 24.0 * 3600.0;

/// When to stop.
pub(crate) enum Until {
    /// When there are no more seeds.
    End,
    /// After so long.
    Time(Duration),
}

/// What a run has seen so far.
#[derive(Default)]
struct Total {
    seeds: u64,
    steps: u64,
    virtual_time: Duration,
    faults: BTreeMap<&'static str, u64>,
    twice: u64,
    findings: Findings,
    failed: Vec<(u64, Vec<Broken>)>,
}

impl Total {
    fn add(&mut self, seed: u64, ran: Ran) {
        self.seeds += 1;
        self.steps += ran.steps;
        self.virtual_time += ran.virtual_time;
        for (fault, times) in ran.faults {
            *self.faults.entry(fault).or_default() += times;
        }
        if !ran.findings.broken.is_empty() {
            println!("seed {seed}: {}", first_of(&ran.findings.broken));
            println!("  again: cargo test --test simulation -- --seed {seed}");
            self.failed.push((seed, ran.findings.broken.clone()));
        }
        self.findings.add(ran.findings);
    }

    fn line(&self, began: Instant) -> String {
        format!(
            "{} seeds, {:.3} simulated years, {} steps, {} strikes, {} failures, {:.0} s",
            self.seeds,
            self.virtual_time.as_secs_f64() / SECONDS_PER_YEAR,
            self.steps,
            self.faults.values().sum::<u64>(),
            self.failed.len(),
            began.elapsed().as_secs_f64()
        )
    }
}

fn first_of(broken: &[Broken]) -> String {
    broken.first().map_or_else(String::new, |first| format!("{} {}", first.invariant, first.message))
}

/// Runs seeds; whether all is well. A set of seeds has to reach every goal.
pub(crate) fn run_all(seeds: impl Iterator<Item = u64> + Send, until: &Until, jobs: usize, is_set: bool) -> ExitCode {
    let began = Instant::now();
    let seeds = Mutex::new(seeds);
    let total = Mutex::new(Total::default());
    let reported = Mutex::new(Instant::now());
    let next = || {
        let is_over = matches!(until, Until::Time(time) if began.elapsed() >= *time);
        if is_over || total.lock().unwrap().failed.len() >= FAILURES_MAX { None } else { seeds.lock().unwrap().next() }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    let ran = guarded(seed, None);
                    let again = seed.is_multiple_of(TWICE_EVERY) && Swarm::of(seed).kept != Kept::Sqlite;
                    let differs = again && guarded(seed, None).trace != ran.trace;
                    let mut total = total.lock().unwrap();
                    total.twice += u64::from(again);
                    total.add(seed, ran);
                    if differs {
                        total.failed.push((seed, Vec::new()));
                        println!("seed {seed}: two runs of it differ");
                    }
                    let mut reported = reported.lock().unwrap();
                    if reported.elapsed() >= REPORT_EVERY {
                        *reported = Instant::now();
                        println!("{}", total.line(began));
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    report(&total, began);
    let missed: Vec<_> = GOALS.iter().filter(|goal| !total.findings.reached.contains_key(*goal)).collect();
    if !missed.is_empty() {
        println!("never happened: {missed:?}");
    }
    if total.failed.is_empty() && (missed.is_empty() || !is_set) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(total: &Total, began: Instant) {
    println!("simulation: {}, {} run twice", total.line(began), total.twice);
    println!("strikes: {:?}", total.faults);
    println!("looks at invariants: {:?}", total.findings.looks);
    println!("reached: {:?}", total.findings.reached);
}

/// Runs a seed; a panic of it is something that must not be, like everything else.
pub(crate) fn guarded(seed: u64, bug: Option<Bug>) -> Ran {
    catch_unwind(AssertUnwindSafe(|| world::run(seed, bug))).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let message = format!("a panic: {}", text.unwrap_or_default());
        let findings = Findings { broken: vec![Broken { invariant: "panic", message }], ..Findings::default() };
        Ran { findings, faults: BTreeMap::new(), trace: 0, steps: 0, virtual_time: Duration::ZERO }
    })
}

/// Runs one seed and shows everything.
pub(crate) fn show(seed: u64, bug: Option<Bug>) -> ExitCode {
    let ran = guarded(seed, bug);
    println!("{:#?}", Swarm::of(seed));
    println!("{} steps, {:?} simulated, trace {:016x}", ran.steps, ran.virtual_time, ran.trace);
    println!("strikes: {:?}", ran.faults);
    println!("reached: {:?}", ran.findings.reached);
    for Broken { invariant, message } in &ran.findings.broken {
        println!("{invariant} {message}");
    }
    if ran.findings.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
