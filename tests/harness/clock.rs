//! The clock of a node: time moves only when a test says so, and only while the node's scanner and its couriers sleep. A scan
//! that is under way has read the time already; a jump would leave what came due to the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use overdue_runtime::Timestamp;
use overdue_runtime::engine::{Clock, Environment};
use overdue_runtime::testing::{ManualClock, eventually};

/// The time between two scans; nothing but the scanner and the couriers sleeps for as long, so that they are known by it.
pub(crate) const SCAN: Duration = Duration::from_millis(997);
/// How many of these the scanner sleeps after a scan that took long.
const SCANS_MAX: u32 = 2;

/// What one engine is given.
#[derive(Clone)]
pub(crate) struct NodeClock {
    pub(crate) time: ManualClock,
    asleep: Arc<AtomicUsize>,
    /// How many there are, the scanner included.
    sleepers: Arc<AtomicUsize>,
}

impl NodeClock {
    pub(crate) fn new(time: &ManualClock) -> Self {
        Self { time: time.clone(), asleep: Arc::default(), sleepers: Arc::new(AtomicUsize::new(1)) }
    }

    /// The environment with this clock instead of its own.
    pub(crate) fn within(&self, environment: &Environment) -> Environment {
        Environment { clock: Arc::new(self.clone()), ..environment.clone() }
    }

    /// So many couriers look into the store beside the scanner.
    pub(crate) fn expect_couriers(&self, couriers: usize) {
        self.sleepers.store(1 + couriers, Ordering::Relaxed);
    }

    /// Waits until nobody looks into the store.
    pub(crate) async fn quiet(&self) {
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        let asleep = || async { (self.asleep.load(Ordering::Relaxed) >= sleepers).then_some(()) };
        eventually("the scanner and the couriers sleep", asleep).await;
    }
}

struct Asleep<'a>(&'a AtomicUsize);

impl<'a> Asleep<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    fn monotonic(&self) -> Duration {
        self.time.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        let is_known = (1..=SCANS_MAX).any(|scans| duration == SCAN * scans);
        let _asleep = is_known.then(|| Asleep::new(&self.asleep));
        self.time.sleep(duration).await;
    }
}
