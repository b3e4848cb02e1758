//! Opening sessions: what a URL names, and the settings that each kind of session gets.
//!
//! Nothing here may cut a COMMIT short: a commit that waits for a synchronous standby and is cancelled is local and
//! visible, and nobody can tell. So the session that writes has no `statement_timeout` (its statements are by key and
//! bounded); `lock_timeout` ends waits for locks, which a COMMIT has behind it; the timeout of an idle transaction runs
//! only between two statements; and what ends a session whose client is gone ends one whose client knows already that it
//! does not know.

use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgSslMode};
use url::Url;

use super::error::{silent, sqlstate};
use crate::store::{LOCK_WAIT_MAX, StoreError};

/// The longest that opening a session may take.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The most connections of each of the two pools that read.
const READERS_MAX: u32 = 4;
/// Prepared statements kept; above the number of statements there are.
const STATEMENTS_MAX: usize = 256;
/// A connection that was idle for longer is tried before it is used: the server may have been restarted.
const TRUSTED_IDLE_MAX: Duration = Duration::from_secs(1);

/// The longest that a connection that was given back may take to say that it is of use.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// The parameter of a URL that lets tests use a server that does not keep what it acknowledged.
const DURABILITY: &str = "overdue_durability";

/// "Protocol violation".
const PROTOCOL_VIOLATION: &str = "08P01";

/// What every session of ours asks for.
const COMMON: [(&str, &str); 9] = [
    // Everything is named with its schema; nobody's own tables or functions are to come in between.
    ("search_path", "overdue"),
    ("default_transaction_isolation", "read committed"),
    // A transaction of a node that was stopped in the middle of it holds locks; its successor must not wait for long.
    ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_MAX),
    // The server notices within seconds that a client is gone, also while a statement runs.
    ("client_connection_check_interval", "5s"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "20s"),
    // Statements are short; compiling them takes longer than running them.
    ("jit", "off"),
];

/// As `SHOW` writes it.
pub(super) const IDLE_IN_TRANSACTION_MAX: &str = "10s";

/// Every statement of the engine is by key or by range of an index. Its plan is made once and must not depend on when: one
/// that was made while a table was empty would read it from end to end until somebody analyses it.
const BY_INDEX: [(&str, &str); 5] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
];

/// What the same sessions ask for where Citus distributes the tables. It finds the place of a statement by its values, and
/// plans it again there; one place after another, by one connection to each worker.
const BY_PLACE: [(&str, &str); 3] = [
    ("plan_cache_mode", "force_custom_plan"),
    ("citus.multi_shard_modify_mode", "sequential"),
    ("citus.max_adaptive_executor_pool_size", "1"),
];

/// Whether a server that loses acknowledged commits in a crash is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    Required,
    /// For tests.
    Unchecked,
}

/// A database, and how to reach it.
#[derive(Clone)]
pub(super) struct Target {
    options: PgConnectOptions,
    url: String,
    pub(super) durability: Durability,
    by_key: &'static [(&'static str, &'static str)],
}

impl Target {
    /// What a URL names, such as `postgres://user:password@host:5432/database`.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let refused = |why: &dyn std::fmt::Display| {
            StoreError::Refused(format!(
                "the store's URL cannot be used: {why}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE"
            ))
        };
        let mut url = Url::parse(url).map_err(|error| refused(&error))?;
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let named = |name: &str| pairs.iter().any(|(key, value)| key == name && !value.is_empty());
        // The driver would guess: the name of the operating system's user, or "anonymous" where it cannot find one.
        if url.username().is_empty() && !named("user") {
            return Err(refused(&"it names no user"));
        }
        if url.path().trim_start_matches('/').is_empty() && !named("dbname") {
            return Err(refused(&"it names no database"));
        }
        let unchecked = pairs.iter().any(|(key, value)| key == DURABILITY && value == "unchecked");
        url.set_query(None);
        let others = pairs.iter().filter(|(key, _)| key != DURABILITY);
        if others.clone().next().is_some() {
            url.query_pairs_mut().extend_pairs(others);
        }
        let options = PgConnectOptions::from_url(&url).map_err(|error| refused(&error))?;
        let url = without_secrets(url);
        let options = options
            .application_name("overdue")
            .statement_cache_capacity(STATEMENTS_MAX)
            // Statements carry callers' data, which belongs in no log.
            .disable_statement_logging();
        let durability = if unchecked { Durability::Unchecked } else { Durability::Required };
        Ok(Self { options, url, durability, by_key: &BY_INDEX })
    }

    /// The same database, for sessions that find its tables distributed.
    pub(super) fn distributed(mut self) -> Self {
        self.by_key = &BY_PLACE;
        self
    }

    /// Whether what is sent can be read on its way, or be answered by somebody else: by a connection over a network that
    /// does not insist on the server's certificate.
    pub(super) fn is_exposed(&self) -> bool {
        let host = self.options.get_host();
        let is_local = self.options.get_socket().is_some() || ["localhost", "127.0.0.1", "::1", "[::1]"].contains(&host);
        !is_local && !host.starts_with('/') && !matches!(self.options.get_ssl_mode(), PgSslMode::VerifyFull)
    }

    /// The database as messages name it, without a password.
    pub(super) fn name(&self) -> String {
        let (host, port) = (self.options.get_host(), self.options.get_port());
        format!("{host}:{port}/{}", self.options.get_database().unwrap_or_default())
    }

    /// The database as other stores remember it, without a password.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// A session without any setting of ours.
    pub(super) async fn open_plain(&self) -> Result<PgConnection, StoreError> {
        connect(&self.options).await.map_err(|error| self.unreachable(&error))
    }

    /// The session that writes.
    pub(super) async fn open_writer(&self) -> Result<PgConnection, sqlx::Error> {
        let options = self.options.clone().options(COMMON).options(self.by_key.iter().copied()).options([
            ("default_transaction_read_only", "off".to_owned()),
            ("statement_timeout", "0".to_owned()),
            ("lock_timeout", millis(LOCK_WAIT_MAX)),
            // One that holds a store for a copy waits for the other side.
            ("idle_session_timeout", "0".to_owned()),
        ]);
        connect(&options).await
    }

    /// The session that changes the schema: it gives up after `lock_wait` where somebody is in the way.
    pub(super) async fn open_migrator(&self, lock_wait: Duration) -> Result<PgConnection, StoreError> {
        self.open_taker(lock_wait).await.map_err(|error| self.unreachable(&error))
    }

    /// A session that ends a dead node: it gives up waiting for what that one holds.
    pub(super) async fn open_taker(&self, lock_wait: Duration) -> Result<PgConnection, sqlx::Error> {
        let options = self.options.clone().options(COMMON).options([
            ("default_transaction_read_only", "off".to_owned()),
            ("statement_timeout", "0".to_owned()),
            ("lock_timeout", millis(lock_wait)),
        ]);
        connect(&options).await
    }

    /// The session that renews the lease. A renewal that a crash of the server takes back only says too little; waiting
    /// for the disk, it would wait for the commits.
    pub(super) fn renewer(&self) -> PgPool {
        let renewing = [("synchronous_commit", "off"), ("default_transaction_read_only", "off"), ("statement_timeout", "5s")];
        pool(self.options.clone().options(COMMON).options(renewing), 1)
    }

    /// The sessions that the engine reads with. They cannot write.
    pub(super) fn engine_readers(&self) -> PgPool {
        pool(
            self.options
                .clone()
                .options(COMMON)
                .options(self.by_key.iter().copied())
                .options(READING)
                .options([("statement_timeout", "30s")]),
            READERS_MAX,
        )
    }

    /// The sessions that a copy reads with. Nobody waits for them but the copy.
    pub(super) fn copying_readers(&self) -> PgPool {
        pool(
            self.options.clone().options(COMMON).options(BY_INDEX).options(READING).options([("statement_timeout", "0")]),
            READERS_MAX,
        )
    }

    /// The sessions that people's questions are answered with. What they ask differs, so each plan is made for its values.
    pub(super) fn people_readers(&self) -> PgPool {
        let own_plans = [("plan_cache_mode", "force_custom_plan"), ("statement_timeout", "10s")];
        pool(self.options.clone().options(COMMON).options(READING).options(own_plans), READERS_MAX)
    }

    /// The error of a database that cannot be reached when it is opened.
    pub(super) fn unreachable(&self, error: &sqlx::Error) -> StoreError {
        // A server knows the parameters that a session begins with; who does not is no server.
        let hint = match sqlstate(error) {
            Some(PROTOCOL_VIOLATION) => " (is this a pooler? Give the URL of PostgreSQL itself)",
            _ => "",
        };
        StoreError::Refused(format!("cannot open the database {}: {error}{hint}", self.name()))
    }
}

const READING: [(&str, &str); 2] = [("default_transaction_read_only", "on"), ("lock_timeout", "5s")];

/// What a URL says about where a database is.
fn without_secrets(mut url: Url) -> String {
    let place = ["user", "host", "hostaddr", "port", "dbname"];
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().filter(|(key, _)| place.contains(&&key[..])).collect();
    url.set_query(None);
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    // A URL without a host has no password either.
    let _ = url.set_password(None);
    url.to_string()
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    // A session that is not there yet can be given up: nothing was asked of it.
    match tokio::time::timeout(CONNECT_MAX, options.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(silent()),
    }
}

fn pool(options: PgConnectOptions, connections_max: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(LOCK_WAIT_MAX)
        .test_before_acquire(false)
        .before_acquire(|connection, about| {
            Box::pin(async move {
                if about.idle_for > TRUSTED_IDLE_MAX {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        // Without a limit, a connection to a server that is gone would keep its place for as long as the system tries.
        .after_release(|connection, _| {
            Box::pin(async move {
                let answered = tokio::time::timeout(RELEASE_MAX, connection.ping()).await;
                answered.unwrap_or_else(|_| Err(silent())).map(|()| true)
            })
        })
        .connect_lazy_with(options)
}
