//! One node: a process of the real program, and the proxy through which it reaches the database.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use overdue_runtime::fault;
use overdue_runtime::testing::Proxy;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// A process that is not ready by then is ended, and another one started.
const READY_MAX: Duration = Duration::from_secs(15);
/// A process that was asked to end has ended by then, or is killed.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// So many processes are started in a row before a node is given up.
const STARTS_MAX: usize = 8;
const BETWEEN_STARTS: Duration = Duration::from_millis(300);

/// Names another file of the program: one that a build does not replace while a long run uses it.
const PROGRAM: &str = "OVERDUE_CHAOS_PROGRAM";

/// A process of the program that ends when this one does, however this one ends.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let program = std::env::var(PROGRAM).unwrap_or_else(|_| env!("CARGO_BIN_EXE_overdue").to_owned());
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", &program]).args(arguments).env_remove("OVERDUE_URL").env_remove("OVERDUE_TOKEN");
    command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    command
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) proxy: Option<Proxy>,
    store: String,
    config: PathBuf,
    pub(crate) log: PathBuf,
    child: tokio::sync::Mutex<Option<Child>>,
    url: Mutex<String>,
}

impl Node {
    pub(crate) fn new(folder: &Path, name: &str, store: String, proxy: Option<Proxy>) -> Self {
        let (config, log) = (folder.join("overdue.toml"), folder.join(format!("{name}.log")));
        Self { name: name.to_owned(), proxy, store, config, log, child: tokio::sync::Mutex::default(), url: Mutex::default() }
    }

    /// Where it listens, or did last.
    pub(crate) fn url(&self) -> String {
        self.url.lock().unwrap().clone()
    }

    /// Starts a process with a clock that is so many seconds ahead; whether one was ready.
    pub(crate) async fn start(&self, ahead_seconds: i64) -> bool {
        let mut slot = self.child.lock().await;
        for _ in 0..STARTS_MAX {
            let (mut child, url) = self.spawn(ahead_seconds).await;
            if let Some(url) = url {
                *self.url.lock().unwrap() = url;
                *slot = Some(child);
                return true;
            }
            let _ = child.kill().await;
            sleep(BETWEEN_STARTS).await;
        }
        false
    }

    async fn spawn(&self, ahead_seconds: i64) -> (Child, Option<String>) {
        let log = OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = program(&["serve", "--store", &self.store, "--listen", "127.0.0.1:0", "--config"]);
        command.arg(&self.config).stdout(Stdio::piped()).stderr(log);
        command.env(fault::CLOCK, (ahead_seconds * 1_000_000).to_string());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, url)) = line.split_once("is ready at ") {
                    return Some(url.trim().to_owned());
                }
            }
            None
        };
        let url = timeout(READY_MAX, ready).await.ok().flatten();
        (child, url)
    }

    /// Ends it with SIGKILL, if it runs.
    pub(crate) async fn kill(&self) {
        if let Some(mut child) = self.child.lock().await.take() {
            let _ = child.kill().await;
        }
    }

    /// Asks it to end, and waits until it has; whether it did so in good order.
    pub(crate) async fn drain(&self) -> bool {
        self.signal("TERM").await;
        let Some(mut child) = self.child.lock().await.take() else { return false };
        match timeout(DRAIN_MAX, child.wait()).await {
            Ok(status) => status.is_ok_and(|status| status.success()),
            Err(_) => {
                let _ = child.kill().await;
                false
            }
        }
    }

    /// Sends its process a signal, such as `STOP`.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.child.lock().await.as_ref().and_then(Child::id);
        if let Some(pid) = pid {
            signal_process(name, pid).await;
        }
    }

    /// Whether its process has ended, which nobody asked it to.
    pub(crate) async fn has_ended(&self) -> bool {
        let mut child = self.child.lock().await;
        child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

/// Sends any process a signal.
pub(crate) async fn signal_process(name: &str, pid: u32) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status().await;
}
