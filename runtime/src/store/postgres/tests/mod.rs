//! What only the shared store does: schemas, settings, sessions, other nodes, query plans.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::PostgresStore;
use crate::store::Store;
use crate::store::conformance::{SHARDS, every_specification, random};
use crate::testing::PostgresCluster;

/// A database of its own with an empty store in it, and its URL. Copied, which takes less than creating the schema.
async fn database() -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let cluster = PostgresCluster::shared();
    let template = TEMPLATE
        .get_or_init(|| async {
            let name = cluster.create_database().await;
            PostgresStore::open(&cluster.url(&name), SHARDS).await.unwrap().close().await;
            name
        })
        .await;
    cluster.url(&cluster.create_database_like(template).await)
}

async fn opened(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, SHARDS).await.unwrap())
}

#[tokio::test]
async fn the_shared_store_keeps_every_specification() {
    every_specification(async || opened(&database().await).await as Arc<dyn Store>).await;
}

#[test]
fn the_shared_store_agrees_with_the_model_under_random_operations() {
    const CASES: u32 = 60;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let make = || runtime.block_on(async { opened(&database().await).await }) as Arc<dyn Store>;
    random::agree_with_the_model(CASES, make, &runtime);
}
