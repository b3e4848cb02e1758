//! Retiring and forgetting: what is left, what is refused, and in which order retention finds its work.

use super::fixtures::{Node, advance, at, closed, deposit, forget, new, order, record, retire, run_of, signal, sleeping};
use super::{SHARDS, Specification};
use crate::id::WorkflowKey;
use crate::store::{Advance, AttributeValue, Closed, CommitError, Filter, Outcome, Retire, Status, Write};
use crate::time::Timestamp;

/// An order that ended in this second, with a history of two rows and an attribute; its `rev` is 1.
async fn ended(node: &Node, key: &WorkflowKey, second: i64) {
    let mut start = new(key);
    start.attributes = vec![("sku".into(), AttributeValue::Text("A-1".into()))];
    node.start(start).await;
    let mut row = closed(Status::Completed, at(second));
    row.attempts = "left".into();
    row.needs_attention = true;
    let close = Advance { record: Some(record(2, "ended")), row: Some(row), ..advance(key) };
    assert_eq!(node.write(Write::Advance(close)).await, Outcome::Advanced);
}

async fn retired(node: &Node, key: &WorkflowKey, second: i64) {
    ended(node, key, second).await;
    assert_eq!(node.write(Write::Retire(retire(key, 1))).await, Outcome::Retired);
}

async fn is_refused_without_a_trace(node: &Node, key: &WorkflowKey, write: Write, expected: Outcome) {
    let before = (node.load(key).await, node.store.attributes(key).await.unwrap());
    // With a neighbour that is retired.
    ended(node, &order("neighbour"), 1).await;
    let outcomes = node.commit(&[write, Write::Retire(retire(&order("neighbour"), 1))]).await;
    assert_eq!(outcomes, vec![expected, Outcome::Retired]);
    assert_eq!((node.load(key).await, node.store.attributes(key).await.unwrap()), before);
}

/// Ids of one shard.
fn of_one_shard(count: usize) -> (u16, Vec<WorkflowKey>) {
    let shard = order("a").shard(SHARDS);
    let keys = (0..).map(|n| order(&format!("a{n}"))).filter(|key| key.shard(SHARDS) == shard).take(count);
    (shard, keys.collect())
}

fn keys(found: Vec<Closed>) -> Vec<WorkflowKey> {
    found.into_iter().map(|closed| closed.key).collect()
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a retired execution keeps its name, run, request, status and end, and loses its history and attributes", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let key = order("1");
            ended(&node, &key, 9).await;
            let before = node.find(&key).await.unwrap();
            assert!(!before.retired);
            assert_eq!(node.write(Write::Retire(retire(&key, 1))).await, Outcome::Retired);

            let after = node.load(&key).await;
            assert_eq!((after.records, after.inbox, after.tombstone), (vec![], vec![], "what is left".into()));
            let row = after.execution;
            assert_eq!((&row.key, row.shard, row.run_id), (&before.key, before.shard, before.run_id));
            assert_eq!((row.request_hash, row.status, row.closed_at), (before.request_hash, Status::Completed, Some(at(9))));
            assert_eq!((row.rev, row.wake_at, row.retired), (2, None, true));
            assert_eq!((row.needs_attention, row.attempts.len()), (false, 0));
            assert_eq!(store.attributes(&key).await.unwrap(), vec![]);
            assert_eq!(node.find(&key).await.unwrap(), row);
        })
    }),
    ("a retired execution is still listed, though not by its attributes, and its id is still taken", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            retired(&node, &order("1"), 9).await;
            let row = node.find(&order("1")).await.unwrap();
            let page = store.list(&Filter::default(), None, 10).await.unwrap();
            assert_eq!(page.rows.iter().map(|listed| &listed.execution).collect::<Vec<_>>(), [&row]);
            let by_sku = Filter { attributes: [("sku".to_owned(), vec!["tA-1".to_owned()])].into(), ..Filter::default() };
            assert_eq!(store.list(&by_sku, None, 10).await.unwrap().rows.len(), 0);
            assert_eq!(node.write(Write::Start(new(&order("1")))).await, Outcome::Exists(Box::new(row)));
        })
    }),
    ("a forgotten execution leaves nothing, and its id is free", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            retired(&node, &order("1"), 9).await;
            assert_eq!(node.write(Write::Forget(forget(&order("1"), 2))).await, Outcome::Forgotten);
            assert_eq!(node.find(&order("1")).await, None);
            assert_eq!(store.list(&Filter::default(), None, 10).await.unwrap().rows.len(), 0);
            node.start(new(&order("1"))).await;
            let again = node.load(&order("1")).await;
            assert_eq!((again.records, again.execution.rev, again.execution.retired), (vec![record(1, "started")], 0, false));
            assert_eq!(store.attributes(&order("1")).await.unwrap(), vec![]);
        })
    }),
    ("an open execution, another rev and another run are not retired, and leave no trace of it", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("open"))).await;
            ended(&node, &order("1"), 9).await;
            let cases = [
                (order("open"), retire(&order("open"), 0)),
                (order("1"), retire(&order("1"), 0)),
                (order("1"), retire(&order("1"), 2)),
                (order("1"), Retire { run_id: run_of(&order("another run")), ..retire(&order("1"), 1) }),
            ];
            for (key, retire) in cases {
                is_refused_without_a_trace(&node, &key, Write::Retire(retire), Outcome::Stale).await;
                node.write(Write::Forget(forget(&order("neighbour"), 2))).await;
            }
            assert_eq!(node.write(Write::Retire(retire(&order("absent"), 0))).await, Outcome::Stale);
        })
    }),
    ("an execution is retired once, and what is not retired is not forgotten", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            ended(&node, &order("1"), 9).await;
            assert_eq!(node.write(Write::Forget(forget(&order("1"), 1))).await, Outcome::Stale);
            assert_eq!(node.write(Write::Retire(retire(&order("1"), 1))).await, Outcome::Retired);
            for rev in [1, 2] {
                assert_eq!(node.write(Write::Retire(retire(&order("1"), rev))).await, Outcome::Stale);
            }
            assert_eq!(node.write(Write::Forget(forget(&order("1"), 1))).await, Outcome::Stale);
            assert_eq!(node.load(&order("1")).await.tombstone, "what is left");
        })
    }),
    ("an execution with a signal in its inbox, held or not, is neither retired nor forgotten", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            for (id, held) in [("1", false), ("2", true)] {
                let key = order(id);
                ended(&node, &key, 9).await;
                node.deposit(&signal(&key, "s", at(10))).await;
                if held {
                    let hold = Advance { hold: vec!["s".into()], ..advance(&key) };
                    assert_eq!(node.write(Write::Advance(hold)).await, Outcome::Advanced);
                }
                is_refused_without_a_trace(&node, &key, Write::Retire(retire(&key, 1)), Outcome::UnreadInbox).await;
                node.write(Write::Forget(forget(&order("neighbour"), 2))).await;
                let take = Advance { consume: vec!["s".into()], ..advance(&key) };
                assert_eq!(node.write(Write::Advance(take)).await, Outcome::Advanced);
                assert_eq!(node.write(Write::Retire(retire(&key, 1))).await, Outcome::Retired);
                node.deposit(&signal(&key, "s", at(10))).await;
                assert_eq!(node.write(Write::Forget(forget(&key, 2))).await, Outcome::UnreadInbox);
                assert!(node.find(&key).await.is_some());
            }
        })
    }),
    ("a retired execution gets no events and no other row, but gives up its signals and spawns", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            retired(&node, &order("1"), 9).await;
            let before = node.load(&order("1")).await;
            let append = Advance { record: Some(record(3, "more")), ..advance(&order("1")) };
            let rewrite = Advance { rev: 2, row: Some(sleeping(None)), ..advance(&order("1")) };
            for write in [append, rewrite] {
                assert_eq!(node.write(Write::Advance(write)).await, Outcome::Stale);
            }
            assert_eq!(node.load(&order("1")).await, before);
            node.deposit(&signal(&order("1"), "s", at(10))).await;
            let late = order("1").derived("late-payment", "txn-1");
            let route = Advance { consume: vec!["s".into()], spawn: vec![new(&late)], ..advance(&order("1")) };
            assert_eq!(node.write(Write::Advance(route)).await, Outcome::Advanced);
            assert_eq!(node.load(&late).await.records.len(), 1);
            assert_eq!(node.load(&order("1")).await, before);
        })
    }),
    ("retirable and forgettable are what ended before an instant, by time of the end, from where the last page ended", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let (shard, orders) = of_one_shard(6);
            for (key, second) in orders.iter().zip([50, 10, 40, 20, 20]) {
                ended(&node, key, second).await;
            }
            node.start(new(&orders[5])).await;
            let elsewhere = (0..).map(|n| order(&format!("b{n}"))).find(|key| key.shard(SHARDS) != shard).unwrap();
            ended(&node, &elsewhere, 1).await;

            let found = store.retirable(shard, at(50), None, 10).await.unwrap();
            let expected = [&orders[1], &orders[3], &orders[4], &orders[2]].map(Clone::clone);
            assert_eq!(keys(found.clone()), expected, "before means before");
            let first = Closed { key: orders[1].clone(), run_id: run_of(&orders[1]), rev: 1, closed_at: at(10) };
            assert_eq!(found[0], first);
            let mut walked = Vec::new();
            let mut after: Option<Closed> = None;
            while let Some(next) = store.retirable(shard, at(50), after.as_ref(), 1).await.unwrap().pop() {
                walked.push(next.key.clone());
                after = Some(next);
            }
            assert_eq!(walked, expected, "page by page");
            assert_eq!(store.forgettable(shard, at(50), None, 10).await.unwrap(), vec![]);

            assert_eq!(node.write(Write::Retire(retire(&orders[3], 1))).await, Outcome::Retired);
            assert_eq!(node.write(Write::Retire(retire(&orders[0], 1))).await, Outcome::Retired);
            let left = store.retirable(shard, Timestamp::MAX, None, 10).await.unwrap();
            assert_eq!(keys(left), [orders[1].clone(), orders[4].clone(), orders[2].clone()]);
            let gone = store.forgettable(shard, Timestamp::MAX, None, 10).await.unwrap();
            assert_eq!(keys(gone.clone()), [orders[3].clone(), orders[0].clone()]);
            assert_eq!(gone[0].rev, 2);
            assert_eq!(keys(store.forgettable(shard, at(50), None, 10).await.unwrap()), [orders[3].clone()]);
            assert_eq!(keys(store.forgettable(shard, Timestamp::MAX, Some(&gone[0]), 10).await.unwrap()), [orders[0].clone()]);
        })
    }),
    ("the writes about one execution come one after another up to its end and its next start", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let key = order("1");
            let close = Advance { row: Some(closed(Status::Failed, at(1))), ..advance(&key) };
            let outcomes = node
                .commit(&[
                    Write::Start(new(&key)),
                    Write::Retire(retire(&key, 0)),
                    Write::Advance(close),
                    Write::Retire(retire(&key, 1)),
                    Write::Start(new(&key)),
                    Write::Forget(forget(&key, 2)),
                    deposit(&signal(&key, "s", at(2))),
                    Write::Start(new(&key)),
                ])
                .await;
            use Outcome::{Advanced, Deposited, Exists, Forgotten, Retired, Stale, Started};
            let started = |inbox| Started { inbox };
            assert!(matches!(outcomes[4], Exists(_)), "{outcomes:?}");
            let mut others = outcomes;
            others.remove(4);
            assert_eq!(others, vec![started(false), Stale, Advanced, Retired, Forgotten, Deposited, started(true)]);
            assert_eq!(node.load(&key).await.records, vec![record(1, "started")]);
        })
    }),
    ("many are retired and forgotten in one batch", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let all: Vec<WorkflowKey> = (0..150).map(|n| order(&n.to_string())).collect();
            for key in &all {
                ended(&node, key, 1).await;
            }
            let batch: Vec<Write> = all.iter().map(|key| Write::Retire(retire(key, 1))).collect();
            assert_eq!(node.commit(&batch).await, vec![Outcome::Retired; 150]);
            for loaded in node.store.load(&all).await.unwrap() {
                let loaded = loaded.unwrap();
                assert_eq!((loaded.records.len(), loaded.tombstone), (0, "what is left".into()));
            }
            let batch: Vec<Write> = all.iter().map(|key| Write::Forget(forget(key, 2))).collect();
            assert_eq!(node.commit(&batch).await, vec![Outcome::Forgotten; 150]);
            assert_eq!(node.store.load(&all).await.unwrap(), vec![None; 150]);
        })
    }),
    ("an empty tombstone cannot be stored", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            ended(&node, &order("1"), 1).await;
            let empty = Retire { tombstone: Default::default(), ..retire(&order("1"), 1) };
            let error = node.try_commit(&[Write::Retire(empty)]).await.unwrap_err();
            assert!(matches!(error, CommitError::Rejected(_)), "{error}");
            assert_eq!(node.load(&order("1")).await.records.len(), 2);
        })
    }),
];
