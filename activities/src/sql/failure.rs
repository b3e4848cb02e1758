//! What a database's refusal means: from its codes alone, never from its words.
//!
//! Transient: the connection, a timeout, a deadlock, a server that stops, is full or only reads. It may have taken effect, and
//! asking again is safe. Permanent: the statement or what it meets in the table; asking again gives the same.

use overdue_runtime::activity::ActivityFailure;
use sqlx::Error;
use sqlx::error::DatabaseError;

use super::dialect::Dialect;
use crate::excerpt::excerpt;

/// Who tells of a failure.
#[derive(Clone)]
pub(crate) struct Teller {
    /// Such as `cancel-order`.
    pub(crate) call: &'static str,
    pub(crate) dialect: Dialect,
    /// Not to be told.
    pub(crate) secret: Option<String>,
}

impl Teller {
    /// The failure of a statement.
    pub(crate) fn failed(&self, error: &Error) -> ActivityFailure {
        match error {
            Error::Database(refused) => {
                let code = refused.code().unwrap_or_default().into_owned();
                let told = format!("{} answers {code}: {}", self.dialect.name(), refused.message());
                match is_transient(self.dialect, refused.as_ref()) {
                    true => self.transient("database", &told),
                    false => self.permanent("sql", &format!("{told}. Mend the statement, the table or the rights, then retry")),
                }
            }
            Error::Io(_)
            | Error::Tls(_)
            | Error::Protocol(_)
            | Error::WorkerCrashed
            | Error::PoolTimedOut
            | Error::PoolClosed => self.transient("broken", &format!("the connection broke: {error}")),
            other => self.permanent("sql", &other.to_string()),
        }
    }

    /// No session came about, whatever the reason: nothing was sent. What is refused here (a password, say) is refused to every
    /// order, so the breaker holds them back, and they go on by themselves once it is mended.
    pub(crate) fn not_connected(&self, error: &Error) -> ActivityFailure {
        self.transient("connect", &format!("no connection: {error}"))
    }

    pub(crate) fn transient(&self, error_type: &str, what: &str) -> ActivityFailure {
        ActivityFailure::transient(error_type, self.worded(what))
    }

    pub(crate) fn permanent(&self, error_type: &str, what: &str) -> ActivityFailure {
        ActivityFailure::permanent(error_type, self.worded(what))
    }

    pub(crate) fn worded(&self, what: &str) -> String {
        format!("{} of orders: {}", self.call, excerpt(what.as_bytes(), self.secret.as_deref()))
    }
}

fn is_transient(dialect: Dialect, error: &dyn DatabaseError) -> bool {
    let code = error.code().unwrap_or_default().into_owned();
    match dialect {
        Dialect::Postgres => postgres(&code),
        Dialect::Sqlite => code.parse().is_ok_and(sqlite),
        Dialect::MySql => mysql(number(error), &code),
    }
}

/// SQLSTATEs (PostgreSQL documentation, appendix A): connection, resources, transaction rollback, operator intervention,
/// system and internal errors; and a lock that is not to be had, a server that only reads, a transaction that stood still.
fn postgres(state: &str) -> bool {
    matches!(state.get(..2), Some("08" | "40" | "53" | "57" | "58" | "XX"))
        || matches!(state, "55P03" | "55006" | "25006" | "25P02" | "25P03" | "25P04")
}

/// Primary result codes: BUSY, LOCKED, NOMEM, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL.
fn sqlite(extended: i32) -> bool {
    matches!(extended & 0xff, 5 | 6 | 7 | 9 | 10 | 13 | 14 | 15)
}

/// By number where the server has one for it, since it calls most of these `HY000`.
fn mysql(number: u16, state: &str) -> bool {
    let known = matches!(
        number,
        1021 | 1037
            | 1038
            | 1040
            | 1041
            | 1053
            | 1114
            | 1203
            | 1205
            | 1213
            | 1226
            | 1290
            | 1317
            | 1792
            | 1836
            | 1927
            | 1969
            | 3024
    );
    known || matches!(state.get(..2), Some("08" | "40"))
}

#[cfg(feature = "mysql")]
fn number(error: &dyn DatabaseError) -> u16 {
    error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map_or(0, |error| error.number())
}

#[cfg(not(feature = "mysql"))]
fn number(_: &dyn DatabaseError) -> u16 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_transient_and_what_stays_is_permanent() {
        for state in ["08006", "40001", "40P01", "53300", "57014", "57P01", "58030", "55P03", "25006"] {
            assert!(postgres(state), "{state}");
        }
        for state in ["42601", "42501", "42P01", "42703", "23505", "23514", "22P02", "22003", ""] {
            assert!(!postgres(state), "{state}");
        }
        for (code, transient) in
            [(5, true), (261, true), (6, true), (10, true), (13, true), (1, false), (19, false), (787, false), (8, false)]
        {
            assert_eq!(sqlite(code), transient, "{code}");
        }
        for (number, state, transient) in [
            (1213, "40001", true),
            (1205, "HY000", true),
            (1040, "08004", true),
            (1927, "70100", true),
            (1290, "HY000", true),
            (1064, "42000", false),
            (1142, "42000", false),
            (1062, "23000", false),
            (1366, "HY000", false),
        ] {
            assert_eq!(mysql(number, state), transient, "{number}");
        }
    }
}
