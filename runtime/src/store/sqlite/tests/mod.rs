//! What only the embedded store does: files, locks, schemas, full disks, query plans.

mod disk;
mod files;
mod moving;
mod plans;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::SqliteStore;
use crate::store::Store;
use crate::store::conformance::{SHARDS, every_specification, random};

/// A directory in memory where the system has one: what is tested with it does not depend on the disk.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[tokio::test]
async fn the_embedded_store_keeps_every_specification() {
    let (dir, files) = (scratch(), AtomicU32::new(0));
    every_specification(async || {
        let file = dir.path().join(format!("{}.db", files.fetch_add(1, Ordering::Relaxed)));
        Arc::new(SqliteStore::open(file, SHARDS).await.unwrap()) as Arc<dyn Store>
    })
    .await;
}

#[test]
fn the_embedded_store_agrees_with_the_model_under_random_operations() {
    const CASES: u32 = 300;
    let (dir, files) = (scratch(), AtomicU32::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let make = || {
        let file = dir.path().join(format!("{}.db", files.fetch_add(1, Ordering::Relaxed)));
        Arc::new(runtime.block_on(SqliteStore::open(file, SHARDS)).unwrap()) as Arc<dyn Store>
    };
    random::agree_with_the_model(CASES, make, &runtime);
}
