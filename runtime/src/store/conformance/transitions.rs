//! Transitions: applied whole or not at all.

use super::Specification;
use super::fixtures::{Node, advance, at, closed, hash, new, order, record, run_of, signal, sleeping};
use crate::store::{Advance, Outcome, Status, Write};

/// A transition that does everything there is.
fn busy(id: &str) -> Advance {
    let mut busy = advance(&order(id));
    busy.record = Some(record(3, "fired"));
    busy.row = Some(sleeping(Some(at(7200))));
    busy.consume = vec!["known".into()];
    busy.hold = vec!["odd".into()];
    busy.spawn = vec![new(&order(id).derived("late-payment", "txn-1"))];
    busy.guard_inbox = true;
    busy
}

/// An order with two signals that [`busy`] knows.
async fn an_order_with_signals(node: &Node) {
    node.start(new(&order("1"))).await;
    node.deposit(&signal(&order("1"), "known", at(1))).await;
    node.deposit(&signal(&order("1"), "odd", at(2))).await;
}

async fn is_refused_without_a_trace(node: &Node, write: Advance, expected: Outcome) {
    let before = (node.load(&order("1")).await, node.store.derived("1", 10).await.unwrap());
    // With a neighbour that is applied.
    node.start(new(&order("neighbour"))).await;
    let mut neighbour = advance(&order("neighbour"));
    neighbour.record = Some(record(2, "more"));
    let outcomes = node.commit(&[Write::Advance(write), Write::Advance(neighbour)]).await;
    assert_eq!(outcomes, vec![expected, Outcome::Advanced]);
    assert_eq!((node.load(&order("1")).await, node.store.derived("1", 10).await.unwrap()), before);
    assert_eq!(node.load(&order("neighbour")).await.records.len(), 2);
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a transition appends, rewrites, takes up, holds and spawns in one step", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            assert_eq!(node.write(Write::Advance(busy("1"))).await, Outcome::Advanced);
            let loaded = node.load(&order("1")).await;
            assert_eq!(loaded.records, vec![record(1, "started"), record(3, "fired")]);
            assert_eq!((loaded.execution.wake_at, loaded.execution.rev), (Some(at(7200)), 1));
            assert_eq!(loaded.inbox, vec![], "one is taken up, the other held");
            let spawned = order("1").derived("late-payment", "txn-1");
            assert_eq!(node.load(&spawned).await.records, vec![record(1, "started")]);
        })
    }),
    ("without a row a transition leaves the row and its rev as they are, whatever rev it names", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            let before = node.find(&order("1")).await;
            let mut append = advance(&order("1"));
            append.rev = 77;
            append.record = Some(record(2, "more"));
            assert_eq!(node.write(Write::Advance(append)).await, Outcome::Advanced);
            assert_eq!(node.find(&order("1")).await, before);
            assert_eq!(node.load(&order("1")).await.records.len(), 2);
        })
    }),
    ("each change of the row raises rev by one", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            for rev in 0..5 {
                let mut change = advance(&order("1"));
                change.rev = rev;
                change.row = Some(sleeping(None));
                assert_eq!(node.write(Write::Advance(change)).await, Outcome::Advanced);
                assert_eq!(node.find(&order("1")).await.unwrap().rev, rev + 1);
            }
        })
    }),
    ("a transition closes an execution, with every field of the row", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            let mut change = advance(&order("1"));
            let mut row = closed(Status::Cancelled, at(99));
            row.needs_attention = true;
            row.attempts = "left".into();
            change.row = Some(row);
            assert_eq!(node.write(Write::Advance(change)).await, Outcome::Advanced);
            let found = node.find(&order("1")).await.unwrap();
            assert_eq!((found.status, found.wake_at, found.closed_at), (Status::Cancelled, None, Some(at(99))));
            assert_eq!((found.needs_attention, found.attempts), (true, "left".into()));
        })
    }),
    ("a transition with a guard is refused while a signal waits that it does not know, and leaves no trace", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            node.deposit(&signal(&order("1"), "unknown", at(3))).await;
            is_refused_without_a_trace(&node, busy("1"), Outcome::UnreadInbox).await;
        })
    }),
    ("a transition without a guard does not care for signals", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            node.deposit(&signal(&order("1"), "unknown", at(3))).await;
            let write = Advance { guard_inbox: false, ..busy("1") };
            assert_eq!(node.write(Write::Advance(write)).await, Outcome::Advanced);
            let left: Vec<_> = node.load(&order("1")).await.inbox.into_iter().map(|row| row.signal_id).collect();
            assert_eq!(left, ["unknown"]);
        })
    }),
    ("a held signal and another execution's signal do not stop a guarded transition", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            node.deposit(&signal(&order("1"), "odd", at(1))).await;
            node.deposit(&signal(&order("2"), "other", at(1))).await;
            let hold = Advance { hold: vec!["odd".into()], ..advance(&order("1")) };
            assert_eq!(node.write(Write::Advance(hold)).await, Outcome::Advanced);
            let guarded = Advance { guard_inbox: true, record: Some(record(2, "fired")), ..advance(&order("1")) };
            assert_eq!(node.write(Write::Advance(guarded)).await, Outcome::Advanced);
        })
    }),
    ("a transition with another rev is stale and leaves no trace", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            is_refused_without_a_trace(&node, Advance { rev: 1, ..busy("1") }, Outcome::Stale).await;
        })
    }),
    ("a transition to a taken position is stale and leaves no trace", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            let write = Advance { record: Some(record(1, "again")), ..busy("1") };
            is_refused_without_a_trace(&node, write, Outcome::Stale).await;
        })
    }),
    ("a transition of another run is stale and leaves no trace", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            let write = Advance { run_id: run_of(&order("another run")), ..busy("1") };
            is_refused_without_a_trace(&node, write, Outcome::Stale).await;
        })
    }),
    ("a transition of an execution that does not exist is stale", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            assert_eq!(node.write(Write::Advance(busy("1"))).await, Outcome::Stale);
            assert_eq!(node.store.derived("1", 10).await.unwrap(), vec![]);
        })
    }),
    ("a transition that is both stale and guarded says stale", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            let write = Advance { rev: 5, consume: vec![], ..busy("1") };
            assert_eq!(node.write(Write::Advance(write)).await, Outcome::Stale);
        })
    }),
    ("an execution that exists already is left as it is by the transition that would spawn it", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            an_order_with_signals(&node).await;
            let spawned = order("1").derived("late-payment", "txn-1");
            let mut first = new(&spawned);
            first.run_id = run_of(&order("the first of them"));
            first.request_hash = hash("first");
            node.start(first).await;
            let before = node.load(&spawned).await;
            assert_eq!(node.write(Write::Advance(busy("1"))).await, Outcome::Advanced);
            assert_eq!(node.load(&spawned).await, before);
        })
    }),
    ("of two transitions that spawn one execution in one batch, both are applied and it is there once", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            node.start(new(&order("2"))).await;
            let shared = new(&order("3"));
            let write = |id| Advance { spawn: vec![shared.clone()], ..advance(&order(id)) };
            let outcomes = node.commit(&[Write::Advance(write("1")), Write::Advance(write("2"))]).await;
            assert_eq!(outcomes, vec![Outcome::Advanced, Outcome::Advanced]);
            assert_eq!(node.load(&order("3")).await.records.len(), 1);
        })
    }),
    ("of two executions of one key that one transition would spawn, the first is created", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            let mut second = new(&order("2"));
            second.run_id = run_of(&order("another run"));
            let write = Advance { spawn: vec![new(&order("2")), second], ..advance(&order("1")) };
            assert_eq!(node.write(Write::Advance(write)).await, Outcome::Advanced);
            assert_eq!(node.find(&order("2")).await.unwrap().run_id, run_of(&order("2")));
        })
    }),
    ("taking up or holding a signal that is not there is no error", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            assert_eq!(node.write(Write::Advance(busy("1"))).await, Outcome::Advanced);
        })
    }),
    ("a batch mixes applied and refused transitions, each with its own outcome", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let mut batch = Vec::new();
            let mut expected = Vec::new();
            for n in 0..150u64 {
                let key = order(&n.to_string());
                node.start(new(&key)).await;
                let rev = n % 3;
                batch.push(Write::Advance(Advance { rev, row: Some(sleeping(None)), ..advance(&key) }));
                expected.push(if rev == 0 { Outcome::Advanced } else { Outcome::Stale });
            }
            assert_eq!(node.commit(&batch).await, expected);
        })
    }),
];
