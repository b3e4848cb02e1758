//! The gate in front of every call: it waits until the schedule says what becomes of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::schedule::Fault;
use crate::activity::{ActivityContext, ActivityFailure, ActivityOptions, ErasedActivity};
use crate::engine::Registries;
use crate::payload::{InvalidField, Payload};

/// What becomes of a call; `None`: it is made.
pub(super) type Verdict = Option<Fault>;

/// Calls that wait.
#[derive(Clone, Default)]
pub(super) struct Gates(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    next: u64,
    calls: BTreeMap<u64, (String, oneshot::Sender<Verdict>)>,
}

impl Gates {
    /// The calls that wait, in the order in which they came.
    pub(super) fn waiting(&self) -> Vec<(u64, String)> {
        self.lock().calls.iter().map(|(number, (name, _))| (*number, name.clone())).collect()
    }

    /// Lets a call go on.
    pub(super) fn open(&self, number: u64, verdict: Verdict) {
        let waiting = self.lock().calls.remove(&number);
        if let Some((_, gate)) = waiting {
            let _ = gate.send(verdict);
        }
    }

    /// Puts every activity of a program behind a gate.
    pub(super) fn around(&self, mut code: Registries) -> Registries {
        code.activities.wrap(|name, inner| Arc::new(Gated { gates: self.clone(), name: name.to_owned(), inner }));
        code
    }

    fn arrive(&self, name: &str) -> (Arrived, oneshot::Receiver<Verdict>) {
        let (gate, opened) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.next += 1;
        let number = waiting.next;
        waiting.calls.insert(number, (name.to_owned(), gate));
        (Arrived { gates: self.clone(), number }, opened)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call at its gate; one that is given up waits no more.
struct Arrived {
    gates: Gates,
    number: u64,
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.gates.lock().calls.remove(&self.number);
    }
}

struct Gated {
    gates: Gates,
    name: String,
    inner: Arc<dyn ErasedActivity>,
}

#[async_trait]
impl ErasedActivity for Gated {
    fn options(&self) -> ActivityOptions {
        self.inner.options()
    }

    fn check_output(&self, result: &Payload) -> Result<(), InvalidField> {
        self.inner.check_output(result)
    }

    async fn execute(&self, ctx: &ActivityContext, input: Payload) -> Result<Payload, ActivityFailure> {
        let (arrived, opened) = self.gates.arrive(&self.name);
        let verdict = opened.await.unwrap_or(Some(Fault::FailsBeforeEffect));
        drop(arrived);
        match verdict {
            Some(Fault::FailsBeforeEffect) => Err(ActivityFailure::transient("explored", "it failed before it did anything")),
            Some(Fault::UnknownAfterEffect) => {
                self.inner.execute(ctx, input).await?;
                Err(ActivityFailure::transient("explored", "it was done, and its answer was lost"))
            }
            Some(Fault::Twice) => {
                self.inner.execute(ctx, input.clone()).await?;
                self.inner.execute(ctx, input).await
            }
            _ => self.inner.execute(ctx, input).await,
        }
    }
}
