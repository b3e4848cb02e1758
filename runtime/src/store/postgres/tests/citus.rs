//! The store on Citus: a coordinator and two workers, where the extension is installed beside PostgreSQL.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor};
use tokio::sync::Mutex;

use super::{aside, opened, session};
use crate::id::WorkflowKey;
use crate::store::conformance::fixtures::{Node, advance, all_shards, at, joining, new, order, record};
use crate::store::conformance::{every_specification, random};
use crate::store::postgres::PostgresStore;
use crate::store::{Advance, DeclaredType, NewNode, Outcome, Store, StoreError, Write};
use crate::testing::{Fsync, PostgresCluster};

/// Coordinator and workers; `None`, with the reason printed, where Citus is not installed.
fn citus() -> Option<&'static [PostgresCluster; 3]> {
    static CITUS: OnceLock<Option<[PostgresCluster; 3]>> = OnceLock::new();
    let clusters = CITUS.get_or_init(|| {
        if !PostgresCluster::has_extension("citus") {
            return None;
        }
        let settings = [
            ("shared_preload_libraries", "citus"),
            ("max_prepared_transactions", "100"),
            ("citus.node_conninfo", "sslmode=disable"),
            ("citus.enable_statistics_collection", "off"),
            // What the coordinator asks of the workers, with the database in front.
            ("log_min_messages", "notice"),
            ("log_line_prefix", "%d "),
            ("citus.log_remote_commands", "on"),
        ];
        Some([(); 3].map(|()| PostgresCluster::new(Fsync::Off, &settings)))
    });
    if clusters.is_none() {
        println!("skipped: the extension citus is not installed beside this PostgreSQL");
    }
    clusters.as_ref()
}

/// A database of that name on all three, known to each other; its URL.
async fn empty_database([coordinator, workers @ ..]: &[PostgresCluster; 3]) -> String {
    static ONE: Mutex<()> = Mutex::const_new(());
    // Citus locks its node list while it changes, across databases.
    let _one = ONE.lock().await;
    let name = coordinator.create_database().await;
    let mut sessions = vec![coordinator.connect(&name).await];
    for worker in workers {
        let mut server = worker.connect("postgres").await;
        server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        sessions.push(worker.connect(&name).await);
    }
    for session in &mut sessions {
        session.execute("CREATE EXTENSION citus").await.unwrap();
    }
    let mut adding = format!("SELECT citus_set_coordinator_host('127.0.0.1', {});", coordinator.port());
    for worker in workers {
        adding += &format!("SELECT citus_add_node('127.0.0.1', {});", worker.port());
    }
    sessions[0].execute(sqlx::raw_sql(AssertSqlSafe(adding))).await.unwrap();
    coordinator.url(&name)
}

/// A distributed database with nothing in it; its URL.
async fn database(clusters: &[PostgresCluster; 3]) -> String {
    let url = empty_database(clusters).await;
    opened(&url).await.close().await;
    PostgresStore::distribute(&url).await.unwrap();
    url
}

/// One database that is emptied again and again.
struct Reused {
    url: String,
    connection: PgConnection,
}

impl Reused {
    async fn new(clusters: &[PostgresCluster; 3]) -> Self {
        let url = database(clusters).await;
        let connection = session(&url).await;
        Self { url, connection }
    }

    async fn empty_store(&mut self) -> Arc<dyn Store> {
        for table in ["executions", "history", "attributes", "inbox", "outbox", "starts", "types", "nodes", "lanes", "tokens"] {
            self.connection.execute(AssertSqlSafe(format!("DELETE FROM overdue.{table}"))).await.unwrap();
        }
        let owners = "UPDATE overdue.shards SET node_id = NULL, epoch = 0, freed_at = 'epoch'";
        self.connection.execute(owners).await.unwrap();
        let store = opened(&self.url).await;
        assert!(store.layout.is_distributed());
        store
    }
}

#[tokio::test]
async fn the_distributed_store_keeps_every_specification() {
    let Some(clusters) = citus() else { return };
    let database = Mutex::new(Reused::new(clusters).await);
    every_specification(async || database.lock().await.empty_store().await).await;
}

#[test]
fn the_distributed_store_agrees_with_the_model_under_random_operations() {
    const CASES: u32 = 20;
    let Some(clusters) = citus() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = std::sync::Mutex::new(runtime.block_on(Reused::new(clusters)));
    let make = || runtime.block_on(database.lock().unwrap().empty_store());
    random::agree_with_the_model(CASES, make, &runtime);
}

/// How often the coordinator asked a worker for this, for one database.
fn asked(coordinator: &PostgresCluster, url: &str, command: &str) -> usize {
    let database = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let line = format!("{database} NOTICE:  issuing {command}");
    coordinator.log().lines().filter(|logged| logged.starts_with(&line)).count()
}

/// Orders of one place, and one of another.
fn neighbours(store: &dyn Store, count: usize) -> (Vec<WorkflowKey>, WorkflowKey) {
    let place = |key: &WorkflowKey| store.placement(key.shard(64));
    let orders = || (0..10_000).map(|n| order(&n.to_string()));
    let here = place(&order("0"));
    let together = orders().filter(|key| place(key) == here).take(count).collect();
    (together, orders().find(|key| place(key) != here).unwrap())
}

fn append(key: &WorkflowKey, first_event: u64) -> Write {
    Write::Advance(Advance { record: Some(record(first_event, "more")), guard_inbox: true, ..advance(key) })
}

#[tokio::test]
async fn a_batch_of_one_place_is_committed_by_one_worker_alone() {
    let Some(clusters) = citus() else { return };
    let url = database(clusters).await;
    let node = Node::on(opened(&url).await).await;
    let (together, elsewhere) = neighbours(&*node.store, 50);
    // The type gets its number, which is known to every worker.
    node.start(new(&elsewhere)).await;
    let prepared = || asked(&clusters[0], &url, "PREPARE TRANSACTION");
    let (before, committed) = (prepared(), asked(&clusters[0], &url, "COMMIT"));
    let starts: Vec<Write> = together.iter().map(|key| Write::Start(new(key))).collect();
    assert_eq!(node.commit(&starts).await, vec![Outcome::Started { inbox: false }; 50]);
    let transitions: Vec<Write> = together.iter().map(|key| append(key, 2)).collect();
    assert_eq!(node.commit(&transitions).await, vec![Outcome::Advanced; 50]);
    assert_eq!(prepared(), before, "a commit of one worker needs no second phase");
    assert_eq!(asked(&clusters[0], &url, "COMMIT"), committed + 2, "one worker each time");

    // Both workers have some of these.
    let everywhere: Vec<Write> = (0..40).map(|n| Write::Start(new(&order(&format!("more-{n}"))))).collect();
    assert_eq!(node.commit(&everywhere).await, vec![Outcome::Started { inbox: false }; 40]);
    assert!(prepared() > before, "a batch that nobody grouped is one transaction all the same");
}

#[tokio::test]
async fn a_successor_waits_for_the_commit_that_its_predecessor_left_under_way_at_a_worker() {
    let Some(clusters) = citus() else { return };
    let url = database(clusters).await;
    let dead = Node::on(opened(&url).await).await;
    // The worker's part of a commit whose session at the coordinator is gone.
    let mut left = session(&url).await;
    let shard = dead.shards().await[0];
    let hold = format!("BEGIN; SELECT 1 FROM overdue.anchors WHERE shard = {shard} FOR KEY SHARE");
    left.execute(sqlx::raw_sql(AssertSqlSafe(hold))).await.unwrap();
    let heir = opened(&url).await;
    let ended = aside({
        let (heir, dead) = (Arc::clone(&heir), dead.fence.node_id.clone());
        async move { heir.take_over(&dead, Duration::ZERO).await }
    });
    #[allow(clippy::disallowed_methods, reason = "it is waited for nothing to happen")]
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!ended.is_finished());
    left.execute("COMMIT").await.unwrap();
    assert!(ended.await.unwrap().unwrap());
}

#[tokio::test]
async fn orders_in_flight_are_there_after_their_tables_were_distributed_once_or_twice() {
    let Some(clusters) = citus() else { return };
    let url = empty_database(clusters).await;
    let node = Node::on(opened(&url).await).await;
    assert!((0..64).all(|shard| node.store.placement(shard) == 0));
    node.start(new(&order("1"))).await;
    let loaded = node.load(&order("1")).await;
    node.store.leave(&node.fence).await.unwrap();
    node.store.close().await;
    for _ in 0..2 {
        PostgresStore::distribute(&url).await.unwrap();
    }
    let node = Node::on(opened(&url).await).await;
    assert!((0..64).any(|shard| node.store.placement(shard) != node.store.placement(0)));
    assert_eq!(node.load(&order("1")).await, loaded);
    assert_eq!(node.commit(&[append(&order("1"), 2)]).await, [Outcome::Advanced]);
    PostgresStore::distribute(&url).await.expect("nothing is left to be distributed, so nobody is in the way");
}

#[tokio::test]
async fn tables_that_a_node_uses_are_not_distributed() {
    let Some(clusters) = citus() else { return };
    let url = empty_database(clusters).await;
    let store = opened(&url).await;
    let fence = store.join(&NewNode::new("alive", Duration::from_secs(60))).await.unwrap();
    let Err(StoreError::Refused(message)) = PostgresStore::distribute(&url).await else { panic!("it is not refused") };
    assert!(message.contains("stop every server first"), "{message}");
    store.leave(&fence).await.unwrap();
    PostgresStore::distribute(&url).await.unwrap();
}

#[tokio::test]
async fn starts_and_signals_of_a_callers_own_transaction_reach_the_workers_with_it() {
    let Some(clusters) = citus() else { return };
    let url = database(clusters).await;
    let store = opened(&url).await;
    store.join(&joining()).await.unwrap();
    let declared = DeclaredType { name: "order-timeout".into(), signals: vec!["paid".into()] };
    store.declare(&[declared]).await.unwrap();
    let mut caller = session(&url).await;
    let ask = "SELECT overdue.start_workflow('order-timeout', 'a', '{}'); SELECT overdue.signal_workflow('order-timeout', 'a', 'paid', '1', 's')";
    for end in ["ROLLBACK", "COMMIT", "COMMIT"] {
        let prepared = asked(&clusters[0], &url, "PREPARE TRANSACTION");
        caller.execute(sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; {ask}; {end}")))).await.unwrap();
        let asked_for = store.requested_starts(&all_shards(), &["order-timeout".into()], 10).await.unwrap();
        let signals = store.unclaimed(&all_shards(), at(i64::from(u32::MAX)), 10).await.unwrap();
        let expected = usize::from(end == "COMMIT");
        assert_eq!((asked_for.len(), signals.len()), (expected, expected), "{end}");
        let prepares = asked(&clusters[0], &url, "PREPARE TRANSACTION") - prepared;
        assert_eq!(prepares > 0, end == "COMMIT", "the caller's rows and the request are there together or not at all");
    }
}

#[tokio::test]
async fn a_place_that_is_split_is_looked_up_again() {
    let Some(clusters) = citus() else { return };
    let url = database(clusters).await;
    let node = Node::on(opened(&url).await).await;
    let (together, _) = neighbours(&*node.store, 50);
    let starts: Vec<Write> = together.iter().map(|key| Write::Start(new(key))).collect();
    node.commit(&starts).await;
    let split = "SELECT citus_split_shard_by_split_points(
             s.shardid, ARRAY[((s.shardminvalue::bigint + s.shardmaxvalue::bigint) / 2)::text],
             ARRAY[n.nodeid, n.nodeid], 'block_writes')
         FROM pg_dist_shard AS s, (SELECT min(nodeid) AS nodeid FROM pg_dist_node WHERE shouldhaveshards) AS n
         WHERE s.shardid = get_shard_id_for_distribution_column('overdue.executions', $1::smallint)";
    let shard = i16::try_from(together[0].shard(64)).unwrap();
    sqlx::query(split).bind(shard).execute(&mut session(&url).await).await.unwrap();
    let transitions: Vec<Write> = together.iter().map(|key| append(key, 2)).collect();
    assert_eq!(node.commit(&transitions).await, vec![Outcome::Advanced; 50]);
    let places: std::collections::BTreeSet<u32> = together.iter().map(|key| node.store.placement(key.shard(64))).collect();
    assert_eq!(places.len(), 2);
}

#[tokio::test]
async fn without_the_extension_nothing_is_distributed_and_it_is_said_what_to_do() {
    let url = super::database().await;
    let Err(StoreError::Refused(message)) = PostgresStore::distribute(&url).await else { panic!("it is not refused") };
    assert!(message.contains("CREATE EXTENSION citus") && message.contains("citus_add_node"), "{message}");
}
