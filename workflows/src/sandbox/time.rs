//! Times in ledgers: RFC 3339 in UTC, always with six digits, so that their order as text is their order in time.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serializer;

/// What a shop goes by: the system's clock, or a simulation's.
pub(super) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Now, as exactly as a ledger keeps it: what is replayed equals what was live.
pub(super) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// For serde's `serialize_with`.
pub(crate) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}
