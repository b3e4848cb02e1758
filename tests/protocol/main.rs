//! The protocol as a model: leases, fences, group commit, unknown outcomes, takeover and hand-over, with every order of their
//! steps looked at. Each protocol with a mistake in it must be seen to break something.
//!
//! `OVERDUE_MODEL=long cargo test -p overdue-workflows --test protocol` looks at wider bounds, for minutes and with
//! gigabytes of memory. What is not in the model: the drain limit of a hand-over, a look whose answer is late, held rows,
//! poison, retention, and how long a lease is: a node may be judged dead at any time.

mod core;
mod database;
mod model;
mod mutant;
mod property;
mod state;
mod step;

use std::io::Write as _;

use stateright::{Checker, HasDiscoveries, Model};

use model::Protocol;
use mutant::Mutant;
use property::Goal;
use state::Left;

/// Threads of the checker.
const THREADS: usize = 2;
/// The shortest way to the mistake of a mutant is found within so many states, or it survives.
const MUTANT_STATES_MAX: usize = 400_000;

/// How large a world is looked at.
struct Bounds {
    name: &'static str,
    shards: usize,
    executions: usize,
    left: Left,
}

const NOTHING: Left = Left { starts: 1, payments: 0, breaks: 0, refusals: 0, kills: 0, takeovers: 0, hand_overs: 0, joins: 0 };

/// What is looked at in every run. Each bound is small in one direction and not in the others.
const BOUNDS: [Bounds; 6] = [
    Bounds {
        name: "a broken connection and a takeover",
        shards: 1,
        executions: 1,
        left: Left { breaks: 1, takeovers: 1, payments: 1, ..NOTHING },
    },
    Bounds {
        name: "two broken connections and a takeover",
        shards: 1,
        executions: 1,
        left: Left { breaks: 2, takeovers: 1, ..NOTHING },
    },
    Bounds {
        name: "a hand-over and a takeover",
        shards: 1,
        executions: 1,
        left: Left { takeovers: 1, hand_overs: 1, joins: 1, payments: 1, ..NOTHING },
    },
    Bounds {
        name: "a hand-over and a broken connection",
        shards: 1,
        executions: 1,
        left: Left { breaks: 1, hand_overs: 1, payments: 1, ..NOTHING },
    },
    Bounds {
        name: "a killed or drained node, and a refusal",
        shards: 1,
        executions: 1,
        left: Left { kills: 1, takeovers: 1, joins: 1, refusals: 1, ..NOTHING },
    },
    Bounds {
        name: "two executions in a batch, and a takeover",
        shards: 2,
        executions: 2,
        left: Left { starts: 2, takeovers: 1, ..NOTHING },
    },
];

/// `OVERDUE_MODEL=long`.
const LONG: [Bounds; 3] = [
    Bounds {
        name: "a broken connection, a takeover, another life, a payment",
        shards: 1,
        executions: 1,
        left: Left { breaks: 1, takeovers: 1, joins: 1, payments: 1, ..NOTHING },
    },
    Bounds {
        name: "two executions, a broken connection, a takeover",
        shards: 1,
        executions: 2,
        left: Left { starts: 2, payments: 1, breaks: 1, takeovers: 1, joins: 1, ..NOTHING },
    },
    Bounds {
        name: "everything once",
        shards: 1,
        executions: 1,
        left: Left { payments: 2, breaks: 1, refusals: 1, kills: 1, takeovers: 1, hand_overs: 1, joins: 1, ..NOTHING },
    },
];

/// Where the mistakes are looked for: in the first of these that shows one.
const MUTANT_BOUNDS: [&Bounds; 5] = [&BOUNDS[0], &BOUNDS[3], &BOUNDS[4], &BOUNDS[2], &BOUNDS[5]];

fn protocol(bounds: &Bounds, mutant: Option<Mutant>) -> Protocol {
    Protocol::new(bounds.shards, bounds.executions, bounds.left, mutant)
}

/// Looks at everything within the bounds; how many states there are, and how deep.
fn look(bounds: &Bounds, reached: &mut Vec<Goal>) -> (usize, usize) {
    let checker = protocol(bounds, None).checker().threads(THREADS).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    if let Some((sentence, path)) = checker.discoveries().into_iter().next() {
        panic!("{}: not so: {sentence}\n{:#?}", bounds.name, path.into_actions());
    }
    assert!(checker.is_done(), "{}: not everything was looked at", bounds.name);
    reached.extend(Goal::ALL.into_iter().filter(|goal| checker.model().has_reached(*goal)));
    (checker.unique_state_count(), checker.max_depth())
}

/// The shortest way found to something that must never be: its sentence, and how many steps lead there.
fn kill(mutant: Mutant) -> Option<(&'static str, usize)> {
    MUTANT_BOUNDS.into_iter().find_map(|bounds| {
        let checker = protocol(bounds, Some(mutant)).checker().threads(THREADS).target_state_count(MUTANT_STATES_MAX);
        let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let ways = checker.discoveries().into_iter().map(|(sentence, way)| (sentence, way.into_actions().len()));
        ways.min_by_key(|(_, steps)| *steps)
    })
}

#[test]
fn the_protocol_holds_in_every_order_and_every_wrong_one_is_caught() {
    let is_long = std::env::var("OVERDUE_MODEL").is_ok_and(|set| set == "long");
    let (mut states, mut depth, mut reached) = (0, 0, Vec::new());
    let mut lines = String::new();
    for bounds in BOUNDS.iter().chain(LONG.iter().filter(|_| is_long)) {
        let found = look(bounds, &mut reached);
        lines += &format!("protocol: {}: {} states, depth {}, all of them\n", bounds.name, found.0, found.1);
        (states, depth) = (states + found.0, depth.max(found.1));
    }
    let mut killed = 0;
    for (mutant, expected) in Mutant::ALL {
        match kill(mutant) {
            Some((sentence, steps)) => {
                killed += usize::from(expected.iter().any(|wrong| wrong.sentence() == sentence));
                lines += &format!("protocol: {mutant:?} killed in {steps} steps: {sentence}\n");
            }
            None => lines += &format!("protocol: {mutant:?} SURVIVES\n"),
        }
    }
    let mutants = Mutant::ALL.len();
    lines += &format!("protocol: {states} states, depth {depth}, {killed} of {mutants} mutants killed\n");
    // Past the capture: whoever runs the suite is to see the figures.
    std::io::stderr().write_all(lines.as_bytes()).unwrap();
    let missed: Vec<Goal> = Goal::ALL.into_iter().filter(|goal| !reached.contains(goal)).collect();
    assert!(missed.is_empty(), "never happened: {missed:?}");
    assert_eq!(killed, mutants, "a wrong protocol survives, or breaks something else than expected:\n{lines}");
}
