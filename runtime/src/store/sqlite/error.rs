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

/// Whether a failed COMMIT certainly applied nothing.
pub(super) fn is_definite(error: &sqlx::Error) -> bool {
    matches!(situation(error), Situation::Full | Situation::Unstorable | Situation::Locked)
}

/// A stored value that this program cannot have written.
pub(super) fn unreadable(column: &'static str, value: impl std::fmt::Display) -> sqlx::Error {
    sqlx::Error::Decode(format!("column {column} holds {value}").into())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::error::Error;
    use std::fmt;

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    /// An error of SQLite as far as this module looks at it.
    #[derive(Debug)]
    struct Code(i32);

    impl fmt::Display for Code {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the disk is full, the database is locked and corrupt")
        }
    }

    impl Error for Code {}

    impl DatabaseError for Code {
        fn message(&self) -> &str {
            "the disk is full, the database is locked and corrupt"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.to_string().into())
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    fn error(code: i32) -> sqlx::Error {
        sqlx::Error::Database(Box::new(Code(code)))
    }

    #[test]
    fn a_failed_commit_is_definite_only_where_nothing_can_have_reached_the_log() {
        for (code, expected) in [
            (ffi::SQLITE_FULL, "full"),
            (ffi::SQLITE_BUSY, "unavailable"),
            (ffi::SQLITE_BUSY_SNAPSHOT, "unavailable"),
            (ffi::SQLITE_CONSTRAINT_UNIQUE, "rejected"),
            (ffi::SQLITE_IOERR, "unknown"),
            (ffi::SQLITE_IOERR_FSYNC, "unknown"),
            (ffi::SQLITE_IOERR_SHMSIZE, "unknown"),
            (ffi::SQLITE_CORRUPT, "unknown"),
            (ffi::SQLITE_NOMEM, "unknown"),
            (ffi::SQLITE_READONLY, "unknown"),
        ] {
            assert_eq!(name(&at_commit(error(code))), expected, "code {code}");
        }
        assert_eq!(name(&at_commit(sqlx::Error::WorkerCrashed)), "unknown");
    }

    #[test]
    fn before_the_commit_every_failure_is_definite() {
        for (code, expected) in [
            (ffi::SQLITE_FULL, "full"),
            (ffi::SQLITE_BUSY, "unavailable"),
            (ffi::SQLITE_LOCKED, "unavailable"),
            (ffi::SQLITE_CONSTRAINT_CHECK, "rejected"),
            (ffi::SQLITE_CONSTRAINT_PRIMARYKEY, "rejected"),
            (ffi::SQLITE_CONSTRAINT_DATATYPE, "rejected"),
            (ffi::SQLITE_TOOBIG, "rejected"),
            (ffi::SQLITE_MISMATCH, "rejected"),
            (ffi::SQLITE_IOERR_READ, "unavailable"),
            (ffi::SQLITE_CORRUPT, "unavailable"),
            (ffi::SQLITE_NOTADB, "unavailable"),
            (ffi::SQLITE_ERROR, "unavailable"),
        ] {
            assert_eq!(name(&Fault::Sql(error(code)).before_commit(7)), expected, "code {code}");
        }
        assert_eq!(name(&Fault::Sql(sqlx::Error::WorkerCrashed).before_commit(7)), "unavailable");
        assert_eq!(name(&Fault::Unstorable("rev".into()).before_commit(7)), "rejected");
        assert!(matches!(Fault::FenceLost.before_commit(7), CommitError::FenceLost { expected: 7 }));
    }

    #[test]
    fn a_failed_read_tells_damage_from_a_store_that_is_away() {
        assert!(matches!(store_error(error(ffi::SQLITE_CORRUPT)), StoreError::Corrupt(_)));
        assert!(matches!(store_error(unreadable("rev", -1)), StoreError::Corrupt(_)));
        assert!(matches!(store_error(error(ffi::SQLITE_BUSY)), StoreError::Unavailable(_)));
        assert!(matches!(store_error(error(ffi::SQLITE_IOERR)), StoreError::Unavailable(_)));
        assert!(matches!(store_error(sqlx::Error::PoolTimedOut), StoreError::Unavailable(_)));
        assert!(matches!(store_error(sqlx::Error::PoolClosed), StoreError::Closed));
        assert!(matches!(store_error(error(ffi::SQLITE_FULL)), StoreError::DiskFull(_)));
    }

    fn name(error: &CommitError) -> &'static str {
        match error {
            CommitError::FenceLost { .. } => "fence lost",
            CommitError::Rejected(_) => "rejected",
            CommitError::DiskFull(_) => "full",
            CommitError::Unavailable(_) => "unavailable",
            CommitError::Unknown(_) => "unknown",
        }
    }
}
