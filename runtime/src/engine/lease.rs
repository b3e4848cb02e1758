//! What a node knows of its own lease and of its progress. Both only narrow windows: what protects the data is the fence.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shared by those who renew the lease, who rely on it, and who show progress. Times are by the monotonic clock.
pub(super) struct Lease {
    length: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Counted from when the renewal was sent. `None`: nobody else could take over.
    until: Option<Duration>,
    last_beat: Duration,
    commit_since: Option<Duration>,
}

impl Lease {
    pub(super) fn new(length: Duration, now: Duration) -> Self {
        Self { length, inner: Mutex::new(Inner { last_beat: now, ..Inner::default() }) }
    }

    pub(super) fn length(&self) -> Duration {
        self.length
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A renewal that was sent at `sent` was granted.
    pub(super) fn renewed(&self, sent: Duration) {
        self.inner().until = Some(sent.saturating_add(self.length));
    }

    /// Whether nobody can have taken the node's shards, as far as its own clock can tell.
    pub(super) fn is_valid(&self, now: Duration) -> bool {
        self.inner().until.is_none_or(|until| now < until)
    }

    /// The core took its messages in.
    pub(super) fn beat(&self, now: Duration) {
        self.inner().last_beat = now;
    }

    /// A write to the store begins. Until one has come to something, time counts from the first.
    pub(super) fn committing(&self, now: Duration) {
        self.inner().commit_since.get_or_insert(now);
    }

    /// The store took a write, or said why it never will.
    pub(super) fn committed(&self) {
        self.inner().commit_since = None;
    }

    /// Whether the last write came to nothing.
    pub(super) fn is_committing(&self) -> bool {
        self.inner().commit_since.is_some()
    }

    /// Whether the node gets on with its work. One that does not must not keep its lease.
    pub(super) fn makes_progress(&self, now: Duration) -> bool {
        let inner = self.inner();
        let core_late = now.saturating_sub(inner.last_beat) > self.length;
        let commit_late = inner.commit_since.is_some_and(|since| now.saturating_sub(since) > self.length * 2);
        !core_late && !commit_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_counts_from_when_its_renewal_was_sent() {
        let lease = Lease::new(seconds(10), seconds(0));
        lease.renewed(seconds(5));
        assert!(lease.is_valid(seconds(14)) && !lease.is_valid(seconds(15)));
        lease.renewed(seconds(20));
        assert!(lease.is_valid(seconds(29)));
    }

    #[test]
    fn a_core_that_hangs_and_a_commit_that_hangs_are_no_progress() {
        let lease = Lease::new(seconds(10), seconds(0));
        assert!(lease.makes_progress(seconds(10)) && !lease.makes_progress(seconds(11)));
        lease.beat(seconds(30));
        lease.committing(seconds(10));
        lease.committing(seconds(25));
        assert!(lease.makes_progress(seconds(30)) && !lease.makes_progress(seconds(31)));
        lease.committed();
        assert!(lease.makes_progress(seconds(31)));
    }
}
