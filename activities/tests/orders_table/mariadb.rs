//! A throw-away MariaDB: its own folder and port, and gone with the process that started it, however that ends.
//!
//! Needs `mariadbd` and `mariadb-install-db` (Debian: mariadb-server-core, mariadb-client-core).

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Executor};

/// How long it may take to come up on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

/// The user of the tests and its password.
pub(crate) const USER: &str = "overdue";
const PASSWORD: &str = "s3cret-of-orders";

pub(crate) struct MariaDb {
    port: u16,
    folder: PathBuf,
    /// Ends the server as soon as its standard input does, which is when this process is gone at the latest.
    _watchdog: Child,
}

impl MariaDb {
    /// The server that the tests of this process share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A file that holds the user's password.
    pub(crate) fn password_file(&self) -> PathBuf {
        self.folder.join("password")
    }

    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("overdue-mariadb-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned();
        let init = folder.join("init.sql");
        let grant = format!("CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO '{USER}'@'%';\n");
        std::fs::write(&init, grant).unwrap();
        std::fs::write(folder.join("password"), format!("{PASSWORD}\n")).unwrap();
        install(&folder, &user);
        let watchdog = watch(&folder, port, &user);
        let until = Instant::now() + START_MAX;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "MariaDB does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { port, folder, _watchdog: watchdog }
    }

    pub(crate) async fn connect(&self, database: &str) -> MySqlConnection {
        let options = MySqlConnectOptions::new().host("127.0.0.1").port(self.port).username(USER).password(PASSWORD);
        options.database(database).disable_statement_logging().connect().await.expect("MariaDB answers")
    }

    /// A new empty database; its name.
    pub(crate) async fn create_database(&self) -> String {
        static DATABASES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let name = format!("shop_{}", DATABASES.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let mut connection = self.connect("mysql").await;
        connection.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        name
    }
}

fn install(folder: &Path, user: &str) {
    let installed = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .arg(format!("--datadir={}", folder.join("data").display()))
        .arg(format!("--user={user}"))
        .output()
        .expect("MariaDB is installed (mariadb-install-db and mariadbd, Debian's mariadb-server-core and mariadb-client-core)");
    assert!(installed.status.success(), "mariadb-install-db fails: {installed:?}");
}

/// A shell that starts the server, waits until nobody holds its standard input any more, ends it and removes its folder.
fn watch(folder: &Path, port: u16, user: &str) -> Child {
    const SCRIPT: &str = r#""$@" >"$OVERDUE_FOLDER/log" 2>&1 </dev/null &
        server=$!
        cat >/dev/null
        kill -KILL $server
        wait $server
        rm -rf "$OVERDUE_FOLDER""#;
    let program = ["/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd"].map(PathBuf::from).into_iter().find(|path| path.exists());
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, "sh"]).arg(program.unwrap_or_else(|| "mariadbd".into()));
    shell.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-log-bin", "--skip-name-resolve"]);
    shell.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--max-connections=300"]);
    shell.arg(format!("--port={port}")).arg(format!("--user={user}"));
    shell.arg(format!("--datadir={}", folder.join("data").display()));
    shell.arg(format!("--socket={}", folder.join("socket").display()));
    shell.arg(format!("--init-file={}", folder.join("init.sql").display()));
    shell.env("OVERDUE_FOLDER", folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell.spawn().unwrap()
}
