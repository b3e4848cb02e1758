//! Databases: reopening, schemas, migrations, the number of shards, rights.

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};

use super::{database, empty_database, opened, session};
use crate::store::conformance::fixtures::{Node, advance, at, new, order, record, signal, sleeping};
use crate::store::migrations::tests::{files_of, known_of};
use crate::store::postgres::{PostgresStore, migrate, schema};
use crate::store::{Advance, AttributeValue, Filter, Outcome, Store, StoreError, Token, Write};

async fn refusal(url: &str, shards: u16) -> String {
    match PostgresStore::open(url, shards).await {
        Err(StoreError::Refused(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

async fn run(url: &str, sql: &str) {
    session(url).await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

/// Applies the first of this program's migrations, as an older program or an interrupted run did.
async fn apply_first(url: &str, count: usize) -> PgConnection {
    let mut connection = session(url).await;
    let mut migrator = Migrator::with_migrations(schema::MIGRATIONS.iter().take(count).cloned().collect());
    migrator.dangerous_set_table_name(migrate::APPLIED);
    migrator.create_schema("overdue");
    migrator.run(&mut connection).await.unwrap();
    connection
}

/// A database as the program before this one left it.
async fn older_database() -> String {
    let url = empty_database().await;
    let mut connection = apply_first(&url, schema::MIGRATIONS.iter().count() - 1).await;
    schema::fix_shards(&mut connection, 64).await.unwrap();
    connection.close().await.unwrap();
    url
}

#[test]
fn every_migration_file_is_part_of_the_program_and_nothing_else_is() {
    assert_eq!(known_of(&schema::MIGRATIONS), files_of("postgres"));
}

#[tokio::test]
async fn everything_is_there_again_after_a_store_was_closed_and_opened() {
    let url = database().await;
    let store = opened(&url).await;
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

    let again = opened(&url).await;
    let node_again = Node::on(again.clone()).await;
    assert_eq!((node_again.load(&order("1")).await, again.list(&Filter::default(), None, 10).await.unwrap()), before);
    assert_eq!(again.tokens().await.unwrap(), [token]);
    assert!(node_again.fence.epoch > node.fence.epoch);
}

#[tokio::test]
async fn another_number_of_shards_is_refused_with_both_numbers() {
    let url = database().await;
    let message = refusal(&url, 16).await;
    assert!(message.contains("64") && message.contains("16"), "{message}");
    assert!(refusal(&url, 40_000).await.contains("32767"), "what cannot be stored is refused before");
    opened(&url).await.close().await;
}

#[tokio::test]
async fn a_database_of_an_older_program_is_refused_until_it_is_migrated() {
    let url = older_database().await;
    let message = refusal(&url, 64).await;
    assert!(message.contains("overdue migrate"), "{message}");
    PostgresStore::migrate(&url).await.unwrap();
    PostgresStore::migrate(&url).await.unwrap();
    assert_eq!(opened(&url).await.tokens().await.unwrap(), []);
}

#[tokio::test]
async fn a_creation_that_was_interrupted_is_finished_by_the_next_one() {
    for done in 0..schema::MIGRATIONS.iter().count() {
        let url = empty_database().await;
        apply_first(&url, done).await.close().await.unwrap();
        let node = Node::on(opened(&url).await).await;
        node.start(new(&order("1"))).await;
    }
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused_and_not_migrated() {
    let url = database().await;
    run(
        &url,
        "INSERT INTO overdue._sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', true, '', 0);
         UPDATE overdue.meta SET compatible = 9999",
    )
    .await;
    let message = refusal(&url, 64).await;
    assert!(message.contains("newer") && message.contains("9999"), "{message}");
    assert!(matches!(PostgresStore::migrate(&url).await, Err(StoreError::Refused(_))));
}

#[tokio::test]
async fn a_newer_database_that_says_it_is_compatible_is_used_by_the_old_program() {
    let url = database().await;
    run(
        &url,
        "INSERT INTO overdue._sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', true, '', 0);
         ALTER TABLE overdue.executions ADD COLUMN later integer",
    )
    .await;
    let node = Node::on(opened(&url).await).await;
    node.start(new(&order("1"))).await;
    PostgresStore::migrate(&url).await.unwrap();
}

#[tokio::test]
async fn somebody_elses_schema_is_refused_and_left_alone() {
    let url = empty_database().await;
    run(&url, "CREATE SCHEMA overdue; CREATE TABLE overdue.recipes (name text)").await;
    assert!(refusal(&url, 64).await.contains("not one of this program"));
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT relname::text FROM pg_class WHERE relnamespace = 'overdue'::regnamespace")
            .fetch_all(&mut session(&url).await)
            .await
            .unwrap();
    assert_eq!(tables, ["recipes"]);
}

#[tokio::test]
async fn other_schemas_of_the_database_are_nobodys_business() {
    let url = empty_database().await;
    // What would be taken for ours, were the names not qualified.
    run(&url, "CREATE TABLE executions (id text); CREATE TABLE _sqlx_migrations (version text)").await;
    let node = Node::on(opened(&url).await).await;
    node.start(new(&order("1"))).await;
}

#[tokio::test]
async fn a_migration_that_was_changed_afterwards_is_refused() {
    let url = database().await;
    run(&url, "UPDATE overdue._sqlx_migrations SET checksum = '\\x00' WHERE version = 2").await;
    assert!(refusal(&url, 64).await.contains("migration 2"));
}

#[tokio::test]
async fn programs_that_create_one_database_at_once_agree() {
    let url = empty_database().await;
    let opening = (0..4).map(|_| PostgresStore::open(&url, 64));
    for store in futures::future::join_all(opening).await {
        store.unwrap().close().await;
    }
    let shards: i64 =
        sqlx::query_scalar("SELECT count(*) FROM overdue.shards").fetch_one(&mut session(&url).await).await.unwrap();
    assert_eq!(shards, 64);
}

#[tokio::test]
async fn two_migrations_at_once_both_succeed() {
    let url = older_database().await;
    let (one, other) = tokio::join!(PostgresStore::migrate(&url), PostgresStore::migrate(&url));
    one.unwrap();
    other.unwrap();
    opened(&url).await;
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "what is promised is real time")]
async fn a_migration_that_somebody_is_in_the_way_of_gives_up_within_five_seconds_and_names_him() {
    let url = older_database().await;
    let mut blocker = session(&url).await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut blocker).await.unwrap();
    blocker.execute(sqlx::raw_sql("BEGIN; LOCK TABLE overdue._sqlx_migrations IN SHARE MODE")).await.unwrap();
    let began = std::time::Instant::now();
    let Err(StoreError::Refused(message)) = PostgresStore::migrate(&url).await else { panic!("it waits for nobody") };
    assert!(began.elapsed().as_secs_f64() < 5.0, "{:?}", began.elapsed());
    assert!(message.contains(&format!("pid {pid} ")) && message.contains("idle in transaction"), "{message}");
    blocker.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    PostgresStore::migrate(&url).await.unwrap();
    opened(&url).await;
}

#[tokio::test]
async fn a_role_that_may_change_rows_and_nothing_else_can_run_a_node() {
    let url = database().await;
    run(
        &url,
        "CREATE ROLE clerk LOGIN;
         GRANT USAGE ON SCHEMA overdue TO clerk;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA overdue TO clerk;
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA overdue TO clerk;
         GRANT EXECUTE ON FUNCTION overdue.fence(text, smallint, bigint) TO clerk",
    )
    .await;
    let url = url.replace("postgres@", "clerk@");
    let node = Node::on(opened(&url).await).await;
    node.start(new(&order("1"))).await;
    assert!(node.store.raise(&node.fence).await.unwrap().is_some());
    assert!(session(&url).await.execute("CREATE TABLE overdue.more (name text)").await.is_err());
}

#[tokio::test]
async fn readers_cannot_write() {
    let store = opened(&database().await).await;
    for reader in [store.readers.connection().await.unwrap(), store.readers.page().await.unwrap()] {
        let mut reader = reader;
        assert!(reader.execute("DELETE FROM overdue.executions").await.is_err());
    }
}

#[tokio::test]
async fn the_constraints_keep_what_the_program_would_not_write() {
    let url = database().await;
    let node = Node::on(opened(&url).await).await;
    node.start(new(&order("1"))).await;
    node.deposit(&signal(&order("1"), "s", at(1))).await;
    let mut connection = session(&url).await;
    for sql in [
        "UPDATE overdue.executions SET closed_at = 1",
        "UPDATE overdue.executions SET status = 2",
        "UPDATE overdue.executions SET status = 6",
        "UPDATE overdue.executions SET status = 3, closed_at = 1",
        "UPDATE overdue.executions SET id = ''",
        "UPDATE overdue.executions SET rev = -1",
        "UPDATE overdue.executions SET shard = -1",
        "UPDATE overdue.executions SET attempts = ''",
        "UPDATE overdue.history SET first_event = 0",
        "UPDATE overdue.history SET events = ''",
        "INSERT INTO overdue.history SELECT * FROM overdue.history",
        "INSERT INTO overdue.executions SELECT * FROM overdue.executions",
        "INSERT INTO overdue.inbox SELECT * FROM overdue.inbox",
        "UPDATE overdue.inbox SET signal_id = ''",
        "UPDATE overdue.inbox SET payload = ''",
        "INSERT INTO overdue.attributes VALUES (1, 1, '1', '', 't')",
        "INSERT INTO overdue.meta VALUES (2, 64)",
        "UPDATE overdue.meta SET shards = 0",
        "INSERT INTO overdue.types VALUES (9, '')",
    ] {
        let error = connection.execute(sql).await.unwrap_err();
        let code = error.as_database_error().unwrap().code().unwrap().into_owned();
        assert!(code.starts_with("23"), "{sql}: {error}");
    }
}
