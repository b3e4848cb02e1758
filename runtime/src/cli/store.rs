//! Opening the store that a URL names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::args::MigrateArgs;
use super::program::Failure;
use crate::store::{Portable, SqliteStore, Store, StoreError};

/// Opens the store.
pub(super) async fn open(url: &str, shards: u16) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::open(sqlite_path(url)?, shards).await?))
}

/// Opens the store to copy from it, or into it: then it is created with this number of shards if it is not there.
pub(super) async fn open_to_copy(url: &str, shards: Option<u16>) -> Result<Arc<dyn Portable>, StoreError> {
    Ok(Arc::new(SqliteStore::open_to_copy(sqlite_path(url)?, shards).await?))
}

/// `overdue migrate`.
pub(super) async fn migrate(args: &MigrateArgs) -> Result<ExitCode, Failure> {
    SqliteStore::migrate(sqlite_path(&args.store)?).await?;
    anstream::println!("{} is at this program's schema", args.store);
    Ok(ExitCode::SUCCESS)
}

/// Brings an existing store to this program's schema; one that is not there yet is left to be created.
pub(super) async fn migrate_if_there(url: &str) -> Result<(), StoreError> {
    let path = sqlite_path(url)?;
    if path.exists() { SqliteStore::migrate(path).await } else { Ok(()) }
}

/// Refuses a store that is not there, where opening it would create it.
pub(super) fn check_exists(url: &str) -> Result<(), StoreError> {
    let path = sqlite_path(url)?;
    if path.exists() { Ok(()) } else { Err(StoreError::Refused(format!("there is no database at {}", path.display()))) }
}

fn sqlite_path(url: &str) -> Result<PathBuf, StoreError> {
    let path = url.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
    match path {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err(StoreError::Refused(format!("{url:?} is no store: write sqlite:PATH, such as sqlite:overdue.db"))),
    }
}
