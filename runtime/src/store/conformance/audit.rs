//! What a store tells of itself to whoever checks it.

use super::fixtures::{Node, advance, at, closed, new, order, record, retire, run_of, signal};
use super::{SHARDS, Specification};
use crate::id::{RunId, WorkflowKey};
use crate::store::{Advance, AttributeValue, InboxRow, Outcome, RunPlace, Sharing, Status, Store, Stray, StrayPlace, Write};

/// All runs with a history, read so many at a time.
async fn recorded(store: &dyn Store, limit: usize) -> Vec<RunId> {
    let (mut all, mut place) = (Vec::new(), Some(RunPlace::default()));
    while let Some(from) = place {
        let (page, next) = store.recorded_runs(from, limit).await.unwrap();
        assert!(page.len() <= limit && page.is_sorted(), "{page:?}");
        all.extend(page);
        place = next;
    }
    all.sort_unstable();
    all
}

async fn strays(store: &dyn Store, limit: usize) -> Vec<Stray> {
    let (mut all, mut place) = (Vec::new(), Some(StrayPlace::START));
    while let Some(from) = place {
        let (page, next) = store.strays(&from, limit).await.unwrap();
        assert!(page.len() <= limit, "{page:?}");
        all.extend(page);
        place = next;
    }
    all
}

fn orders(count: usize) -> Vec<WorkflowKey> {
    (0..count).map(|number| order(&number.to_string())).collect()
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("the roster tells of each node, its lane and the shards that it owns, and of the last epoch", |store| {
        Box::pin(async move {
            let empty = store.roster().await.unwrap();
            let numbers: Vec<u16> = empty.owners.iter().map(|(shard, _)| *shard).collect();
            assert_eq!((empty.lanes, empty.nodes, numbers), (vec![], vec![], (0..SHARDS).collect()));
            assert!(empty.owners.iter().all(|(_, owner)| owner.is_none()));

            let node = Node::on(store.clone()).await;
            let roster = store.roster().await.unwrap();
            assert_eq!((&roster.lanes, roster.nodes.len()), (&vec![node.fence.clone()], 1));
            assert!(roster.last_epoch >= node.fence.epoch, "{roster:?}");
            let mine = Some(node.fence.node_id.clone());
            assert!(roster.owners.iter().all(|(_, owner)| *owner == mine), "{roster:?}");
            assert_eq!(roster.now.is_some(), store.facts().sharing == Sharing::Shared);

            store.leave(&node.fence).await.unwrap();
            let left = store.roster().await.unwrap();
            assert_eq!(left.attendant(0), None);
            assert_eq!((left.lanes, left.nodes, left.last_epoch), (vec![], vec![], roster.last_epoch));
        })
    }),
    ("a shard is attended by its owner as long as that is alive", |store| {
        Box::pin(async move {
            if store.facts().sharing == Sharing::Embedded {
                return;
            }
            let node = Node::on(store.clone()).await;
            assert_eq!(store.roster().await.unwrap().attendant(3), None, "its lease is over");
            store.renew(&node.fence, super::PATIENCE).await.unwrap();
            assert_eq!(store.roster().await.unwrap().attendant(3), Some(node.fence.node_id.as_str()));
            node.store.hand_over(&node.fence, &[3], None).await.unwrap();
            assert_eq!(store.roster().await.unwrap().attendant(3), None, "it is nobody's");
        })
    }),
    ("every run that has a history is found once, however few are read at a time", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            assert_eq!(recorded(store.as_ref(), 10).await, vec![]);
            let keys = orders(25);
            for key in &keys {
                node.start(new(key)).await;
                let more = Advance { record: Some(record(2, "more")), ..advance(key) };
                assert_eq!(node.write(Write::Advance(more)).await, Outcome::Advanced);
            }
            let mut runs: Vec<RunId> = keys.iter().map(run_of).collect();
            runs.sort_unstable();
            for limit in [1, 3, 100] {
                assert_eq!(recorded(store.as_ref(), limit).await, runs, "{limit} at a time");
            }
            let end = Advance { row: Some(closed(Status::Completed, at(1))), ..advance(&keys[0]) };
            assert_eq!(node.write(Write::Advance(end)).await, Outcome::Advanced);
            assert_eq!(node.write(Write::Retire(retire(&keys[0], 1))).await, Outcome::Retired);
            runs.retain(|run_id| *run_id != run_of(&keys[0]));
            assert_eq!(recorded(store.as_ref(), 7).await, runs, "a retired one has none");
        })
    }),
    ("what belongs to executions in every state, and signals that wait for a start, are no strays", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for key in &orders(5) {
                let mut start = new(key);
                start.attributes = vec![
                    ("region".into(), AttributeValue::Text("eu".into())),
                    ("sku".into(), AttributeValue::Text(key.id().into())),
                ];
                node.start(start).await;
                node.deposit(&signal(key, "s", at(1))).await;
            }
            node.deposit(&signal(&order("nobody"), "s", at(1))).await;
            for limit in [1, 4, 100] {
                assert_eq!(strays(store.as_ref(), limit).await, vec![], "{limit} at a time");
            }
        })
    }),
    ("a signal in another shard than its id's is a stray, whoever waits for it", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            node.start(new(&order("1"))).await;
            let elsewhere = (order("1").shard(SHARDS) + 1) % SHARDS;
            node.deposit(&signal(&order("1"), "right", at(1))).await;
            node.deposit(&InboxRow { shard: elsewhere, ..signal(&order("1"), "wrong", at(1)) }).await;
            for limit in [1, 100] {
                let found = strays(store.as_ref(), limit).await;
                assert_eq!(found.len(), 1, "{found:?}");
                assert_eq!(found[0].key, Some(order("1")));
                assert!(found[0].what.contains("\"wrong\" is in shard"), "{found:?}");
            }
        })
    }),
];
