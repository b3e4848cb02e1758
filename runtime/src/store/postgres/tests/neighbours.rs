//! Other nodes write at the same moment: who wins, who waits, and that nothing slips past.

use std::sync::Arc;

use futures::future::join_all;
use sqlx::postgres::PgConnection;
use sqlx::{Executor, Row};
use tokio::task::JoinHandle;

use super::{aside, database, opened, session};
use crate::id::WorkflowKey;
use crate::store::conformance::fixtures::{Node, advance, at, closed, deposit, new, order, record, run_of, signal};
use crate::store::{Advance, CommitError, NewExecution, Outcome, Status, Write};
use crate::testing::eventually;

/// Two nodes with sessions of their own, the first of which owns every shard, and somebody beside them.
async fn two_nodes() -> (Arc<Node>, Arc<Node>, PgConnection) {
    let url = database().await;
    let owner = Node::on(opened(&url).await).await;
    let other = Node::beside(opened(&url).await).await;
    (Arc::new(owner), Arc::new(other), session(&url).await)
}

fn commit(node: &Arc<Node>, writes: Vec<Write>) -> JoinHandle<Result<Vec<Outcome>, CommitError>> {
    let node = Arc::clone(node);
    aside(async move { node.try_commit(&writes).await })
}

/// Waits until so many sessions of the database wait for a lock.
async fn waiting(beside: &mut PgConnection, sessions: i64) {
    let beside = tokio::sync::Mutex::new(beside);
    eventually("sessions wait for a lock", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let mut beside = beside.lock().await;
        (beside.fetch_one(sql).await.unwrap().get::<i64, _>(0) == sessions).then_some(())
    })
    .await;
}

/// A deadline that closes the order, unless a signal was stored before.
fn deadline(id: &str) -> Write {
    Write::Advance(Advance {
        record: Some(record(2, "fired")),
        row: Some(closed(Status::Completed, at(2))),
        emit: Vec::new(),
        guard_inbox: true,
        ..advance(&order(id))
    })
}

#[tokio::test]
async fn of_many_identical_starts_on_two_nodes_one_creates_and_all_others_see_its_row() {
    let (one, other, _) = two_nodes().await;
    for round in 0..10 {
        let keys: Vec<WorkflowKey> = (0..20).map(|n| order(&format!("{round}-{n}"))).collect();
        let start = |name: &str| -> Vec<Write> {
            let run = |key: &WorkflowKey| run_of(&order(&format!("{name} {key}")));
            keys.iter().map(|key| Write::Start(NewExecution { run_id: run(key), ..new(key) })).collect()
        };
        let nodes = [&one, &other];
        let commits = (0..8).map(|n| commit(nodes[n % 2], start(&n.to_string())));
        let all: Vec<Vec<Outcome>> = join_all(commits).await.into_iter().map(|done| done.unwrap().unwrap()).collect();
        for (place, key) in keys.iter().enumerate() {
            let row = one.find(key).await.unwrap();
            let created = all.iter().filter(|outcomes| matches!(outcomes[place], Outcome::Started { .. })).count();
            let seen = all.iter().filter(|outcomes| outcomes[place] == Outcome::Exists(Box::new(row.clone()))).count();
            assert_eq!((created, seen), (1, 7), "{key}");
            assert_eq!(one.load(key).await.records.len(), 1);
        }
    }
}

#[tokio::test]
async fn a_deadline_waits_for_a_signal_that_is_just_being_stored_and_sees_it() {
    let (owner, other, mut beside) = two_nodes().await;
    owner.start(new(&order("1"))).await;
    owner.start(new(&order("2"))).await;
    // Holds the deposit up after it took its share of the row: the same key is being inserted by somebody else.
    beside
        .execute(sqlx::raw_sql(
            "BEGIN;
             INSERT INTO overdue.inbox SELECT 0, e.shard, e.type, false, e.run_id, e.id, 'payment', 'n', '1'
             FROM overdue.executions AS e WHERE e.id = '1'",
        ))
        .await
        .unwrap();
    let depositing = commit(&other, vec![deposit(&signal(&order("1"), "payment", at(1)))]);
    waiting(&mut beside, 1).await;
    let closing = commit(&owner, vec![deadline("1"), deadline("2")]);
    waiting(&mut beside, 2).await;
    beside.execute("ROLLBACK").await.unwrap();
    assert_eq!(depositing.await.unwrap().unwrap(), [Outcome::Deposited]);
    assert_eq!(closing.await.unwrap().unwrap(), [Outcome::UnreadInbox, Outcome::Advanced], "the payment came first");
}

#[tokio::test]
async fn a_signal_waits_for_a_deadline_that_is_just_being_committed_and_is_stored_after_it() {
    let (owner, other, mut beside) = two_nodes().await;
    owner.start(new(&order("1"))).await;
    // Holds the deadline up after its guard was evaluated: its position is being taken by somebody else.
    beside
        .execute(sqlx::raw_sql(
            "BEGIN; INSERT INTO overdue.history SELECT 2, shard, run_id, 'x' FROM overdue.executions WHERE id = '1'",
        ))
        .await
        .unwrap();
    let closing = commit(&owner, vec![deadline("1")]);
    waiting(&mut beside, 1).await;
    let depositing = commit(&other, vec![deposit(&signal(&order("1"), "payment", at(1)))]);
    waiting(&mut beside, 2).await;
    beside.execute("ROLLBACK").await.unwrap();
    assert_eq!(closing.await.unwrap().unwrap(), [Outcome::Advanced]);
    assert_eq!(depositing.await.unwrap().unwrap(), [Outcome::Deposited]);
    let loaded = owner.load(&order("1")).await;
    assert_eq!((loaded.execution.status, loaded.inbox.len()), (Status::Completed, 1), "the late handler finds it");
}

#[tokio::test]
async fn deadlines_and_signals_that_race_are_never_both_first() {
    let (owner, other, mut beside) = two_nodes().await;
    for round in 0..40 {
        let ids: Vec<String> = (0..5).map(|n| format!("{round}-{n}")).collect();
        owner.commit(&ids.iter().map(|id| Write::Start(new(&order(id)))).collect::<Vec<_>>()).await;
        let closing = commit(&owner, ids.iter().map(|id| deadline(id)).collect());
        let depositing = commit(&other, ids.iter().map(|id| deposit(&signal(&order(id), "s", at(1)))).collect());
        let (closed, deposited) = (closing.await.unwrap().unwrap(), depositing.await.unwrap().unwrap());
        assert_eq!(deposited, vec![Outcome::Deposited; 5]);
        for (id, outcome) in ids.iter().zip(closed) {
            let sql = "SELECT pg_xact_commit_timestamp(e.xmin) < pg_xact_commit_timestamp(x.xmin)
                       FROM overdue.executions AS e JOIN overdue.inbox AS x USING (shard, type, id) WHERE e.id = $1";
            let deadline_first: bool = sqlx::query_scalar(sql).bind(id).fetch_one(&mut beside).await.unwrap();
            match outcome {
                Outcome::Advanced => assert!(deadline_first, "{id}: a signal that was stored before was missed"),
                Outcome::UnreadInbox => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn one_signal_that_two_nodes_store_at_once_is_stored_once() {
    let (one, other, mut beside) = two_nodes().await;
    for round in 0..20 {
        let row = signal(&order("1"), &format!("s{round}"), at(1));
        let commits = [commit(&one, vec![deposit(&row)]), commit(&other, vec![deposit(&row)])];
        let mut outcomes: Vec<Outcome> =
            join_all(commits).await.into_iter().map(|done| done.unwrap().unwrap().remove(0)).collect();
        outcomes.sort_by_key(|outcome| *outcome != Outcome::Deposited);
        assert_eq!(outcomes, [Outcome::Deposited, Outcome::Duplicate]);
    }
    assert_eq!(beside.fetch_one("SELECT count(*) FROM overdue.inbox").await.unwrap().get::<i64, _>(0), 20);
}

#[tokio::test]
async fn a_deadlock_is_nobodys_error() {
    let (owner, other, mut beside) = two_nodes().await;
    // Of one shard, so that they are locked in the order of their ids.
    let shard = order("a").shard(64);
    let mut keys = (0..).map(|n| order(&format!("a{n:05}"))).filter(|key| key.shard(64) == shard);
    let (low, high) = (keys.next().unwrap(), keys.next().unwrap());
    owner.start(new(&low)).await;
    owner.start(new(&high)).await;
    // It does not look for deadlocks itself, so that the node is the one who loses.
    beside.execute(sqlx::raw_sql("SET deadlock_timeout = '60s'; BEGIN")).await.unwrap();
    let lock = "SELECT FROM overdue.executions WHERE id = $1 FOR UPDATE";
    sqlx::query(lock).bind(high.id()).execute(&mut beside).await.unwrap();
    let depositing = commit(&other, vec![deposit(&signal(&low, "s", at(1))), deposit(&signal(&high, "s", at(1)))]);
    waiting(&mut beside, 1).await;
    sqlx::query(lock).bind(low.id()).execute(&mut beside).await.unwrap();
    beside.execute("COMMIT").await.unwrap();
    assert_eq!(depositing.await.unwrap().unwrap(), [Outcome::Deposited, Outcome::Deposited]);
}

#[tokio::test]
async fn new_types_that_two_nodes_name_at_once_get_two_numbers() {
    let (one, other, mut beside) = two_nodes().await;
    for round in 0..10 {
        let start = |name: &str| vec![Write::Start(new(&WorkflowKey::new(format!("{name}-{round}"), "1")))];
        let commits = [commit(&one, start("a")), commit(&other, start("b"))];
        for done in join_all(commits).await {
            assert_eq!(done.unwrap().unwrap(), [Outcome::Started { inbox: false }]);
        }
    }
    let row = beside.fetch_one("SELECT count(DISTINCT code), count(*), max(code)::bigint FROM overdue.types").await.unwrap();
    assert_eq!((row.get::<i64, _>(0), row.get::<i64, _>(1), row.get::<i64, _>(2)), (20, 20, 20));
}

#[tokio::test]
async fn shards_that_two_nodes_claim_at_once_are_shared_out() {
    let url = database().await;
    let (one, other) = (Node::beside(opened(&url).await).await, Node::beside(opened(&url).await).await);
    let (first, second) = tokio::join!(one.claim(32), other.claim(32));
    let mut all = [first, second].concat();
    all.extend(one.claim(64).await);
    all.sort_unstable();
    assert_eq!(all, (0..64).collect::<Vec<u16>>());
}

#[tokio::test]
async fn a_caller_that_repeats_a_request_in_an_open_transaction_does_not_hold_up_the_lane() {
    let (owner, _, mut beside) = two_nodes().await;
    owner.start(new(&order("known"))).await;
    let asks = "SELECT overdue.start_workflow('order-timeout', '1', '{}')";
    beside.execute(asks).await.unwrap();
    beside.execute("BEGIN").await.unwrap();
    beside.execute(asks).await.unwrap();
    let requested = || NewExecution { requested: true, ..new(&order("1")) };
    let outcomes = owner.try_commit(&[Write::Start(requested()), Write::Start(new(&order("neighbour")))]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Started { inbox: false }, Outcome::Started { inbox: false }]);
    let left = async || owner.store.requested_start(&order("1")).await.unwrap();
    assert!(left().await.is_some(), "the next scan finds it again");
    beside.execute("COMMIT").await.unwrap();
    let again = owner.try_commit(&[Write::Start(requested())]).await.unwrap();
    assert!(matches!(again[..], [Outcome::Exists(_)]), "{again:?}");
    assert_eq!(left().await, None);
}
