//! Opening the store that a URL names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::args::MigrateArgs;
use super::program::Failure;
use crate::store::{Portable, PostgresStore, SqliteStore, Store, StoreError};

/// What a URL names.
enum Named<'a> {
    /// A file.
    Sqlite(PathBuf),
    /// A database of a server.
    Postgres(&'a str),
}

/// Opens the store.
pub(super) async fn open(url: &str, shards: u16) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match named(url)? {
        Named::Sqlite(path) => Arc::new(SqliteStore::open(path, shards).await?),
        Named::Postgres(url) => Arc::new(PostgresStore::open(url, shards).await?),
    })
}

/// Opens the store to look at it, also beside servers that use it.
pub(super) async fn open_to_look(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match named(url)? {
        Named::Sqlite(path) => Arc::new(SqliteStore::open_to_look(path).await?),
        Named::Postgres(url) => Arc::new(PostgresStore::open_to_look(url).await?),
    })
}

/// Opens the store to copy from it, or into it: then it is created with this number of shards if it is not there.
pub(super) async fn open_to_copy(url: &str, shards: Option<u16>) -> Result<Arc<dyn Portable>, StoreError> {
    match named(url)? {
        Named::Sqlite(path) => Ok(Arc::new(SqliteStore::open_to_copy(path, shards).await?)),
        Named::Postgres(url) => Ok(Arc::new(PostgresStore::open_to_copy(url, shards).await?)),
    }
}

/// `overdue migrate`.
pub(super) async fn migrate(args: &MigrateArgs) -> Result<ExitCode, Failure> {
    let store = match named(&args.store)? {
        Named::Sqlite(_) if args.allow.is_some() => {
            return Err("--allow is for PostgreSQL: nobody but overdue itself can use a SQLite store".into());
        }
        Named::Sqlite(_) if args.distribute => {
            return Err("--distribute is for PostgreSQL with Citus: a SQLite store is one file".into());
        }
        Named::Sqlite(path) => {
            SqliteStore::migrate(path).await?;
            args.store.clone()
        }
        Named::Postgres(url) => {
            PostgresStore::migrate(url).await?;
            if let Some(role) = &args.allow {
                PostgresStore::allow(url, role).await?;
            }
            if args.distribute {
                PostgresStore::distribute(url).await?;
            }
            // The URL may hold a password.
            "the database".to_owned()
        }
    };
    anstream::println!("{store} is at this program's schema");
    Ok(ExitCode::SUCCESS)
}

/// Brings an existing store to this program's schema; one that is not there yet is left to be created.
pub(super) async fn migrate_if_there(url: &str) -> Result<(), StoreError> {
    match named(url)? {
        Named::Sqlite(path) if path.exists() => SqliteStore::migrate(path).await,
        Named::Sqlite(_) => Ok(()),
        Named::Postgres(url) => PostgresStore::migrate(url).await,
    }
}

/// Refuses a store that is not there, where opening it would create it.
pub(super) async fn check_exists(url: &str) -> Result<(), StoreError> {
    match named(url)? {
        Named::Sqlite(path) if path.exists() => Ok(()),
        Named::Sqlite(path) => Err(StoreError::Refused(format!("there is no database at {}", path.display()))),
        Named::Postgres(url) if PostgresStore::exists(url).await? => Ok(()),
        Named::Postgres(_) => Err(StoreError::Refused("the database is empty: no overdue has used it yet".into())),
    }
}

fn named(url: &str) -> Result<Named<'_>, StoreError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Named::Postgres(url));
    }
    let path = url.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
    match path {
        Some(path) if !path.is_empty() => Ok(Named::Sqlite(path.into())),
        _ => Err(StoreError::Refused(format!(
            "{url:?} is no store: write sqlite:PATH, such as sqlite:overdue.db, or postgres://USER:PASSWORD@HOST:PORT/DATABASE"
        ))),
    }
}
