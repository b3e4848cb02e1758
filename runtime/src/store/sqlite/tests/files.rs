//! Files: reopening, the lock, schemas, the number of shards.

use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use super::scratch;
use crate::id::WorkflowKey;
use crate::store::conformance::fixtures::{Node, advance, at, new, order, record, signal, sleeping};
use crate::store::migrations::tests::{files_of, known_of};
use crate::store::sqlite::{SqliteStore, connection, schema};
use crate::store::{Advance, AttributeValue, Filter, Outcome, Store, StoreError, Token, Write};

async fn opened(file: &Path) -> std::sync::Arc<SqliteStore> {
    std::sync::Arc::new(SqliteStore::open(file, 64).await.unwrap())
}

async fn refusal(file: &Path, shards: u16) -> String {
    match SqliteStore::open(file, shards).await {
        Err(StoreError::Refused(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

/// Runs a statement on a file that no store has open.
async fn run(file: &Path, sql: &str) {
    let mut connection = connection::open_writer(file).await.unwrap();
    sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[test]
fn every_migration_file_is_part_of_the_program_and_nothing_else_is() {
    assert_eq!(known_of(&schema::MIGRATOR), files_of("sqlite"));
}

#[tokio::test]
async fn everything_is_there_again_after_a_store_was_closed_and_opened() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    let store = opened(&file).await;
    let node = Node::on(store.clone()).await;
    let mut start = new(&order("1"));
    start.attributes = vec![("sku".into(), AttributeValue::Text("A".into()))];
    node.start(start).await;
    let more = Advance { record: Some(record(2, "more")), row: Some(sleeping(Some(at(9)))), ..advance(&order("1")) };
    assert_eq!(node.write(Write::Advance(more)).await, Outcome::Advanced);
    node.deposit(&signal(&order("1"), "s", at(1))).await;
    let token = Token {
        name: "shop".into(),
        secret_hash: [1; 32],
        scopes: "start".into(),
        types: String::new(),
        created_at: at(0),
        expires_at: None,
    };
    store.create_token(&token).await.unwrap();
    let before = (node.load(&order("1")).await, store.list(&Filter::default(), None, 10).await.unwrap());
    assert_eq!((before.0.records.len(), before.0.inbox.len(), before.1.rows.len()), (2, 1, 1));
    store.close().await;

    let again = opened(&file).await;
    let node_again = Node::on(again.clone()).await;
    assert_eq!((node_again.load(&order("1")).await, again.list(&Filter::default(), None, 10).await.unwrap()), before);
    assert_eq!(again.tokens().await.unwrap(), [token]);
    assert!(node_again.fence.epoch > node.fence.epoch);
    assert!(again.commit(&node.fence, &[]).await.is_err(), "the fence of the process before is void");
}

#[tokio::test]
async fn the_inbox_is_counted_again_after_opening() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    let store = opened(&file).await;
    Node::on(store.clone()).await.deposit(&signal(&order("1"), "s", at(1))).await;
    store.close().await;
    let node = Node::on(opened(&file).await).await;
    assert_eq!(node.write(Write::Start(new(&order("1")))).await, Outcome::Started { inbox: true });
}

#[tokio::test]
async fn a_second_store_on_one_file_is_refused_until_the_first_is_closed() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    let store = opened(&file).await;
    let message = refusal(&file, 64).await;
    for part in [file.to_str().unwrap(), "another overdue", "--url"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(matches!(SqliteStore::migrate(&file).await, Err(StoreError::Refused(_))));
    store.close().await;
    opened(&file).await.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_name_of_a_file_is_the_same_file() {
    let dir = scratch();
    let (file, link) = (dir.path().join("a.db"), dir.path().join("link.db"));
    let store = opened(&file).await;
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(refusal(&link, 64).await.contains("another overdue"));
    store.close().await;
    opened(&link).await.close().await;
}

#[tokio::test]
async fn a_store_that_is_dropped_releases_its_file() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    drop(opened(&file).await);
    // The writer ends on its own when nobody can reach it any more.
    for _ in 0..1000 {
        match SqliteStore::open(&file, 64).await {
            Ok(store) => return store.close().await,
            Err(_) => tokio::task::yield_now().await,
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("still locked");
}

#[tokio::test]
async fn another_number_of_shards_is_refused_with_both_numbers() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    opened(&file).await.close().await;
    let message = refusal(&file, 16).await;
    assert!(message.contains("64") && message.contains("16"), "{message}");
    opened(&file).await.close().await;
}

#[tokio::test]
async fn a_database_of_an_older_program_is_refused_until_it_is_migrated() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    let mut older = connection::open_writer(&file).await.unwrap();
    let all: Vec<_> = schema::MIGRATOR.iter().cloned().collect();
    Migrator::with_migrations(all[..all.len() - 1].to_vec()).run(&mut older).await.unwrap();
    schema::fix_shards(&mut older, 64).await.unwrap();
    sqlx::query("INSERT INTO types (name) VALUES ('order-timeout')").execute(&mut older).await.unwrap();
    for (id, status, closed_at) in [("open", 0, None), ("closed", 2, Some(1))] {
        sqlx::query(
            "INSERT INTO executions (type, id, shard, run_id, status, closed_at, rev, request_hash, needs_attention)
             VALUES (1, ?1, 0, randomblob(16), ?2, ?3, 0, randomblob(16), 0)",
        )
        .bind(id)
        .bind(status)
        .bind(closed_at)
        .execute(&mut older)
        .await
        .unwrap();
    }
    older.close().await.unwrap();

    let message = refusal(&file, 64).await;
    assert!(message.contains("overdue migrate"), "{message}");
    SqliteStore::migrate(&file).await.unwrap();
    SqliteStore::migrate(&file).await.unwrap();
    let store = opened(&file).await;
    assert_eq!(store.tokens().await.unwrap(), []);
    assert_eq!(store.list(&Filter::default(), None, 10).await.unwrap().rows.len(), 2, "what was there is there");
    store.close().await;
}

#[tokio::test]
async fn a_creation_that_was_interrupted_is_finished_by_the_next_one() {
    for done in 0..schema::MIGRATOR.iter().count() {
        let dir = scratch();
        let file = dir.path().join("a.db");
        let mut half = connection::open_writer(&file).await.unwrap();
        let all: Vec<_> = schema::MIGRATOR.iter().take(done).cloned().collect();
        Migrator::with_migrations(all).run(&mut half).await.unwrap();
        half.close().await.unwrap();
        let node = Node::on(opened(&file).await).await;
        node.start(new(&order("1"))).await;
    }
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused_and_not_migrated() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    opened(&file).await.close().await;
    run(
        &file,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', 1, x'00', 0)",
    )
    .await;
    let message = refusal(&file, 64).await;
    assert!(message.contains("newer") && message.contains("9999"), "{message}");
    assert!(matches!(SqliteStore::migrate(&file).await, Err(StoreError::Refused(_))));
}

#[tokio::test]
async fn somebody_elses_database_is_refused_and_left_alone() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    run(&file, "CREATE TABLE recipes (name TEXT)").await;
    assert!(refusal(&file, 64).await.contains("not one of overdue"));
    let mut theirs = connection::open_writer(&file).await.unwrap();
    assert_eq!(tables(&mut theirs).await, ["recipes"]);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    std::fs::write(&file, "these are not the pages of a database".repeat(1000)).unwrap();
    assert!(refusal(&file, 64).await.contains("a.db"));
    let message = refusal(&dir.path().join("no/such/place.db"), 64).await;
    assert!(message.contains("place.db"), "{message}");
}

#[tokio::test]
async fn migrating_what_is_not_there_creates_nothing() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    assert!(matches!(SqliteStore::migrate(&file).await, Err(StoreError::Refused(_))));
    assert!(!file.exists());
}

#[tokio::test]
async fn readers_cannot_write() {
    let dir = scratch();
    let store = opened(&dir.path().join("a.db")).await;
    let mut reader = store.readers.connection().await.unwrap();
    assert!(sqlx::query("DELETE FROM executions").execute(&mut *reader).await.is_err());
}

#[tokio::test]
async fn the_constraints_keep_what_the_program_would_not_write() {
    let dir = scratch();
    let file = dir.path().join("a.db");
    let store = opened(&file).await;
    let node = Node::on(store.clone()).await;
    node.start(new(&WorkflowKey::new("order-timeout", "1"))).await;
    store.close().await;
    let mut connection = connection::open_writer(&file).await.unwrap();
    for sql in [
        "UPDATE executions SET closed_at = 1",
        "UPDATE executions SET status = 2",
        "UPDATE executions SET status = 6",
        "UPDATE executions SET status = 3, closed_at = 1",
        "UPDATE executions SET run_id = x'00'",
        "UPDATE executions SET id = ''",
        "UPDATE executions SET wake_at = 'tomorrow'",
        "UPDATE executions SET tombstone = x'01'",
        "UPDATE executions SET status = 2, closed_at = 1, wake_at = NULL, tombstone = x''",
        "UPDATE history SET first_event = 0",
        "UPDATE history SET events = x''",
        "INSERT INTO history (run_id, first_event, events) SELECT run_id, 1, x'01' FROM executions",
        "INSERT INTO meta (one, shards) VALUES (2, 64)",
    ] {
        assert!(sqlx::query(sql).execute(&mut connection).await.is_err(), "{sql}");
    }
}

async fn tables(connection: &mut SqliteConnection) -> Vec<String> {
    sqlx::query_scalar("SELECT name FROM sqlite_schema ORDER BY name").fetch_all(connection).await.unwrap()
}
