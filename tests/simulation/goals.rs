//! What has to happen now and then in a set of seeds; a set that misses one of them has shown less than it says.

/// Every goal. A shard lost in a batch is none: since a shard that is given away comes back only once the store has taken that
/// in, no owner meets it. Conformance shows what a store answers then.
pub(crate) const GOALS: [&str; 27] = [
    "commit of a zombie refused",
    "unknown outcome, had committed",
    "unknown outcome, had not committed",
    "commit landed after its client gave it up",
    "session of a frozen node ended",
    "payment at the deadline won",
    "payment at the deadline lost",
    "signal after the end or the decision",
    "signal stored for later",
    "late payment refunded",
    "order paid twice",
    "start repeated",
    "signal repeated",
    "poison in a batch",
    "deadline refused for an unread signal",
    "node taken over",
    "node taken over with a call under way",
    "timer fired by the scan, not by the wheel",
    "breaker opened",
    "breaker recovered",
    "database restarted in mid-commit",
    "evicted workflow replayed",
    "node drained",
    "shards handed over",
    "retention interrupted",
    "clock set back",
    "close-payment answered that it was already paid",
];
