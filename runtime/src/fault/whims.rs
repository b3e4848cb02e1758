//! What may happen at any time and hardly ever does.

/// Something that is allowed at its place at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whim {
    /// A batch is closed after its first write.
    TinyBatch,
    /// A timer in memory is not kept: the scan alone fires it.
    WheelOff,
    /// A word to the node itself that something is due is lost.
    LostWord,
    /// The node raises its own epoch without need.
    RaiseEpoch,
    /// A scan reads a single row.
    ScanOfOne,
    /// A retention walk stops where it is.
    RetentionStops,
    /// The core stands still for good, as one that computes for ever.
    CoreHangs,
    /// Retention takes its time between what it reads and what it writes.
    RetentionDawdles,
}

impl Whim {
    /// Every whim.
    pub const ALL: [Self; 8] = [
        Self::TinyBatch,
        Self::WheelOff,
        Self::LostWord,
        Self::RaiseEpoch,
        Self::ScanOfOne,
        Self::RetentionStops,
        Self::CoreHangs,
        Self::RetentionDawdles,
    ];
}
