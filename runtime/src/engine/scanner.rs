//! The second insurance: finds in the store, again and again, whatever is due and whatever is unread.
//!
//! It keeps no position between scans. Timers in memory only make it unnecessary to wait for the next scan.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::core::{Message, Scan};
use super::environment::Clock;
use super::node::Incoming;
use crate::fault::{Bug, Point, Whim, planted, point, recall, remember, whim};
use crate::id::WorkflowKey;
use crate::store::{Due, Store, StoreError};
use crate::time::Timestamp;

/// The most executions with unread inbox rows that one scan takes up.
const UNREAD_MAX: usize = 1_000;
/// The most blocked executions that are tried at once; the others wait for their own time.
const BLOCKED_MAX: usize = 1_000;
/// The most unclaimed signals that one scan takes up.
const UNCLAIMED_MAX: usize = 100;
/// The most requested starts that one scan takes up. When there are as many, the next scan follows soon.
const REQUESTED_MAX: usize = 2_000;
/// Then it follows after one part in so many of the period.
const FULL_SHARE: u32 = 10;
/// Those of types that the program does not know stay where they are; so many of them are looked past.
const UNKNOWN_MAX: usize = 10_000;
/// Unclaimed signals are looked for in every so many scans: they wait a day anyway.
const SCANS_PER_UNCLAIMED: u32 = 10;
/// The most upcoming pairs that are read for one shard; what is later is read by a later scan.
const UPCOMING_PER_SHARD_MAX: usize = 1_000;
/// How many scan periods the near horizon reaches ahead. What is started by another node and due within it is shown to the
/// owner by that node.
pub(super) const HORIZON_PERIODS: u32 = 3;
/// Scanning takes at most one part in so many of the time, as long as that leaves no gap that memory does not reach over.
const SCAN_SHARE: u32 = 20;
/// So many periods after a scan the next one begins, however long that one took: what becomes due beyond the horizon, or is
/// left in the store by others, is known to nobody before.
const PAUSE_PERIODS_MAX: u32 = HORIZON_PERIODS - 1;

pub(crate) struct Scanner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The shards to look at, as they change.
    pub(crate) owned: watch::Receiver<Arc<[u16]>>,
    pub(crate) period: Duration,
    /// Whether pairs of the near horizon are read ahead.
    pub(crate) timers: bool,
    /// The workflow types whose starts may be asked for inside the store.
    pub(crate) types: Vec<String>,
    /// How long a signal waits for its execution to be started.
    pub(crate) buffer: Duration,
    /// How many unclaimed signals of types that the program does not know the last look met.
    pub(crate) unknown: usize,
    /// How many due executions of one shard to ask for; kept by the core.
    pub(crate) limit: Arc<AtomicUsize>,
    pub(crate) core: mpsc::UnboundedSender<Incoming>,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Scanner {
    /// Scans until told to stop.
    pub(crate) async fn run(mut self) {
        for round in 0u32.. {
            if *self.stop.borrow() {
                return;
            }
            let began = self.clock.monotonic();
            let mut more_waits = false;
            match self.scan(round).await {
                Ok(scan) => {
                    more_waits = scan.requested.len() >= REQUESTED_MAX;
                    point(Point::ScanUnused);
                    if self.core.send(Incoming::Message(Message::Scanned(scan))).is_err() {
                        return;
                    }
                }
                Err(StoreError::Closed) => return,
                Err(error) => tracing::error!(error = %error, "scan failed; the next one follows"),
            }
            let pause = pause(self.period, self.clock.monotonic().saturating_sub(began), more_waits);
            let clock = Arc::clone(&self.clock);
            tokio::select! {
                biased;
                _ = self.stop.changed() => return,
                _ = self.owned.changed() => {}
                () = clock.sleep(pause) => {}
            }
        }
    }

    async fn scan(&mut self, round: u32) -> Result<Scan, StoreError> {
        let now = self.clock.now();
        let shards = Arc::clone(&self.owned.borrow_and_update());
        if shards.is_empty() {
            return Ok(Scan { horizon: now, ..Scan::default() });
        }
        let limit = if whim(Whim::ScanOfOne) { 1 } else { self.limit.load(Ordering::Relaxed) };
        let overdue = self.overdue(&shards, now, limit).await?;
        let mut scan = Scan { overdue, horizon: now, ..Scan::default() };
        if self.timers {
            scan.horizon = now.saturating_add(self.period * HORIZON_PERIODS);
            scan.upcoming = self.store.upcoming(&shards, now, scan.horizon, UPCOMING_PER_SHARD_MAX).await?;
        }
        scan.unread = self.store.unread(&shards, UNREAD_MAX).await?;
        if planted(Bug::WatermarkInboxScan) {
            let last = recall("inbox scan").unwrap_or_default();
            scan.unread.retain(|key| *key.to_string() > *last);
            if let Some(last) = scan.unread.iter().map(ToString::to_string).max() {
                remember("inbox scan", last);
            }
        }
        if round.is_multiple_of(SCANS_PER_UNCLAIMED) {
            let before = now.saturating_sub(self.buffer);
            let limit = UNCLAIMED_MAX + self.unknown.min(UNKNOWN_MAX);
            scan.unclaimed = self.store.unclaimed(&shards, before, limit).await?;
            let read = scan.unclaimed.len();
            scan.unclaimed.retain(|row| self.types.iter().any(|known| known == row.key.workflow_type()));
            self.unknown = read - scan.unclaimed.len();
        }
        scan.requested = self.store.requested_starts(&shards, &self.types, REQUESTED_MAX).await?;
        Ok(scan)
    }
}

impl Scanner {
    /// What is due now, from the beginning: no scan relies on an earlier one.
    async fn overdue(&self, shards: &[u16], now: Timestamp, limit: usize) -> Result<Vec<Due>, StoreError> {
        let micros = |name: &str| recall(name).and_then(|text| text.parse().ok()).map(Timestamp::from_micros);
        if planted(Bug::WatermarkTimerScan) {
            let name = format!("due scan of {shards:?}");
            let last = micros(&name).unwrap_or_default();
            remember(&name, now.as_micros().to_string());
            return self.store.upcoming(shards, last, now, limit).await;
        }
        if planted(Bug::RecoveryOnce) {
            let name = format!("recovery of {shards:?}");
            let is_done = recall(&name).is_some();
            remember(&name, "done".into());
            return if is_done { Ok(Vec::new()) } else { self.store.due(shards, now, limit).await };
        }
        let mut due = self.store.due(shards, now, limit).await?;
        if planted(Bug::ScanBelowHeld) {
            due.sort_by_key(|due| due.wake_at);
            due.truncate(1);
        }
        Ok(due)
    }
}

/// The executions of these shards that are blocked, so that another build, or another node, tries them at once.
pub(crate) async fn blocked_executions(store: &dyn Store, shards: &[u16]) -> Result<Vec<WorkflowKey>, StoreError> {
    let number = store.facts().shards;
    let filter = crate::store::Filter { status: Some(crate::store::Status::Blocked), ..Default::default() };
    let page = store.list(&filter, None, BLOCKED_MAX).await?;
    let keys = page.rows.into_iter().map(|listed| listed.execution.key);
    Ok(keys.filter(|key| shards.contains(&key.shard(number))).collect())
}

/// How long after a scan that took so long the next one begins.
fn pause(period: Duration, took: Duration, more_waits: bool) -> Duration {
    let wanted = if more_waits { period / FULL_SHARE } else { period };
    wanted.max(took.saturating_mul(SCAN_SHARE - 1)).min(period * PAUSE_PERIODS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_take_a_small_part_of_the_time_and_one_that_stood_still_holds_no_timer_up_for_longer_than_memory_reaches() {
        let (period, millis) = (Duration::from_secs(1), Duration::from_millis);
        assert_eq!(pause(period, millis(10), false), period);
        assert_eq!(pause(period, millis(10), true), millis(190));
        assert_eq!(pause(period, millis(1), true), millis(100));
        assert_eq!(pause(period, millis(80), false), millis(1_520));
        // The process was stopped in the middle of it, or the database was.
        for took in [1, 45, 3_600].map(Duration::from_secs) {
            assert!(pause(period, took, false) < period * HORIZON_PERIODS, "{took:?}");
        }
    }
}
