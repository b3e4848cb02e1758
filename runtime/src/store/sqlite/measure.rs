//! What the store costs: bytes of a sleeping order, writes a second, processor time.
//!
//! The figures are printed; run them optimized: `cargo test --release -p overdue-runtime measure -- --ignored --nocapture`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::*;
use crate::history::{Chain, EventKind, Record, encode};
use crate::id::RunId;
use crate::payload::Payload;
use crate::store::{Advance, NewExecution, RowChange, Status};

const BATCH: usize = 200;
const DAY_MICROS: u64 = 86_400_000_000;
const START_MILLIS: u64 = 1_700_000_000_000;

/// Numbers that look random and are the same in every run (splitmix64).
fn scatter(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// An order with an id of 16 bytes and an input of 200 bytes, asleep until some instant of a day.
fn sleeper(n: u64) -> NewExecution {
    let key = WorkflowKey::new("order-timeout", format!("{:016x}", scatter(n)));
    let mut random = [0; 10];
    random[..8].copy_from_slice(&scatter(n ^ 0xff).to_le_bytes());
    let run_id = RunId::new(START_MILLIS + n / 15, random);
    let started = Timestamp::from_micros(i64::try_from((START_MILLIS + n / 15) * 1000).unwrap());
    let wake_at = started.saturating_add(Duration::from_micros(scatter(n ^ 0xabcd) % DAY_MICROS));
    let padding = "x".repeat(200 - r#"{"orderNo":"0123456789abcdef","note":""}"#.len());
    let input = Payload::from_json(&format!(r#"{{"orderNo":"{}","note":"{padding}"}}"#, key.id())).unwrap();
    assert_eq!(input.len(), 200);
    let kinds = [
        EventKind::WorkflowStarted { input, start_at: None, attributes: Default::default(), traceparent: None },
        EventKind::TimerStarted { name: Some("payDeadline".into()), fire_at: wake_at },
    ];
    NewExecution {
        shard: key.shard(64),
        key,
        run_id,
        request_hash: *Uuid::from_u64_pair(scatter(n ^ 1), scatter(n ^ 2)).as_bytes(),
        record: Record { first_event: 1, bytes: encode(started, &kinds, &mut Chain::beginning(run_id)) },
        row: RowChange {
            status: Status::Running,
            wake_at: Some(wake_at),
            closed_at: None,
            needs_attention: false,
            attempts: Bytes::new(),
        },
        attributes: Vec::new(),
        consume: Vec::new(),
        requested: false,
    }
}

fn append(n: u64, first_event: u64, row: Option<(u64, RowChange)>) -> Write {
    let new = sleeper(n);
    Write::Advance(Advance {
        key: new.key,
        shard: new.shard,
        run_id: new.run_id,
        rev: row.as_ref().map_or(0, |(rev, _)| *rev),
        record: Some(Record { first_event, bytes: Bytes::from_static(&[7; 120]) }),
        row: row.map(|(_, row)| row),
        consume: Vec::new(),
        hold: Vec::new(),
        spawn: Vec::new(),
        guard_inbox: true,
    })
}

async fn commit_all(store: &SqliteStore, fence: &Fence, batches: Vec<Vec<Write>>) {
    for batch in batches {
        let outcomes = store.commit(fence, &batch).await.unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Started { .. } | Outcome::Advanced)));
    }
}

fn batches(count: u64, write: impl Fn(u64) -> Write) -> Vec<Vec<Write>> {
    let all: Vec<Write> = (0..count).map(write).collect();
    all.chunks(BATCH).map(<[Write]>::to_vec).collect()
}

/// Batches of starts, each followed by the four transitions of its sagas.
fn sagas(count: u64, changed: impl Fn(u64) -> Option<(u64, RowChange)>) -> Vec<Vec<Write>> {
    let new = 1_000_000..1_000_000 + count;
    let all: Vec<u64> = new.collect();
    let moved = |n| changed(n).map(|(_, row)| (1, row));
    all.chunks(BATCH)
        .flat_map(|part| {
            let batch = |write: &dyn Fn(u64) -> Write| part.iter().map(|n| write(*n)).collect::<Vec<Write>>();
            [
                batch(&|n| Write::Start(sleeper(n))),
                batch(&|n| append(n, 3, None)),
                batch(&|n| append(n, 5, changed(n))),
                batch(&|n| append(n, 6, None)),
                batch(&|n| append(n, 7, moved(n))),
            ]
        })
        .collect()
}

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

#[expect(clippy::disallowed_methods, reason = "a measurement measures real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Processor time of this process so far, where the system tells it in `/proc`.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}
