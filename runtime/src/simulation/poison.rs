//! A write that no database takes: as a NUL in a text is to some, and nothing that the engine could see beforehand.

use crate::store::Write;

/// A write whose bytes of history or payload hold this cannot be stored while the database is so minded.
pub const POISON: &str = "a-poison-that-no-database-takes";

pub(super) fn is_poison(write: &Write) -> bool {
    let holds = |bytes: &[u8]| bytes.windows(POISON.len()).any(|window| window == POISON.as_bytes());
    match write {
        Write::Start(new) => holds(&new.record.bytes),
        Write::Advance(advance) => advance.record.as_ref().is_some_and(|record| holds(&record.bytes)),
        Write::Deposit(deposit) => holds(deposit.row.payload.as_str().as_bytes()),
        Write::Refuse(_) | Write::Retire(_) | Write::Forget(_) | Write::Dispatch(_) => false,
    }
}
