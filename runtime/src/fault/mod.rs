//! Places at which a test makes the code do something else. Without the feature `fault-injection` each of them is
//! nothing at all, whatever the call says.
//!
//! - [`whim`]: what may happen at any time and hardly ever does, made frequent.
//! - [`planted`]: a mistake that others have made, put back, so that a test shows that it would have found it.
//! - [`point`]: a place between two steps at which the process ends, stands still, or fails.
//!
//! The first two belong to the thread that armed them: a simulation is one thread, and nothing else in the process notices.
//! Points belong to the process, and its environment arms them.

#[cfg(feature = "fault-injection")]
mod arm;
mod bug;
mod points;
#[cfg(feature = "fault-injection")]
mod strike;
mod whims;

#[cfg(feature = "fault-injection")]
pub use arm::{Armed, arm};
pub use bug::Bug;
pub use points::Point;
#[cfg(feature = "fault-injection")]
pub use strike::{ARMED, CLOCK, LAX, LOG};
pub use whims::Whim;

/// Whether this mistake is to be made here.
#[inline]
pub fn planted(bug: Bug) -> bool {
    #[cfg(feature = "fault-injection")]
    return arm::is_planted(bug);
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = bug;
        false
    }
}

/// What a mistake remembers under this name: some of them are about remembering what should be looked up.
pub fn recall(name: &str) -> Option<String> {
    #[cfg(feature = "fault-injection")]
    return arm::recall(name);
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = name;
        None
    }
}

/// Has it remember this.
pub fn remember(name: &str, what: String) {
    #[cfg(feature = "fault-injection")]
    arm::remember(name, what);
    #[cfg(not(feature = "fault-injection"))]
    let _ = (name, what);
}

/// Heads or tails, for a mistake that leaves something to chance: the same in every run, and another in every replay.
pub fn coin(name: &str) -> bool {
    let tosses = recall(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) + 1;
    remember(name, tosses.to_string());
    tosses.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0
}

/// Whether this is to happen now.
#[inline]
pub fn whim(whim: Whim) -> bool {
    #[cfg(feature = "fault-injection")]
    return arm::strikes(whim);
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = whim;
        false
    }
}

/// A place at which the process may end, or stand still.
#[inline]
pub fn point(point: Point) {
    let _ = fails(point);
}

/// The same, where what is done may also fail: whether it does.
#[inline]
pub fn fails(point: Point) -> bool {
    #[cfg(feature = "fault-injection")]
    return strike::pass(point);
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = point;
        false
    }
}

/// Whether an embedded store spares synchronizations that it needs, so that a test sees what they are for.
#[inline]
pub fn is_lax() -> bool {
    #[cfg(feature = "fault-injection")]
    return std::env::var_os(LAX).is_some();
    #[cfg(not(feature = "fault-injection"))]
    false
}

/// How far the process's clock is ahead of the right time, or behind it.
#[inline]
pub fn clock_ahead_micros() -> i64 {
    #[cfg(feature = "fault-injection")]
    return strike::clock_ahead_micros();
    #[cfg(not(feature = "fault-injection"))]
    0
}

/// Whether this point is waited for: what reaches it seldom may then reach it soon.
#[inline]
pub fn is_armed(point: Point) -> bool {
    #[cfg(feature = "fault-injection")]
    return strike::is_armed(point);
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = point;
        false
    }
}
