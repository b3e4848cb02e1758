//! PostgreSQL's SQLSTATE codes, by what they mean to a caller. Message texts are never looked at.
//!
//! Codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>; the first two characters are the class.

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::layout::Layout;
use crate::store::{CommitError, StoreError};

/// What `overdue.fence` raises.
const FENCE_LOST: &str = "OV001";

/// What is wrong, decided once from the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    /// The disk is used up.
    Full,
    /// The statement or its values cannot be stored, now or later.
    Unstorable,
    /// Another transaction was in the way; the same one may well succeed when it is tried again.
    Contended,
    /// The lane has another epoch.
    FenceLost,
    /// A table or an index is not what PostgreSQL wrote, or a value not what this program did.
    Damaged,
    /// The store was closed.
    Closed,
    /// The server, the disk, the memory or the connection failed.
    Broken,
}

/// The SQLSTATE of an error that the server sent.
pub(super) fn sqlstate(error: &sqlx::Error) -> Option<&str> {
    Some(error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?.code())
}

fn situation(error: &sqlx::Error) -> Situation {
    let Some(code) = sqlstate(error) else {
        return match error {
            sqlx::Error::Encode(_) => Situation::Unstorable,
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::RowNotFound => Situation::Damaged,
            sqlx::Error::PoolClosed => Situation::Closed,
            _ => Situation::Broken,
        };
    };
    match code {
        FENCE_LOST => Situation::FenceLost,
        "53100" => Situation::Full,
        // Serialization failure, deadlock, lock not available. A unique violation is one too: the statements take only
        // what they have just read to be free, so somebody else was faster, and the next reading will show it.
        "40001" | "40P01" | "55P03" | "23505" => Situation::Contended,
        "XX001" | "XX002" => Situation::Damaged,
        _ if ["22", "23", "54"].contains(&class(code)) => Situation::Unstorable,
        _ => Situation::Broken,
    }
}

fn class(code: &str) -> &str {
    code.get(..2).unwrap_or(code)
}

/// The error of a read, or of a write that is not a batch and was rolled back.
pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    match situation(&error) {
        Situation::Full => StoreError::DiskFull(error.to_string()),
        Situation::Damaged => StoreError::Corrupt(error.to_string()),
        Situation::Closed => StoreError::Closed,
        Situation::Unstorable | Situation::Contended | Situation::FenceLost | Situation::Broken => {
            StoreError::Unavailable(error.to_string())
        }
    }
}

/// What stopped a transaction before its COMMIT.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("{0}")]
    Unstorable(String),
    /// The store is not what it must be.
    #[error(transparent)]
    Refused(StoreError),
    /// Somebody else wrote between two statements.
    #[error("{0} changed between two statements of one transaction")]
    Overtaken(&'static str),
}

impl Fault {
    /// Whether the same transaction may succeed when it is tried again at once.
    pub(super) fn is_contention(&self) -> bool {
        match self {
            Self::Sql(error) => situation(error) == Situation::Contended,
            Self::Overtaken(_) => true,
            Self::Unstorable(_) | Self::Refused(_) => false,
        }
    }

    /// Whether the server cannot run a statement as it is.
    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Sql(error) if sqlstate(error) == Some("0A000"))
    }

    /// Whether the server ended the statement for a reason that has nothing to do with the session, so that a ROLLBACK is
    /// all that is needed.
    pub(super) fn leaves_the_session(&self) -> bool {
        match self {
            Self::Sql(error) => is_plain_error(error) && (situation(error) != Situation::Broken || self.is_unsupported()),
            Self::Unstorable(_) | Self::Refused(_) | Self::Overtaken(_) => true,
        }
    }

    fn of_batch(self, epoch: i64) -> CommitError {
        match self {
            Self::Unstorable(reason) => CommitError::Rejected(reason),
            Self::Refused(_) | Self::Overtaken(_) => CommitError::Unavailable(self.to_string()),
            Self::Sql(error) => match situation(&error) {
                Situation::FenceLost => CommitError::FenceLost { expected: epoch },
                Situation::Full => CommitError::DiskFull(error.to_string()),
                Situation::Unstorable => CommitError::Rejected(error.to_string()),
                // Tried again often enough: what is taken stays taken, whatever the batch is tried with.
                Situation::Contended if sqlstate(&error).is_some_and(|code| class(code) == "23") => {
                    CommitError::Rejected(error.to_string())
                }
                _ => CommitError::Unavailable(error.to_string()),
            },
        }
    }

    fn of_small_write(self) -> StoreError {
        match self {
            Self::Sql(error) => store_error(error),
            Self::Refused(error) => error,
            other => StoreError::Unavailable(other.to_string()),
        }
    }
}

/// How a transaction came to nothing, or may have.
#[derive(Debug)]
pub(super) enum Failure {
    /// Before its COMMIT: nothing was applied.
    Before(Fault),
    /// In its COMMIT, which certainly applied nothing.
    Refused(sqlx::Error),
    /// In its COMMIT.
    At(sqlx::Error),
}

impl Failure {
    /// Whether nothing was applied, and the same transaction may succeed when it is tried again at once.
    pub(super) fn is_contention(&self) -> bool {
        match self {
            Self::Before(fault) => fault.is_contention(),
            Self::Refused(error) => situation(error) == Situation::Contended,
            Self::At(_) => false,
        }
    }

    /// The failure of a COMMIT.
    ///
    /// An answer of severity ERROR comes, in the classes that are definite, before the commit record is written: nothing
    /// was applied. After anything else, the end of the session above all, the record may be written or not. Of distributed
    /// tables nothing is certain: a worker may have committed before the coordinator failed.
    pub(super) fn of_commit(error: sqlx::Error, layout: &Layout) -> Self {
        if is_definite(&error) && !layout.is_distributed() { Self::Refused(error) } else { Self::At(error) }
    }

    /// The error of a batch, or of another write under a fence of this epoch.
    pub(super) fn of_batch(self, epoch: i64) -> CommitError {
        match self {
            Self::Before(fault) => fault.of_batch(epoch),
            Self::Refused(error) => Fault::Sql(error).of_batch(epoch),
            Self::At(error) => CommitError::Unknown(error.to_string()),
        }
    }

    /// The error of a write without a fence.
    pub(super) fn of_small_write(self) -> StoreError {
        match self {
            Self::Before(fault) => fault.of_small_write(),
            Self::Refused(error) | Self::At(error) => store_error(error),
        }
    }
}

/// Whether a failed COMMIT certainly applied nothing.
pub(super) fn is_definite(error: &sqlx::Error) -> bool {
    let definite = |code| ["22", "23", "40", "53", "54"].contains(&class(code));
    is_plain_error(error) && sqlstate(error).is_some_and(definite)
}

/// Whether the server sent this with severity ERROR: the transaction has failed, the session goes on.
fn is_plain_error(error: &sqlx::Error) -> bool {
    let sent = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    sent.is_some_and(|error| error.severity() == PgSeverity::Error)
}

/// A server that does not answer, and may be gone without a word.
pub(super) fn silent() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the server does not answer"))
}

/// A stored value that this program cannot have written.
pub(super) fn unreadable(column: &'static str, value: impl std::fmt::Display) -> sqlx::Error {
    sqlx::Error::Decode(format!("column {column} holds {value}").into())
}
