//! Servers that are refused: those that would lose what they acknowledged, standbys, poolers, URLs that guess.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use sqlx::{AssertSqlSafe, Executor, Row};

use super::{cluster, database, empty_database, opened, session};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::Target;
use crate::store::{Store, StoreError};
use crate::testing::{Fsync, PostgresCluster, as_server_user, eventually};

async fn refusal(url: &str) -> String {
    match PostgresStore::open(url, 64).await {
        Err(StoreError::Refused(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened: {url}"),
    }
}

async fn run(url: &str, sql: &str) {
    session(url).await.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

#[tokio::test]
async fn a_server_that_loses_what_it_acknowledged_is_refused_unless_a_test_says_so() {
    let unchecked = empty_database().await;
    let plain = unchecked.split('?').next().unwrap();
    assert!(refusal(plain).await.contains("fsync = off"));
    assert!(refusal(&format!("{plain}?overdue_durability=whatever")).await.contains("fsync = off"));
    opened(&unchecked).await.close().await;
}

#[tokio::test]
async fn a_server_that_keeps_everything_is_taken_and_each_weakening_of_it_is_refused() {
    let durable = PostgresCluster::new(Fsync::On, &[]);
    let name = durable.create_database().await;
    let url = durable.url(&name);
    let store = opened(&url).await;
    assert!(store.facts().database.starts_with("PostgreSQL "), "{}", store.facts().database);
    store.close().await;
    for setting in ["local", "remote_write", "on"] {
        run(&url, &format!("ALTER DATABASE {name} SET synchronous_commit = {setting}")).await;
        opened(&url).await.close().await;
    }
    run(&url, &format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    assert!(refusal(&url).await.contains("synchronous_commit = off"));
    run(&url, &format!("ALTER DATABASE {name} RESET synchronous_commit")).await;

    run(&url, "ALTER SYSTEM SET full_page_writes = off").await;
    run(&url, "SELECT pg_reload_conf()").await;
    eventually("the server has read its settings", async || {
        let row = session(&url).await.fetch_one("SHOW full_page_writes").await.unwrap();
        (row.get::<String, _>(0) == "off").then_some(())
    })
    .await;
    assert!(refusal(&url).await.contains("full_page_writes = off"));

    durable.stop_immediate();
    std::fs::write(durable.data().join("standby.signal"), "").unwrap();
    durable.start();
    assert!(refusal(&url).await.contains("standby"));
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused() {
    let mut connection = session(&cluster().url("postgres")).await;
    connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0").await.unwrap();
    assert!(refusal(&cluster().url("latin")).await.contains("LATIN1"));
}

#[tokio::test]
async fn a_url_that_leaves_something_to_be_guessed_is_refused() {
    let port = cluster().port();
    for (url, missing) in [
        (format!("postgres://127.0.0.1:{port}/test"), "names no user"),
        (format!("postgres://:secret@127.0.0.1:{port}/test"), "names no user"),
        (format!("postgres://postgres@127.0.0.1:{port}"), "names no database"),
        (format!("postgres://postgres@127.0.0.1:{port}/test?sslmode=perhaps"), "cannot be used"),
        ("postgres://".to_owned(), "cannot be used"),
    ] {
        let message = refusal(&url).await;
        assert!(message.contains(missing) && !message.contains("secret"), "{url}: {message}");
    }
    let unknown = refusal(&format!("postgres://postgres:secret@127.0.0.1:{port}/nowhere")).await;
    assert!(unknown.contains("nowhere") && !unknown.contains("secret"), "{unknown}");
    assert!(refusal("postgres://postgres@127.0.0.1:1/test").await.contains("127.0.0.1:1/test"));
}

#[tokio::test]
async fn user_and_database_may_stand_in_the_parameters() {
    let url = database().await;
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    let port = cluster().port();
    let url = format!("postgres://127.0.0.1:{port}?user=postgres&dbname={name}&overdue_durability=unchecked");
    opened(&url).await.close().await;
}

#[tokio::test]
async fn the_session_that_writes_has_nothing_that_could_cut_a_commit_short() {
    let store = opened(&database().await).await;
    let mut writer = store.target.open_writer().await.unwrap();
    let row = "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'),
                      current_setting('lock_timeout'), current_setting('application_name'), current_setting('search_path'),
                      current_setting('transaction_isolation'), current_setting('tcp_user_timeout')";
    let row = writer.fetch_one(row).await.unwrap();
    let shown: Vec<String> = (0..7).map(|column| row.get(column)).collect();
    assert_eq!(shown, ["0", "10s", "5s", "overdue", "overdue", "read committed", "20000"]);
}

#[test]
fn a_connection_that_others_can_read_is_warned_of() {
    for (url, exposed) in [
        ("postgres://u@db.example/d", true),
        ("postgres://u@db.example/d?sslmode=require", true),
        ("postgres://u@db.example/d?sslmode=verify-full", false),
        ("postgres://u@127.0.0.1/d", false),
        ("postgres://u@localhost/d?sslmode=disable", false),
        ("postgres://u@%2Fvar%2Frun/d", false),
    ] {
        assert_eq!(Target::parse(url).unwrap().is_exposed(), exposed, "{url}");
    }
}

/// A pooler that ends with the test, also with one that is killed.
struct Pooler {
    watchdog: Child,
    folder: PathBuf,
    port: u16,
}

impl Pooler {
    /// `None` where the program is not installed.
    async fn start(mode: &str, more: &str) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| PathBuf::from(path).exists())?;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // Beside the server's files: the same user reads it, and it goes with them.
        let folder = cluster().data().join(format!("../pooler-{port}"));
        std::fs::create_dir(&folder).unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {mode}\n{more}\n",
            cluster().port()
        );
        std::fs::write(folder.join("settings.ini"), settings).unwrap();
        let run = as_server_user(PathBuf::from(program).as_path());
        let watchdog = Command::new("sh")
            .args(["-c", r#""$@" >/dev/null 2>&1 </dev/null & pid=$!; cat >/dev/null; kill $pid"#, "sh"])
            .arg(run.get_program())
            .args(run.get_args())
            .arg(folder.join("settings.ini"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("the pooler listens", async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
        Some(Self { watchdog, folder, port })
    }

    fn url(&self, direct: &str) -> String {
        direct.replace(&format!(":{}/", cluster().port()), &format!(":{}/", self.port))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn a_pooler_that_shares_backends_between_sessions_is_refused() {
    let direct = database().await;
    for (mode, more, said) in [
        ("transaction", "ignore_startup_parameters = options, extra_float_digits", "pool_mode"),
        ("transaction", "default_pool_size = 1\nignore_startup_parameters = options, extra_float_digits", "pool_mode"),
        // In this mode a session is PostgreSQL's own, but it does not get the settings that it asks for.
        ("session", "ignore_startup_parameters = options, extra_float_digits", "'options'"),
    ] {
        let Some(pooler) = Pooler::start(mode, more).await else {
            eprintln!("skipped: pgbouncer is not installed");
            return;
        };
        let message = refusal(&pooler.url(&direct)).await;
        assert!(message.contains(said), "{mode} {more}: {message}");
    }
    // One that refuses what it does not know says so itself.
    let Some(pooler) = Pooler::start("transaction", "").await else { return };
    assert!(refusal(&pooler.url(&direct)).await.contains("pooler"));
}
