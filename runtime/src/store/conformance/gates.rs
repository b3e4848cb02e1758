//! What nodes agree on: documents that are replaced as a whole. And who waits behind a gate.

use super::SHARDS;
use super::Specification;
use super::fixtures::{Node, advance, all_shards, at, closed, new, order, sleeping};
use crate::id::WorkflowKey;
use crate::store::{Control, Parked, RowChange, Status, Write};

fn control(name: &str, rev: u64, value: &'static str) -> Control {
    Control { name: name.into(), rev, value: value.as_bytes().into() }
}

/// Creates an order and parks it there.
async fn park(node: &Node, key: &WorkflowKey, gate: &str, since: i64) {
    node.start(new(key)).await;
    let mut parks = advance(key);
    let parked = Some(Parked { gate: gate.to_owned(), since: at(since) });
    parks.row = Some(RowChange { parked, ..sleeping(Some(at(3600))) });
    node.write(Write::Advance(parks)).await;
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a document is replaced by whoever knows its revision, and by nobody else", |store| {
        Box::pin(async move {
            let put = async |rev, value| store.replace_control(&control("breaker stock", rev, value)).await.unwrap();
            assert!(!put(2, "before there is one").await);
            assert!(put(1, "first").await);
            assert!(!put(1, "another first").await);
            assert!(put(2, "second").await);
            assert!(!put(2, "another second").await);
            assert!(!put(4, "behind one that is not there").await);
            assert_eq!(store.controls().await.unwrap(), [control("breaker stock", 2, "second")]);
        })
    }),
    ("documents come by name", |store| {
        Box::pin(async move {
            for name in ["b", "a", "B"] {
                assert!(store.replace_control(&control(name, 1, "")).await.unwrap());
            }
            let names: Vec<String> = store.controls().await.unwrap().into_iter().map(|control| control.name).collect();
            assert_eq!(names, ["B", "a", "b"]);
        })
    }),
    ("of several that replace the same revision at once one does", |store| {
        Box::pin(async move {
            assert!(store.replace_control(&control("a", 1, "first")).await.unwrap());
            let replacements = ["x", "y", "z"].map(|value| control("a", 2, value));
            let replaced = futures::future::join_all(replacements.iter().map(|one| store.replace_control(one))).await;
            assert_eq!(replaced.into_iter().filter(|replaced| *replaced.as_ref().unwrap()).count(), 1);
        })
    }),
    ("those behind a gate come oldest first, of all shards asked for together, and no more than the limit", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for (id, gate, since) in [("a", "stock", 30), ("b", "stock", 10), ("c", "coupons", 5), ("d", "stock", 20)] {
                park(&node, &order(id), gate, since).await;
            }
            node.start(new(&order("e"))).await;
            let behind = async |shards: &[u16], limit| store.parked(shards, "stock", limit).await.unwrap();
            assert_eq!(behind(&all_shards(), 10).await, [order("b"), order("d"), order("a")]);
            assert_eq!(behind(&all_shards(), 2).await, [order("b"), order("d")]);
            assert_eq!(behind(&[order("d").shard(SHARDS)], 10).await, [order("d")]);
            assert_eq!(store.parked(&all_shards(), "payments", 10).await.unwrap(), []);
        })
    }),
    ("whoever goes on, ends or waits behind another gate is not behind the first any more", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for id in ["goes", "ends", "moves"] {
                park(&node, &order(id), "stock", 1).await;
            }
            let elsewhere = Some(Parked { gate: "coupons".into(), since: at(2) });
            let rows = [
                ("goes", sleeping(Some(at(7)))),
                ("ends", closed(Status::Completed, at(7))),
                ("moves", RowChange { parked: elsewhere, ..sleeping(Some(at(7))) }),
            ];
            for (id, row) in rows {
                let mut next = advance(&order(id));
                (next.rev, next.row) = (1, Some(row));
                node.write(Write::Advance(next)).await;
            }
            assert_eq!(store.parked(&all_shards(), "stock", 10).await.unwrap(), []);
            assert_eq!(store.parked(&all_shards(), "coupons", 10).await.unwrap(), [order("moves")]);
        })
    }),
];
