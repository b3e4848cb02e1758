//! The outbox: what transitions emit, in the order of their runs, until it is delivered.

use std::sync::Arc;

use super::Specification;
use super::fixtures::{Node, advance, all_shards, at, new, order, record, run_of};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{
    Advance, Dispatch, NewExecution, OutboxChange, OutboxFilter, OutboxKey, OutboxRow, OutboxState, Outcome, Sharing, Store,
    Write,
};
use crate::time::Timestamp;

/// An event of an execution on its way to a sink.
pub(in crate::store) fn event(key: &WorkflowKey, sink: &str, number: u64) -> OutboxRow {
    OutboxRow {
        place: OutboxKey { shard: key.shard(super::SHARDS), sink: sink.to_owned(), run_id: run_of(key), event: number },
        key: key.clone(),
        name: "shipment.sent".into(),
        data: Payload::from_json(r#"{"n":9007199254740993.10}"#).unwrap(),
        emitted_at: at(i64::try_from(number).unwrap()),
        next_at: None,
        attempts: 0,
        failing_since: None,
        parked: false,
        failure: None,
    }
}

pub(in crate::store) fn dispatch(row: &OutboxRow, attempts: u32, change: OutboxChange) -> Write {
    Write::Dispatch(Dispatch { key: row.key.clone(), place: row.place.clone(), attempts, change })
}

fn emitting(key: &WorkflowKey, events: &[OutboxRow]) -> Write {
    Write::Start(NewExecution { emit: events.to_vec(), ..new(key) })
}

fn failed(attempts: u32, next_at: Option<Timestamp>) -> OutboxChange {
    OutboxChange::Update {
        next_at,
        attempts,
        failing_since: Some(at(3)),
        parked: next_at.is_none(),
        failure: Some("http-503: down".into()),
    }
}

async fn due(store: &Arc<dyn Store>, sink: &str, until: i64) -> Vec<(String, u64)> {
    let rows = store.outbox_due(sink, &all_shards(), at(until), 100).await.unwrap();
    rows.into_iter().map(|row| (row.key.id().to_owned(), row.place.event)).collect()
}

async fn all(store: &Arc<dyn Store>, sink: Option<&str>, state: Option<OutboxState>) -> Vec<(String, u64)> {
    let filter = OutboxFilter { sink: sink.map(str::to_owned), state };
    let rows = store.outbox_page(&filter, None, 100).await.unwrap();
    let mut found: Vec<_> = rows.into_iter().map(|row| (row.key.id().to_owned(), row.place.event)).collect();
    found.sort();
    found
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("what a start and a transition emit is there when they are, whole, and not when they are refused", |store| {
        Box::pin(async move {
            let (node, key) = (Node::on(store.clone()).await, order("1"));
            let one = event(&key, "crm", 1);
            assert_eq!(node.write(emitting(&key, std::slice::from_ref(&one))).await, Outcome::Started { inbox: false });
            let expected = OutboxRow { next_at: Some(one.emitted_at), ..one.clone() };
            assert_eq!(store.outbox_row(&one.place).await.unwrap(), Some(expected));
            let again = event(&key, "crm", 2);
            assert!(matches!(node.write(emitting(&key, std::slice::from_ref(&again))).await, Outcome::Exists(_)));
            let more = |first_event| Advance {
                record: Some(record(first_event, "more")),
                emit: vec![event(&key, "crm", first_event)],
                ..advance(&key)
            };
            assert_eq!(node.write(Write::Advance(more(3))).await, Outcome::Advanced);
            let stale = Advance { emit: vec![event(&key, "crm", 9)], ..more(3) };
            assert_eq!(node.write(Write::Advance(stale)).await, Outcome::Stale);
            assert_eq!(all(&store, None, None).await, [("1".into(), 1), ("1".into(), 3)]);
        })
    }),
    ("of one run and sink the first event alone is due, and the next one when it is gone", |store| {
        Box::pin(async move {
            let (node, key) = (Node::on(store.clone()).await, order("1"));
            let events = [event(&key, "crm", 2), event(&key, "crm", 4), event(&key, "mail", 2)];
            node.write(emitting(&key, &events)).await;
            let more = Advance { record: Some(record(5, "more")), emit: vec![event(&key, "crm", 5)], ..advance(&key) };
            node.write(Write::Advance(more)).await;
            node.write(emitting(&order("2"), &[event(&order("2"), "crm", 2)])).await;
            let mut heads = due(&store, "crm", 100).await;
            heads.sort();
            assert_eq!(heads, [("1".into(), 2), ("2".into(), 2)]);
            assert_eq!(due(&store, "mail", 100).await, [("1".into(), 2)]);
            let remove = |row: &OutboxRow, now| dispatch(row, 0, OutboxChange::Remove { now: at(now) });
            // Out of order by a person's hand: what waits behind the first one waits on.
            assert_eq!(node.write(remove(&events[1], 50)).await, Outcome::Dispatched);
            assert_eq!(due(&store, "crm", 100).await.len(), 2);
            assert_eq!(node.write(remove(&events[0], 60)).await, Outcome::Dispatched);
            assert_eq!(due(&store, "crm", 59).await, [("2".into(), 2)]);
            assert_eq!(due(&store, "crm", 60).await, [("2".into(), 2), ("1".into(), 5)]);
            assert_eq!(due(&store, "mail", 100).await, [("1".into(), 2)]);
        })
    }),
    ("a failed attempt is kept with its count and its next time, and what waits for a person is not due", |store| {
        Box::pin(async move {
            let (node, key) = (Node::on(store.clone()).await, order("1"));
            let one = event(&key, "crm", 2);
            node.write(emitting(&key, &[one.clone(), event(&key, "crm", 3)])).await;
            assert_eq!(node.write(dispatch(&one, 0, failed(1, Some(at(90))))).await, Outcome::Dispatched);
            assert_eq!((due(&store, "crm", 89).await, due(&store, "crm", 90).await), (vec![], vec![("1".into(), 2)]));
            let row = store.outbox_row(&one.place).await.unwrap().unwrap();
            assert_eq!((row.attempts, row.failing_since, row.failure), (1, Some(at(3)), Some("http-503: down".into())));
            assert_eq!(node.write(dispatch(&one, 1, failed(2, None))).await, Outcome::Dispatched);
            assert_eq!(due(&store, "crm", 1_000_000).await, [], "not what waits behind it, either");
            assert_eq!(all(&store, Some("crm"), Some(OutboxState::NeedsAttention)).await, [("1".into(), 2)]);
            assert_eq!(all(&store, Some("crm"), Some(OutboxState::Waiting)).await, [("1".into(), 3)]);
            assert_eq!(all(&store, Some("mail"), None).await, []);
        })
    }),
    ("what becomes of an event is refused when another count of attempts is there, or nothing", |store| {
        Box::pin(async move {
            let (node, key) = (Node::on(store.clone()).await, order("1"));
            let one = event(&key, "crm", 2);
            let remove = |attempts| dispatch(&one, attempts, OutboxChange::Remove { now: at(9) });
            assert_eq!(node.write(remove(0)).await, Outcome::Stale);
            node.write(emitting(&key, std::slice::from_ref(&one))).await;
            node.write(dispatch(&one, 0, failed(1, Some(at(90))))).await;
            assert_eq!(node.write(remove(0)).await, Outcome::Stale);
            assert_eq!(node.write(dispatch(&one, 0, failed(1, Some(at(91))))).await, Outcome::Stale);
            assert_eq!(node.write(remove(1)).await, Outcome::Dispatched);
            assert_eq!(node.write(remove(1)).await, Outcome::Stale);
            assert_eq!(all(&store, None, None).await, []);
        })
    }),
    ("a removal that is refused makes nobody due", |store| {
        Box::pin(async move {
            let (node, key) = (Node::on(store.clone()).await, order("1"));
            node.write(emitting(&key, &[event(&key, "crm", 3)])).await;
            let waits = event(&key, "crm", 1);
            let behind = Advance { emit: vec![waits.clone()], ..advance(&key) };
            assert_eq!(node.write(Write::Advance(behind)).await, Outcome::Advanced);
            let stale = dispatch(&waits, 1, OutboxChange::Remove { now: at(9) });
            assert_eq!(node.write(stale).await, Outcome::Stale);
            assert_eq!(store.outbox_row(&waits.place).await.unwrap().unwrap().next_at, None);
        })
    }),
    ("a node that lost its lane, or does not own the shard, changes nothing of the outbox", |store| {
        Box::pin(async move {
            let (node, key) = (Node::on(store.clone()).await, order("1"));
            let one = event(&key, "crm", 2);
            node.write(emitting(&key, std::slice::from_ref(&one))).await;
            let remove = dispatch(&one, 0, OutboxChange::Remove { now: at(9) });
            if store.facts().sharing == Sharing::Shared {
                let beside = Node::beside(store.clone()).await;
                assert_eq!(beside.write(remove.clone()).await, Outcome::NotOwned);
            }
            let next = Node::on(store.clone()).await;
            assert!(node.try_commit(std::slice::from_ref(&remove)).await.is_err());
            assert_eq!(due(&store, "crm", 100).await, [("1".into(), 2)]);
            assert_eq!(next.write(remove).await, Outcome::Dispatched);
        })
    }),
    ("a page goes on where the last one ended, and due events come earliest first within the limit", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for n in 0..7u64 {
                let key = order(&n.to_string());
                node.write(emitting(&key, &[event(&key, "crm", 20 - n), event(&key, "mail", 1)])).await;
            }
            let (mut pages, mut after) = (Vec::new(), None);
            loop {
                let page = store.outbox_page(&OutboxFilter::default(), after.as_ref(), 3).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.place.clone());
                pages.extend(page.into_iter().map(|row| row.place));
            }
            assert!(pages.len() == 14 && pages.is_sorted(), "{pages:?}");
            let rows = store.outbox_due("crm", &all_shards(), at(100), 3).await.unwrap();
            assert_eq!(rows.iter().map(|row| row.place.event).collect::<Vec<_>>(), [14, 15, 16]);
            let shard = order("0").shard(super::SHARDS);
            let rows = store.outbox_due("crm", &[shard], at(100), 30).await.unwrap();
            assert!(!rows.is_empty() && rows.iter().all(|row| row.place.shard == shard));
        })
    }),
];
