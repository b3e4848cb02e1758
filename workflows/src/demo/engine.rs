//! The engine as a child process: started, killed without warning, started again.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

/// An engine that has not said its URL by then does not start.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// Starts on the old port before a free one is taken instead.
const SAME_PORT_STARTS: u32 = 3;
/// The signal number of SIGKILL.
const SIGKILL: i32 = 9;
/// How much of the engine's log an error shows.
const LOG_TAIL_LINES: usize = 15;

/// A time in which an engine was down.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Down {
    /// When it was killed.
    #[serde(serialize_with = "crate::sandbox::time::serialize")]
    pub(super) from: Timestamp,
    /// When its successor was ready.
    #[serde(serialize_with = "crate::sandbox::time::serialize")]
    pub(super) until: Timestamp,
    /// Whether it really ended by SIGKILL.
    pub(super) by_sigkill: bool,
}

/// The running engine.
pub(super) struct Engine {
    store: String,
    config: PathBuf,
    log: PathBuf,
    child: Child,
    url: watch::Sender<String>,
    downs: Vec<Down>,
}

impl Engine {
    /// Starts the engine on a free port and waits until it is ready.
    pub(super) async fn start(store: &str, config: &Path, log: &Path) -> anyhow::Result<Engine> {
        let (child, url) = spawn(store, config, log, "127.0.0.1:0").await?;
        let (url, _) = watch::channel(url);
        let (config, log) = (config.to_owned(), log.to_owned());
        Ok(Engine { store: store.to_owned(), config, log, child, url, downs: Vec::new() })
    }

    /// Where it listens, also after restarts.
    pub(super) fn url(&self) -> watch::Receiver<String> {
        self.url.subscribe()
    }

    /// When no engine ran.
    pub(super) fn downs(&self) -> &[Down] {
        &self.downs
    }

    /// What the engines wrote to stderr.
    pub(super) fn log_file(&self) -> PathBuf {
        self.log.clone()
    }

    /// Ends the engine with SIGKILL and starts its successor on the same store; how long that took.
    pub(super) async fn kill_and_restart(&mut self) -> anyhow::Result<Down> {
        let from = Timestamp::now();
        self.child.start_kill().context("the engine cannot be killed")?;
        let status = self.child.wait().await.context("the killed engine cannot be waited for")?;
        let (child, url) = self.restart().await?;
        self.child = child;
        self.url.send_replace(url);
        let by_sigkill = status.signal() == Some(SIGKILL);
        let down = Down { from, until: Timestamp::now(), by_sigkill };
        self.downs.push(down.clone());
        Ok(down)
    }

    async fn restart(&self) -> anyhow::Result<(Child, String)> {
        let same = self.url.borrow().trim_start_matches("http://").trim_end_matches('/').to_owned();
        for _ in 0..SAME_PORT_STARTS {
            if let Ok(started) = spawn(&self.store, &self.config, &self.log, &same).await {
                return Ok(started);
            }
        }
        spawn(&self.store, &self.config, &self.log, "127.0.0.1:0").await
    }

    /// Ends the last engine; after the audit nothing depends on how, and Ctrl-C may have ended it already.
    pub(super) async fn stop(mut self) {
        let _ = self.child.kill().await;
    }
}

async fn spawn(store: &str, config: &Path, log: &Path, listen: &str) -> anyhow::Result<(Child, String)> {
    let binary = std::env::current_exe().context("this program does not know its own file")?;
    let stderr = append_to(log)?;
    let mut child = Command::new(&binary)
        .args(["serve", "--store", store, "--listen", listen, "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    let stdout = child.stdout.take().context("the engine has no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    match tokio::time::timeout(READY_LIMIT, ready_url(&mut lines)).await {
        Ok(Ok(Some(url))) => {
            // A full pipe would stop the engine: whatever else it prints is read and dropped.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            Ok((child, url))
        }
        Ok(Ok(None)) => bail!("the engine ended before it was ready\n{}", tail(log)),
        Ok(Err(error)) => Err(error).context("the engine's stdout cannot be read"),
        Err(_) => bail!("the engine was not ready within {READY_LIMIT:?}\n{}", tail(log)),
    }
}

async fn ready_url(lines: &mut Lines<BufReader<ChildStdout>>) -> std::io::Result<Option<String>> {
    while let Some(line) = lines.next_line().await? {
        if let Some(url) = url_in(&line) {
            return Ok(Some(url));
        }
    }
    Ok(None)
}

/// The first http URL in a line, without a trailing slash or full stop.
fn url_in(line: &str) -> Option<String> {
    let from = line.find("http://")?;
    let url = line[from..].split(|char: char| char.is_whitespace() || matches!(char, '"' | ',' | '}')).next()?;
    Some(url.trim_end_matches(['/', '.']).to_owned())
}

fn append_to(log: &Path) -> anyhow::Result<File> {
    OpenOptions::new().create(true).append(true).open(log).with_context(|| format!("cannot write {}", log.display()))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::url_in;

    #[test]
    fn the_url_is_found_in_the_ready_line() {
        let found = Some("http://127.0.0.1:7070".to_owned());
        assert_eq!(url_in("overdue is ready at http://127.0.0.1:7070"), found);
        assert_eq!(url_in("ready: http://127.0.0.1:7070/."), found);
        assert_eq!(url_in(r#"{"url":"http://127.0.0.1:7070","shards":64}"#), found);
        assert_eq!(url_in("migrating"), None);
    }
}
