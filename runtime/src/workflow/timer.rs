//! Waiting for an instant.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::Cancelled;
use super::state::Shared;
use crate::history::EventKind;
use crate::time::Timestamp;

/// A future that is ready once its instant has come. Nothing is recorded before it is first polled; dropped while it
/// waits, it is cancelled.
pub struct Timer {
    shared: Shared,
    name: Option<String>,
    fire_at: Timestamp,
    number: Option<u64>,
    done: bool,
}

impl Timer {
    pub(crate) fn new(shared: Shared, fire_at: Timestamp) -> Self {
        Self { shared, name: None, fire_at, number: None, done: false }
    }

    /// What operators see it called, such as `payDeadline`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

impl Future for Timer {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut state = this.shared.lock();
        let number = match this.number {
            Some(number) => number,
            None if state.is_cancelled_here() => {
                this.done = true;
                return Poll::Ready(Err(Cancelled));
            }
            None => {
                let number = state.command(EventKind::TimerStarted { name: this.name.clone(), fire_at: this.fire_at });
                state.timers.insert(number, Default::default());
                *this.number.insert(number)
            }
        };
        let cancelled = state.is_cancelled_here();
        let Some(slot) = state.timers.get_mut(&number) else { return Poll::Pending };
        if slot.outcome.is_some() {
            state.timers.remove(&number);
            this.done = true;
            return Poll::Ready(Ok(()));
        }
        if cancelled {
            state.timers.remove(&number);
            state.command(EventKind::TimerCancelled { timer: number });
            this.done = true;
            return Poll::Ready(Err(Cancelled));
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(number) = self.number.filter(|_| !self.done) else { return };
        let mut state = self.shared.lock();
        if state.torn_down {
            return;
        }
        if let Some(slot) = state.timers.remove(&number)
            && slot.outcome.is_none()
        {
            state.command(EventKind::TimerCancelled { timer: number });
        }
    }
}
