//! For tests of workflows and programs: an environment whose time moves only when it is told to.

mod postgres;
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;

#[cfg(test)]
pub(crate) use postgres::as_server_user;
pub use postgres::{Fsync, PostgresCluster};
pub use proxy::{CommitFault, Cut, Proxy, Weather};

use crate::engine::{Clock, Environment, Randomness, Spawner};
use crate::time::Timestamp;

/// A clock that stands still until a test moves it.
#[derive(Clone)]
pub struct ManualClock(Arc<Mutex<Time>>);

struct Time {
    now: Timestamp,
    monotonic: Duration,
    sleepers: BTreeMap<(Duration, u64), Option<Waker>>,
    next_sleeper: u64,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Time { now, monotonic: Duration::ZERO, sleepers: BTreeMap::new(), next_sleeper: 0 })))
    }

    /// Lets `duration` pass: both times move, and whoever slept until then is woken.
    pub fn advance(&self, duration: Duration) {
        let woken: Vec<Waker> = {
            let mut time = self.lock();
            time.now = time.now.saturating_add(duration);
            time.monotonic += duration;
            let until = time.monotonic;
            let due = time.sleepers.range_mut(..=(until, u64::MAX));
            due.filter_map(|(_, waker)| waker.take()).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Lets time pass until it is `instant`, if it is not yet.
    pub fn advance_to(&self, instant: Timestamp) {
        let now = self.lock().now;
        self.advance(instant.since(now));
    }

    /// Sets the time of day, either way, as an operator or NTP would; no time passes.
    pub fn set(&self, now: Timestamp) {
        self.lock().now = now;
    }

    fn lock(&self) -> MutexGuard<'_, Time> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn monotonic(&self) -> Duration {
        self.lock().monotonic
    }

    async fn sleep(&self, duration: Duration) {
        let id = {
            let mut time = self.lock();
            time.next_sleeper += 1;
            (time.monotonic.saturating_add(duration), time.next_sleeper)
        };
        Sleep { clock: self.clone(), id }.await;
    }
}

struct Sleep {
    clock: ManualClock,
    id: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut time = self.clock.lock();
        if time.monotonic >= self.id.0 {
            return Poll::Ready(());
        }
        time.sleepers.insert(self.id, Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&self.id);
    }
}

/// Numbers that follow from a seed (splitmix64, Steele, Lea and Flood 2014).
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Randomness for SeededRandom {
    fn next_u64(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

struct TokioSpawner;

impl Spawner for TokioSpawner {
    #[allow(clippy::disallowed_methods, reason = "this is the tests' door to the tokio runtime")]
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// An environment on a manual clock, with numbers from a seed and tasks on the current tokio runtime.
pub fn manual_environment(now: Timestamp, seed: u64) -> (Environment, ManualClock) {
    let clock = ManualClock::at(now);
    let environment = Environment {
        clock: Arc::new(clock.clone()),
        random: Arc::new(SeededRandom::new(seed)),
        spawner: Arc::new(TokioSpawner),
    };
    (environment, clock)
}

/// Tasks that can be stopped where they are and let go on, as SIGSTOP and SIGCONT do with a process.
#[derive(Clone, Default)]
pub struct FreezingSpawner(Arc<Mutex<Ice>>);

#[derive(Default)]
struct Ice {
    frozen: bool,
    /// How many more steps are taken before everything freezes.
    steps_left: Option<u32>,
    /// Tasks that stand still alone, by the order in which they were begun.
    hanging: BTreeSet<usize>,
    begun: usize,
    waiting: Vec<Waker>,
}

impl FreezingSpawner {
    /// From now on no task goes on.
    pub fn freeze(&self) {
        self.lock().frozen = true;
    }

    /// After this many more steps of its tasks, no task goes on.
    pub fn freeze_after(&self, steps: u32) {
        self.lock().steps_left = Some(steps);
    }

    /// From now on one task stands still, as one that computes for ever; counted from 0 in the order in which they began.
    pub fn hang(&self, task: usize) {
        self.lock().hanging.insert(task);
    }

    /// Every task goes on.
    pub fn thaw(&self) {
        let waiting = {
            let mut ice = self.lock();
            ice.frozen = false;
            ice.steps_left = None;
            ice.hanging.clear();
            std::mem::take(&mut ice.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Ice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spawner for FreezingSpawner {
    fn spawn(&self, mut task: BoxFuture<'static, ()>) {
        let ice = self.clone();
        let number = {
            let mut ice = self.lock();
            ice.begun += 1;
            ice.begun - 1
        };
        TokioSpawner.spawn(Box::pin(std::future::poll_fn(move |cx| {
            let mut held = ice.lock();
            held.frozen |= held.steps_left == Some(0);
            held.steps_left = held.steps_left.map(|left| left.saturating_sub(1));
            if held.frozen || held.hanging.contains(&number) {
                held.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            drop(held);
            task.as_mut().poll(cx)
        })));
    }
}

/// A clock that is wrong by a fixed time.
pub struct WrongClock {
    /// The right one.
    pub right: ManualClock,
    /// What this one is ahead by.
    pub ahead: Duration,
    /// What this one is behind by.
    pub behind: Duration,
}

#[async_trait]
impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        self.right.now().saturating_add(self.ahead).saturating_sub(self.behind)
    }

    fn monotonic(&self) -> Duration {
        self.right.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.right.sleep(duration).await;
    }
}

/// Waits until `condition` gives a value, letting other tasks run.
///
/// # Panics
/// When it gives none within ten seconds of real time; `what` is named then.
#[allow(clippy::disallowed_methods, reason = "the deadline of a test is real time")]
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(std::time::Instant::now() < deadline, "within 10 s: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
