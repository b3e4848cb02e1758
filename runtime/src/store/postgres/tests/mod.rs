//! What only the shared store does: schemas, settings, sessions, other nodes, query plans.

mod cancel;
mod citus;
mod faults;
mod lost;
mod moving;
mod neighbours;
mod pipeline;
mod plans;
mod schema;
mod settings;

use std::sync::Arc;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tokio::sync::{Mutex, OnceCell};
use tokio::task::JoinHandle;

use super::PostgresStore;
use crate::store::Store;
use crate::store::conformance::{SHARDS, every_specification, random};
use crate::testing::PostgresCluster;

/// Goes on while the test does something else.
#[allow(clippy::disallowed_methods, reason = "a test's own task")]
fn aside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(work)
}

fn cluster() -> &'static PostgresCluster {
    PostgresCluster::shared()
}

/// A database with nothing in it; its URL.
async fn empty_database() -> String {
    cluster().url(&cluster().create_database().await)
}

/// A session beside the store's, as another program has it.
pub(in crate::store) async fn session(url: &str) -> PgConnection {
    let url = url.split('?').next().unwrap();
    PgConnection::connect(url).await.unwrap()
}

/// A database of its own with an empty store in it, and its URL. Copied, which takes less than creating the schema.
pub(in crate::store) async fn database() -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let template = TEMPLATE
        .get_or_init(|| async {
            let name = cluster().create_database().await;
            PostgresStore::open(&cluster().url(&name), SHARDS).await.unwrap().close().await;
            name
        })
        .await;
    cluster().url(&cluster().create_database_like(template).await)
}

async fn opened(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, SHARDS).await.unwrap())
}

/// One database that is emptied again and again: to create one takes ten times as long.
struct Reused {
    url: String,
    connection: PgConnection,
}

impl Reused {
    async fn new() -> Self {
        let url = database().await;
        let connection = session(&url).await;
        Self { url, connection }
    }

    /// An empty store. The one before is closed.
    async fn empty_store(&mut self) -> Arc<dyn Store> {
        let rows =
            "TRUNCATE overdue.types, overdue.executions, overdue.history, overdue.attributes, overdue.inbox, overdue.outbox,
                             overdue.nodes, overdue.lanes, overdue.tokens, overdue.starts, overdue.controls";
        self.connection.execute(rows).await.unwrap();
        let owners = "UPDATE overdue.shards SET node_id = NULL, epoch = 0, freed_at = 'epoch'";
        self.connection.execute(owners).await.unwrap();
        opened(&self.url).await
    }
}

#[tokio::test]
async fn the_shared_store_keeps_every_specification() {
    let database = Mutex::new(Reused::new().await);
    every_specification(async || database.lock().await.empty_store().await).await;
}

#[test]
fn the_shared_store_agrees_with_the_model_under_random_operations() {
    const CASES: u32 = 40;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(async { Mutex::new(Reused::new().await) });
    let make = || runtime.block_on(async { database.lock().await.empty_store().await });
    random::agree_with_the_model(CASES, make, &runtime);
}
