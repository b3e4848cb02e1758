//! The clock of a node: time moves only when a test says so, and only while the node's scanner sleeps. A scan that is
//! under way has read the time already; a jump would leave what came due to the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use overdue_runtime::Timestamp;
use overdue_runtime::engine::{Clock, Environment};
use overdue_runtime::testing::{ManualClock, eventually};

/// The time between two scans; nothing else sleeps for as long, so that a sleep of this length is the scanner's.
pub(crate) const SCAN: Duration = Duration::from_millis(997);

/// What one engine is given.
#[derive(Clone)]
pub(crate) struct NodeClock {
    pub(crate) time: ManualClock,
    sleeping_scanners: Arc<AtomicUsize>,
}

impl NodeClock {
    pub(crate) fn new(time: &ManualClock) -> Self {
        Self { time: time.clone(), sleeping_scanners: Arc::default() }
    }

    /// The environment with this clock instead of its own.
    pub(crate) fn within(&self, environment: &Environment) -> Environment {
        Environment { clock: Arc::new(self.clone()), ..environment.clone() }
    }

    /// Waits until no scan is under way.
    pub(crate) async fn quiet(&self) {
        let asleep = || async { (self.sleeping_scanners.load(Ordering::Relaxed) > 0).then_some(()) };
        eventually("the scanner sleeps", asleep).await;
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
        let _asleep = (duration == SCAN).then(|| Asleep::new(&self.sleeping_scanners));
        self.time.sleep(duration).await;
    }
}
