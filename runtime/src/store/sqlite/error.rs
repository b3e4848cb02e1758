//! SQLite's result codes, by what they mean to a caller. Message texts are never looked at.
//!
//! Codes: <https://www.sqlite.org/rescode.html>; the primary one is the lower byte.

use libsqlite3_sys as ffi;

use crate::store::{CommitError, StoreError};

/// What is wrong, decided once from the code.
enum Situation {
    /// The disk, or the limit on pages, is used up.
    Full,
    /// The statement or its values cannot be stored, now or later.
    Unstorable,
    /// Somebody else has the lock.
    Locked,
    /// The file is not what SQLite wrote.
    Damaged,
    /// The store was closed.
    Closed,
    /// The disk, the memory or the connection failed.
    Broken,
}

pub(super) fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

fn situation(error: &sqlx::Error) -> Situation {
    match primary_code(error) {
        Some(ffi::SQLITE_FULL) => Situation::Full,
        Some(ffi::SQLITE_CONSTRAINT | ffi::SQLITE_TOOBIG | ffi::SQLITE_MISMATCH) => Situation::Unstorable,
        Some(ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => Situation::Locked,
        Some(ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB) => Situation::Damaged,
        Some(_) => Situation::Broken,
        None => match error {
            sqlx::Error::Encode(_) => Situation::Unstorable,
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::RowNotFound => Situation::Damaged,
            sqlx::Error::PoolClosed => Situation::Closed,
            _ => Situation::Broken,
        },
    }
}

/// The error of a read, or of a write that is not a batch and was rolled back.
pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    match situation(&error) {
        Situation::Full => StoreError::DiskFull(error.to_string()),
        Situation::Damaged => StoreError::Corrupt(error.to_string()),
        Situation::Closed => StoreError::Closed,
        Situation::Unstorable | Situation::Locked | Situation::Broken => StoreError::Unavailable(error.to_string()),
    }
}

/// What stopped a batch before its COMMIT.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("the fence is lost")]
    FenceLost,
    #[error("{0}")]
    Unstorable(String),
}

impl Fault {
    /// The error of a batch of which nothing was applied.
    pub(super) fn before_commit(self, epoch: i64) -> CommitError {
        match self {
            Self::FenceLost => CommitError::FenceLost { expected: epoch },
            Self::Unstorable(reason) => CommitError::Rejected(reason),
            Self::Sql(error) => match situation(&error) {
                Situation::Full => CommitError::DiskFull(error.to_string()),
                Situation::Unstorable => CommitError::Rejected(error.to_string()),
                _ => CommitError::Unavailable(error.to_string()),
            },
        }
    }
}

/// The error of a batch whose COMMIT failed.
///
/// A full disk cuts the log short of the commit's own frame, and a lock is refused before anything is written: nothing
/// was applied. After any other failure the frame may be in the log or not.
pub(super) fn at_commit(error: sqlx::Error) -> CommitError {
    match situation(&error) {
        Situation::Full => CommitError::DiskFull(error.to_string()),
        Situation::Unstorable => CommitError::Rejected(error.to_string()),
        Situation::Locked => CommitError::Unavailable(error.to_string()),
        Situation::Damaged | Situation::Closed | Situation::Broken => CommitError::Unknown(error.to_string()),
    }
}

/// A stored value that this program cannot have written.
pub(super) fn unreadable(column: &'static str, value: impl std::fmt::Display) -> sqlx::Error {
    sqlx::Error::Decode(format!("column {column} holds {value}").into())
}
