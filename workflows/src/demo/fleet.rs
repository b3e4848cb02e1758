//! The nodes of a run: one engine, or several that share a store.

use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::engine::{Down, Engine};

/// Engines on one store.
pub(super) struct Fleet {
    engines: Vec<Engine>,
    kills: usize,
}

impl Fleet {
    /// Starts so many engines on free ports, one after another, and waits until each is ready.
    pub(super) async fn start(nodes: usize, store: &str, config: &Path, log: &Path) -> anyhow::Result<Fleet> {
        let mut engines = Vec::with_capacity(nodes);
        for _ in 0..nodes {
            engines.push(Engine::start(store, config, log).await?);
        }
        Ok(Fleet { engines, kills: 0 })
    }

    pub(super) fn nodes(&self) -> usize {
        self.engines.len()
    }

    /// Where they listen, also after restarts.
    pub(super) fn urls(&self) -> Vec<watch::Receiver<String>> {
        self.engines.iter().map(Engine::url).collect()
    }

    /// Ends one of them with SIGKILL, each in its turn, and starts another in its place; how long that took.
    pub(super) async fn kill_and_restart(&mut self) -> anyhow::Result<Down> {
        let turn = self.kills % self.engines.len();
        self.kills += 1;
        self.engines[turn].kill_and_restart().await
    }

    /// The times in which one of them was down, in order.
    pub(super) fn downs(&self) -> Vec<Down> {
        let mut downs: Vec<Down> = self.engines.iter().flat_map(|engine| engine.downs().iter().cloned()).collect();
        downs.sort_by_key(|down| down.from);
        downs
    }

    /// What they wrote to stderr, all into one file.
    pub(super) fn log_file(&self) -> PathBuf {
        self.engines.first().map(Engine::log_file).unwrap_or_default()
    }

    /// Ends them; after the audit nothing depends on how.
    pub(super) async fn stop(self) {
        for engine in self.engines {
            engine.stop().await;
        }
    }
}
