//! Processes, and what can happen to them.

/// A process; number 0 is the world around all of them, which nothing kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub(super) usize);

impl Process {
    /// The world.
    pub const WORLD: Self = Self(0);
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// It ends as by SIGKILL: its tasks are dropped where they stand.
    Kill,
    /// It stands still as by SIGSTOP, until it is thawed.
    Freeze,
}
