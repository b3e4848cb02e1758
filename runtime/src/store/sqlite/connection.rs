//! Opening files: the lock beside the database, the connections and their settings.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs4::fs_std::FileExt;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use super::error::store_error;
use crate::fault;
use crate::store::{LOCK_WAIT_MAX, StoreError};

/// Earlier versions can corrupt a database with a write-ahead log: <https://www.sqlite.org/wal.html#walresetbug>.
const SQLITE_VERSION_MIN: (u32, u32, u32) = (3, 51, 3);

/// How often the lock is tried before it counts as held: whoever asks who holds it has it for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Connections of each of the two pools that read. More would only wait for the same disk.
const READERS_MAX: u32 = 2;

/// Prepared statements kept; above the number of statements there are, in every size.
const STATEMENTS_MAX: usize = 256;

/// The log is copied into the database each time it has grown by this many pages (16 MiB), a compromise between
/// copying a page often and recovering a long log.
const CHECKPOINT_PAGES: &str = "4000";

/// Page cache of the writer, in KiB (negative by SQLite's convention).
const WRITER_CACHE: &str = "-65536";
/// Page cache of each reader.
const READER_CACHE: &str = "-8192";

/// The path with every symbolic link resolved, so that two names of one file share one lock.
pub(super) fn real_path(database: &Path) -> Result<PathBuf, StoreError> {
    if let Ok(found) = database.canonicalize() {
        return Ok(found);
    }
    let refused = |why: &dyn std::fmt::Display| {
        StoreError::Refused(format!("{} cannot be the path of a database: {why}", database.display()))
    };
    let name = database.file_name().ok_or_else(|| refused(&"it names no file"))?;
    let parent = database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(|error| refused(&error))?;
    Ok(parent.join(name))
}

/// Takes the lock that tells other processes to keep off; the operating system releases it when this one ends.
pub(super) async fn lock(database: &Path) -> Result<File, StoreError> {
    let path = lock_path(database);
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|error| StoreError::Refused(format!("cannot open the lock file {}: {error}", path.display())))?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock_exclusive() {
            Ok(true) => {
                name_holder(&file, "");
                return Ok(file);
            }
            Ok(false) => pause(LOCK_PAUSE).await,
            Err(error) => return Err(StoreError::Refused(format!("cannot lock {}: {error}", path.display()))),
        }
    }
    Err(StoreError::Refused(format!(
        "{} is in use by another overdue (it holds {}): talk to that one with --url, or stop it first",
        database.display(),
        path.display()
    )))
}

#[expect(clippy::disallowed_methods, reason = "the store waits for another process")]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Writes into the lock file which node holds it. That is only for those who look; without it they see nobody.
pub(super) fn name_holder(mut lock: &File, node_id: &str) {
    let written = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| lock.write_all(node_id.as_bytes()));
    if let Err(error) = written {
        tracing::warn!(error = %error, "the lock file does not tell which node holds it");
    }
}

/// The node that holds the database now. Who asks has the lock for a moment where nobody else has it.
pub(super) fn holder(database: &Path) -> Option<String> {
    let mut file = File::open(lock_path(database)).ok()?;
    if !matches!(FileExt::try_lock_shared(&file), Ok(false)) {
        return None;
    }
    let mut node_id = String::new();
    file.read_to_string(&mut node_id).ok()?;
    (!node_id.is_empty()).then_some(node_id)
}

fn lock_path(database: &Path) -> PathBuf {
    beside(database, ".lock")
}

/// The file that SQLite keeps the write-ahead log in.
pub(super) fn log_path(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(database.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

fn options(database: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(database)
        .busy_timeout(LOCK_WAIT_MAX)
        .statement_cache_capacity(STATEMENTS_MAX)
        .pragma("mmap_size", "0")
        .pragma("temp_store", "MEMORY")
        .foreign_keys(false)
        // Statements carry callers' data, which belongs in no log.
        .disable_statement_logging()
}

/// Opens the connection that writes, creating the file when there is none.
pub(super) async fn open_writer(database: &Path) -> Result<SqliteConnection, StoreError> {
    let mut connection = options(database)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(if fault::is_lax() { SqliteSynchronous::Normal } else { SqliteSynchronous::Full })
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("cache_size", WRITER_CACHE)
        .connect()
        .await
        .map_err(|error| StoreError::Refused(format!("cannot open {}: {error}", database.display())))?;
    let version = sqlite_version(&mut connection).await?;
    if let Err(refused) = check_version(&version) {
        let _ = connection.close().await;
        return Err(refused);
    }
    Ok(connection)
}

/// Opens the connections that read. They cannot write.
pub(super) fn open_readers(database: &Path) -> SqlitePool {
    pool(options(database).pragma("cache_size", READER_CACHE).pragma("query_only", "1"))
}

/// Opens the connections of a process beside the one that has the database: they neither write to it nor copy its log back.
pub(super) fn open_lookers(database: &Path) -> SqlitePool {
    pool(options(database).pragma("cache_size", READER_CACHE).pragma("query_only", "1").read_only(true))
}

fn pool(options: SqliteConnectOptions) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS_MAX)
        .acquire_timeout(LOCK_WAIT_MAX)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(options)
}

/// The version of the SQLite that is linked in, such as `3.51.3`.
pub(super) async fn sqlite_version(connection: &mut SqliteConnection) -> Result<String, StoreError> {
    sqlx::query_scalar("SELECT sqlite_version()").fetch_one(connection).await.map_err(store_error)
}

fn check_version(version: &str) -> Result<(), StoreError> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    if (next(), next(), next()) >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    let (major, minor, patch) = SQLITE_VERSION_MIN;
    Err(StoreError::Refused(format!(
        "this program was built with SQLite {version}, which can corrupt a database: build it with {major}.{minor}.{patch} or later"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_that_can_corrupt_a_log_is_refused() {
        for version in ["3.40.1", "3.51.2", "2.99.99", "rubbish"] {
            assert!(matches!(check_version(version), Err(StoreError::Refused(_))), "{version}");
        }
        for version in ["3.51.3", "3.52.0", "4.0"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
    }
}
