//! The engine's doors to the world besides the store and the activities: time, randomness, tasks.
//!
//! Nothing else in `engine` and `replay` reads a clock, draws a number or spawns a task, so that the whole runtime can
//! run from a seed on virtual time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::time::Timestamp;

/// The authority on time.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The time of day by which deadlines are judged. May step either way.
    fn now(&self) -> Timestamp;

    /// Time since some moment; never steps.
    fn monotonic(&self) -> Duration;

    /// Waits; by the monotonic time.
    async fn sleep(&self, duration: Duration);
}

/// A source of random numbers.
pub trait Randomness: Send + Sync + 'static {
    /// A number, uniform over all values.
    fn next_u64(&self) -> u64;
}

/// Runs tasks beside each other.
pub trait Spawner: Send + Sync + 'static {
    /// Runs a task to its end.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// The three together.
#[derive(Clone)]
pub struct Environment {
    /// The authority on time.
    pub clock: Arc<dyn Clock>,
    /// A source of random numbers.
    pub random: Arc<dyn Randomness>,
    /// Runs tasks beside each other.
    pub spawner: Arc<dyn Spawner>,
}

impl Environment {
    /// The system's clock, the operating system's randomness and the current tokio runtime.
    pub fn system() -> Self {
        let system = Arc::new(System { started: monotonic_now() });
        Self { clock: system.clone(), random: system.clone(), spawner: system }
    }
}

struct System {
    started: tokio::time::Instant,
}

#[allow(clippy::disallowed_methods, reason = "this is the door to the monotonic clock")]
fn monotonic_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

#[async_trait]
impl Clock for System {
    #[allow(clippy::disallowed_methods, reason = "this is the door to the system clock")]
    fn now(&self) -> Timestamp {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let right = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => micros(since),
            Err(before) => -micros(before.duration()),
        };
        Timestamp::from_micros(right.saturating_add(crate::fault::clock_ahead_micros()))
    }

    fn monotonic(&self) -> Duration {
        monotonic_now().duration_since(self.started)
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door to waiting")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

impl Randomness for System {
    #[allow(clippy::disallowed_methods, reason = "this is the door to randomness")]
    fn next_u64(&self) -> u64 {
        rand::random()
    }
}

impl Spawner for System {
    #[allow(clippy::disallowed_methods, reason = "this is the door to the tokio runtime")]
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}
