//! A receiver of events with a ledger of its own, and what must hold of it: nothing comes that no history has, what one run
//! emitted comes first in the order of its history, and in the end all of it has come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::pending;
use overdue_runtime::RunId;
use overdue_runtime::activity::RetryPolicy;
use overdue_runtime::history::{Event, EventKind, decode};
use overdue_runtime::outbox::{DeliveryFailure, Envelope, Sink, SinkOptions, event_id};
use overdue_runtime::simulation::{Backing, Process};
use tokio::sync::oneshot;

use crate::shop::Street;
use crate::world::World;

/// What arrived, by run: number, name and data of the first arrivals.
#[derive(Default)]
pub(crate) struct Ledger {
    first: Mutex<BTreeMap<RunId, Vec<(u64, String)>>>,
    store: Mutex<Option<Backing>>,
}

impl Ledger {
    /// Events are held against the histories of this store.
    pub(crate) fn beside(&self, backing: &Backing) {
        *self.store.lock().unwrap() = Some(backing.clone());
    }

    fn has(&self, run_id: RunId, number: u64) -> bool {
        self.first.lock().unwrap().get(&run_id).is_some_and(|seen| seen.iter().any(|(seen, _)| *seen == number))
    }
}

/// Whether this event is one that those outside are told of.
fn is_told(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::EventEmitted { .. }
            | EventKind::AttentionRequested { .. }
            | EventKind::ActivityScheduled { by_hand: Some(_), .. }
    )
}

impl Street {
    /// An event is there.
    fn told(&self, envelope: &Envelope) {
        let Envelope { run_id, number, name, .. } = envelope;
        self.judge.expect("I48", envelope.id == event_id(*run_id, *number), || format!("{} is another event's id", envelope.id));
        self.expect_it_in_history(envelope);
        let mut first = self.ledger.first.lock().unwrap();
        let seen = first.entry(*run_id).or_default();
        if let Some((_, before)) = seen.iter().find(|(seen, _)| seen == number) {
            self.judge.reach("event delivered twice");
            self.judge.expect("I48", before == name, || format!("{} was {before} and is {name}", envelope.id));
            return;
        }
        let last = seen.last().map_or(0, |(last, _)| *last);
        self.judge.expect("I48", last < *number, || format!("event {number} of {} came behind event {last}", envelope.key));
        seen.push((*number, name.clone()));
    }

    /// What is sent is committed. Retention may have been faster than a request that was late.
    fn expect_it_in_history(&self, envelope: &Envelope) {
        let Some(backing) = self.ledger.store.lock().unwrap().clone() else { return };
        let loaded = backing.inline(backing.store().load(std::slice::from_ref(&envelope.key))).unwrap().pop().flatten();
        let Some(loaded) = loaded.filter(|loaded| !loaded.execution.retired && loaded.execution.run_id == envelope.run_id) else {
            return;
        };
        let events = decode(envelope.run_id, &loaded.records).map(|(events, _)| events).unwrap_or_default();
        let event = events.iter().find(|event| event.number == envelope.number);
        let is_it = |event: &Event| match &event.kind {
            EventKind::EventEmitted { name, data } => *name == envelope.name && *data == envelope.data,
            kind => is_told(kind) && envelope.name == "order.needs-attention",
        };
        self.judge.expect("I48", event.is_some_and(is_it), || {
            format!("{} of {} came, and its history has {event:?} there", envelope.id, envelope.key)
        });
    }

    async fn tell(self: Arc<Self>, envelope: Envelope) -> Result<(), DeliveryFailure> {
        let (faults, dice) = (self.faults(), self.dice());
        let down = || DeliveryFailure::transient("http-503", "down");
        self.simulation().sleep(dice.up_to(faults.latency)).await;
        if self.is_gone("http://customers/") || dice.chance(faults.refused) {
            return Err(down());
        }
        if dice.chance(faults.request_lost) {
            return pending().await;
        }
        if dice.chance(faults.late) {
            self.simulation().sleep(dice.up_to(faults.late_by)).await;
        }
        self.told(&envelope);
        self.simulation().sleep(dice.up_to(faults.latency)).await;
        if dice.chance(faults.answer_lost) {
            return pending().await;
        }
        if dice.chance(faults.cut) { Err(down()) } else { Ok(()) }
    }
}

/// One process's way to the receiver.
pub(crate) struct Way(pub(crate) Arc<Street>);

#[async_trait]
impl Sink for Way {
    fn name(&self) -> &str {
        "customers"
    }

    fn takes(&self, _: &str) -> bool {
        true
    }

    fn options(&self) -> SinkOptions {
        let retry = RetryPolicy {
            initial: Duration::from_millis(500),
            cap: Duration::from_secs(20),
            give_up_after: None,
            ..RetryPolicy::default()
        };
        SinkOptions { concurrency: 4, timeout: Duration::from_secs(3), retry }
    }

    async fn deliver(&self, envelope: &Envelope) -> Result<(), DeliveryFailure> {
        let (answer, answered) = oneshot::channel();
        let (street, envelope) = (Arc::clone(&self.0), envelope.clone());
        // On its way whatever becomes of its sender.
        self.0.simulation().spawn(Process::WORLD, async move {
            let _ = answer.send(street.tell(envelope).await);
        });
        answered.await.unwrap_or_else(|_| Err(DeliveryFailure::transient("broken", "the connection broke")))
    }
}

/// Everything that histories tell has come.
pub(crate) fn at_rest(world: &World, histories: &[crate::verdict::History]) {
    let mut missing = BTreeSet::new();
    for history in histories {
        // Late signals that no workflow acts upon are told to nobody; they have no such events.
        for event in history.events.iter().filter(|event| is_told(&event.kind)) {
            if !world.street.ledger.has(history.row.run_id, event.number) {
                missing.insert(format!("event {} of {}", event.number, history.row.key));
            } else {
                world.judge.reach("event delivered");
            }
        }
    }
    world.judge.expect("I48", missing.is_empty(), || format!("never delivered: {missing:?}"));
}

/// Whether nothing is left to be delivered.
pub(crate) fn is_done(world: &World) -> bool {
    let backing = world.cluster.database().backing();
    backing.inline(backing.store().outbox_page(&Default::default(), None, 1)).unwrap().is_empty()
}
