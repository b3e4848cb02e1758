//! Wrong protocols. Each must be caught; those that are also mistakes of the simulation have their names of `fault::Bug`.

use super::property::Wrong;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The fence lets every epoch pass.
    NoEpochCheck,
    /// A change of the epoch does not wait for the transaction that holds the lane, and does not end it.
    WeakLock,
    /// Callers are answered when their batch is sent.
    AckBeforeCommit,
    /// A batch of unknown outcome is sent again as it is.
    BlindRetry,
    /// What became of a batch is read without raising the epoch.
    ReadWithoutRaise,
    /// The epoch is raised whether or not the lane is still the node's own.
    RaiseWithoutCheck,
    /// A process joins under the id that it had before. The epochs are of one sequence for all, and that is a line of
    /// defence of its own: with it nothing is broken, so it is switched off here.
    ReusedNodeId,
    /// A shard is given away while its calls and commits are under way.
    MoveWithoutDrain,
    /// A guarded transition does not look at the inbox.
    CloseIgnoresInbox,
    /// A takeover frees the shards and leaves the lane.
    TakeOverWithoutEpoch,
    /// Owners change beside the lane. Alone it breaks nothing, because nothing of a shard that is given away is under way:
    /// here that defence is switched off too.
    HandOverDuringCommit,
    /// A call is sent when its transition is folded.
    CallBeforeCommit,
    /// The statements behind a fence that is lost are carried out all the same.
    PipelineGoesOn,
    /// A look that comes while a shard is being given away takes it for the node's own.
    GainWhileGiving,
    /// A claim takes what another node owns.
    ClaimTaken,
    /// A transition's position is not looked at, which is the line of defence behind the fence: alone it breaks nothing, so a
    /// batch of unknown outcome is sent again as well.
    NoOptimisticLock,
    /// An execution that has ended takes events.
    EndedGrows,
}

impl Mutant {
    /// Every mistake, and what it breaks.
    pub(crate) const ALL: [(Self, &'static [Wrong]); 17] = [
        (Self::NoEpochCheck, &[Wrong::OldEpoch]),
        (Self::WeakLock, &[Wrong::OldEpoch]),
        (Self::AckBeforeCommit, &[Wrong::PromiseBeforeCommit]),
        (Self::BlindRetry, &[Wrong::OwnerOutOfStep]),
        (Self::ReadWithoutRaise, &[Wrong::OwnerOutOfStep]),
        (Self::RaiseWithoutCheck, &[Wrong::EndedNodeIsIn]),
        (Self::ReusedNodeId, &[Wrong::OwnerOutOfStep]),
        (Self::MoveWithoutDrain, &[Wrong::TwoCallers]),
        (Self::CloseIgnoresInbox, &[Wrong::InboxOverlooked]),
        (Self::TakeOverWithoutEpoch, &[Wrong::OldEpoch, Wrong::NotTheOwner]),
        (Self::HandOverDuringCommit, &[Wrong::NotTheOwner]),
        (Self::CallBeforeCommit, &[Wrong::CallBeforeCommit]),
        (Self::PipelineGoesOn, &[Wrong::OldEpoch]),
        (Self::GainWhileGiving, &[Wrong::TwoCallers]),
        (Self::ClaimTaken, &[Wrong::NotTheOwner]),
        (Self::NoOptimisticLock, &[Wrong::HistoryForked]),
        (Self::EndedGrows, &[Wrong::EventAfterEnd]),
    ];
}
