//! For every commit point and store: the load that reaches it, or why there is none.

use overdue_runtime::fault::Point;

/// On which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Sqlite,
    Postgres,
}

/// What is played around the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// Orders of every sort, by the armed process.
    Town,
    /// The same, and it is asked to end in the middle of them.
    Drain,
    /// The same, and the answer to one commit is lost before.
    Unanswered,
    /// The same with histories that are soon removed.
    Retention,
    /// An empty store is opened.
    First,
    /// A killed process' store is opened, with orders under way.
    Again,
    /// Among orders that are due at one instant, some that the database refuses.
    Poison,
    /// Starts and payments that a caller leaves in the database.
    Sql,
    /// Another node joins, and is given its share.
    Gift,
    /// Another node is killed, and succeeded by the armed one.
    Heir,
}

/// How a point is reached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// By playing this, from a hit on that comes while it is played. Where the point is passed often, hits that are `stride`
    /// apart lie well over the whole scene.
    By { scene: Scene, first: u32, stride: u32 },
    /// Not at all, and why.
    None(&'static str),
}

const ALONE: &str = "one process has the file to itself, and nobody to give shards to or to take them from";
const NOT_IN_A_FILE: &str = "nobody but the process itself writes to the file";
const NO_LOG: &str = "the server keeps its own log";
const STOPS: &str = "a file whose commit failed in an unknown way is not written again: the process stops";

/// Passed once in the life of a process.
const ONCE: u32 = 0;
/// Passed in nearly every commit.
const OFTEN: u32 = 7;
/// Passed some times.
const SOMETIMES: u32 = 2;

pub(super) fn way(point: Point, on: On) -> Way {
    let by = |scene| Way::By { scene, first: 1, stride: 1 };
    let through = |scene, stride| Way::By { scene, first: 1, stride };
    match (point, on) {
        (
            Point::FenceUnchecked
            | Point::FenceChecked
            | Point::HistoryWritten
            | Point::CommitUnsent
            | Point::CommitUnanswered
            | Point::OutcomesUnapplied,
            _,
        ) => through(Scene::Town, OFTEN),
        (Point::ExecutionsWritten | Point::CallerUnanswered | Point::AnswerWritten, _) => through(Scene::Town, SOMETIMES),
        (Point::RequestUnsent | Point::RequestSent | Point::ResultUntold | Point::ResultUncommitted, _) => {
            through(Scene::Town, SOMETIMES)
        }
        (Point::TimerUnused, _) => through(Scene::Town, SOMETIMES),
        // The first scan comes before the node is ready.
        (Point::ScanUnused, _) => Way::By { scene: Scene::Town, first: 3, stride: SOMETIMES },
        (Point::InboxWritten | Point::DepositUntold | Point::LateSignalUncommitted, _) => by(Scene::Town),
        (Point::ShardsUnread | Point::ExecutionsUnfolded, _) => by(Scene::Again),
        (Point::EpochUnraised | Point::EpochRaised, On::Sqlite) => by(Scene::Again),
        (Point::EpochUnraised | Point::EpochRaised, On::Postgres) => by(Scene::Unanswered),
        (Point::OutcomeUnknown, _) => by(Scene::Unanswered),
        (Point::OutcomeSettled, On::Postgres) => by(Scene::Unanswered),
        (Point::OutcomeSettled, On::Sqlite) => Way::None(STOPS),
        (Point::HandOverUnsent | Point::HandOverUncommitted, On::Postgres) => by(Scene::Gift),
        (Point::TakeOverHalfDone, On::Postgres) => by(Scene::Heir),
        (Point::HandOverUnsent | Point::HandOverUncommitted | Point::TakeOverHalfDone, On::Sqlite) => Way::None(ALONE),
        (Point::BatchUnhalved | Point::BlockUncommitted, _) => by(Scene::Poison),
        (Point::RetireHalfDone | Point::ForgetUncommitted, _) => by(Scene::Retention),
        (Point::RequestedStartUncommitted, On::Postgres) => by(Scene::Sql),
        (Point::RequestedStartUncommitted, On::Sqlite) => Way::None(NOT_IN_A_FILE),
        (Point::LogUncut | Point::LogCut, On::Sqlite) => through(Scene::Town, SOMETIMES),
        (Point::LogUncut | Point::LogCut, On::Postgres) => Way::None(NO_LOG),
        (Point::MigrationApplied, _) => by(Scene::First),
        (Point::DrainAsked | Point::DrainAtRest | Point::DrainCommitted | Point::DrainLeft | Point::DrainClosed, _) => {
            through(Scene::Drain, ONCE)
        }
    }
}
