//! Checking what a store holds: every invariant that stored data can show.
//!
//! [`execution`] judges one execution that was read in one snapshot; it is pure, and so can be asked after every commit.
//! [`everything`] pages over a whole store, off line or beside the nodes that run on it. Nothing here writes, and what is
//! only true for a moment is looked at again before it is reported. Repairing is deliberately absent.

mod awake;
mod history;
mod membership;
mod notes;
mod paired;
mod replays;
mod report;
mod retired;
mod row;
mod signals;
mod strays;
mod taken_up;
#[cfg(test)]
mod tests;
mod times;
mod violation;
mod walk;

pub use report::Report;
pub use violation::{Checks, Invariant, Violation};
pub use walk::{Options, everything};

use crate::engine::{Notes, Registries};
use crate::history::{Event, Folded, decode};
use crate::store::{AttributeValue, Loaded};
use crate::time::Timestamp;

/// With what eyes an execution is looked at.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// The code that executions run.
    pub code: &'a Registries,
    /// The store's number of shards.
    pub shards: u16,
    /// The time by the clock of those who wrote.
    pub now: Timestamp,
}

/// What came of looking at one execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What does not hold.
    pub violations: Vec<Violation>,
    /// Which invariants were evaluated, and how often.
    pub checks: Checks,
    /// Events of its history.
    pub events: u64,
    /// Whether its history could be held against the code.
    pub replay: Replay,
}

/// Whether a history could be held against the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It was.
    Judged,
    /// The program does not know its type.
    UnknownType,
    /// It cannot be replayed, and its row says so: it is blocked, or was ended from outside.
    Stopped,
    /// There is no history (any more), or it cannot be read.
    NoHistory,
}

/// An execution as the checks see it.
struct Subject<'a> {
    look: Look<'a>,
    loaded: &'a Loaded,
    events: Vec<Event>,
    folded: Folded,
    /// `None` when they cannot be read.
    notes: Option<Notes>,
    /// Its search attributes, where somebody read them.
    attributes: Option<&'a [(String, AttributeValue)]>,
}

/// What is wrong by one check; `None` when it has nothing to say about such an execution.
type Check = fn(&Subject<'_>) -> Option<Vec<String>>;

/// What must hold of an execution whose history can be read. (That it can be is the first check, and its replay the last.)
const CHECKS: [(Invariant, Check); 7] = [
    (Invariant::SignalsOnce, signals::received_twice),
    (Invariant::RowIsFold, row::differs),
    (Invariant::Paired, paired::unpaired),
    (Invariant::ClosedIsClosed, paired::after_the_end),
    (Invariant::TimesAscend, times::out_of_time),
    (Invariant::Awake, awake::overslept),
    (Invariant::NotesOfPending, notes::of_nothing),
];

/// Looks at one execution, read in one snapshot. Pure. What is reported lasts: it does not depend on the moment at which
/// the execution was read, wherever its owner stands.
pub fn execution(look: Look<'_>, loaded: &Loaded) -> Verdict {
    judged(look, loaded, None)
}

/// The same for an execution whose owner had time to take up what was stored for it: then none that has ended has an unread
/// signal (I19).
pub fn execution_at_rest(look: Look<'_>, loaded: &Loaded) -> Verdict {
    let mut verdict = execution(look, loaded);
    if let Some(found) = taken_up::unread_after_the_end(look.code, loaded) {
        verdict.add(loaded, Invariant::InboxTakenUp, found.iter().map(taken_up::message));
    }
    verdict
}

fn judged(look: Look<'_>, loaded: &Loaded, attributes: Option<&[(String, AttributeValue)]>) -> Verdict {
    let mut verdict = Verdict { violations: Vec::new(), checks: Checks::default(), events: 0, replay: Replay::NoHistory };
    let execution = &loaded.execution;
    if execution.retired {
        verdict.add(loaded, Invariant::NothingLeft, retired::left(look, loaded));
        return verdict;
    }
    verdict.add(loaded, Invariant::NothingLeft, retired::beside_a_history(loaded));
    let decoded = decode(execution.run_id, &loaded.records);
    verdict.add(loaded, Invariant::WholeHistory, history::broken(decoded.as_ref()));
    let Ok((events, _)) = decoded else { return verdict };
    verdict.events = events.len() as u64;
    if events.is_empty() {
        return verdict;
    }
    let folded = Folded::of(&events);
    let notes = Notes::decode(&execution.attempts).ok();
    let subject = Subject { look, loaded, events, folded, notes, attributes };
    for (invariant, check) in CHECKS {
        if let Some(found) = check(&subject) {
            verdict.add(loaded, invariant, found);
        }
    }
    let (replay, found) = replays::differently(&subject);
    verdict.replay = replay;
    if replay == Replay::Judged {
        verdict.add(loaded, Invariant::Replays, found);
    }
    verdict
}

impl Verdict {
    /// Counts an evaluation, and what it found.
    fn add(&mut self, loaded: &Loaded, invariant: Invariant, found: impl IntoIterator<Item = String>) {
        self.checks.count(invariant, 1);
        let of = |message| Violation::of(invariant, &loaded.execution.key, Some(loaded.execution.run_id), message);
        self.violations.extend(found.into_iter().map(of));
    }
}
