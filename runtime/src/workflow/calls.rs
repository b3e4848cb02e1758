//! Waiting for an activity, or for a person.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{ActivityError, Cancelled};
use super::state::{ActivityOutcome, ReplayFault, Shared};
use crate::activity::{Exhausted, RetryPolicy};
use crate::history::EventKind;
use crate::payload::Payload;

/// What a workflow says otherwise than the activity's own options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallOptions {
    /// Instead of the activity's retry policy.
    pub retry: Option<RetryPolicy>,
    /// Instead of what the activity does when it cannot go on.
    pub exhausted: Option<Exhausted>,
    /// Instead of the activity's schedule-to-start.
    pub schedule_to_start: Option<Duration>,
    /// Instead of the activity's start-to-close.
    pub start_to_close: Option<Duration>,
    /// Instead of the activity's schedule-to-close.
    pub schedule_to_close: Option<Duration>,
}

/// A scheduled step, by hand or by call: what both futures do.
struct Scheduled {
    shared: Shared,
    name: String,
    input: Payload,
    intent: Option<String>,
    by_hand: Option<String>,
    options: CallOptions,
    number: Option<u64>,
    done: bool,
    /// Whether an earlier request than the one that failed was sent: it may have taken effect.
    sent_before: bool,
}

impl Scheduled {
    fn new(shared: Shared, name: &str, input: &impl Serialize, by_hand: Option<String>) -> Self {
        let input = Payload::of(input).unwrap_or_else(|error| {
            let what = format!("the input of {name}");
            shared.lock().fail(ReplayFault::Unreadable { what, reason: error.to_string() });
            Payload::null()
        });
        Self {
            shared,
            name: name.to_owned(),
            input,
            intent: None,
            by_hand,
            options: CallOptions::default(),
            number: None,
            done: false,
            sent_before: false,
        }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<ActivityOutcome, Cancelled>> {
        let mut state = self.shared.lock();
        let number = match self.number {
            Some(number) => number,
            None if state.is_cancelled_here() => {
                self.done = true;
                return Poll::Ready(Err(Cancelled));
            }
            None => {
                let intent = self.intent.clone().unwrap_or_else(|| {
                    let count = state.intents.entry(self.name.clone()).or_default();
                    *count += 1;
                    if *count == 1 { self.name.clone() } else { format!("{}#{count}", self.name) }
                });
                let idempotency_key = state.idempotency_key(&intent);
                let number = state.command(EventKind::ActivityScheduled {
                    name: self.name.clone(),
                    input: self.input.clone(),
                    idempotency_key,
                    by_hand: self.by_hand.clone(),
                });
                state.activities.insert(number, Default::default());
                if self.by_hand.is_some() {
                    state.by_hand.insert(number);
                }
                if self.options != CallOptions::default() {
                    state.call_options.insert(number, self.options.clone());
                }
                *self.number.insert(number)
            }
        };
        let cancelled = state.is_cancelled_here();
        let Some(slot) = state.activities.get_mut(&number) else { return Poll::Pending };
        let sent_before = slot.sent_before;
        if let Some(outcome) = slot.outcome.take() {
            state.activities.remove(&number);
            state.call_options.remove(&number);
            self.done = true;
            self.sent_before = sent_before;
            return Poll::Ready(Ok(outcome));
        }
        if cancelled {
            state.activities.remove(&number);
            state.call_options.remove(&number);
            state.command(EventKind::ActivityCancelled { activity: number });
            self.done = true;
            return Poll::Ready(Err(Cancelled));
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The result as the type that the code expects; otherwise the execution is blocked, and this stays pending.
    fn read<T: DeserializeOwned>(&self, result: &Payload) -> Poll<T> {
        match result.parse() {
            Ok(value) => Poll::Ready(value),
            Err(error) => {
                let what = format!("the result of {}", self.name);
                self.shared.lock().fail(ReplayFault::Unreadable { what, reason: error.to_string() });
                Poll::Pending
            }
        }
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        let Some(number) = self.number.filter(|_| !self.done) else { return };
        let mut state = self.shared.lock();
        if state.torn_down {
            return;
        }
        state.call_options.remove(&number);
        if let Some(slot) = state.activities.remove(&number)
            && slot.outcome.is_none()
        {
            state.command(EventKind::ActivityCancelled { activity: number });
        }
    }
}

/// A future for an activity's result. Nothing is recorded before it is first polled; dropped while it waits, the
/// activity is cancelled: it is not tried again, and counts as maybe done.
pub struct ActivityCall<T> {
    scheduled: Scheduled,
    result: PhantomData<fn() -> T>,
}

impl<T> ActivityCall<T> {
    pub(crate) fn new(shared: Shared, name: &str, input: &impl Serialize) -> Self {
        Self { scheduled: Scheduled::new(shared, name, input, None), result: PhantomData }
    }

    /// Names the intent. The idempotency key is made of it and the workflow's id, so that the same intent has the same
    /// key wherever it comes from. By default the activity's name, numbered from the second call on.
    #[must_use]
    pub fn intent(mut self, intent: impl Into<String>) -> Self {
        self.scheduled.intent = Some(intent.into());
        self
    }

    /// Whether the activity, failed with `error`, may have taken effect: by this attempt or by an earlier one.
    pub(crate) fn maybe_done(&self, error: &ActivityError) -> bool {
        error.maybe_done() || self.scheduled.sent_before
    }

    /// Another retry policy than the activity's own.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.scheduled.options.retry = Some(policy);
        self
    }

    /// What happens when the activity cannot go on, if not what its own options say.
    #[must_use]
    pub fn exhausted(mut self, exhausted: Exhausted) -> Self {
        self.scheduled.options.exhausted = Some(exhausted);
        self
    }

    /// Other options than the activity's own, all at once.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> Self {
        self.scheduled.options = options;
        self
    }
}

impl<T: DeserializeOwned> Future for ActivityCall<T> {
    type Output = Result<T, ActivityError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match std::task::ready!(this.scheduled.poll(cx)) {
            Ok(ActivityOutcome::Completed(result)) => this.scheduled.read(&result).map(Ok),
            Ok(ActivityOutcome::Failed(error)) => Poll::Ready(Err(error)),
            // Only steps by hand end by a retry.
            Ok(ActivityOutcome::Retried) => Poll::Pending,
            Err(Cancelled) => Poll::Ready(Err(ActivityError::Cancelled)),
        }
    }
}

/// What a person said about a step by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByHandOutcome<T> {
    /// It is done, with this result.
    Resolved(T),
    /// It is not to be done.
    Skipped {
        /// Why.
        reason: String,
    },
    /// What led to it is to be tried again.
    Retried,
}

/// A future for what a person says about a step. Dropped while it waits, the step is withdrawn.
pub struct ByHandCall<T> {
    scheduled: Scheduled,
    result: PhantomData<fn() -> T>,
}

impl<T> ByHandCall<T> {
    pub(crate) fn new(shared: Shared, name: &str, input: &impl Serialize, why: String) -> Self {
        Self { scheduled: Scheduled::new(shared, name, input, Some(why)), result: PhantomData }
    }
}

impl<T: DeserializeOwned> Future for ByHandCall<T> {
    type Output = Result<ByHandOutcome<T>, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        Poll::Ready(match std::task::ready!(this.scheduled.poll(cx)) {
            Ok(ActivityOutcome::Completed(result)) => {
                Ok(ByHandOutcome::Resolved(std::task::ready!(this.scheduled.read(&result))))
            }
            Ok(ActivityOutcome::Failed(ActivityError::Skipped { reason })) => Ok(ByHandOutcome::Skipped { reason }),
            Ok(ActivityOutcome::Failed(ActivityError::Failed(failure))) => Ok(ByHandOutcome::Skipped { reason: failure.message }),
            Ok(ActivityOutcome::Failed(ActivityError::Cancelled)) | Err(Cancelled) => Err(Cancelled),
            Ok(ActivityOutcome::Retried) => Ok(ByHandOutcome::Retried),
        })
    }
}
