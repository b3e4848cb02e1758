//! A full disk, a long log, callers that go away, transactions that fail.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::scratch;
use crate::history::Record;
use crate::store::conformance::fixtures::{Node, at, deposit, new, order, signal};
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::log_path;
use crate::store::sqlite::writer::Command;
use crate::store::{CommitError, NewExecution, Outcome, Store, Write};

fn big(id: &str) -> NewExecution {
    let record = Record { first_event: 1, bytes: Bytes::from(vec![7; 100_000]) };
    NewExecution { record, ..new(&order(id)) }
}

async fn limit_pages(store: &SqliteStore, pages: Option<u32>) {
    store.ask(|answer| Command::LimitPages { pages, answer }).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_said_to_be_full_and_loses_nothing_that_was_acknowledged() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    let store = Arc::new(SqliteStore::open(&file, 64).await.unwrap());
    let node = Node::on(store.clone()).await;
    limit_pages(&store, Some(200)).await;
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    for n in 0..20 {
        let id = n.to_string();
        match node.try_commit(&[Write::Start(new(&order(&format!("small-{n}")))), Write::Start(big(&id))]).await {
            Ok(_) => acknowledged.push(order(&id)),
            Err(CommitError::DiskFull(_)) => {
                refused += 1;
                assert_eq!(node.find(&order(&id)).await, None);
                assert_eq!(node.find(&order(&format!("small-{n}"))).await, None, "the whole batch is rolled back");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(acknowledged.len() >= 2 && refused >= 2, "{} and {refused}", acknowledged.len());

    limit_pages(&store, None).await;
    node.start(big("after")).await;
    acknowledged.push(order("after"));
    store.close().await;
    let again = SqliteStore::open(&file, 64).await.unwrap();
    for loaded in again.load(&acknowledged).await.unwrap() {
        assert_eq!(loaded.unwrap().records[0].bytes.len(), 100_000);
    }
}

#[tokio::test]
async fn a_rejected_batch_leaves_no_transaction_and_no_memory_of_what_it_wrote() {
    let dir = scratch();
    let store = Arc::new(SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap());
    let node = Node::on(store).await;
    let mut poison = new(&crate::id::WorkflowKey::new("new-type", "2"));
    poison.row.closed_at = Some(at(1));
    for _ in 0..3 {
        // The batch gives a number to a type and counts a signal before it fails.
        let batch = [deposit(&signal(&order("1"), "s", at(1))), Write::Start(poison.clone())];
        assert!(matches!(node.try_commit(&batch).await, Err(CommitError::Rejected(_))));
    }
    let sound = new(&crate::id::WorkflowKey::new("new-type", "2"));
    assert_eq!(node.write(Write::Start(sound.clone())).await, Outcome::Started { inbox: false });
    assert_eq!(node.find(&sound.key).await.unwrap().key, sound.key, "its type has a name");
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_its_commit() {
    let dir = scratch();
    let store = Arc::new(SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap());
    let node = Node::on(store.clone()).await;
    let (answer, answered) = oneshot::channel();
    let writes = (0..200).map(|n| Write::Start(new(&order(&n.to_string())))).collect();
    let command = Command::Commit { fence: node.fence.clone(), writes, answer };
    assert!(store.commands.send(command).await.is_ok());
    drop(answered);
    assert_eq!(node.commit(&[]).await, vec![], "the next command waits its turn");
    assert!(node.find(&order("199")).await.is_some());
}

#[tokio::test]
async fn a_read_that_is_given_up_leaves_no_old_state_behind() {
    let dir = scratch();
    let store = Arc::new(SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap());
    let node = Node::on(store.clone()).await;
    for n in 0..100u64 {
        let key = order(&n.to_string());
        let keys = [key.clone()];
        // Given up after another number of polls each time.
        let mut read = store.load(&keys);
        for _ in 0..n % 7 {
            if futures::poll!(&mut read).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(read);
        node.start(new(&key)).await;
        for _ in 0..4 {
            assert!(store.load(&keys).await.unwrap()[0].is_some(), "a connection shows the state before the commit");
        }
    }
}

#[tokio::test]
async fn a_log_that_readers_let_grow_is_cut() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    let store = Arc::new(SqliteStore::open(&file, 64).await.unwrap());
    let node = Node::on(store.clone()).await;
    node.start(big("first")).await;
    let log_bytes = || std::fs::metadata(log_path(&file)).unwrap().len();
    let megabytes = |n: u64| n << 20;
    let mut written = 0;
    let mut highest = 0;
    // A reader of one state after another: at every moment some reader is in the log.
    let mut reader = store.readers.snapshot().await.unwrap();
    sqlx::query("SELECT count(*) FROM types").fetch_one(&mut *reader).await.unwrap();
    while highest <= megabytes(64) {
        let batch: Vec<Write> = (0..20).map(|n| Write::Start(big(&format!("{written}-{n}")))).collect();
        node.commit(&batch).await;
        written += 1;
        highest = highest.max(log_bytes());
        assert!(written < 200, "the log stays at {highest} bytes although a reader is in it");
    }
    drop(reader);
    node.start(big("next")).await;
    for n in 0..20 {
        node.start(big(&format!("then-{n}"))).await;
    }
    assert!(log_bytes() < megabytes(17), "{} bytes", log_bytes());
    assert!(node.find(&order("0-0")).await.is_some());
}
