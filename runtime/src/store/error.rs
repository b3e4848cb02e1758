//! What can go wrong at a store, by what the engine has to do about it.

/// Why a read, or a write outside the commit path, failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database did not answer or refused to; trying later may help.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The disk is full.
    #[error("the store's disk is full: {0}")]
    DiskFull(String),
    /// What is stored is not what this program wrote.
    #[error("the store holds unexpected data: {0}")]
    Corrupt(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The store cannot be opened as asked; the message says what to do.
    #[error("{0}")]
    Refused(String),
}

/// Why a batch was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Another writer holds the lane: this one must drop what it knows and never write again. Nothing was applied.
    #[error("the fence is lost: epoch {expected} is no longer the lane's")]
    FenceLost {
        /// The epoch that this writer had.
        expected: i64,
    },
    /// Some write of the batch cannot be stored whatever the state of the database (a poison). Nothing was applied.
    #[error("a write was rejected: {0}")]
    Rejected(String),
    /// The disk is full. Nothing was applied.
    #[error("the store's disk is full: {0}")]
    DiskFull(String),
    /// The database could not take the batch now. Nothing was applied.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The connection broke during the commit: all of the batch was applied, or nothing.
    #[error("the outcome of the commit is unknown: {0}")]
    Unknown(String),
}
