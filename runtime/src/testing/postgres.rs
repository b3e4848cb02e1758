//! A throw-away PostgreSQL for tests: its own folder and port, and gone with the process that started it, however that
//! ends.
//!
//! Needs the server's programs (`initdb`, `pg_ctl`, `postgres`), 15 or later, on the `PATH` or where Debian puts them.

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

/// Where Debian puts the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Files in memory, where the system has them: what need not survive a crash need not wait for a disk.
const MEMORY: &str = "/dev/shm";
/// How often a port is looked for: another process may take the one that was free a moment ago.
const PORTS_TRIED_MAX: usize = 5;

/// Whether commits reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// As in production: what was acknowledged survives a crash of the server.
    On,
    /// Faster, for tests in which nothing crashes. Its URLs say that the store may use it all the same.
    Off,
}

/// A running server. Dropping it stops the server and removes its files.
#[derive(Debug)]
pub struct PostgresCluster {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    fsync: Fsync,
    /// Ends the server as soon as its standard input does, which is when this process is gone at the latest.
    watchdog: Child,
}

impl PostgresCluster {
    /// The server that the tests of one process share: without fsync, a database for each test.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresCluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::new(Fsync::Off, &[]))
    }

    /// Whether the server's programs come with this extension.
    pub fn has_extension(name: &str) -> bool {
        let Some(programs) = programs() else { return false };
        let share = Command::new(programs.join("pg_config")).arg("--sharedir").output().ok().filter(|said| said.status.success());
        let share = share.and_then(|said| String::from_utf8(said.stdout).ok());
        share.is_some_and(|share| Path::new(share.trim()).join("extension").join(format!("{name}.control")).exists())
    }

    /// Creates and starts a server with these settings beside the usual ones, such as `("max_connections", "50")`.
    ///
    /// # Panics
    /// When there is no PostgreSQL, or it does not start.
    pub fn new(fsync: Fsync, settings: &[(&str, &str)]) -> Self {
        let parent = if fsync == Fsync::Off && has_room(MEMORY) { MEMORY.into() } else { std::env::temp_dir() };
        Self::in_folder(&parent, fsync, settings)
    }

    /// The same with its files in a new folder there, such as on a disk that is soon full.
    ///
    /// # Panics
    /// When there is no PostgreSQL, or it does not start.
    pub fn in_folder(parent: &Path, fsync: Fsync, settings: &[(&str, &str)]) -> Self {
        let programs = programs().expect("PostgreSQL 15 or later is installed (initdb on the PATH or under /usr/lib/postgresql)");
        let folder = own_folder(parent).expect("a folder for the server can be made");
        let watchdog = watch(&programs, &folder).expect("a shell can be started");
        let mut cluster = Self { programs, folder, port: 0, fsync, watchdog };
        cluster.create();
        for _ in 0..PORTS_TRIED_MAX {
            cluster.port = free_port();
            cluster.configure(settings).expect("the server's settings can be written");
            if cluster.try_start() {
                return cluster;
            }
        }
        panic!("PostgreSQL does not start: {}", cluster.log());
    }

    /// A URL of one of its databases, as the store takes it.
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.port, database)
    }

    /// The same through something that listens on another port of this machine.
    pub fn url_through(&self, port: u16, database: &str) -> String {
        let plain = format!("postgres://postgres@127.0.0.1:{port}/{database}");
        match self.fsync {
            Fsync::On => plain,
            Fsync::Off => format!("{plain}?overdue_durability=unchecked"),
        }
    }

    /// A new empty database; its name.
    pub async fn create_database(&self) -> String {
        self.create_database_like("template1").await
    }

    /// A new database with what is in another one, which nobody uses at that moment; its name.
    ///
    /// # Panics
    /// When the server does not create it.
    pub async fn create_database_like(&self, template: &str) -> String {
        static DATABASES: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let mut connection = self.connect("postgres").await;
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template}");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await.expect("a database can be created");
        connection.close().await.expect("a session can be closed");
        name
    }

    /// A session of the superuser in one of its databases.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn connect(&self, database: &str) -> PgConnection {
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(self.port).username("postgres");
        options.database(database).disable_statement_logging().connect().await.expect("the server answers")
    }

    /// The port on which it listens, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()
    }

    /// Stops it as a crash would: nothing is written, and the next start recovers.
    pub fn stop_immediate(&self) {
        let stopped = self.control(["-m", "immediate", "-w", "stop"]);
        assert!(stopped, "PostgreSQL does not stop: {}", self.log());
    }

    /// Starts it again after it was stopped.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&self) {
        assert!(self.try_start(), "PostgreSQL does not start: {}", self.log());
    }

    /// What the server wrote about itself.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The folder of its files.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn create(&self) {
        let made = as_server_user(&self.programs.join("initdb"))
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions", "-D"])
            .arg(self.data())
            .current_dir(&self.folder)
            .output()
            .expect("initdb can be started");
        assert!(made.status.success(), "initdb fails: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// Written whole each time: the last port is not to stay.
    fn configure(&self, settings: &[(&str, &str)]) -> io::Result<()> {
        let (port, sockets) = (self.port.to_string(), self.folder.display().to_string());
        let durable = if self.fsync == Fsync::On { "on" } else { "off" };
        let usual = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", &sockets),
            ("max_connections", "200"),
            ("fsync", durable),
            ("full_page_writes", durable),
            ("synchronous_commit", durable),
            // Nothing but the test itself decides when statistics are there and who is connected to a database.
            ("autovacuum", "off"),
            // So that a test can ask which of two commits came first.
            ("track_commit_timestamp", "on"),
        ];
        let lines = usual.iter().chain(settings).map(|(name, value)| format!("{name} = '{value}'\n"));
        std::fs::write(self.data().join("postgresql.auto.conf"), lines.collect::<String>())
    }

    /// Starts it again where it may be that it cannot: whether it runs.
    pub fn try_start(&self) -> bool {
        let log = self.folder.join("log");
        self.control([OsStr::new("-l"), log.as_os_str(), "-w".as_ref(), "-t".as_ref(), "60".as_ref(), "start".as_ref()])
    }

    fn control<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> bool {
        as_server_user(&self.programs.join("pg_ctl"))
            .arg("-D")
            .arg(self.data())
            .args(arguments)
            .current_dir(&self.folder)
            // The server inherits what pg_ctl has: a pipe would stay open for as long as it runs.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// The folder with the server's programs, the newest version where there are several.
fn programs() -> Option<PathBuf> {
    let is_one = |folder: &PathBuf| ["initdb", "pg_ctl", "postgres"].iter().all(|name| folder.join(name).exists());
    let installed = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten().map(|entry| entry.path());
    let version = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok().filter(|version| *version >= 15);
    let newest = installed.filter(|folder| version(folder).is_some() && is_one(&folder.join("bin"))).max_by_key(version);
    let on_path = || std::env::split_paths(&std::env::var_os("PATH")?).find(is_one);
    newest.map(|folder| folder.join("bin")).or_else(on_path)
}

/// A program that refuses to run as root, as the server's do.
pub(crate) fn as_server_user(program: &Path) -> Command {
    let Some(user) = server_user() else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).args(["--clear-groups", "--"]).arg(program);
    command
}

/// Whom the server runs as, where this process is root.
fn server_user() -> Option<&'static str> {
    let succeeds = |arguments: &[&str]| {
        let status = Command::new("id").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let user_id = Command::new("id").arg("-u").output().ok()?.stdout;
    if user_id.trim_ascii() != b"0" {
        return None;
    }
    Some(if succeeds(&["postgres"]) { "postgres" } else { "nobody" })
}

/// A new folder that belongs to the server's user. Its path is short: a socket's must have fewer than 108 bytes.
fn own_folder(parent: &Path) -> io::Result<PathBuf> {
    let mut number = 0;
    let folder = loop {
        let folder = parent.join(format!("overdue-pg-{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => break made.map(|()| folder)?,
        }
    };
    if let Some(user) = server_user() {
        Command::new("chown").arg(user).arg(&folder).status()?;
    }
    Ok(folder)
}

/// Whether a hundred databases find room there.
fn has_room(folder: &str) -> bool {
    const KIB_MIN: u64 = 4 << 20;
    let free = Command::new("df").args(["-k", "--output=avail", folder]).output();
    let free = free.ok().and_then(|said| String::from_utf8(said.stdout).ok()?.lines().nth(1)?.trim().parse::<u64>().ok());
    free.is_some_and(|kib| kib >= KIB_MIN)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.expect("the system has a free port").port()
}

/// A shell that waits until nobody holds its standard input any more, then stops the server and removes its folder. In a
/// process group of its own, so that an interrupt from the terminal leaves it its work.
fn watch(programs: &Path, folder: &Path) -> io::Result<Child> {
    const SCRIPT: &str = r#"cat >/dev/null
        "$@" >/dev/null 2>&1
        rm -rf "$OVERDUE_CLUSTER""#;
    let stop = as_server_user(&programs.join("pg_ctl"));
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, "sh"]).arg(stop.get_program()).args(stop.get_args());
    shell.arg("-D").arg(folder.join("data")).args(["-m", "immediate", "-w", "-t", "20", "stop"]);
    shell.env("OVERDUE_CLUSTER", folder).current_dir("/");
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
