//! Files that are copied and moved.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sqlx::{AssertSqlSafe, Connection};

use super::scratch;
use crate::history::Record;
use crate::store::conformance::fixtures::{Node, new, order};
use crate::store::sqlite::{SqliteStore, connection};
use crate::store::{CopyError, NewExecution, Parcel, Place, Portable, Store, StoreError, Write, copy};

/// A store with one order.
async fn with_an_order(file: &Path) {
    let store = Arc::new(SqliteStore::open(file, 16).await.unwrap());
    Node::on(store.clone()).await.start(new(&order("1"))).await;
    Store::close(store.as_ref()).await;
}

async fn to_copy(file: &Path, shards: Option<u16>) -> SqliteStore {
    SqliteStore::open_to_copy(file, shards).await.unwrap()
}

async fn refusal(file: &Path) -> String {
    match SqliteStore::open(file, 16).await {
        Err(StoreError::Refused(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

#[tokio::test]
async fn a_moved_file_and_an_unfinished_copy_are_not_opened_and_say_what_to_do() {
    let dir = scratch();
    let (here, there) = (dir.path().join("here.db"), dir.path().join("there.db"));
    with_an_order(&here).await;
    let (from, to) = (to_copy(&here, None).await, to_copy(&there, Some(16)).await);
    let source = from.standing().await.unwrap().name;
    to.mark(Some(&source), None).await.unwrap();
    Store::close(&to).await;
    let message = refusal(&there).await;
    let again = format!("overdue copy --from {} --to sqlite:{}", source.url, there.canonicalize().unwrap().display());
    assert!(message.contains("unfinished copy") && message.contains(&again), "{message}");

    let to = to_copy(&there, None).await;
    copy(&from, &to).await.unwrap();
    Store::close(&from).await;
    Store::close(&to).await;
    let message = refusal(&here).await;
    assert!(message.contains("was moved to sqlite:") && message.contains("there.db"), "{message}");
    let store = SqliteStore::open(&there, 16).await.unwrap();
    assert!(store.find(&order("1")).await.unwrap().is_some());
    assert!(matches!(SqliteStore::open_to_copy(&there, None).await, Err(StoreError::Refused(held)) if held.contains("in use")));
    Store::close(&store).await;
}

#[tokio::test]
async fn a_file_that_is_renamed_is_still_the_same_store() {
    let dir = scratch();
    let (here, there, elsewhere) = (dir.path().join("here.db"), dir.path().join("there.db"), dir.path().join("elsewhere.db"));
    with_an_order(&here).await;
    let (from, to) = (to_copy(&here, None).await, to_copy(&there, Some(16)).await);
    copy(&from, &to).await.unwrap();
    Store::close(&from).await;
    Store::close(&to).await;
    std::fs::rename(&here, &elsewhere).unwrap();
    let (from, to) = (to_copy(&there, None).await, to_copy(&elsewhere, Some(16)).await);
    copy(&from, &to).await.unwrap();
    Store::close(&from).await;
    Store::close(&to).await;
    Store::close(&SqliteStore::open(&elsewhere, 16).await.unwrap()).await;
}

#[tokio::test]
async fn copying_what_is_not_there_creates_nothing_and_a_new_target_gets_the_shards_that_are_asked_for() {
    let dir = scratch();
    let (absent, target) = (dir.path().join("absent.db"), dir.path().join("target.db"));
    assert!(matches!(SqliteStore::open_to_copy(&absent, None).await, Err(StoreError::Refused(_))));
    assert!(!absent.exists());
    let store = to_copy(&target, Some(16)).await;
    assert_eq!(Store::facts(&store).shards, 16);
    Store::close(&store).await;
    assert_eq!(Store::facts(&to_copy(&target, None).await).shards, 16);
}

#[tokio::test]
async fn rows_that_no_execution_leads_to_are_noticed_and_not_left_behind_in_silence() {
    let dir = scratch();
    let (here, there) = (dir.path().join("here.db"), dir.path().join("there.db"));
    with_an_order(&here).await;
    let mut raw = connection::open_writer(&here).await.unwrap();
    let orphan = "INSERT INTO history (run_id, first_event, events) VALUES (randomblob(16), 1, x'01')";
    sqlx::query(AssertSqlSafe(orphan)).execute(&mut raw).await.unwrap();
    raw.close().await.unwrap();
    let (from, to) = (to_copy(&here, None).await, to_copy(&there, Some(16)).await);
    let error = copy(&from, &to).await.unwrap_err();
    assert!(matches!(&error, CopyError::Unequal(why) if why.contains("the source's rows")), "{error}");
    assert!(from.standing().await.unwrap().check_servable().is_ok());
}

#[tokio::test]
async fn large_histories_travel_in_smaller_parcels() {
    let dir = scratch();
    let store = Arc::new(SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap());
    let node = Node::on(store.clone()).await;
    for n in 0..5 {
        let record = Record { first_event: 1, bytes: Bytes::from(vec![7; 6 << 20]) };
        node.write(Write::Start(NewExecution { record, ..new(&order(&n.to_string())) })).await;
    }
    let mut sizes = Vec::new();
    let mut place = Some(Place::START);
    while let Some(at) = place {
        let (parcel, next) = store.export(&at, 500).await.unwrap();
        if let Parcel::Executions(all) = parcel {
            assert!(all.iter().all(|one| one.records.len() == 1));
            sizes.push(all.len());
        }
        place = next;
    }
    assert_eq!(sizes, [2, 2, 1, 0]);
}
