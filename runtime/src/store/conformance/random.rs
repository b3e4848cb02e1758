//! Random operations on a store and on the model: every outcome and every later read must be equal.
//!
//! Names, positions and times are drawn from small ranges, so that operations meet each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};

use super::SHARDS;
use super::fixtures::{all_shards, at, hash, joining, run_of};
use super::outbox::event;
use crate::history::Record;
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{
    Advance, AttributeValue, CommitError, Deposit, Due, Fence, Filter, Forget, Gates, InboxRow, ModelStore, NewExecution,
    NewNode, Outbox, OutboxChange, OutboxFilter, OutboxRow, OutboxState, Parked, Position, Retire, RowChange, Sharing, Status,
    Store, Write,
};

#[derive(Clone, Debug)]
enum Operation {
    /// A new node in the place of the last one.
    Join,
    Leave,
    Commit {
        stale_fence: bool,
        writes: Vec<Write>,
    },
}

/// Runs `cases` random histories of operations on stores that `make` opens.
pub(in crate::store) fn agree_with_the_model(cases: u32, make: impl Fn() -> Arc<dyn Store>, on: &tokio::runtime::Runtime) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let operations = vec(operation(), 1..12);
    let reads = vec(read(), 6);
    let verdict = TestRunner::new(config).run(&(operations, reads), |(operations, reads)| {
        let store = make();
        on.block_on(run(&store, &operations, &reads))
    });
    if let Err(error) = verdict {
        panic!("{error}");
    }
}

async fn run(store: &Arc<dyn Store>, operations: &[Operation], reads: &[Read]) -> Result<(), TestCaseError> {
    let model = match store.facts().sharing {
        Sharing::Embedded => ModelStore::new(SHARDS),
        Sharing::Shared => ModelStore::shared(SHARDS, None),
    };
    let mut fences = vec![join(store, &model, None).await?];
    for operation in operations {
        let (ours, models): &(Fence, Fence) = fences.last().unwrap();
        match operation {
            Operation::Join => {
                let joined = join(store, &model, Some(ours.node_id.clone())).await?;
                fences.push(joined);
            }
            Operation::Leave => {
                store.leave(ours).await.unwrap();
                model.leave(models).await.unwrap();
            }
            Operation::Commit { stale_fence, writes } => {
                let (ours, models) = if *stale_fence { &fences[0] } else { fences.last().unwrap() };
                let (found, expected) = (store.commit(ours, writes).await, model.commit(models, writes).await);
                match (&found, &expected) {
                    (Ok(found), Ok(expected)) => prop_assert_eq!(found, expected),
                    (Err(found), Err(expected)) => prop_assert_eq!(name(found), name(expected)),
                    _ => prop_assert!(false, "{found:?} but the model says {expected:?}"),
                }
            }
        }
        compare(store, &model).await?;
    }
    for read in reads {
        read_both(store, &model, read).await?;
    }
    store.close().await;
    Ok(())
}

async fn join(store: &Arc<dyn Store>, model: &ModelStore, replaces: Option<String>) -> Result<(Fence, Fence), TestCaseError> {
    let node = NewNode { replaces, ..joining() };
    let (ours, models) = (store.join(&node).await.unwrap(), model.join(&node).await.unwrap());
    // What an earlier node gave back belongs to nobody until it is claimed.
    let (found, expected) = (store.claim(&ours, usize::MAX).await.unwrap(), model.claim(&models, usize::MAX).await.unwrap());
    prop_assert_eq!(found, expected);
    Ok((ours, models))
}

fn name(error: &CommitError) -> &'static str {
    match error {
        CommitError::FenceLost { .. } => "fence lost",
        CommitError::Rejected(_) => "rejected",
        CommitError::DiskFull(_) => "disk full",
        CommitError::Unavailable(_) => "unavailable",
        CommitError::Unknown(_) => "unknown",
    }
}

/// Everything that is stored.
async fn compare(store: &Arc<dyn Store>, model: &ModelStore) -> Result<(), TestCaseError> {
    let keys = keys();
    prop_assert_eq!(store.load(&keys).await.unwrap(), model.load(&keys).await.unwrap());
    for key in &keys {
        prop_assert_eq!(store.find(key).await.unwrap(), model.find(key).await.unwrap());
        prop_assert_eq!(store.attributes(key).await.unwrap(), model.attributes(key).await.unwrap());
    }
    let (shards, ever) = (all_shards(), at(1_000_000));
    prop_assert_eq!(store.due(&shards, ever, 100).await.unwrap(), model.due(&shards, ever, 100).await.unwrap());
    prop_assert_eq!(store.unread(&shards, 100).await.unwrap(), model.unread(&shards, 100).await.unwrap());
    prop_assert_eq!(store.unclaimed(&shards, ever, 100).await.unwrap(), model.unclaimed(&shards, ever, 100).await.unwrap());
    for shard in shards_of_the_keys() {
        let found = store.retirable(shard, ever, None, 100).await.unwrap();
        prop_assert_eq!(found, model.retirable(shard, ever, None, 100).await.unwrap());
        let found = store.forgettable(shard, ever, None, 100).await.unwrap();
        prop_assert_eq!(found, model.forgettable(shard, ever, None, 100).await.unwrap());
    }
    for sink in SINKS {
        let found = store.outbox_due(sink, &shards, ever, 100).await.unwrap();
        prop_assert_eq!(found, model.outbox_due(sink, &shards, ever, 100).await.unwrap());
    }
    for gate in GATES {
        let found = store.parked(&shards, gate, 100).await.unwrap();
        prop_assert_eq!(found, model.parked(&shards, gate, 100).await.unwrap());
    }
    let everything = OutboxFilter::default();
    let found = store.outbox_page(&everything, None, 1_000).await.unwrap();
    prop_assert_eq!(found, model.outbox_page(&everything, None, 1_000).await.unwrap());
    prop_assert_eq!(model.orphans(), Vec::<String>::new());
    Ok(())
}

/// A read with narrow conditions.
#[derive(Clone, Debug)]
struct Read {
    shards: Vec<u16>,
    after: i64,
    until: i64,
    limit: usize,
    filter: Filter,
    root_id: &'static str,
}

async fn read_both(store: &Arc<dyn Store>, model: &ModelStore, read: &Read) -> Result<(), TestCaseError> {
    let Read { shards, after, until, limit, filter, root_id } = read;
    // Where a limit cuts through equal times, which of them come is left to the store.
    let times = |due: Vec<Due>| due.into_iter().map(|due| (due.key.shard(SHARDS), due.wake_at)).collect::<Vec<_>>();
    let (found, expected) = (store.due(shards, at(*until), *limit), model.due(shards, at(*until), *limit));
    prop_assert_eq!(times(found.await.unwrap()), times(expected.await.unwrap()));
    let found = store.upcoming(shards, at(*after), at(*until), *limit).await.unwrap();
    prop_assert_eq!(times(found), times(model.upcoming(shards, at(*after), at(*until), *limit).await.unwrap()));
    prop_assert_eq!(store.unread(shards, *limit).await.unwrap(), model.unread(shards, *limit).await.unwrap());
    let found = store.unclaimed(shards, at(*until), *limit).await.unwrap();
    prop_assert_eq!(found, model.unclaimed(shards, at(*until), *limit).await.unwrap());
    prop_assert_eq!(store.derived(root_id, *limit).await.unwrap(), model.derived(root_id, *limit).await.unwrap());
    for shard in shards_of_the_keys().iter().filter(|shard| shards.contains(shard)) {
        // From where the first page ended.
        let found = store.retirable(*shard, at(*until), None, *limit).await.unwrap();
        prop_assert_eq!(&found, &model.retirable(*shard, at(*until), None, *limit).await.unwrap());
        let next = store.retirable(*shard, at(*until), found.last(), *limit).await.unwrap();
        prop_assert_eq!(next, model.retirable(*shard, at(*until), found.last(), *limit).await.unwrap());
        let found = store.forgettable(*shard, at(*until), None, *limit).await.unwrap();
        prop_assert_eq!(found, model.forgettable(*shard, at(*until), None, *limit).await.unwrap());
    }
    let found = store.outbox_due("crm", shards, at(*until), *limit).await.unwrap();
    prop_assert_eq!(&found, &model.outbox_due("crm", shards, at(*until), *limit).await.unwrap());
    for state in OutboxState::ALL {
        let filter = OutboxFilter { sink: Some("crm".into()), state: Some(state) };
        let after = found.first().map(|row| &row.place);
        let page = store.outbox_page(&filter, after, *limit).await.unwrap();
        prop_assert_eq!(page, model.outbox_page(&filter, after, *limit).await.unwrap());
    }
    let mut position: Option<Position> = None;
    loop {
        let found = store.list(filter, position.as_ref(), *limit).await.unwrap();
        prop_assert_eq!(&found, &model.list(filter, position.as_ref(), *limit).await.unwrap());
        position = found.next;
        if position.is_none() {
            return Ok(());
        }
    }
}

const TYPES: [&str; 2] = ["order-timeout", "a-type"];
const IDS: [&str; 8] = ["1", "2", "3", "1~aa", "1~bb", "%", "ü", "2~aa"];

fn keys() -> Vec<WorkflowKey> {
    TYPES.iter().flat_map(|workflow_type| IDS.iter().map(|id| WorkflowKey::new(*workflow_type, *id))).collect()
}

fn shards_of_the_keys() -> BTreeSet<u16> {
    keys().iter().map(|key| key.shard(SHARDS)).collect()
}

fn key() -> impl Strategy<Value = WorkflowKey> {
    select(keys())
}

fn operation() -> impl Strategy<Value = Operation> {
    let commit = (prop::bool::weighted(0.05), vec(write(), 0..12));
    prop_oneof![
        1 => Just(Operation::Join),
        1 => Just(Operation::Leave),
        18 => commit.prop_map(|(stale_fence, writes)| Operation::Commit { stale_fence, writes }),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        3 => new().prop_map(Write::Start),
        4 => advance().prop_map(Write::Advance),
        3 => deposit().prop_map(Write::Deposit),
        3 => retire().prop_map(Write::Retire),
        2 => (key(), 0u64..4).prop_map(|(key, rev)| {
            Write::Forget(Forget { shard: key.shard(SHARDS), run_id: run_of(&key), key, rev })
        }),
        3 => dispatch(),
    ]
}

fn row() -> impl Strategy<Value = RowChange> {
    let open = (select(vec![Status::Running, Status::Blocked]), prop::option::of(0i64..9));
    let open = open.prop_map(|(status, wake_at)| (status, wake_at.map(at), None));
    let over = (select(Status::ALL[2..].to_vec()), 0i64..9);
    let over = over.prop_map(|(status, closed_at)| (status, None, Some(at(closed_at))));
    // What no store can keep.
    let impossible = Just((Status::Running, None, Some(at(1))));
    let times = prop_oneof![60 => open, 20 => over, 1 => impossible];
    let parked = prop::option::weighted(0.3, (select(GATES.to_vec()), 0i64..4));
    (times, any::<bool>(), select(vec!["", "notes", "more notes"]), parked).prop_map(
        |((status, wake_at, closed_at), needs_attention, attempts, parked)| RowChange {
            status,
            wake_at,
            closed_at,
            needs_attention,
            attempts: Bytes::from_static(attempts.as_bytes()),
            parked: parked.map(|(gate, since)| Parked { gate: gate.to_owned(), since: at(since) }),
        },
    )
}

fn attribute() -> impl Strategy<Value = AttributeValue> {
    select(vec![
        AttributeValue::Text("1".into()),
        AttributeValue::Text("%".into()),
        AttributeValue::Number(crate::payload::Payload::from_json("1").unwrap()),
        AttributeValue::Bool(true),
    ])
}

fn new() -> impl Strategy<Value = NewExecution> {
    let attributes = prop::collection::btree_map(select(vec!["sku".to_owned(), "region".to_owned()]), attribute(), 0..3);
    let consume = prop::collection::vec((key(), select(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()])), 0..2);
    (key(), row(), attributes, 0u8..3, consume, events()).prop_map(|(key, row, attributes, request, consume, events)| {
        NewExecution {
            shard: key.shard(SHARDS),
            run_id: run_of(&key),
            request_hash: [request; 16],
            record: Record { first_event: 1, bytes: Bytes::from(vec![request + 1]) },
            row,
            attributes: attributes.into_iter().collect(),
            consume,
            emit: emitted(&key, &events),
            requested: false,
            key,
        }
    })
}

fn signal_ids() -> impl Strategy<Value = Vec<String>> {
    subsequence(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 0..=3)
}

fn advance() -> impl Strategy<Value = Advance> {
    let another_run = prop::bool::weighted(0.05);
    let record = prop::option::of((2u64..8, 1u8..9));
    let row = prop::option::of(row());
    let signals = (signal_ids(), signal_ids());
    (key(), another_run, 0u64..3, record, row, signals, vec(new(), 0..3), (any::<bool>(), events())).prop_map(
        |(key, another_run, rev, record, row, (consume, hold), spawn, (guard_inbox, events))| Advance {
            shard: key.shard(SHARDS),
            run_id: run_of(&if another_run { WorkflowKey::new("another", "run") } else { key.clone() }),
            rev,
            record: record.map(|(first_event, byte)| Record { first_event, bytes: Bytes::from(vec![byte]) }),
            row,
            consume,
            hold,
            spawn,
            emit: emitted(&key, &events),
            guard_inbox,
            key,
        },
    )
}

fn dispatch() -> impl Strategy<Value = Write> {
    let removed = (0i64..9).prop_map(|now| OutboxChange::Remove { now: at(now) });
    let updated = (prop::option::of(0i64..9), 0u32..3, any::<bool>()).prop_map(|(next, attempts, fails)| OutboxChange::Update {
        next_at: next.map(at),
        attempts: if next.is_none() { attempts.max(1) } else { attempts },
        failing_since: fails.then(|| at(1)),
        parked: next.is_none(),
        failure: fails.then(|| "http-503".to_owned()),
    });
    (key(), select(SINKS.to_vec()), 1u64..5, 0u32..2, prop_oneof![removed, updated])
        .prop_map(|(key, sink, number, attempts, change)| super::outbox::dispatch(&event(&key, sink, number), attempts, change))
}

const GATES: [&str; 2] = ["stock", "payments/bank"];

const SINKS: [&str; 2] = ["crm", "mail"];

/// What may be emitted: each event once, in order.
fn events() -> impl Strategy<Value = Vec<(&'static str, u64)>> {
    let each: Vec<_> = SINKS.iter().flat_map(|sink| (1u64..5).map(move |number| (*sink, number))).collect();
    subsequence(each, 0..=3)
}

fn emitted(key: &WorkflowKey, events: &[(&'static str, u64)]) -> Vec<OutboxRow> {
    events.iter().map(|(sink, number)| event(key, sink, *number)).collect()
}

fn deposit() -> impl Strategy<Value = Deposit> {
    (key(), select(vec!["a", "b", "c"]), 0u8..2, 0i64..9).prop_map(|(key, signal_id, says, second)| Deposit {
        row: InboxRow {
            shard: key.shard(SHARDS),
            key,
            signal_id: signal_id.to_owned(),
            name: "payment-succeeded".into(),
            payload: Payload::from_json(&says.to_string()).unwrap(),
            identity: hash(&says.to_string()),
            received_at: at(second),
            unchecked: false,
        },
    })
}

fn retire() -> impl Strategy<Value = Retire> {
    let tombstone = prop_oneof![40 => Just("result"), 40 => Just("failure"), 1 => Just("")];
    (key(), 0u64..3, tombstone).prop_map(|(key, rev, tombstone)| Retire {
        shard: key.shard(SHARDS),
        run_id: run_of(&key),
        key,
        rev,
        tombstone: Bytes::from_static(tombstone.as_bytes()),
    })
}

fn read() -> impl Strategy<Value = Read> {
    let forms = vec(attribute().prop_map(|value| value.stored()), 0..3);
    let attributes = prop::collection::btree_map(select(vec!["sku".to_owned(), "region".to_owned()]), forms, 0..3);
    let type_name = select(vec!["order-timeout".to_owned(), "a-type".to_owned(), "none".to_owned()]);
    let filter = (
        prop::option::weighted(0.3, type_name.clone()),
        prop::option::weighted(0.3, select(Status::ALL.to_vec())),
        prop::option::weighted(0.3, any::<bool>()),
        prop::option::of((0i64..10).prop_map(at)),
        attributes,
        prop::option::weighted(0.3, vec(type_name, 0..3)),
    )
        .prop_map(|(workflow_type, status, needs_attention, due_before, attributes, visible_types)| Filter {
            workflow_type,
            status,
            needs_attention,
            due_before,
            attributes,
            visible_types,
        });
    let roots = select(vec!["1", "2", "%", "_", "ü", "1~"]);
    (subsequence(all_shards(), 30..=64), 0i64..9, 0i64..10, 1usize..6, filter, roots)
        .prop_map(|(shards, after, until, limit, filter, root_id)| Read { shards, after, until, limit, filter, root_id })
}
