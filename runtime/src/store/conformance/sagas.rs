//! Orders as they come in life, for measurements: many that sleep, and whole sagas.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use crate::history::{Chain, EventKind, Record, encode};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::store::{Advance, Fence, NewExecution, Outcome, RowChange, Status, Store, Write};
use crate::time::Timestamp;

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
pub(in crate::store) fn sleeper(n: u64) -> NewExecution {
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
            parked: None,
        },
        attributes: Vec::new(),
        consume: Vec::new(),
        emit: Vec::new(),
        requested: false,
    }
}

pub(in crate::store) fn append(n: u64, first_event: u64, row: Option<(u64, RowChange)>) -> Write {
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
        emit: Vec::new(),
        guard_inbox: true,
    })
}

pub(in crate::store) async fn commit_all(store: &dyn Store, fence: &Fence, batches: Vec<Vec<Write>>) {
    for batch in batches {
        let outcomes = store.commit(fence, &batch).await.unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Started { .. } | Outcome::Advanced)));
    }
}

pub(in crate::store) fn batches(count: u64, write: impl Fn(u64) -> Write) -> Vec<Vec<Write>> {
    let all: Vec<Write> = (0..count).map(write).collect();
    all.chunks(BATCH).map(<[Write]>::to_vec).collect()
}

/// Batches of starts, each followed by the four transitions of its sagas.
pub(in crate::store) fn sagas(count: u64, changed: impl Fn(u64) -> Option<(u64, RowChange)>) -> Vec<Vec<Write>> {
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

#[expect(clippy::disallowed_methods, reason = "a measurement measures real time")]
pub(in crate::store) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Processor time of this process so far, where the system tells it in `/proc`.
pub(in crate::store) fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}
