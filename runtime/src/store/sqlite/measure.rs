//! What the store costs: bytes of a sleeping order, writes a second, processor time.
//!
//! The figures are printed; run them optimized: `cargo test --release -p overdue-runtime measure -- --ignored --nocapture`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::store::RowChange;
use crate::store::conformance::sagas::{append, batches, commit_all, cpu_seconds, now, sagas, sleeper};

async fn bytes_of_a_sleeper(dir: &Path, count: u64) -> f64 {
    let file = dir.join("sleepers.db");
    let store = SqliteStore::open(&file, 64).await.unwrap();
    let fence = store.join(&NewNode::new("node-1", Duration::MAX)).await.unwrap();
    commit_all(&store, &fence, batches(count, |n| Write::Start(sleeper(n)))).await;
    store.close().await;
    assert!(!connection::log_path(&file).exists(), "closing copies the log back");
    fs::metadata(&file).unwrap().len() as f64 / count as f64
}

#[tokio::test]
async fn a_sleeping_order_takes_at_most_500_bytes_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = bytes_of_a_sleeper(dir.path(), 10_000).await;
    assert!(bytes <= 500.0, "{bytes:.0} bytes");
}

#[tokio::test]
#[ignore = "a measurement"]
async fn measure_the_bytes_of_200_000_sleeping_orders() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = bytes_of_a_sleeper(dir.path(), 200_000).await;
    println!("a sleeping order: {bytes:.1} bytes on disk");
    assert!(bytes <= 500.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_writes_a_second() {
    let count = 60_000;
    for round in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap();
        let fence = store.join(&NewNode::new("node-1", Duration::MAX)).await.unwrap();
        let changed = |n| Some((0, RowChange { wake_at: None, ..sleeper(n).row }));
        let kinds = [
            ("starts", batches(count, |n| Write::Start(sleeper(n)))),
            ("history rows", batches(count, |n| append(n, 3, None))),
            ("history rows to scattered runs", batches(count, |n| append(n * 7919 % count, 5, None))),
            ("whole sagas of one start and four transitions, two of them with a row", sagas(count, changed)),
            ("transitions with a row", batches(count, |n| append(n * 7919 % count, 8, changed(n * 7919 % count)))),
        ];
        for (name, batches) in kinds {
            let (began, cpu) = (now(), cpu_seconds());
            commit_all(&store, &fence, batches).await;
            let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
            let rate = count as f64 / wall;
            println!("{round}: {name}: {rate:.0}/s, {:.4} CPU-s per 1,000", cpu * 1000.0 / count as f64);
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_scans_over_200_000_sleeping_orders() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap();
    let fence = store.join(&NewNode::new("node-1", Duration::MAX)).await.unwrap();
    commit_all(&store, &fence, batches(200_000, |n| Write::Start(sleeper(n)))).await;
    let shards: Vec<u16> = (0..64).collect();
    let noon = sleeper(0).run_id.created_at().saturating_add(Duration::from_secs(43_200));
    let keys: Vec<WorkflowKey> = (0..200).map(|n| sleeper(n * 997).key).collect();
    for round in 1..=3 {
        let began = now();
        let due = store.due(&shards, noon, 50).await.unwrap();
        println!("{round}: due, 50 of each shard ({} rows): {:?}", due.len(), began.elapsed());
        let began = now();
        let none = store.due(&shards, Timestamp::from_micros(0), 50).await.unwrap();
        println!("{round}: due, nothing ({} rows): {:?}", none.len(), began.elapsed());
        let began = now();
        store.unread(&shards, 100).await.unwrap();
        println!("{round}: unread, nothing: {:?}", began.elapsed());
        let began = now();
        store.load(&keys).await.unwrap();
        println!("{round}: load of 200: {:?}", began.elapsed());
        let began = now();
        let page = store.list(&Filter { due_before: Some(noon), ..Filter::default() }, None, 100).await.unwrap();
        println!("{round}: a page by time ({} rows): {:?}", page.rows.len(), began.elapsed());
        let began = now();
        let page = store.list(&Filter::default(), None, 100).await.unwrap();
        println!("{round}: a page by key ({} rows): {:?}", page.rows.len(), began.elapsed());
    }
    store.close().await;
}
