//! Places at which a test makes the code do something else. Without the feature `fault-injection` each of them is
//! nothing at all, whatever the call says.
//!
//! - [`whim`]: what may happen at any time and hardly ever does, made frequent.
//! - [`planted`]: a mistake that others have made, put back, so that a test shows that it would have found it.
//!
//! Both belong to the thread that armed them: a simulation is one thread, and nothing else in the process notices.

#[cfg(feature = "fault-injection")]
mod arm;
mod bug;
mod whims;

#[cfg(feature = "fault-injection")]
pub use arm::{Armed, arm};
pub use bug::Bug;
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
