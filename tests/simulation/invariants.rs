//! The invariants by their numbers, and where each is checked.

/// One of them.
pub(crate) struct Invariant {
    pub(crate) id: &'static str,
    pub(crate) says: &'static str,
    /// S: the simulation; F: `overdue verify`; X: chaos with real processes; else the specification that does.
    pub(crate) checked: &'static str,
}

const fn of(id: &'static str, says: &'static str, checked: &'static str) -> Invariant {
    Invariant { id, says, checked }
}

/// Those that the specifications of `verify` show to fail, on stores that they damage.
pub(crate) const SHOWN_BY_DAMAGE: [&str; 14] =
    ["I9", "I10", "I14", "I15", "I16", "I17", "I18", "I19", "I20", "I21", "I22", "I26", "I35", "I42"];
/// Those that wrong protocols of the model break.
pub(crate) const SHOWN_BY_MODEL: [&str; 10] = ["I14", "I18", "I19", "I20", "I26", "I27", "I28", "I31", "I32", "I43"];

/// All of them.
pub(crate) const INVARIANTS: [Invariant; 49] = [
    of("I1", "an order is decided once, and what has ended stays ended", "S F X"),
    of("I1b", "the order service and the workflow agree on who won", "S X"),
    of("I2", "stock goes back once if the order is cancelled, never else, and its units add up", "S X"),
    of("I3", "so does the coupon", "S X"),
    of("I4", "captured money pays the order or goes back, exactly one of both", "S X"),
    of("I5", "no refund without a capture, none above it", "S X"),
    of("I6", "when trouble ends, everything comes to its end", "S X"),
    of("I7", "what was acknowledged is in a history", "S X"),
    of("I8", "a refusal is definite, and unknown is said to be unknown", "S X"),
    of("I9", "one id has one run", "S F X"),
    of("I10", "a signal is in a history once", "S F"),
    of("I11", "what was told before another was sent stands before it", "S"),
    of("I12", "a read shows what was acknowledged before it", "S"),
    of("I13", "nothing is in a history that nobody caused", "S"),
    of("I14", "histories only grow, without gaps, each row chained to the one before", "S F"),
    of("I15", "the row is what its history adds up to", "S F"),
    of("I16", "the code asks for what the history says it asked for", "S F"),
    of("I17", "what began has one end at most, and one when all is over", "S F"),
    of("I18", "nothing follows the end", "S F"),
    of("I19", "nothing that has ended has an unread signal for longer than a scan", "S F"),
    of("I20", "a history is written by one owner of its shard after the other", "S F"),
    of("I21", "no timer fires early by the database's clock", "S F"),
    of("I22", "an armed timer is covered by wake_at", "S F"),
    of("I23", "a timer that was refused as early stays armed", "S (I6)"),
    of("I24", "with the wheel off, the scan fires everything", "S"),
    of("I25", "deadlines are met in time where nothing goes wrong", "S"),
    of("I26", "only the owner writes, and only under its epoch", "S"),
    of("I27", "a commit of an old epoch changes nothing", "S"),
    of("I28", "an owner's memory is what is stored, and a row changes step by step", "S"),
    of("I29", "a transition is visible as a whole", "conformance, crash matrix"),
    of("I30", "a write that cannot be stored fails alone", "S"),
    of("I31", "an answer comes after the commit", "S"),
    of("I32", "a call comes after the commit that scheduled it", "S"),
    of("I33", "every shard has a living owner again", "S X"),
    of("I34", "an execution is run once at a time in a node", "engine specifications"),
    of("I35", "pending calls are those that were scheduled and have no end", "S F"),
    of("I36", "a key has one request, and an effect one key", "S X"),
    of("I37", "no step is given up in silence", "S X"),
    of("I38", "an attempt is spent on a call only", "S"),
    of("I39", "the first answer counts", "engine specifications"),
    of("I40", "what may have been held is given back, in the order of the saga", "S X"),
    of("I41", "what is over a limit is refused before it is acknowledged", "HTTP and engine specifications"),
    of("I42", "retention leaves no orphan and removes nothing that is open", "S F"),
    of(
        "I43",
        "what a node gives away has come to rest; one that was drained makes no call and owns nothing",
        "S, nodes specifications",
    ),
    of("I44", "every store gives the same answers", "conformance, random operations"),
    of("I45", "an execution that cannot go on delays no other", "S (I6), engine specifications"),
    of("I46", "secrets are in no log, list or error", "HTTP specifications"),
    of("I47", "a token sees its own workflow types only", "HTTP specifications"),
    of("I48", "what a run emitted comes to every sink, first in its order, and nothing comes that no history has", "S"),
];
