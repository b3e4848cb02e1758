//! The crash matrix: at every commit point of the inventory, on every store that has it, a process of its own ends there and
//! nowhere else, a successor is started, and what is left is judged: by the shop's ledgers, the stored histories, and the list
//! of what was acknowledged. A point that its load does not reach fails the run.
//!
//! `OVERDUE_MATRIX=long cargo test -p overdue-workflows --test specifications crash_matrix` runs hits 1 to 5 of every point,
//! the process killed there, or standing still there for longer than its lease. `OVERDUE_MATRIX_ONLY=postgres/hand-over` runs
//! the cells whose names begin so.

mod cell;
mod load;
mod ways;

use std::collections::BTreeSet;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use overdue_runtime::fault::Point;
use tokio::sync::Semaphore;

use cell::{Cell, End};
use ways::{On, Way, way};

/// So many cells are played at once, over all stores.
static CELLS_AT_ONCE: Semaphore = Semaphore::const_new(4);
/// No cell takes longer.
const CELL_MAX: Duration = Duration::from_secs(90);

/// What happens at the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    Kill,
    Sleep,
}

/// The cells of a store that are to be played.
fn cells(on: On) -> Vec<Cell> {
    let long = std::env::var("OVERDUE_MATRIX").is_ok_and(|set| set == "long");
    let only = std::env::var("OVERDUE_MATRIX_ONLY").unwrap_or_default();
    let mut cells = Vec::new();
    for point in Point::ALL {
        let Way::By { scene, first, stride } = way(*point, on) else { continue };
        let rounds: &[u32] = if long { &[1, 2, 3, 4, 5] } else { &[1] };
        for round in rounds {
            let hit = first + (round - 1) * stride;
            let strikes: &[Strike] = if long { &[Strike::Kill, Strike::Sleep] } else { &[Strike::Kill] };
            cells.extend(strikes.iter().map(|strike| Cell {
                on,
                point: *point,
                scene,
                hit,
                is_first: *round == 1,
                strike: *strike,
            }));
        }
        // Of what happens again and again, once in the middle.
        if !long && stride > 1 && on == On::Sqlite {
            cells.push(Cell { on, point: *point, scene, hit: first + 3 * stride, is_first: false, strike: Strike::Kill });
        }
    }
    cells.retain(|cell| cell.name().starts_with(&only));
    cells
}

/// Says a line past the capture of output: it is waited for, and a page may quote it.
fn say(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

async fn play(on: On) {
    let begun = Instant::now();
    let cells = cells(on);
    let played = cells.iter().map(|cell| async move {
        let _turn = CELLS_AT_ONCE.acquire().await.unwrap();
        let played = AssertUnwindSafe(tokio::time::timeout(CELL_MAX, cell.play())).catch_unwind().await;
        let end = match played {
            Ok(Ok(end)) => Ok(end),
            Ok(Err(_)) => Err("it does not end".to_owned()),
            Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "it panicked".to_owned())),
        };
        if let Err(reason) = &end {
            say(&format!("failed: {}: {}\n", cell.name(), reason.lines().next().unwrap_or_default()));
        }
        (cell, end)
    });
    let played: Vec<_> = futures::stream::iter(played).buffer_unordered(cells.len().max(1)).collect().await;

    let mut failed = String::new();
    let mut struck = BTreeSet::new();
    let mut seldom = 0;
    for (cell, end) in &played {
        match end {
            Ok(End::Struck) => drop(struck.insert(cell.point)),
            // The first hit of every point is a cell too; this one only comes to nothing.
            Ok(End::Seldom) => seldom += 1,
            Err(reason) => failed.push_str(&format!("\n== {} ==\n{reason}\n", cell.name())),
        }
    }
    say(&format!(
        "crash matrix on {on:?}: {} cells, {} of {} points, {seldom} hits that did not come, {} failed, {:.0} s\n",
        cells.len(),
        struck.len(),
        Point::ALL.len(),
        played.iter().filter(|(_, end)| end.is_err()).count(),
        begun.elapsed().as_secs_f64()
    ));
    assert!(failed.is_empty(), "{failed}");
    if std::env::var("OVERDUE_MATRIX_ONLY").is_err() {
        let missing: Vec<_> = Point::ALL.iter().filter(|point| !struck.contains(point)).collect();
        let excused: Vec<_> = missing.iter().filter(|point| matches!(way(***point, on), Way::None(_))).collect();
        assert_eq!(missing.len(), excused.len(), "{on:?} was never struck at {missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_at_any_commit_point_on_sqlite_loses_nothing_and_does_nothing_twice() {
    play(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_at_any_commit_point_on_postgres_loses_nothing_and_does_nothing_twice() {
    play(On::Postgres).await;
}

#[test]
fn every_commit_point_has_a_cell_on_each_store_or_a_reason_why_there_is_none() {
    for point in Point::ALL {
        let ways = [On::Sqlite, On::Postgres].map(|on| way(*point, on));
        assert!(ways.iter().any(|way| matches!(way, Way::By { .. })), "{} is nowhere", point.name());
        for reason in ways.iter().filter_map(|way| if let Way::None(reason) = way { Some(reason) } else { None }) {
            assert!(reason.len() > 20, "{}: {reason}", point.name());
        }
    }
}
