//! What happens at commit points, as the environment of the process says.
//!
//! `OVERDUE_FAULT_POINT` names points, separated by commas, each as `name:hit` with what happens at that hit of it: nothing
//! more, and the process ends; `:sleep=MS`, and the thread stands still; `:error`, and what is done there fails. The file
//! `OVERDUE_FAULT_LOG` gets a line for every point that was passed (`passed NAME`) and every one that struck
//! (`struck NAME HIT`), so that a test knows where a process ended, and which points its load never reached.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Point;

/// Names the points that are armed.
pub const ARMED: &str = "OVERDUE_FAULT_POINT";
/// If it is set, an embedded store does not synchronize its log in every commit.
pub const LAX: &str = "OVERDUE_FAULT_LAX";
/// Names the file in which it is noted what was passed.
pub const LOG: &str = "OVERDUE_FAULT_LOG";

/// By how many microseconds the process's clock is ahead of the right time; behind it, if there are fewer than none.
pub const CLOCK: &str = "OVERDUE_FAULT_CLOCK";

static STRIKES: LazyLock<Strikes> = LazyLock::new(Strikes::of_environment);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    End,
    Sleep(Duration),
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strike {
    point: Point,
    hit: u32,
    act: Act,
}

struct Strikes {
    strikes: Vec<Strike>,
    hits: Vec<AtomicU32>,
    log: Option<File>,
}

/// Passes a point; true when what is done there is to fail.
pub(super) fn pass(point: Point) -> bool {
    STRIKES.pass(point)
}

/// Whether anything is to happen at this point.
pub(super) fn is_armed(point: Point) -> bool {
    STRIKES.strikes.iter().any(|strike| strike.point == point)
}

/// See [`CLOCK`].
pub(super) fn clock_ahead_micros() -> i64 {
    static AHEAD: LazyLock<i64> =
        LazyLock::new(|| std::env::var(CLOCK).ok().and_then(|text| text.parse().ok()).unwrap_or_default());
    *AHEAD
}

impl Strikes {
    fn of_environment() -> Self {
        let armed = std::env::var(ARMED).unwrap_or_default();
        let strikes = parse(&armed).unwrap_or_else(|fault| {
            eprintln!("{ARMED}={armed:?}: {fault}");
            std::process::abort()
        });
        let open = |path| OpenOptions::new().create(true).append(true).open(path).ok();
        Self { strikes, hits: Point::ALL.iter().map(|_| AtomicU32::new(0)).collect(), log: std::env::var_os(LOG).and_then(open) }
    }

    fn pass(&self, point: Point) -> bool {
        if self.strikes.is_empty() && self.log.is_none() {
            return false;
        }
        let hit = self.hits[point as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if hit == 1 {
            self.note(&format!("passed {}\n", point.name()));
        }
        let Some(strike) = self.strikes.iter().find(|strike| strike.point == point && strike.hit == hit) else { return false };
        self.note(&format!("struck {} {hit}\n", point.name()));
        match strike.act {
            // As SIGKILL would have it: no destructor runs, nothing that waits in memory is written, no connection is
            // closed in order. What the system has, it keeps.
            Act::End => std::process::abort(),
            Act::Sleep(length) => std::thread::sleep(length),
            Act::Fail => return true,
        }
        false
    }

    fn note(&self, line: &str) {
        // A test that does not find the line says so.
        let _ = self.log.as_ref().map(|mut log| log.write_all(line.as_bytes()));
    }
}

fn parse(armed: &str) -> Result<Vec<Strike>, String> {
    armed.split(',').filter(|strike| !strike.is_empty()).map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<Strike, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let point = Point::ALL.iter().copied().find(|point| point.name() == name).ok_or(format!("there is no point {name:?}"))?;
    let hit = parts.next().and_then(|hit| hit.parse().ok()).ok_or(format!("{text:?} has no number of a hit"))?;
    let act = match parts.next() {
        None => Act::End,
        Some("error") => Act::Fail,
        Some(act) => {
            let millis = act.strip_prefix("sleep=").and_then(|millis| millis.parse().ok());
            Act::Sleep(Duration::from_millis(millis.ok_or(format!("{act:?} is nothing that can happen"))?))
        }
    };
    Ok(Strike { point, hit, act })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_armed_by_name_and_hit_with_what_happens_there() {
        let armed = parse("commit-unsent:2,commit-unanswered:3:error,scan-unused:1:sleep=1500").unwrap();
        let strike = |point, hit, act| Strike { point, hit, act };
        assert_eq!(
            armed,
            [
                strike(Point::CommitUnsent, 2, Act::End),
                strike(Point::CommitUnanswered, 3, Act::Fail),
                strike(Point::ScanUnused, 1, Act::Sleep(Duration::from_millis(1500))),
            ]
        );
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn what_names_no_point_or_no_hit_or_nothing_that_can_happen_is_refused() {
        for armed in ["commit-sent:1", "commit-unsent", "commit-unsent:x", "commit-unsent:1:explode", "commit-unsent:1:sleep=x"] {
            assert!(parse(armed).is_err(), "{armed}");
        }
    }

    #[test]
    fn a_point_strikes_at_its_hit_and_at_no_other_and_the_log_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let strikes = Strikes {
            strikes: parse("scan-unused:2:error").unwrap(),
            hits: Point::ALL.iter().map(|_| AtomicU32::new(0)).collect(),
            log: Some(file.reopen().unwrap()),
        };
        let passed: Vec<bool> = (0..3).map(|_| strikes.pass(Point::ScanUnused)).collect();
        assert_eq!(passed, [false, true, false]);
        assert!(!strikes.pass(Point::LogCut));
        let log = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(log, "passed scan-unused\nstruck scan-unused 2\npassed log-cut\n");
    }

    #[test]
    fn every_point_has_a_name_of_its_own_and_its_number_is_its_place() {
        let names: std::collections::BTreeSet<&str> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
        assert!(Point::ALL.iter().enumerate().all(|(place, point)| *point as usize == place));
    }
}
