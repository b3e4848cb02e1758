//! The two sides of a copy: stores of every kind, and what they are filled with.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use sqlx::Executor;
use tempfile::TempDir;

use super::super::copy::digest_of;
use super::super::{Counts, Portable, Standing};
use crate::id::WorkflowKey;
use crate::store::conformance::SHARDS;
use crate::store::conformance::fixtures::{Node, advance, at, closed, new, order, record, retire, signal, sleeping};
use crate::store::conformance::outbox::{dispatch, event};
use crate::store::postgres::tests::{database, session};
use crate::store::{
    Advance, AttributeValue, Control, ModelStore, NewNode, OutboxChange, Outcome, Parked, PostgresStore, RowChange, SqliteStore,
    Status, Store, Token, Write,
};
use crate::time::Timestamp;

/// One of the two stores of a copy, by both of its faces.
#[derive(Clone)]
pub(in crate::store) struct Side {
    pub(super) store: Arc<dyn Store>,
    pub(super) portable: Arc<dyn Portable>,
    _database: Option<Arc<Database>>,
}

impl Side {
    pub(in crate::store) fn of<S: Store + Portable>(store: Arc<S>) -> Self {
        Self { store: store.clone(), portable: store, _database: None }
    }

    pub(super) async fn node(&self) -> Node {
        let node =
            Node { fence: self.store.join(&NewNode::new("node-1", Duration::ZERO)).await.unwrap(), store: self.store.clone() };
        node.store.claim(&node.fence, usize::MAX).await.unwrap();
        node
    }

    pub(super) async fn standing(&self) -> Standing {
        self.portable.standing().await.unwrap()
    }

    pub(super) async fn is_servable(&self) -> bool {
        self.standing().await.check_servable().is_ok()
    }

    pub(super) async fn sum(&self) -> (Counts, String) {
        let digest = digest_of(self.portable.as_ref(), 3).await.unwrap();
        (digest.counts, digest.hash())
    }
}

pub(super) type Make = Box<dyn Fn() -> LocalBoxFuture<'static, Side>>;

/// The kinds, by their places in [`kinds`].
pub(super) const MODEL: usize = 0;
pub(super) const SHARED_MODEL: usize = 1;
pub(super) const SQLITE: usize = 2;
pub(super) const POSTGRES: usize = 3;

/// Every kind of store.
pub(super) fn kinds(dir: &TempDir) -> Vec<Make> {
    let path = dir.path().to_owned();
    static FILES: AtomicU32 = AtomicU32::new(0);
    vec![
        Box::new(|| Box::pin(async { Side::of(Arc::new(ModelStore::new(SHARDS))) })),
        Box::new(|| Box::pin(async { Side::of(Arc::new(ModelStore::shared(SHARDS, None))) })),
        Box::new(move || {
            let file = path.join(format!("{}.db", FILES.fetch_add(1, Ordering::Relaxed)));
            Box::pin(async move { Side::of(Arc::new(SqliteStore::open_to_copy(file, Some(SHARDS)).await.unwrap())) })
        }),
        Box::new(|| Box::pin(Database::empty_side())),
    ]
}

/// A database of PostgreSQL, given to the next one when a side is done with it: to create one takes ten times as long as to
/// empty it.
struct Database(String);

static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Database {
    async fn empty_side() -> Side {
        let free = FREE.lock().unwrap().pop();
        let url = match free {
            Some(url) => url,
            None => database().await,
        };
        let new = "DELETE FROM overdue.executions; DELETE FROM overdue.history; DELETE FROM overdue.attributes;
                   DELETE FROM overdue.inbox; DELETE FROM overdue.outbox; DELETE FROM overdue.starts;
                   DELETE FROM overdue.tokens; DELETE FROM overdue.controls; DELETE FROM overdue.nodes;
                   DELETE FROM overdue.lanes; UPDATE overdue.shards SET node_id = NULL;
                   UPDATE overdue.transfer SET store_id = gen_random_uuid(), copying_from_id = NULL, copying_from = NULL,
                                               moved_to_id = NULL, moved_to = NULL";
        session(&url).await.execute(sqlx::raw_sql(new)).await.unwrap();
        let store = Arc::new(PostgresStore::open_to_copy(&url, Some(SHARDS)).await.unwrap());
        Side { _database: Some(Arc::new(Self(url))), ..Side::of(store) }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        FREE.lock().unwrap().push(std::mem::take(&mut self.0));
    }
}

/// Runs a specification with every kind as the source and every kind as the target.
pub(super) async fn between_all<F: Future<Output = ()>>(specification: impl Fn(Side, Side) -> F) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for from in kinds(&dir) {
        for to in kinds(&dir) {
            specification(from().await, to().await).await;
        }
    }
}

fn token(name: &str, expires_at: Option<Timestamp>) -> Token {
    let secret_hash = [u8::try_from(name.len()).unwrap(); 32];
    Token { name: name.into(), secret_hash, scopes: "start".into(), types: String::new(), created_at: at(0), expires_at }
}

/// A bit of everything that a store can hold.
pub(super) async fn fill(side: &Side) {
    let node = side.node().await;
    for (n, key) in
        [order("1"), order("ü"), WorkflowKey::new("a-type", "2"), order("10"), order("1~0123456789abcdef")].iter().enumerate()
    {
        let mut start = new(key);
        start.row.attempts = if n == 1 { "notes".into() } else { Bytes::new() };
        start.row.needs_attention = n == 2;
        start.attributes =
            vec![("sku".into(), AttributeValue::Text(format!("A-{n}"))), ("gift".into(), AttributeValue::Bool(true))];
        node.start(start).await;
        let parked = (n == 0).then(|| Parked { gate: "stock".into(), since: at(6) });
        let row = RowChange { parked, ..sleeping(Some(at(7_000))) };
        let more = Advance { record: Some(record(2, "more")), row: Some(row), ..advance(key) };
        assert_eq!(node.write(Write::Advance(more)).await, Outcome::Advanced);
    }
    for id in ["closed", "retired"] {
        node.start(new(&order(id))).await;
        let close = Advance { record: Some(record(2, "end")), row: Some(closed(Status::Failed, at(9))), ..advance(&order(id)) };
        assert_eq!(node.write(Write::Advance(close)).await, Outcome::Advanced);
    }
    assert_eq!(node.write(Write::Retire(retire(&order("retired"), 1))).await, Outcome::Retired);
    for (id, signal_id) in [("1", "a"), ("1", "b"), ("nobody", "a"), ("closed", "a"), ("ü", "a")] {
        node.deposit(&signal(&order(id), signal_id, at(3))).await;
    }
    node.deposit(&signal(&WorkflowKey::new("unknown-type", "1"), "a", at(4))).await;
    let hold = Advance { hold: vec!["b".into()], ..advance(&order("1")) };
    assert_eq!(node.write(Write::Advance(hold)).await, Outcome::Advanced);
    let emitting = Advance {
        record: Some(record(3, "told")),
        emit: [("crm", 3), ("crm", 4), ("mail", 3)].map(|(sink, number)| event(&order("1"), sink, number)).to_vec(),
        ..advance(&order("1"))
    };
    assert_eq!(node.write(Write::Advance(emitting)).await, Outcome::Advanced);
    let failed = OutboxChange::Update {
        next_at: Some(at(50)),
        attempts: 2,
        failing_since: Some(at(5)),
        parked: false,
        failure: Some("http-503: down".into()),
    };
    assert_eq!(node.write(dispatch(&event(&order("1"), "crm", 3), 0, failed)).await, Outcome::Dispatched);
    assert!(side.store.create_token(&token("shop", None)).await.unwrap());
    assert!(side.store.create_token(&token("operator", Some(at(99)))).await.unwrap());
    for (name, rev) in [("breaker stock", 1), ("breaker stock", 2), ("breaker payments/bank", 1)] {
        assert!(side.store.replace_control(&control(name, rev)).await.unwrap());
    }
    side.store.leave(&node.fence).await.unwrap();
}

/// What a server does to a store that [`fill`] filled: something is added, something changed, something is gone.
pub(super) async fn go_on(side: &Side) {
    let node = side.node().await;
    node.start(new(&order("since"))).await;
    let take = Advance { rev: 1, row: Some(sleeping(None)), consume: vec!["a".into()], ..advance(&order("ü")) };
    assert_eq!(node.write(Write::Advance(take)).await, Outcome::Advanced);
    assert!(side.store.revoke_token("shop").await.unwrap());
    assert!(side.store.replace_control(&control("breaker stock", 3)).await.unwrap());
    side.store.leave(&node.fence).await.unwrap();
}

fn control(name: &str, rev: u64) -> Control {
    Control { name: name.into(), rev, value: format!("as of {rev}").into() }
}
