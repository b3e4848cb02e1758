//! Waiting for signals.
//!
//! Signals are taken in the order in which the history has them. One that nobody waits for is kept until somebody does.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::declare::Signal;
use super::error::Cancelled;
use super::state::{Delivered, ReplayFault, Shared};
use crate::payload::Payload;

/// A signal as the workflow takes it.
pub struct Received<T> {
    shared: Shared,
    number: u64,
    name: String,
    signal_id: String,
    value: T,
}

impl<T> Received<T> {
    /// Number of its event.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifies the delivery.
    pub fn signal_id(&self) -> &str {
        &self.signal_id
    }

    /// What it says.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// What it says.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Tells the sender that it came too late to change the decision.
    pub fn answer_late(&self) {
        self.shared.lock().late_answers.insert(self.number);
    }
}

impl Received<Payload> {
    /// What it says, as the declared signal `S`. When it does not have that shape, the execution is blocked until a
    /// program that can read it runs, and `None` is returned.
    pub fn read<S: Signal>(&self) -> Option<S> {
        match self.value.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                let what = format!("signal {} (event {})", self.name, self.number);
                self.shared.lock().fail(ReplayFault::Unreadable { what, reason: error.to_string() });
                None
            }
        }
    }
}

/// A future for the next signal of one name.
pub struct NextSignal<S> {
    any: AnySignal,
    signal: PhantomData<fn() -> S>,
}

impl<S: Signal> NextSignal<S> {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { any: AnySignal { shared, name: Some(S::NAME) }, signal: PhantomData }
    }
}

impl<S: Signal> Future for NextSignal<S> {
    type Output = Result<Received<S>, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let received = match std::task::ready!(Pin::new(&mut self.get_mut().any).poll(cx)) {
            Ok(received) => received,
            Err(Cancelled) => return Poll::Ready(Err(Cancelled)),
        };
        match received.read() {
            Some(value) => {
                let Received { shared, number, name, signal_id, .. } = received;
                Poll::Ready(Ok(Received { shared, number, name, signal_id, value }))
            }
            None => Poll::Pending,
        }
    }
}

/// A future for the next signal of any name.
pub struct AnySignal {
    shared: Shared,
    name: Option<&'static str>,
}

impl AnySignal {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared, name: None }
    }

    /// The signal, if it is there already.
    pub fn now(self) -> Option<Received<Payload>> {
        self.take()
    }

    fn take(&self) -> Option<Received<Payload>> {
        let mut state = self.shared.lock();
        let position = state.signals.iter().position(|signal| self.name.is_none_or(|name| name == signal.name))?;
        let Delivered { number, name, signal_id, payload } = state.signals.remove(position)?;
        drop(state);
        Some(Received { shared: self.shared.clone(), number, name, signal_id, value: payload })
    }
}

impl Future for AnySignal {
    type Output = Result<Received<Payload>, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(received) = self.take() {
            return Poll::Ready(Ok(received));
        }
        let mut state = self.shared.lock();
        if state.is_cancelled_here() {
            return Poll::Ready(Err(Cancelled));
        }
        if !state.signal_wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.signal_wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
