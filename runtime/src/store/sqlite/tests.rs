//! What only the embedded store does: files, locks, schemas, full disks, query plans.

use super::*;

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap();
    let fence = store.join("node-1", 0).await.unwrap();
    assert_eq!(fence.epoch, 1);
    assert_eq!(store.commit(&fence, &[]).await.unwrap(), vec![]);
    store.close().await;
    assert!(matches!(store.tokens().await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn the_embedded_store_keeps_every_specification() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let files = AtomicU32::new(0);
    crate::store::conformance::every_specification(async || {
        let file = dir.path().join(format!("{}.db", files.fetch_add(1, Ordering::Relaxed)));
        Arc::new(SqliteStore::open(file, 64).await.unwrap()) as Arc<dyn Store>
    })
    .await;
}
