//! What must never be, and what has to happen somewhere. The names in brackets are those of docs/reliability.md.

use super::state::{Row, World};

/// Something that must never be. What needs the step to be seen is noted in the state that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    /// Something was promised and is not in the store (I31).
    PromiseBeforeCommit,
    /// A promise that was kept is gone (I7).
    PromiseLost,
    /// Two events for one place of a history, or a gap (I14).
    HistoryForked,
    /// An event behind the end (I18).
    EventAfterEnd,
    /// A guarded transition was applied beside an unread inbox row (I19).
    InboxOverlooked,
    /// A commit of an epoch that is not the lane's was applied (I27).
    OldEpoch,
    /// A transition of a shard that is not the node's was applied (I26).
    NotTheOwner,
    /// A node that was ended is in again (I20).
    EndedNodeIsIn,
    /// The owner under a valid fence was told that its memory is stale (I28).
    OwnerOutOfStep,
    /// A call was sent that is not scheduled in the store (I32).
    CallBeforeCommit,
    /// Two nodes that are both in wait for the same call (I43).
    TwoCallers,
    /// A timer fired before its time (I21).
    FiredEarly,
}

impl Wrong {
    /// The sentence that holds instead.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::PromiseBeforeCommit => "I31: nothing is promised before it is committed",
            Self::PromiseLost => "I7: what was promised stays",
            Self::HistoryForked => "I14: a history only grows, one event a place",
            Self::EventAfterEnd => "I18: nothing follows the end",
            Self::InboxOverlooked => "I19: no guarded transition beside an unread signal",
            Self::OldEpoch => "I27: an old epoch changes nothing",
            Self::NotTheOwner => "I26: only the owner advances",
            Self::EndedNodeIsIn => "I20: a node that was ended does not come back under its id",
            Self::OwnerOutOfStep => "I28: the rightful owner is in step",
            Self::CallBeforeCommit => "I32: no call before its schedule",
            Self::TwoCallers => "I43: what is handed over is at rest",
            Self::FiredEarly => "I21: no timer fires early",
        }
    }

    /// What the state alone shows.
    pub(crate) fn seen_in(world: &World) -> Option<Self> {
        for execution in 0..world.rows.len() {
            let row = world.rows[execution].as_ref();
            let is_paid = world.inbox[execution] || world.late[execution] || row.is_some_and(Row::is_paid);
            if world.promised_starts[execution] && row.is_none() || world.promised_payments[execution] && !is_paid {
                return Some(Self::PromiseLost);
            }
            if row.is_some_and(Row::has_fired) && !world.is_due {
                return Some(Self::FiredEarly);
            }
        }
        None
    }
}

/// Something that has to happen on some way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    ZombieRefused,
    UnknownHadCommitted,
    UnknownHadNot,
    LateLanding,
    SessionEnded,
    TakeOverWithCallInFlight,
    HandOver,
    UnreadInboxRefused,
    PaidInTime,
    PaidAfterDeadline,
    PaidAfterEnd,
    GroupCommit,
    StartedTwice,
    RaisedTooLate,
    Drained,
}

impl Goal {
    pub(crate) const ALL: [Self; 15] = [
        Self::ZombieRefused,
        Self::UnknownHadCommitted,
        Self::UnknownHadNot,
        Self::LateLanding,
        Self::SessionEnded,
        Self::TakeOverWithCallInFlight,
        Self::HandOver,
        Self::UnreadInboxRefused,
        Self::PaidInTime,
        Self::PaidAfterDeadline,
        Self::PaidAfterEnd,
        Self::GroupCommit,
        Self::StartedTwice,
        Self::RaisedTooLate,
        Self::Drained,
    ];
}
