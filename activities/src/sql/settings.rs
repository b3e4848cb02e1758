//! `[downstreams.orders.sql]`, checked as far as it can be without the database.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use url::Url;

use super::config::{PasswordConfig, SqlConfig, StatusesConfig};
use super::dialect::Dialect;
use super::guard;
use super::judge::Meaning;
use super::postgres::PostgresDriver;
use super::session::Driver;
use super::sqlite::SqliteDriver;
use super::statement::{Statement, compile};
use super::token::{Token, tokens};
use crate::error::ConfigError;
use crate::settings::Keys;

/// More sessions than a database gives one of its callers.
const CONNECTIONS_MAX: i64 = 500;

/// The order table and the statements that work on it.
pub(crate) struct Table {
    pub(crate) dialect: Dialect,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) secret: Option<String>,
    pub(crate) connections: usize,
    pub(crate) name: String,
    pub(crate) status_column: String,
    pub(crate) deadline_column: String,
    pub(crate) require_index: bool,
    pub(crate) meanings: BTreeMap<String, Meaning>,
    pub(crate) cancel: Statement,
    pub(crate) confirm_paid: Statement,
    pub(crate) look: Statement,
    pub(crate) page: Option<Statement>,
    pub(crate) cancel_many: Option<Statement>,
    pub(crate) lock_many: Option<Statement>,
}

impl Table {
    /// `timeout` is that of one send: how long a statement may wait.
    pub(crate) fn check(keys: &Keys, config: &SqlConfig, timeout: Duration) -> Result<Self, ConfigError> {
        let secret = keys.password(config.auth.as_ref())?;
        let (dialect, driver) = keys.driver(&config.url.0, secret.as_deref(), timeout)?;
        for (key, name) in
            [("table", &config.table), ("status_column", &config.status_column), ("deadline_column", &config.deadline_column)]
        {
            if name.is_empty() || name.contains(|c: char| c.is_control() || "'\"`;".contains(c)) {
                return keys.refuse(key, "must be a plain name, without quotes");
            }
        }
        let statement = |key: &str, sql: &str, needed: &[&'static str], known: &[&'static str]| {
            compile(sql, dialect, needed, known).or_else(|message| keys.refuse(key, message))
        };
        let guarded = |key: &str, sql: &str, id: &'static str, needed: &[&'static str], known: &[&'static str]| {
            let compiled = statement(key, sql, needed, known)?;
            guard::check(sql, dialect, &config.status_column, id).or_else(|message| keys.refuse(key, message))?;
            Ok::<_, ConfigError>(compiled)
        };
        let many = ["reason", "now"];
        let page = ["statuses", "before", "cursorDeadline", "cursorId"];
        let table = Self {
            cancel: guarded(
                "cancel",
                &config.cancel,
                "orderId",
                &["orderId"],
                &["reason", "payDeadline", "now", "idempotencyKey"],
            )?,
            confirm_paid: guarded(
                "confirm_paid",
                &config.confirm_paid,
                "orderId",
                &["orderId", "transactionId"],
                &["amount", "currency", "paidAt", "now", "idempotencyKey"],
            )?,
            look: statement("look", &config.look, &["orderId"], &[])?,
            page: config.page.as_deref().map(|sql| statement("page", sql, &page, &[])).transpose()?,
            cancel_many: (config.cancel_many.as_deref())
                .map(|sql| guarded("cancel_many", sql, "orderIds", &["orderIds"], &many))
                .transpose()?,
            lock_many: config.lock_many.as_deref().map(|sql| statement("lock_many", sql, &["orderIds"], &many)).transpose()?,
            meanings: keys.meanings(&config.statuses)?,
            connections: keys.whole("connections", config.connections, CONNECTIONS_MAX)? as usize,
            name: config.table.clone(),
            status_column: config.status_column.clone(),
            deadline_column: config.deadline_column.clone(),
            require_index: config.require_index,
            dialect,
            driver,
            secret,
        };
        table.check_shapes(keys, config)?;
        Ok(table)
    }

    fn check_shapes(&self, keys: &Keys, config: &SqlConfig) -> Result<(), ConfigError> {
        let has = |sql: &Option<String>, words: &[&str]| match sql.as_deref().map(|sql| tokens(sql, self.dialect)) {
            Some(Ok(tokens)) => tokens.iter().any(|token| words.iter().any(|word| token.is_word(word))),
            _ => true,
        };
        for (key, sql) in [("look", Some(&config.look)), ("page", config.page.as_ref()), ("lock_many", config.lock_many.as_ref())]
        {
            let first = sql.and_then(|sql| tokens(sql, self.dialect).ok());
            let first = first.and_then(|tokens| tokens.into_iter().find(|token| !matches!(token, Token::Blank(_))));
            if first.is_some_and(|first| !first.is_word("SELECT") && !first.is_word("WITH")) {
                return keys.refuse(key, "must be a SELECT");
            }
        }
        if !has(&config.page, &["LIMIT", "FETCH"]) {
            return keys.refuse("page", "needs a LIMIT, such as LIMIT 500: a page must not be the whole table");
        }
        if self.lock_many.is_some() && !has(&config.lock_many, &["FOR"]) {
            return keys.refuse("lock_many", "must lock what it finds: end it with FOR UPDATE");
        }
        let returns = has(&config.cancel_many, &["RETURNING"]);
        match (self.cancel_many.is_some(), self.dialect) {
            (true, Dialect::MySql) if self.lock_many.is_none() => keys.refuse(
                "lock_many",
                "is needed beside cancel_many, because MySQL does not tell which rows an UPDATE changed: \
                 SELECT id AS order_id FROM … WHERE id IN (:orderIds) AND status = '…' FOR UPDATE",
            ),
            (true, Dialect::Sqlite | Dialect::Postgres) if self.lock_many.is_none() && !returns => {
                keys.refuse("cancel_many", "must tell which orders it changed: end it with RETURNING CAST(id AS text)")
            }
            _ => Ok(()),
        }
    }
}

impl Keys {
    fn password(&self, auth: Option<&PasswordConfig>) -> Result<Option<String>, ConfigError> {
        auth.map(|auth| self.referenced("auth", auth.env.as_deref(), auth.file.as_deref())).transpose()
    }

    fn driver(&self, url: &str, password: Option<&str>, timeout: Duration) -> Result<(Dialect, Arc<dyn Driver>), ConfigError> {
        const KINDS: &str = "must begin with postgres://, mysql:// or sqlite:";
        if let Some(path) = url.strip_prefix("sqlite:") {
            if password.is_some() {
                return self.refuse("auth", "is of no use with SQLite, which knows no passwords");
            }
            if path.is_empty() || path.contains(":memory:") {
                return self.refuse("url", "must name the shop's database file, such as sqlite:/var/lib/shop/orders.db");
            }
            let Ok(options) = SqliteConnectOptions::from_str(url) else {
                return self.refuse("url", "must be a URL such as sqlite:/var/lib/shop/orders.db");
            };
            return Ok((Dialect::Sqlite, Arc::new(SqliteDriver::new(options, timeout))));
        }
        let Ok(parsed) = Url::parse(url) else { return self.refuse("url", KINDS) };
        if parsed.password().is_some() || parsed.query_pairs().any(|(name, _)| name == "password") {
            return self.refuse("url", "must hold no password: name an environment variable or a file under `auth`");
        }
        if !matches!(parsed.scheme(), "postgres" | "postgresql" | "mysql" | "mariadb") {
            return self.refuse("url", KINDS);
        }
        if parsed.username().is_empty() || parsed.path().len() < 2 {
            return self.refuse("url", "must name the user and the database, such as postgres://overdue@db.internal:5432/shop");
        }
        if parsed.scheme().starts_with("postgres") {
            return match PgConnectOptions::from_str(url) {
                Ok(options) => {
                    let options = password.into_iter().fold(options, PgConnectOptions::password);
                    Ok((Dialect::Postgres, Arc::new(PostgresDriver::new(options, timeout))))
                }
                Err(_) => self.refuse("url", "must be a URL such as postgres://overdue@db.internal:5432/shop"),
            };
        }
        self.mysql(url, password, timeout)
    }

    #[cfg(feature = "mysql")]
    fn mysql(&self, url: &str, password: Option<&str>, timeout: Duration) -> Result<(Dialect, Arc<dyn Driver>), ConfigError> {
        use sqlx::mysql::MySqlConnectOptions;
        match MySqlConnectOptions::from_str(url) {
            Ok(options) => {
                let options = password.into_iter().fold(options, MySqlConnectOptions::password);
                Ok((Dialect::MySql, Arc::new(super::mysql::MySqlDriver::new(options, timeout))))
            }
            Err(_) => self.refuse("url", "must be a URL such as mysql://overdue@db.internal:3306/shop"),
        }
    }

    #[cfg(not(feature = "mysql"))]
    fn mysql(&self, _: &str, _: Option<&str>, _: Duration) -> Result<(Dialect, Arc<dyn Driver>), ConfigError> {
        self.refuse("url", "names MySQL, which this program was built without: build it with the feature `mysql`")
    }

    fn meanings(&self, statuses: &StatusesConfig) -> Result<BTreeMap<String, Meaning>, ConfigError> {
        let mut meanings = BTreeMap::new();
        let lists = [
            ("waiting", &statuses.waiting, Meaning::Waiting),
            ("paid", &statuses.paid, Meaning::Paid),
            ("cancelled", &statuses.cancelled, Meaning::Cancelled),
            ("creating", &statuses.creating, Meaning::Creating),
        ];
        for (key, statuses, meaning) in lists {
            if statuses.is_empty() && meaning != Meaning::Creating {
                return self.refuse(&format!("statuses.{key}"), "must name at least one status of the table");
            }
            for status in statuses {
                if meanings.insert(status.clone(), meaning).is_some() {
                    return self
                        .refuse(&format!("statuses.{key}"), format!("names {status:?} a second time: a status means one thing"));
                }
            }
        }
        Ok(meanings)
    }
}
