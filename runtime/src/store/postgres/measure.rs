//! What the store costs: bytes of a sleeping order, writes a second, processor time of this program and of the server.
//!
//! The figures are printed; run them optimized: `cargo test --release -p overdue-runtime measure -- --ignored --nocapture`.

use std::fs;

use sqlx::Executor;

use super::*;
use crate::store::RowChange;
use crate::store::conformance::fixtures::{Node, joining};
use crate::store::conformance::sagas::{append, batches, commit_all, cpu_seconds, now, sagas, sleeper};
use crate::testing::{Fsync, PostgresCluster};

/// The size of what a sleeper stands in, after a vacuum: rows, indexes, maps.
async fn bytes_of_a_sleeper(cluster: &PostgresCluster, count: u64) -> f64 {
    let database = cluster.create_database().await;
    let store = PostgresStore::open(&cluster.url(&database), 64).await.unwrap();
    let fence = store.join(&joining()).await.unwrap();
    commit_all(&store, &fence, batches(count, |n| Write::Start(sleeper(n)))).await;
    store.close().await;
    let mut connection = cluster.connect(&database).await;
    connection.execute("VACUUM").await.unwrap();
    let size = "SELECT pg_total_relation_size('overdue.executions') + pg_total_relation_size('overdue.history')";
    let bytes: i64 = sqlx::query_scalar(size).fetch_one(&mut connection).await.unwrap();
    bytes as f64 / count as f64
}

#[tokio::test]
async fn a_sleeping_order_takes_at_most_700_bytes_on_disk() {
    let bytes = bytes_of_a_sleeper(PostgresCluster::shared(), 10_000).await;
    assert!(bytes <= 700.0, "{bytes:.0} bytes");
}

#[tokio::test]
#[ignore = "a measurement"]
async fn measure_the_bytes_of_200_000_sleeping_orders() {
    let bytes = bytes_of_a_sleeper(PostgresCluster::shared(), 200_000).await;
    println!("a sleeping order: {bytes:.1} bytes on disk");
    assert!(bytes <= 700.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_writes_a_second() {
    let count = 60_000;
    let cluster = PostgresCluster::new(Fsync::On, &[("autovacuum", "on"), ("shared_buffers", "512MB"), ("max_wal_size", "4GB")]);
    for round in 1..=3 {
        let url = cluster.url(&cluster.create_database().await);
        let store = std::sync::Arc::new(PostgresStore::open(&url, 64).await.unwrap());
        let fence = Node::on(store.clone()).await.fence;
        let changed = |n| Some((0, RowChange { wake_at: None, ..sleeper(n).row }));
        let kinds = [
            ("starts", batches(count, |n| Write::Start(sleeper(n)))),
            ("history rows", batches(count, |n| append(n, 3, None))),
            ("history rows to scattered runs", batches(count, |n| append(n * 7919 % count, 5, None))),
            ("whole sagas of one start and four transitions, two of them with a row", sagas(count, changed)),
            ("transitions with a row", batches(count, |n| append(n * 7919 % count, 8, changed(n * 7919 % count)))),
        ];
        for (name, batches) in kinds {
            let (began, own, servers) = (now(), cpu_seconds(), server_cpu_seconds());
            commit_all(&*store, &fence, batches).await;
            let (wall, own, servers) = (began.elapsed().as_secs_f64(), cpu_seconds() - own, server_cpu_seconds() - servers);
            let per_thousand = |seconds: f64| seconds * 1000.0 / count as f64;
            let rate = count as f64 / wall;
            let (own, servers) = (per_thousand(own), per_thousand(servers));
            println!("{round}: {name}: {rate:.0}/s; CPU-s per 1,000: {own:.4} here, {servers:.4} in the server");
        }
        store.close().await;
    }
}

/// Processor time of every PostgreSQL process on this machine so far, where the system tells it in `/proc`.
fn server_cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let of_server = stats.filter(|stat| stat.contains("(postgres)"));
    let ticks = of_server.map(|stat| {
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(4).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
    });
    ticks.sum::<f64>() / TICKS_PER_SECOND
}
