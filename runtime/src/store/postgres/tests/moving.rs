//! Databases that are copied and moved: what keeps nodes and callers off, and what callers left there.

use std::sync::Arc;

use sqlx::Executor;
use sqlx::postgres::PgConnection;

use super::{database, opened, session};
use crate::store::conformance::SHARDS;
use crate::store::conformance::fixtures::{Node, at, new, order, signal};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::transfer::export;
use crate::store::{
    CopyError, DeclaredType, NewNode, Parcel, Place, Portable, SqliteStore, Store, StoreError, StoreName, Token, copy,
};

/// A store that takes starts of orders, and signals `paid` to them; another one than every other.
async fn taking_orders() -> String {
    let url = database().await;
    session(&url).await.execute("UPDATE overdue.transfer SET store_id = gen_random_uuid()").await.unwrap();
    let store = opened(&url).await;
    let types = [DeclaredType { name: order("1").workflow_type().into(), signals: vec!["paid".into()] }];
    store.declare(&types).await.unwrap();
    Store::close(store.as_ref()).await;
    url
}

async fn to_copy(url: &str) -> PostgresStore {
    PostgresStore::open_to_copy(url, Some(SHARDS)).await.unwrap()
}

async fn refusal(url: &str) -> String {
    match PostgresStore::open(url, SHARDS).await {
        Err(StoreError::Refused(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

async fn ask_for(connection: &mut PgConnection, id: &str) -> Result<(), sqlx::Error> {
    let start = sqlx::query("SELECT overdue.start_workflow($1, $2, '{\"n\": 1.0}')").bind(order("1").workflow_type().to_owned());
    start.bind(id).execute(connection).await.map(drop)
}

async fn send(connection: &mut PgConnection, id: &str, signal_id: &str) -> Result<(), sqlx::Error> {
    let send = sqlx::query("SELECT overdue.signal_workflow($1, $2, 'paid', '{\"amount\": 1.50}', $3)");
    send.bind(order("1").workflow_type().to_owned()).bind(id).bind(signal_id).execute(connection).await.map(drop)
}

fn code(refused: Result<(), sqlx::Error>) -> String {
    refused.unwrap_err().as_database_error().unwrap().code().unwrap().into_owned()
}

const NOW_NOT: &str = "55000";

#[tokio::test]
async fn while_a_store_is_copied_no_node_joins_no_token_is_made_and_no_caller_leaves_a_request() {
    let url = taking_orders().await;
    let node = Node::on(opened(&url).await).await;
    let mut caller = session(&url).await;
    let copying = to_copy(&url).await;
    let joining = node.store.join(&NewNode::new("another", std::time::Duration::ZERO)).await;
    assert!(matches!(joining, Err(StoreError::Refused(message)) if message.contains("is being copied")));
    let token = Token {
        name: "shop".into(),
        secret_hash: [1; 32],
        scopes: "start".into(),
        types: String::new(),
        created_at: at(0),
        expires_at: None,
    };
    assert!(matches!(node.store.create_token(&token).await, Err(StoreError::Refused(_))));
    assert!(matches!(node.store.revoke_token("shop").await, Err(StoreError::Refused(_))));
    assert_eq!(code(ask_for(&mut caller, "1").await), NOW_NOT);
    assert_eq!(code(send(&mut caller, "1", "s").await), NOW_NOT);
    Portable::close(&copying).await;
    ask_for(&mut caller, "1").await.unwrap();
    node.store.join(&NewNode::new("another", std::time::Duration::ZERO)).await.unwrap();
}

#[tokio::test]
async fn a_marked_store_is_not_opened_takes_nothing_from_callers_and_says_what_to_do() {
    let url = taking_orders().await;
    let mut caller = session(&url).await;
    let other = StoreName { id: [7; 16], url: "sqlite:/data/orders.db".into() };
    for (marks, says) in [
        ((Some(&other), None), "the unfinished copy of sqlite:/data/orders.db: run `overdue copy"),
        ((None, Some(&other)), "was moved to sqlite:/data/orders.db: use that one"),
    ] {
        let store = to_copy(&url).await;
        store.mark(marks.0, marks.1).await.unwrap();
        Portable::close(&store).await;
        assert!(refusal(&url).await.contains(says));
        let refused = ask_for(&mut caller, "1").await.unwrap_err().to_string();
        assert!(refused.contains("sqlite:/data/orders.db"), "{refused}");
        assert_eq!(code(send(&mut caller, "1", "s").await), NOW_NOT);
    }
}

#[tokio::test]
async fn a_copy_waits_for_callers_whose_transactions_are_open_and_names_those_that_do_not_end() {
    let url = taking_orders().await;
    let mut caller = session(&url).await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut caller).await.unwrap();
    caller.execute("BEGIN").await.unwrap();
    ask_for(&mut caller, "1").await.unwrap();
    let Err(StoreError::Refused(message)) = PostgresStore::open_to_copy(&url, None).await else { panic!("it waits") };
    assert!(message.contains(&format!("pid {pid} ")) && message.contains("idle in transaction"), "{message}");
    caller.execute("COMMIT").await.unwrap();
    let copying = to_copy(&url).await;
    assert_eq!(copying.counts().await.unwrap().requested_starts, 1);
    let Err(StoreError::Refused(message)) = PostgresStore::open_to_copy(&url, None).await else { panic!("two copies") };
    assert!(message.contains("it is being copied"), "{message}");
}

#[tokio::test]
async fn a_transaction_that_sees_the_store_as_it_was_before_it_was_moved_leaves_nothing_behind() {
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (here, there) = (taking_orders().await, taking_orders().await);
        let mut caller = session(&here).await;
        caller.execute(sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {isolation}"))).await.unwrap();
        caller.execute("SELECT count(*) FROM overdue.transfer").await.unwrap();
        let (from, to) = (to_copy(&here).await, to_copy(&there).await);
        copy(&from, &to).await.unwrap();
        Portable::close(&from).await;
        assert_eq!(code(ask_for(&mut caller, "1").await), "40001", "{isolation}");
        caller.execute("ROLLBACK").await.unwrap();
        assert_eq!(code(ask_for(&mut caller, "1").await), NOW_NOT);
    }
}

#[tokio::test]
async fn a_session_that_was_stopped_in_the_middle_of_a_commit_is_ended_by_the_copy() {
    let url = taking_orders().await;
    let node = Node::on(opened(&url).await).await;
    let mut stopped = session(&url).await;
    stopped.execute("BEGIN").await.unwrap();
    // The lane names this session, and its row is locked by it.
    stopped
        .execute(
            "UPDATE overdue.lanes AS l SET pid = a.pid, backend_start = a.backend_start
             FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid()",
        )
        .await
        .unwrap();
    stopped.execute("COMMIT; BEGIN; SELECT FROM overdue.lanes FOR UPDATE").await.unwrap();
    let store = to_copy(&url).await;
    store.mark(None, None).await.unwrap();
    assert!(stopped.execute("COMMIT").await.is_err(), "its session is gone");
    assert!(node.try_commit(&[]).await.is_err());
}

#[tokio::test]
async fn a_copy_whose_session_was_lost_sets_no_mark_and_is_run_again() {
    let (here, there) = (taking_orders().await, taking_orders().await);
    let (from, to) = (to_copy(&here).await, to_copy(&there).await);
    let end = "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
               WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    session(&here).await.execute(end).await.unwrap();
    assert!(matches!(copy(&from, &to).await, Err(CopyError::Store(StoreError::Unavailable(_)))));
    assert!(matches!(from.mark(None, None).await, Err(StoreError::Unavailable(_))), "now and later");
    Portable::close(&from).await;
    assert_eq!(opened(&here).await.standing().await.unwrap().moved_to, None);
    copy(&to_copy(&here).await, &to).await.unwrap();
}

#[tokio::test]
async fn what_callers_left_and_nobody_has_checked_travels_as_it_is_but_not_into_a_file() {
    let (here, there) = (taking_orders().await, taking_orders().await);
    let mut caller = session(&here).await;
    for id in ["a", "b"] {
        ask_for(&mut caller, id).await.unwrap();
        send(&mut caller, id, "s").await.unwrap();
    }
    let node = Node::on(opened(&here).await).await;
    node.deposit(&signal(&order("c"), "s", at(3))).await;
    Store::close(node.store.as_ref()).await;
    let from = to_copy(&here).await;
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteStore::open_to_copy(folder.path().join("there.db"), Some(SHARDS)).await.unwrap();
    let refused = copy(&from, &file).await.unwrap_err().to_string();
    assert!(refused.contains("serve the source until it is taken up"), "{refused}");
    let report = copy(&from, &to_copy(&there).await).await.unwrap();
    assert_eq!((report.requested_starts, report.inbox_rows), (2, 3));
    let rows = "SELECT string_agg(r::text, E'\\n' ORDER BY r.id) FROM (
                    SELECT id, input, NULL::uuid AS identity FROM overdue.starts
                    UNION ALL SELECT id, payload, identity FROM overdue.inbox ORDER BY 1) AS r";
    let [before, after] = [&here, &there]
        .map(|url| async move { sqlx::query_scalar::<_, String>(rows).fetch_one(&mut session(url).await).await.unwrap() });
    assert_eq!(before.await, after.await);
}

#[tokio::test]
async fn a_parcel_has_as_much_history_as_fits_and_one_execution_at_least() {
    let url = taking_orders().await;
    let node = Node::on(opened(&url).await).await;
    for id in ["1", "2", "3", "4", "5"] {
        node.start(new(&order(id))).await;
    }
    let large = "UPDATE overdue.history SET events = convert_to(repeat('x', 7 << 20), 'UTF8') WHERE run_id IN
                     (SELECT run_id FROM overdue.executions WHERE id IN ('1', '2', '3'));
                 UPDATE overdue.history SET events = convert_to(repeat('x', 20 << 20), 'UTF8') WHERE run_id IN
                     (SELECT run_id FROM overdue.executions WHERE id = '4')";
    session(&url).await.execute(large).await.unwrap();
    Store::close(node.store.as_ref()).await;
    let store = to_copy(&url).await;
    let (mut place, mut sizes) = (Some(Place::START), Vec::new());
    while let Some(at) = place {
        let (parcel, next) = store.export(&at, 100).await.unwrap();
        if let Parcel::Executions(all) = &parcel {
            sizes.push(all.len());
        }
        place = next;
    }
    assert_eq!(sizes, [2, 1, 1, 1, 0]);
}

#[tokio::test]
async fn an_empty_database_is_nothing_to_copy_from_and_no_store_is_made_there() {
    let url = super::empty_database().await;
    let Err(StoreError::Refused(message)) = PostgresStore::open_to_copy(&url, None).await else { panic!("it is empty") };
    assert!(message.contains("no overdue has used it"), "{message}");
    assert!(!PostgresStore::exists(&url).await.unwrap());
    Arc::new(to_copy(&url).await).mark(None, None).await.unwrap();
}

#[tokio::test]
async fn another_store_remembers_a_database_without_its_password() {
    let url = taking_orders().await.replace("postgres@", "postgres:s3cret@");
    let store = to_copy(&url).await;
    let name = store.standing().await.unwrap().name.url;
    assert!(name.starts_with("postgres://postgres@127.0.0.1:") && !name.contains('?'), "{name}");
}

#[tokio::test]
async fn a_copy_pages_along_the_keys_of_each_shard() {
    let copying = to_copy(&taking_orders().await).await;
    let mut reader = copying.readers.connection().await.unwrap();
    let shards = format!("ARRAY[{}]::smallint[]", (0..SHARDS).map(|shard| shard.to_string()).collect::<Vec<_>>().join(", "));
    let after = format!("{shards}, 1::smallint, 'order-1'");
    for (sql, values, index) in [
        (export::KEYS, format!("{after}, 500"), "executions_pkey"),
        (export::WHOLE, "ARRAY[1]::smallint[], ARRAY['order'], ARRAY['1']".to_owned(), "attributes_pkey"),
        (export::SIGNALS, format!("{after}, 's', 'type', 500"), "inbox_pkey"),
        (export::REQUESTS, format!("{after}, 'type', 500"), "starts_pkey"),
    ] {
        let plan = super::plans::plan(&mut reader, sql, &values, true).await;
        assert!(!plan.iter().any(|line| line.contains("Seq Scan on") && !line.contains("types")), "{plan:#?}");
        assert!(plan.iter().any(|line| line.contains(index)), "{plan:#?}");
    }
}
