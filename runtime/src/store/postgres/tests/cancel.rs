//! Callers that go away: whatever moment they choose, no session stays in a transaction and no write stops half way.

use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::{Executor, Row};
use tokio::sync::oneshot;

use super::{database, opened, session};
use crate::store::conformance::fixtures::{Node, all_shards, at, new, order, signal};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::commit::Batch;
use crate::store::postgres::writer::Command;
use crate::store::{Filter, Store, Write};
use crate::testing::eventually;

/// Polls a future `polls` times, the world going on in between, and drops it.
async fn give_up_after(polls: usize, mut work: BoxFuture<'_, ()>) -> bool {
    for _ in 0..polls {
        if futures::poll!(&mut work).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

fn reads(store: &Arc<PostgresStore>) -> [BoxFuture<'_, ()>; 8] {
    let keys = [order("1"), order("2")];
    let by_time = Filter { due_before: Some(at(9999)), ..Filter::default() };
    [
        Box::pin(async move { drop(store.load(&keys).await.unwrap()) }),
        Box::pin(async { drop(store.find(&order("1")).await.unwrap()) }),
        Box::pin(async { drop(store.due(&all_shards(), at(9999), 5).await.unwrap()) }),
        Box::pin(async { drop(store.list(&Filter::default(), None, 5).await.unwrap()) }),
        Box::pin(async move { drop(store.list(&by_time, None, 5).await.unwrap()) }),
        Box::pin(async { drop(store.unclaimed(&all_shards(), at(9), 5).await.unwrap()) }),
        Box::pin(async { drop(store.attributes(&order("1")).await.unwrap()) }),
        Box::pin(async { drop(store.tokens().await.unwrap()) }),
    ]
}

#[tokio::test]
async fn a_read_that_is_given_up_at_any_poll_leaves_no_session_in_a_transaction_and_no_wrong_answer() {
    let url = database().await;
    let store = opened(&url).await;
    let node = Node::on(store.clone()).await;
    for id in ["1", "2"] {
        node.start(new(&order(id))).await;
        node.deposit(&signal(&order(id), "s", at(1))).await;
    }
    let expected = node.load(&order("1")).await;
    for which in 0..reads(&store).len() {
        // Its sessions are not there yet, and no statement is prepared.
        let cold = opened(&url).await;
        let (mut polls, mut done) = (0, false);
        while !done {
            polls += 1;
            done = give_up_after(polls, reads(&cold).into_iter().nth(which).unwrap()).await;
            let read = cold.load(&[order("1")]).await.unwrap().remove(0).unwrap();
            assert_eq!(read, expected, "read {which} given up after {polls} polls");
        }
        assert!(polls > 1, "read {which} waits for the database");
    }
    let mut beside = session(&url).await;
    let stuck = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'";
    let row = beside.fetch_one(stuck).await.unwrap();
    assert_eq!(row.get::<i64, _>(0), 0);
}

#[tokio::test]
async fn a_renewal_or_a_takeover_that_is_given_up_leaves_no_lock() {
    let url = database().await;
    let store = opened(&url).await;
    let (node, heir) = (Node::on(store.clone()).await, Node::beside(store.clone()).await);
    for polls in 0..20 {
        let renewal = Box::pin(async { drop(store.renew(&node.fence, std::time::Duration::ZERO).await) });
        give_up_after(polls, renewal).await;
        let takeover = Box::pin(async { drop(store.take_over("nobody", std::time::Duration::ZERO).await) });
        give_up_after(polls, takeover).await;
    }
    assert_eq!(node.commit(&[]).await, vec![]);
    // What was given up goes on by itself.
    give_up_after(1, Box::pin(async { drop(store.take_over(&node.fence.node_id, std::time::Duration::ZERO).await) })).await;
    eventually("the node is ended", async || (heir.membership().await.members.len() == 1).then_some(())).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_its_commit() {
    let store = opened(&database().await).await;
    let node = Node::on(store.clone()).await;
    let (answer, answered) = oneshot::channel();
    let writes = (0..200).map(|n| Write::Start(new(&order(&n.to_string())))).collect();
    let command = Command::Commit(Batch { fence: node.fence.clone(), writes }, answer);
    assert!(store.commands.send(command).await.is_ok());
    drop(answered);
    assert_eq!(node.commit(&[]).await, vec![], "the next command waits its turn");
    assert!(node.find(&order("199")).await.is_some());
}

#[tokio::test]
async fn a_commit_that_is_given_up_at_any_poll_is_whole_or_not_there() {
    let store = opened(&database().await).await;
    let node = Node::on(store.clone()).await;
    for polls in 0..12 {
        let keys: Vec<_> = (0..3).map(|n| order(&format!("{polls}-{n}"))).collect();
        let writes: Vec<Write> = keys.iter().map(|key| Write::Start(new(key))).collect();
        give_up_after(polls, Box::pin(async { drop(node.try_commit(&writes).await) })).await;
        node.commit(&[]).await;
        let there = store.load(&keys).await.unwrap().iter().flatten().count();
        assert!(there == 0 || there == 3, "{there} of 3 after {polls} polls");
    }
}
