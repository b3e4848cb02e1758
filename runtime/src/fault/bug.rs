//! Mistakes that systems of this sort have made.

/// A mistake that can be put back into the code. Each is made at the place that is named in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A commit is not fenced by the lane's epoch (simulated store).
    NoEpochCheck,
    /// The fence is checked under a lock that a change of the epoch does not wait for (simulated store).
    WeakLock,
    /// Callers are answered before their batch is committed (committer).
    AckBeforeCommit,
    /// A batch of unknown outcome is sent again as it is (committer).
    BlindRetry,
    /// The due scan goes on from where the last one ended (scanner).
    WatermarkTimerScan,
    /// The scan for unread inbox rows goes on from where the last one ended (scanner).
    WatermarkInboxScan,
    /// A lease is dated by the beginning of its transaction (simulated store).
    TransactionTimeInLease,
    /// A due execution that turns out to be early is forgotten (core).
    EarlyTimerDropped,
    /// The number of the attempt is part of the idempotency key (calls).
    AttemptInKey,
    /// Which signals are known is remembered in memory only (core).
    DedupeInMemory,
    /// An execution closes without a look at its inbox (transition).
    CloseIgnoresInbox,
    /// The steps of giving back begin in the order of a hash map (order workflow).
    HashOrder,
    /// Of several things that are ready, a random one is taken first (order workflow).
    RandomSelect,
    /// One write that cannot be stored fails its whole batch (committer).
    PoisonFailsBatch,
    /// A write that cannot be stored is left out and its caller told that all is well (committer).
    PoisonSkipped,
    /// What a new owner finds is read once; if that fails it is not tried again (scanner).
    RecoveryOnce,
    /// A restarted node joins under the id that it had before (incarnation).
    ReusedNodeId,
    /// A node raises its epoch without asking whether the lane is still its own (simulated store).
    RaiseWithoutCheck,
    /// While a call is under way, the execution is due only when its retry would be (wake).
    WakeInFuture,
    /// A workflow is polled once for two events (replay).
    OnePollForTwo,
    /// A shard moves while its calls and commits are under way (core).
    MoveWithoutDrain,
    /// A late payment is refunded without asking the order service (late payment).
    RefundUnasked,
    /// One due scan over all shards, with a limit below what may be held (scanner).
    ScanBelowHeld,
    /// Retention removes the row before its history (retention).
    RowBeforeHistory,
    /// The lease is renewed whether or not the node makes progress (steward).
    HeartbeatAlone,
    /// A commit is made by the future of the request that asked for it (engine).
    CommitInRequest,
    /// A payment for an execution that has ended is answered with not found (client).
    LateSignalNotFound,
    /// A refund's key names the order and not the payment (refunds).
    RefundNotKeyed,
    /// Waiting for a breaker to close costs attempts (attempt).
    BreakerBurnsAttempts,
    /// Reads are served from what the node remembers (client).
    StaleRead,
}

impl Bug {
    /// Every mistake.
    pub const ALL: [Self; 30] = [
        Self::NoEpochCheck,
        Self::WeakLock,
        Self::AckBeforeCommit,
        Self::BlindRetry,
        Self::WatermarkTimerScan,
        Self::WatermarkInboxScan,
        Self::TransactionTimeInLease,
        Self::EarlyTimerDropped,
        Self::AttemptInKey,
        Self::DedupeInMemory,
        Self::CloseIgnoresInbox,
        Self::HashOrder,
        Self::RandomSelect,
        Self::PoisonFailsBatch,
        Self::PoisonSkipped,
        Self::RecoveryOnce,
        Self::ReusedNodeId,
        Self::RaiseWithoutCheck,
        Self::WakeInFuture,
        Self::OnePollForTwo,
        Self::MoveWithoutDrain,
        Self::RefundUnasked,
        Self::ScanBelowHeld,
        Self::RowBeforeHistory,
        Self::HeartbeatAlone,
        Self::CommitInRequest,
        Self::LateSignalNotFound,
        Self::RefundNotKeyed,
        Self::BreakerBurnsAttempts,
        Self::StaleRead,
    ];
}
