//! What is due and what will be.

use super::SHARDS;
use super::Specification;
use super::fixtures::{Node, advance, all_shards, at, closed, new, order, sleeping};
use crate::id::WorkflowKey;
use crate::store::{Due, Status, Write};
use crate::time::Timestamp;

fn due(id: &str, second: i64) -> Due {
    Due { key: order(id), wake_at: at(second) }
}

/// Orders of one shard that wake in these seconds.
async fn of_one_shard(node: &Node, seconds: &[i64]) -> (u16, Vec<WorkflowKey>) {
    let shard = order("a").shard(SHARDS);
    let ids = (0..).map(|n| order(&format!("a{n}"))).filter(|key| key.shard(SHARDS) == shard);
    let keys: Vec<WorkflowKey> = ids.take(seconds.len()).collect();
    for (key, second) in keys.iter().zip(seconds) {
        let mut start = new(key);
        start.row = sleeping(Some(at(*second)));
        node.start(start).await;
    }
    (shard, keys)
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("due are the open executions whose time has come, up to and including the instant", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for (id, wake_at) in [("past", Some(1)), ("now", Some(5)), ("soon", Some(6)), ("idle", None), ("over", Some(1))] {
                let mut start = new(&order(id));
                start.row = sleeping(wake_at.map(at));
                node.start(start).await;
            }
            let mut close = advance(&order("over"));
            close.row = Some(closed(Status::Completed, at(2)));
            node.write(Write::Advance(close)).await;
            let mut found = store.due(&all_shards(), at(5), 10).await.unwrap();
            found.sort_by_key(|due| due.wake_at);
            assert_eq!(found, [due("past", 1), due("now", 5)]);
        })
    }),
    ("a blocked execution is due like any open one", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let mut start = new(&order("1"));
            start.row = sleeping(Some(at(1)));
            start.row.status = Status::Blocked;
            node.start(start).await;
            assert_eq!(store.due(&all_shards(), at(5), 10).await.unwrap(), [due("1", 1)]);
        })
    }),
    ("each shard gives its earliest, and no more of them than the limit", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let (shard, keys) = of_one_shard(&node, &[50, 10, 40, 20, 30]).await;
            let mut elsewhere = (0..).map(|n| order(&format!("b{n}"))).filter(|key| key.shard(SHARDS) > shard);
            let other = elsewhere.next().unwrap();
            let mut start = new(&other);
            start.row = sleeping(Some(at(45)));
            node.start(start).await;

            let found = store.due(&[shard, other.shard(SHARDS)], at(100), 3).await.unwrap();
            let expected = [(&keys[1], 10), (&keys[3], 20), (&keys[4], 30), (&other, 45)]
                .map(|(key, second)| Due { key: key.clone(), wake_at: at(second) });
            assert_eq!(found, expected, "by shard and time");
            assert_eq!(store.due(&[shard], at(100), 3).await.unwrap().len(), 3);
            assert_eq!(store.due(&[], at(100), 3).await.unwrap(), []);
        })
    }),
    ("upcoming begins after one instant and ends with another", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let (shard, keys) = of_one_shard(&node, &[10, 20, 30, 40]).await;
            let found = store.upcoming(&[shard], at(10), at(30), 10).await.unwrap();
            let expected = [(&keys[1], 20), (&keys[2], 30)].map(|(key, s)| Due { key: key.clone(), wake_at: at(s) });
            assert_eq!(found, expected);
            assert_eq!(store.upcoming(&[shard], at(10), at(30), 1).await.unwrap(), expected[..1]);
        })
    }),
    ("the last instant there is can be slept until", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let mut start = new(&order("1"));
            start.row = sleeping(Some(Timestamp::MAX));
            node.start(start).await;
            let found = store.due(&all_shards(), Timestamp::MAX, 10).await.unwrap();
            assert_eq!(found, [Due { key: order("1"), wake_at: Timestamp::MAX }]);
        })
    }),
    ("an execution that moved its time is due at the new one only", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let mut start = new(&order("1"));
            start.row = sleeping(Some(at(1)));
            node.start(start).await;
            let mut extend = advance(&order("1"));
            extend.row = Some(sleeping(Some(at(100))));
            node.write(Write::Advance(extend)).await;
            assert_eq!(store.due(&all_shards(), at(99), 10).await.unwrap(), []);
            assert_eq!(store.due(&all_shards(), at(100), 10).await.unwrap(), [due("1", 100)]);
        })
    }),
];
