//! The commit points: every place between two steps at which a process may end and its successor must find its way.
//!
//! [`Point::ALL`] is the inventory. A test kills a process of its own at each of them, on each store that has it.

macro_rules! points {
    ($($(#[$doc:meta])+ $point:ident = $name:literal,)+) => {
        /// A place at which a process may end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Point {
            $($(#[$doc])+ $point,)+
        }

        impl Point {
            /// Every point.
            pub const ALL: &[Self] = &[$(Self::$point),+];

            /// As environment variables and logs name it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$point => $name),+ }
            }
        }
    };
}

points! {
    /// A batch has a transaction, and the fence is not looked at.
    FenceUnchecked = "fence-unchecked",
    /// The fence holds, and nothing is written.
    FenceChecked = "fence-checked",
    /// History rows are written in the transaction.
    HistoryWritten = "history-written",
    /// Execution rows are written in the transaction.
    ExecutionsWritten = "executions-written",
    /// Inbox rows came or went in the transaction.
    InboxWritten = "inbox-written",
    /// All of a batch is written, and its COMMIT is not sent.
    CommitUnsent = "commit-unsent",
    /// A batch's COMMIT is sent, and nobody has read the reply. It can be made to look like a connection that broke here.
    CommitUnanswered = "commit-unanswered",
    /// The store has said what became of a batch, and nobody was told.
    OutcomesUnapplied = "outcomes-unapplied",
    /// What was asked for is done, and who asked is not told.
    CallerUnanswered = "caller-unanswered",
    /// A 2xx is written to the caller's socket.
    AnswerWritten = "answer-written",
    /// An attempt is due and its request is not sent.
    RequestUnsent = "request-unsent",
    /// An attempt's request was sent, and its answer has come.
    RequestSent = "request-sent",
    /// An attempt has ended, and the core does not know.
    ResultUntold = "result-untold",
    /// What an attempt came to is in a transition that is not committed.
    ResultUncommitted = "result-uncommitted",
    /// Shards are this node's, and nothing of them is read.
    ShardsUnread = "shards-unread",
    /// Executions were read, and the core does not have them.
    ExecutionsUnfolded = "executions-unfolded",
    /// The own epoch is about to be raised.
    EpochUnraised = "epoch-unraised",
    /// The own epoch is raised in the transaction.
    EpochRaised = "epoch-raised",
    /// A commit has no known outcome, and nothing is done about it.
    OutcomeUnknown = "outcome-unknown",
    /// What became of a commit without an answer is known here, and nobody was told.
    OutcomeSettled = "outcome-settled",
    /// The core has given a shard up, and the store does not know.
    HandOverUnsent = "hand-over-unsent",
    /// A shard is its heir's in the transaction.
    HandOverUncommitted = "hand-over-uncommitted",
    /// A scan was read and is not acted upon.
    ScanUnused = "scan-unused",
    /// A timer has come, and no transition of it was made.
    TimerUnused = "timer-unused",
    /// A signal is stored for later, and nobody has an eye on it.
    DepositUntold = "deposit-untold",
    /// A signal goes to the late handler, and that is not committed.
    LateSignalUncommitted = "late-signal-uncommitted",
    /// A batch was rejected, and is about to be halved.
    BatchUnhalved = "batch-unhalved",
    /// A transition was rejected, and the minimal one in its place is not committed.
    BlockUncommitted = "block-uncommitted",
    /// An execution's history is gone in the transaction, and its row is whole.
    RetireHalfDone = "retire-half-done",
    /// An execution's row is gone in the transaction.
    ForgetUncommitted = "forget-uncommitted",
    /// A start that was asked for in the database is made in the transaction, and the request gone.
    RequestedStartUncommitted = "requested-start-uncommitted",
    /// The write-ahead log is about to be copied back and cut.
    LogUncut = "log-uncut",
    /// The write-ahead log was copied back and cut.
    LogCut = "log-cut",
    /// Of several migrations, one more is applied.
    MigrationApplied = "migration-applied",
    /// A node was asked to end, and has not begun to.
    DrainAsked = "drain-asked",
    /// Of a node that is to end, nothing is under way any more.
    DrainAtRest = "drain-at-rest",
    /// A node that is to end has committed all, and its shards are still its own.
    DrainCommitted = "drain-committed",
    /// A node that is to end has given its shards back.
    DrainLeft = "drain-left",
    /// A node that is to end has closed its store.
    DrainClosed = "drain-closed",
    /// A dead node's lane and shards are gone in the transaction, and the node is still there.
    TakeOverHalfDone = "take-over-half-done",
}
