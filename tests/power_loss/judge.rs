//! Whether a store that was found after a power cut is whole, and keeps what was promised.

use std::time::Duration;

use overdue_runtime::WorkflowKey;
use overdue_runtime::engine::{Environment, Registries};
use overdue_runtime::history::decode;
use overdue_runtime::sqlx::{self, Connection};
use overdue_runtime::store::{Loaded, SqliteStore, Store};
use overdue_runtime::verify::{Options, everything};
use overdue_workflows::{Settings, register};
use serde_json::Value;

use super::disk::Files;

/// How many shards a server's store has by default.
const SHARDS: u16 = 64;

/// What a caller was told is durable.
#[derive(Clone, Debug)]
pub(super) enum Promise {
    Started(String),
    Signalled { order: String, signal_id: String },
}

impl Promise {
    /// What the ids of signals begin with; an order's id follows.
    pub(super) const SIGNAL: &str = "txn-of-";

    /// What an answer promises.
    pub(super) fn in_answer(text: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1)?).ok()?;
        if let Some(signal_id) = body["signalId"].as_str() {
            let order = signal_id.strip_prefix(Self::SIGNAL)?.to_owned();
            return Some(Self::Signalled { order, signal_id: signal_id.to_owned() });
        }
        body["runId"].as_str()?;
        Some(Self::Started(body["id"].as_str()?.to_owned()))
    }

    fn order(&self) -> &str {
        match self {
            Self::Started(order) | Self::Signalled { order, .. } => order,
        }
    }

    fn is_kept(&self, loaded: &Loaded) -> bool {
        match self {
            Self::Started(_) => true,
            Self::Signalled { signal_id, .. } => {
                let holds = |bytes: &[u8]| bytes.windows(signal_id.len()).any(|part| part == signal_id.as_bytes());
                loaded.records.iter().any(|record| holds(&record.bytes))
                    || loaded.inbox.iter().any(|row| row.signal_id == *signal_id)
            }
        }
    }
}

/// Opens what was found, and says what is wrong with it.
pub(super) async fn judge(files: &Files, promises: &[Promise]) -> Result<(), String> {
    let folder =
        tempfile::tempdir_in(if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() });
    let folder = folder.unwrap();
    let database = folder.path().join("orders.db");
    for (suffix, bytes) in ["", "-wal", "-journal"].into_iter().zip(files) {
        if let Some(bytes) = bytes {
            std::fs::write(format!("{}{suffix}", database.display()), bytes).unwrap();
        }
    }
    let store = SqliteStore::open(&database, SHARDS).await.map_err(|error| format!("it does not open: {error}"))?;
    let kept = are_kept(&store, promises).await;
    let verified = is_verified(&store).await;
    store.close().await;
    kept?;
    verified?;
    let url = format!("sqlite:{}", database.display());
    let mut session = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let whole = is_whole(&mut session).await;
    session.close().await.unwrap();
    whole
}

async fn are_kept(store: &SqliteStore, promises: &[Promise]) -> Result<(), String> {
    let keys: Vec<_> = promises.iter().map(|promise| WorkflowKey::new("order-timeout", promise.order())).collect();
    for (promise, loaded) in promises.iter().zip(store.load(&keys).await.map_err(|error| error.to_string())?) {
        let loaded = loaded.ok_or_else(|| format!("{promise:?}"))?;
        decode(loaded.execution.run_id, &loaded.records).map_err(|error| format!("{promise:?}: {error}"))?;
        if !promise.is_kept(&loaded) {
            return Err(format!("{promise:?}"));
        }
    }
    Ok(())
}

async fn is_whole(session: &mut sqlx::SqliteConnection) -> Result<(), String> {
    let verdict: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut *session).await.map_err(|e| e.to_string())?;
    if verdict == "ok" { Ok(()) } else { Err(verdict) }
}

/// Whether it passes `verify`, the replay of every history with it.
async fn is_verified(store: &SqliteStore) -> Result<(), String> {
    let mut code = Registries::default();
    register(&mut code.workflows, Settings::default());
    let options = Options { workflow_type: None, patience: Duration::ZERO };
    let clock = Environment::system().clock;
    let report = everything(store, &code, clock.as_ref(), &options).await.map_err(|error| error.to_string())?;
    if report.is_clean() { Ok(()) } else { Err(format!("{:?}", report.violations)) }
}
