//! Connections that break, sessions that are used up, and callers that go away.

use std::sync::Arc;
use std::time::Duration;

use overdue_runtime::history::FailureClass;
use overdue_runtime::testing::{CommitFault, PostgresCluster, Proxy, eventually};
use serde_json::json;

use super::shop::{Kind, LATER, PAST, Shop, class, url};

/// Ends the calls' sessions at the server; how many there were.
async fn kill_sessions(shop: &Shop) -> usize {
    match shop.kind {
        Kind::Sqlite => 0,
        Kind::Postgres => {
            let sql = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE application_name = 'overdue orders' \
                       AND datname = current_database()";
            shop.session().await.texts(sql).await.len()
        }
        Kind::MariaDb => {
            let mut session = shop.session().await;
            let list =
                "SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
            let ids = session.texts(list).await;
            for id in ids.iter().flatten() {
                session.run(&format!("KILL {id}")).await;
            }
            ids.len()
        }
    }
}

#[tokio::test]
async fn an_idle_session_that_died_is_replaced_without_a_failure() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let shop = Shop::open(kind).await;
        shop.place_all(&["a", "b"], "UNPAID", PAST, None).await;
        shop.cancel("a").await.unwrap();
        assert_eq!(kill_sessions(&shop).await, 1, "{kind:?}: one session is kept");
        assert_eq!(shop.cancel("b").await.unwrap(), json!({ "outcome": "CANCELLED" }), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_killed_before_its_commit_has_done_nothing_and_the_repeat_decides() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let shop = Arc::new(Shop::open(kind).await);
        shop.place("o", "UNPAID", PAST).await;
        // Somebody holds the row, so that the update waits for it.
        let mut holder = shop.session().await;
        holder.run("BEGIN").await;
        holder.run("UPDATE orders SET status = status WHERE id = 'o'").await;
        let calling = tokio::spawn({
            let shop = shop.clone();
            async move { shop.cancel("o").await }
        });
        let waiting = match kind {
            Kind::Postgres => {
                "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'overdue orders' AND wait_event_type = 'Lock' AND datname = current_database()"
            }
            _ => {
                "SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Execute' AND id <> CONNECTION_ID()"
            }
        };
        let looker = tokio::sync::Mutex::new(shop.session().await);
        let what = format!("the update waits on {kind:?}");
        eventually(&what, async || (!looker.lock().await.texts(waiting).await.is_empty()).then_some(())).await;
        match kind {
            Kind::Postgres => drop(kill_sessions(&shop).await),
            _ => {
                let id = looker.lock().await.texts(waiting).await[0].clone().unwrap();
                looker.lock().await.run(&format!("KILL {id}")).await;
            }
        }
        let failure = calling.await.unwrap().unwrap_err();
        assert_eq!(failure.failure.class, FailureClass::Transient, "{kind:?}: {failure}");
        holder.run("ROLLBACK").await;
        assert_eq!(shop.status("o").await, "UNPAID", "{kind:?}");
        assert_eq!(shop.cancel("o").await.unwrap(), json!({ "outcome": "CANCELLED" }), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_unknown_and_the_repeat_tells_what_it_did() {
    let proxy = Proxy::before(PostgresCluster::shared().port()).await.unwrap();
    let shop = Shop::open(Kind::Postgres).await;
    let there = url(proxy.port(), shop.database());
    let through = shop.again(|orders| orders.sql.as_mut().unwrap().url = there.as_str().into()).unwrap();
    for (fault, cancelled, paid) in [
        (CommitFault::LoseTheAnswer, "ALREADY_CANCELLED", json!({ "outcome": "ALREADY_PAID", "transactionId": "tx" })),
        (CommitFault::LoseTheCommit, "CANCELLED", json!({ "outcome": "PAID" })),
    ] {
        let (late, early) = (format!("c-{fault:?}"), format!("p-{fault:?}"));
        through.place(&late, "UNPAID", PAST).await;
        through.place(&early, "UNPAID", LATER).await;
        proxy.fail_next_commit(fault);
        assert_eq!(class(&through.cancel(&late).await.unwrap_err()), (FailureClass::Transient, "broken"), "{fault:?}");
        assert_eq!(through.cancel(&late).await.unwrap(), json!({ "outcome": cancelled }), "{fault:?}");
        proxy.fail_next_commit(fault);
        assert_eq!(class(&through.confirm(&early, "tx").await.unwrap_err()), (FailureClass::Transient, "broken"), "{fault:?}");
        assert_eq!(through.confirm(&early, "tx").await.unwrap(), paid, "{fault:?}");
    }
    assert_eq!(proxy.struck(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_goes_away_leaves_no_session_with_an_open_transaction() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let shop = Arc::new(Shop::configured(kind, |orders| orders.sql.as_mut().unwrap().connections = 1).await);
        shop.place_all(&["held", "free"], "UNPAID", PAST, None).await;
        let mut holder = shop.session().await;
        holder.run("BEGIN").await;
        holder.run("UPDATE orders SET status = status WHERE id = 'held'").await;
        for _ in 0..3 {
            let calling = tokio::spawn({
                let shop = shop.clone();
                async move { shop.cancel("held").await }
            });
            tokio::time::sleep(Duration::from_millis(50)).await;
            calling.abort();
            assert!(calling.await.unwrap_err().is_cancelled());
        }
        holder.run("ROLLBACK").await;
        // The one session is free again once the first of them has ended, and what it does is its own transaction.
        assert_eq!(shop.cancel("free").await.unwrap(), json!({ "outcome": "CANCELLED" }), "{kind:?}");
        assert_eq!(shop.status("free").await, "CANCELLED", "{kind:?}: it is committed");
        eventually("the call that nobody waited for ends", async || (shop.status("held").await == "CANCELLED").then_some(()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_for_which_no_session_is_free_is_parked_and_has_not_been_sent() {
    let shop = Arc::new(Shop::configured(Kind::Postgres, |orders| orders.sql.as_mut().unwrap().connections = 1).await);
    shop.place_all(&["held", "other"], "UNPAID", PAST, None).await;
    let mut holder = shop.session().await;
    holder.run("BEGIN").await;
    holder.run("UPDATE orders SET status = status WHERE id = 'held'").await;
    let call = |id: &'static str| {
        let shop = shop.clone();
        tokio::spawn(async move { shop.cancel(id).await })
    };
    let first = call("held");
    let looker = tokio::sync::Mutex::new(shop.session().await);
    let waiting = "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'overdue orders' AND wait_event_type = 'Lock' AND datname = current_database()";
    eventually("the update waits", async || (!looker.lock().await.texts(waiting).await.is_empty()).then_some(())).await;
    let second = call("other");
    tokio::time::sleep(Duration::from_millis(50)).await;
    shop.clock.advance(Duration::from_secs(1));
    let failure = second.await.unwrap().unwrap_err();
    assert_eq!(failure.failure.class, FailureClass::Neutral, "{failure}");
    assert_eq!(failure.parked_by.as_deref(), Some("connections of orders"));
    holder.run("ROLLBACK").await;
    assert_eq!(first.await.unwrap().unwrap(), json!({ "outcome": "CANCELLED" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_outlives_its_time_is_given_up_with_its_session() {
    let shop = Arc::new(Shop::configured(Kind::Postgres, |orders| orders.sql.as_mut().unwrap().connections = 1).await);
    shop.place_all(&["held", "other"], "UNPAID", PAST, None).await;
    let mut holder = shop.session().await;
    holder.run("BEGIN").await;
    holder.run("UPDATE orders SET status = status WHERE id = 'held'").await;
    let first = tokio::spawn({
        let shop = shop.clone();
        async move { shop.cancel("held").await }
    });
    let looker = tokio::sync::Mutex::new(shop.session().await);
    let waiting = "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'overdue orders' AND wait_event_type = 'Lock' AND datname = current_database()";
    eventually("the update waits", async || (!looker.lock().await.texts(waiting).await.is_empty()).then_some(())).await;
    // The timeout of the send, and then the second for which its transaction may outlive it.
    shop.clock.advance(Duration::from_secs(5));
    let failure = first.await.unwrap().unwrap_err();
    assert_eq!(class(&failure), (FailureClass::Transient, "timeout"), "{failure}");
    shop.clock.advance(Duration::from_secs(1));
    // Its turn comes back although the row is still held, and the next call has a session of its own.
    assert_eq!(shop.cancel("other").await.unwrap(), json!({ "outcome": "CANCELLED" }));
    holder.run("ROLLBACK").await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_connect_failure_and_opens_the_breaker() {
    let shop = Shop::configured(Kind::Postgres, |orders| {
        orders.breaker.failures = 2;
        orders.sql.as_mut().unwrap().url = "postgres://nobody@127.0.0.1:1/shop".into();
    })
    .await;
    for _ in 0..2 {
        assert_eq!(class(&shop.cancel("o").await.unwrap_err()), (FailureClass::Transient, "connect"));
    }
    assert_eq!(shop.cancel("o").await.unwrap_err().parked_by.as_deref(), Some("breaker of orders"));
}

#[tokio::test]
async fn a_statement_that_the_table_no_longer_bears_comes_to_a_person() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("o", "UNPAID", PAST).await;
        shop.session().await.run("ALTER TABLE orders RENAME TO orders_of_old").await;
        let failure = shop.cancel("o").await.unwrap_err();
        assert_eq!(class(&failure), (FailureClass::Permanent, "sql"), "{kind:?}: {failure}");
        assert!(failure.failure.message.contains("Mend the statement, the table or the rights"), "{failure}");
    }
}

#[tokio::test]
async fn a_writer_who_holds_sqlite_is_waited_for_and_then_it_is_transient() {
    let shop =
        Shop::configured(Kind::Sqlite, |orders| orders.timeout = overdue_runtime::ConfigDuration(Duration::from_millis(50)))
            .await;
    shop.place("o", "UNPAID", PAST).await;
    let mut holder = shop.session().await;
    holder.run("BEGIN IMMEDIATE").await;
    let failure = shop.cancel("o").await.unwrap_err();
    assert_eq!(class(&failure), (FailureClass::Transient, "database"), "{failure}");
    holder.run("ROLLBACK").await;
    assert_eq!(shop.cancel("o").await.unwrap(), json!({ "outcome": "CANCELLED" }));
}
