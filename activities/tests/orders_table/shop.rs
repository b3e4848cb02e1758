//! A shop whose order table is in one of the three databases, and the calls that work on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use overdue_activities::{DownstreamConfig, Downstreams, DownstreamsConfig, OrdersTable, SqlConfig, init_crypto, register};
use overdue_runtime::activity::{ActivityContext, ActivityFailure, ActivityRegistry};
use overdue_runtime::history::FailureClass;
use overdue_runtime::testing::{ManualClock, PostgresCluster, manual_environment};
use overdue_runtime::{Payload, WorkflowKey};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection, PgConnection, Row, SqliteConnection};
use tempfile::TempDir;

use super::mariadb::{MariaDb, USER};

/// When the tests take place; the orders' deadlines are around it.
pub(crate) const NOW: &str = "2026-11-30T18:00:00.000Z";
pub(crate) const PAST: &str = "2026-11-30T17:59:00.000Z";
pub(crate) const LATER: &str = "2026-11-30T19:00:00.000Z";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    MariaDb,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::MariaDb];

    fn scheme(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite:",
            Self::Postgres => "postgres:",
            Self::MariaDb => "mysql:",
        }
    }

    fn create(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT NOT NULL, pay_deadline TEXT NOT NULL, transaction_id TEXT, \
                 cancel_reason TEXT, paid_amount TEXT, paid_currency TEXT, paid_at TEXT)"
            }
            Self::Postgres => {
                "CREATE TABLE orders (id varchar(64) PRIMARY KEY, status varchar(16) NOT NULL, pay_deadline timestamptz NOT NULL, \
                 transaction_id text, cancel_reason text, paid_amount numeric(20, 4), paid_currency char(3), paid_at timestamptz)"
            }
            Self::MariaDb => {
                "CREATE TABLE orders (id varchar(64) PRIMARY KEY, status varchar(16) NOT NULL, pay_deadline datetime(6) NOT NULL, \
                 transaction_id varchar(64), cancel_reason varchar(32), paid_amount decimal(20, 4), paid_currency char(3), \
                 paid_at datetime(6)) ENGINE = InnoDB"
            }
        }
    }
}

/// A session of somebody else than the calls.
pub(crate) enum Session {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    MariaDb(MySqlConnection),
}

impl Session {
    pub(crate) async fn run(&mut self, sql: &str) -> u64 {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(session) => session.execute(sqlx::raw_sql(sql)).await.unwrap().rows_affected(),
            Self::Postgres(session) => session.execute(sqlx::raw_sql(sql)).await.unwrap().rows_affected(),
            Self::MariaDb(session) => session.execute(sqlx::raw_sql(sql)).await.unwrap().rows_affected(),
        }
    }

    /// The first column of the rows, as text.
    pub(crate) async fn texts(&mut self, sql: &str) -> Vec<Option<String>> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(session) => sqlx::query(sql).fetch_all(session).await.unwrap().iter().map(|row| row.get(0)).collect(),
            Self::Postgres(session) => sqlx::query(sql).fetch_all(session).await.unwrap().iter().map(|row| row.get(0)).collect(),
            Self::MariaDb(session) => sqlx::query(sql).fetch_all(session).await.unwrap().iter().map(|row| row.get(0)).collect(),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(session) => session.close().await.unwrap(),
            Self::Postgres(session) => session.close().await.unwrap(),
            Self::MariaDb(session) => session.close().await.unwrap(),
        }
    }
}

pub(crate) struct Shop {
    pub(crate) kind: Kind,
    pub(crate) clock: ManualClock,
    activities: ActivityRegistry,
    pub(crate) downstreams: Downstreams,
    database: String,
    _folder: Option<Arc<TempDir>>,
}

/// The configuration that the README offers for this database.
pub(crate) fn documented(kind: Kind) -> SqlConfig {
    let readme = include_str!("../../README.md");
    let mut blocks = readme.split("```toml\n").skip(1).filter_map(|block| block.split("```").next());
    let ours = |block: &&str| block.starts_with("[downstreams.orders.sql]") && block.contains(&format!("= \"{}", kind.scheme()));
    let block = blocks.find(ours).expect("the README has a configuration for each database");
    let table: toml::Table = toml::from_str(block).unwrap();
    table["downstreams"]["orders"]["sql"].clone().try_into().unwrap()
}

impl Shop {
    pub(crate) async fn open(kind: Kind) -> Self {
        Self::configured(kind, |_| {}).await
    }

    pub(crate) async fn configured(kind: Kind, configure: impl FnOnce(&mut DownstreamConfig)) -> Self {
        let (database, folder) = match kind {
            Kind::Sqlite => {
                let folder = Arc::new(tempfile::tempdir().unwrap());
                (folder.path().join("orders.db").to_str().unwrap().to_owned(), Some(folder))
            }
            Kind::Postgres => (PostgresCluster::shared().create_database().await, None),
            Kind::MariaDb => (MariaDb::shared().create_database().await, None),
        };
        let mut session = session(kind, &database).await;
        if kind == Kind::Sqlite {
            session.run("PRAGMA journal_mode = WAL").await;
        }
        session.run(kind.create()).await;
        session.run("CREATE INDEX orders_by_deadline ON orders (status, pay_deadline)").await;
        session.close().await;
        Self::over(kind, database, folder, configure).unwrap()
    }

    /// Another configuration of the same table.
    pub(crate) fn again(&self, configure: impl FnOnce(&mut DownstreamConfig)) -> Result<Self, String> {
        Self::over(self.kind, self.database.clone(), self._folder.clone(), configure)
    }

    fn over(
        kind: Kind,
        database: String,
        folder: Option<Arc<TempDir>>,
        configure: impl FnOnce(&mut DownstreamConfig),
    ) -> Result<Self, String> {
        init_crypto();
        let mut sql = documented(kind);
        sql.auth = None;
        sql.url = match kind {
            Kind::Sqlite => format!("sqlite:{database}").as_str().into(),
            Kind::Postgres => url(PostgresCluster::shared().port(), &database).as_str().into(),
            Kind::MariaDb => {
                let password = MariaDb::shared().password_file();
                sql.auth = Some(toml::from_str(&format!("file = {:?}", password.to_str().unwrap())).unwrap());
                format!("mysql://{USER}@127.0.0.1:{}/{database}", MariaDb::shared().port()).as_str().into()
            }
        };
        let mut orders = DownstreamConfig::at("");
        orders.sql = Some(sql);
        configure(&mut orders);
        let other = || DownstreamConfig::at("http://127.0.0.1:9");
        let config = DownstreamsConfig { orders, stock: other(), coupons: other(), payments: other() };
        let (environment, clock) = manual_environment(NOW.parse().unwrap(), 7);
        let mut activities = ActivityRegistry::default();
        let downstreams = register(&mut activities, &config, &environment).map_err(|error| error.to_string())?;
        Ok(Self { kind, clock, activities, downstreams, database, _folder: folder })
    }

    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    pub(crate) fn table(&self) -> &OrdersTable {
        self.downstreams.orders_table.as_ref().unwrap()
    }

    /// What the check before the start says.
    pub(crate) async fn checked(&self) -> Result<(), String> {
        self.table().check().await.map_err(|error| error.to_string())
    }

    pub(crate) async fn session(&self) -> Session {
        session(self.kind, &self.database).await
    }

    pub(crate) async fn place(&self, id: &str, status: &str, deadline: &str) {
        self.place_all(&[id], status, deadline, None).await;
    }

    pub(crate) async fn place_paid(&self, id: &str, transaction: &str) {
        self.place_all(&[id], "PAID", LATER, Some(transaction)).await;
    }

    pub(crate) async fn place_all(&self, ids: &[&str], status: &str, deadline: &str, transaction: Option<&str>) {
        let deadline = match self.kind {
            Kind::MariaDb => deadline.replace('T', " ").replace('Z', ""),
            _ => deadline.to_owned(),
        };
        let transaction = transaction.map_or("NULL".to_owned(), |id| format!("'{id}'"));
        let rows: Vec<String> = ids.iter().map(|id| format!("('{id}', '{status}', '{deadline}', {transaction})")).collect();
        let sql = format!("INSERT INTO orders (id, status, pay_deadline, transaction_id) VALUES {}", rows.join(", "));
        let mut session = self.session().await;
        session.run(&sql).await;
        session.close().await;
    }

    /// One column of an order, as text.
    pub(crate) async fn column(&self, id: &str, column: &str) -> Option<String> {
        let text = if self.kind == Kind::MariaDb { "char" } else { "text" };
        let mut session = self.session().await;
        let found = session.texts(&format!("SELECT CAST({column} AS {text}) FROM orders WHERE id = '{id}'")).await;
        session.close().await;
        found.into_iter().next().flatten()
    }

    pub(crate) async fn status(&self, id: &str) -> String {
        self.column(id, "status").await.unwrap()
    }

    /// Of all orders.
    pub(crate) async fn statuses(&self) -> BTreeMap<String, String> {
        let mut session = self.session().await;
        let ids = session.texts("SELECT id FROM orders ORDER BY id").await;
        let statuses = session.texts("SELECT status FROM orders ORDER BY id").await;
        session.close().await;
        ids.into_iter().flatten().zip(statuses.into_iter().flatten()).collect()
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<Value, ActivityFailure> {
        self.cancel_for(id, "TIMEOUT").await
    }

    pub(crate) async fn cancel_for(&self, id: &str, reason: &str) -> Result<Value, ActivityFailure> {
        self.call("cancel-order", id, json!({ "orderId": id, "reason": reason, "payDeadline": PAST })).await
    }

    pub(crate) async fn confirm(&self, id: &str, transaction: &str) -> Result<Value, ActivityFailure> {
        self.confirm_at(id, transaction, PAST).await
    }

    pub(crate) async fn confirm_at(&self, id: &str, transaction: &str, paid_at: &str) -> Result<Value, ActivityFailure> {
        let input = json!({
            "orderId": id, "transactionId": transaction, "amount": "19.99", "currency": "USD", "paidAt": paid_at,
        });
        self.call("confirm-paid", id, input).await
    }

    async fn call(&self, name: &str, id: &str, input: Value) -> Result<Value, ActivityFailure> {
        let ctx = ActivityContext::detached(WorkflowKey::new("order-timeout", id), format!("order-timeout/{id}/{name}"));
        let output = self.activities.get(name).unwrap().execute(&ctx, Payload::of(&input).unwrap()).await?;
        Ok(serde_json::from_str(output.as_str()).unwrap())
    }
}

pub(crate) fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}")
}

async fn session(kind: Kind, database: &str) -> Session {
    match kind {
        Kind::Sqlite => {
            let options = SqliteConnectOptions::new().filename(database).create_if_missing(true);
            Session::Sqlite(options.busy_timeout(std::time::Duration::from_secs(20)).connect().await.unwrap())
        }
        Kind::Postgres => Session::Postgres(PostgresCluster::shared().connect(database).await),
        Kind::MariaDb => Session::MariaDb(MariaDb::shared().connect(database).await),
    }
}

/// Its class and its type.
pub(crate) fn class(failure: &ActivityFailure) -> (FailureClass, &str) {
    (failure.failure.class, &failure.failure.error_type)
}
