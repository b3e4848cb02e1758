//! The engine's notes on an open execution: where each pending activity stands between its events.
//!
//! They are stored as one bounded blob in the execution's row, together with `wake_at`. A pending activity without a
//! note is in its first attempt: it was scheduled, so the call may have been made.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::history::Failure;
use crate::time::Timestamp;

/// The notes of one execution.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub(crate) struct Notes {
    /// By number of the activity.
    #[n(0)]
    pub(crate) activities: BTreeMap<u64, AttemptNote>,
    /// Why the execution is blocked, if it is.
    #[n(1)]
    pub(crate) blocked: Option<BlockedNote>,
}

/// Where an activity stands.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub(crate) struct AttemptNote {
    /// Attempts spent, the one under way included.
    #[n(0)]
    pub(crate) attempts: u32,
    /// Requests sent by attempts that ended.
    #[n(1)]
    pub(crate) sends: u32,
    /// When the next attempt is due; `None` while one is under way.
    #[n(2)]
    pub(crate) next_at: Option<Timestamp>,
    /// What holds it back, while it is parked.
    #[n(3)]
    pub(crate) parked_by: Option<String>,
    /// How long it was parked in all, in microseconds.
    #[n(4)]
    pub(crate) parked_micros: u64,
    /// From when on the policy counts time: when it was scheduled, or retried by a person.
    #[n(5)]
    pub(crate) first_at: Option<Timestamp>,
    /// How the last attempt failed.
    #[n(6)]
    pub(crate) last_failure: Option<Failure>,
    /// How many attempts in a row were cut off by the end of the node.
    #[n(7)]
    pub(crate) recoveries: u32,
    /// Attempts spent before a person had it tried again: the policy counts anew from there.
    #[n(8)]
    pub(crate) before_retry: u32,
    /// The gate that lets it go, perhaps before `next_at`.
    #[n(9)]
    pub(crate) gate: Option<String>,
    /// When the last attempt that was spent ended.
    #[n(10)]
    pub(crate) tried_at: Option<Timestamp>,
}

impl AttemptNote {
    /// The note that an activity without one stands for: its first attempt is under way.
    pub(crate) fn first(since: Timestamp) -> Self {
        Self { attempts: 1, first_at: Some(since), ..Self::default() }
    }

    /// Begins the next attempt. What it was parked for is the time until now, when it was let go early.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        let early = self.next_at.take().map_or(Duration::ZERO, |due| due.since(now));
        self.parked_micros = self.parked_micros.saturating_sub(u64::try_from(early.as_micros()).unwrap_or(u64::MAX));
        self.parked_by = None;
        self.gate = None;
        self.attempts = self.attempts.saturating_add(1);
    }

    /// How long the activity has been tried, without the time for which it was parked.
    pub(crate) fn tried_for(&self, now: Timestamp) -> Duration {
        let since_first = self.first_at.map_or(Duration::ZERO, |first| now.since(first));
        since_first.saturating_sub(Duration::from_micros(self.parked_micros))
    }

    /// Attempts that the policy counts.
    pub(crate) fn counted(&self) -> u32 {
        self.attempts.saturating_sub(self.before_retry)
    }

    /// Whether an attempt is under way, as far as this note knows.
    pub(crate) fn is_under_way(&self) -> bool {
        self.next_at.is_none()
    }
}

/// Why an execution cannot be replayed, and when it is tried again.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct BlockedNote {
    /// The fault, with a constant word for its kind.
    #[n(0)]
    pub(crate) failure: Failure,
    /// Since when.
    #[n(1)]
    pub(crate) since: Timestamp,
    /// How often it was tried since.
    #[n(2)]
    pub(crate) tries: u32,
    /// When it is tried again.
    #[n(3)]
    pub(crate) next_at: Timestamp,
}

impl Notes {
    /// The stored form; empty for notes that say nothing.
    pub(crate) fn encode(&self) -> Bytes {
        if *self == Self::default() {
            return Bytes::new();
        }
        minicbor::to_vec(self).expect("writing to memory cannot fail").into()
    }

    /// Reads the stored form.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, minicbor::decode::Error> {
        if bytes.is_empty() { Ok(Self::default()) } else { minicbor::decode(bytes) }
    }
}
