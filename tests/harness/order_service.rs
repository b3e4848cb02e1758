//! An order service whose tables lie in Overdue's own database: it starts workflows and sends signals in its transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use overdue_runtime::Timestamp;
use overdue_runtime::client::ClientError;
use overdue_runtime::engine::{EngineConfig, Environment};
use overdue_runtime::store::{PostgresStore, Store};
use overdue_runtime::testing::{PostgresCluster, eventually};
use overdue_workflows::ORDER_TIMEOUT;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnection, PgDatabaseError};
use sqlx::{Connection, Executor};
use tokio::sync::OnceCell;

use super::{Node, Order, Setup};

/// How many shards its store has.
const SHARDS: u16 = 64;
/// What is committed is started within this.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// A node on a database, with a table of orders in it.
pub(crate) struct OrderService {
    pub(crate) node: Node,
    pub(crate) url: String,
}

impl OrderService {
    pub(crate) async fn open() -> Self {
        Self::running(Setup::default()).await
    }

    /// With a program of its own.
    pub(crate) async fn running(setup: Setup) -> Self {
        let url = database().await;
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&url, SHARDS).await.unwrap());
        let engine = EngineConfig { scan: Duration::from_millis(200), ..EngineConfig::default() };
        let node = setup.running(engine).start_on(store).await;
        Self { node, url }
    }

    /// A session of its own.
    pub(crate) async fn session(&self) -> PgConnection {
        PgConnection::connect(self.url.split('?').next().unwrap()).await.unwrap()
    }

    /// A session of another role, whose name is written as in a URL.
    pub(crate) async fn session_of(&self, role: &str) -> PgConnection {
        let url = self.url.split('?').next().unwrap().replace("postgres@", &format!("{role}@"));
        PgConnection::connect(&url).await.unwrap()
    }

    /// Waits until the order's workflow is there; for how long.
    pub(crate) async fn started(&self, order: &str) -> Duration {
        let began = Instant::now();
        self.node.until(order, "it is started", |_| true).await;
        began.elapsed()
    }

    /// Waits until everything that was committed before has been seen by the node.
    pub(crate) async fn everything_was_seen(&self) {
        let mut session = self.session().await;
        let witness = Order::bare(&format!("witness-{}", self.now().as_micros())).due(in_the_future());
        session.place(&witness).await.unwrap();
        self.started(&witness.id).await;
        // Found by the same scan, and not all in one commit.
        let under_way = || async {
            let mut session = self.session().await;
            let left: i64 = sqlx::query_scalar(UNDER_WAY).fetch_one(&mut session).await.unwrap();
            (left == 0).then_some(())
        };
        eventually("nothing is under way", under_way).await;
    }

    pub(crate) async fn is_missing(&self, order: &str) -> bool {
        matches!(self.node.client.describe(ORDER_TIMEOUT, order).await, Err(ClientError::NotFound(_)))
    }

    /// Waits until whoever asks about the order is told why it is not started, and gives the reason.
    pub(crate) async fn refusal(&self, order: &str) -> String {
        self.everything_was_seen().await;
        match self.node.client.describe(ORDER_TIMEOUT, order).await {
            Err(ClientError::NotFound(message)) => message,
            other => panic!("{order}: {other:?}"),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        now()
    }
}

pub(crate) fn now() -> Timestamp {
    Environment::system().clock.now()
}

/// What is committed and not taken up yet.
const UNDER_WAY: &str = "SELECT (SELECT count(*) FROM overdue.starts WHERE refused IS NULL) + (
    SELECT count(*) FROM overdue.inbox AS x JOIN overdue.executions AS e USING (shard, type, id) WHERE NOT x.held)";

/// A deadline that no test lives to see.
pub(crate) fn in_the_future() -> Timestamp {
    now().saturating_add(Duration::from_secs(86_400))
}

/// An empty store beside a table of orders. Copied, which takes less than creating the schema.
pub(crate) async fn database() -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let cluster = PostgresCluster::shared();
    let template = TEMPLATE
        .get_or_init(|| async {
            let name = cluster.create_database().await;
            PostgresStore::open(&cluster.url(&name), SHARDS).await.unwrap().close().await;
            let mut session = cluster.connect(&name).await;
            session.execute("CREATE TABLE orders (id text PRIMARY KEY, amount text NOT NULL)").await.unwrap();
            session.close().await.unwrap();
            name
        })
        .await;
    cluster.url(&cluster.create_database_like(template).await)
}

/// What the order service does in a transaction of its own.
pub(crate) trait Sql {
    /// Begins, ends, or anything else.
    async fn run(&mut self, sql: &str);

    /// Stores the order and has its workflow started.
    async fn place(&mut self, order: &Order) -> Result<(), sqlx::Error>;

    /// Has a workflow started with this input, as it is.
    async fn start(&mut self, id: &str, input: &str) -> Result<(), sqlx::Error>;

    /// Tells of a payment of 19.99 USD.
    async fn pay(&mut self, order: &str, transaction: &str, signal_id: Option<&str>) -> Result<(), sqlx::Error>;

    async fn send(&mut self, order: &str, name: &str, payload: &str, signal_id: Option<&str>) -> Result<(), sqlx::Error>;
}

impl Sql for PgConnection {
    async fn run(&mut self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(self).await.unwrap();
    }

    async fn place(&mut self, order: &Order) -> Result<(), sqlx::Error> {
        let insert = sqlx::query("INSERT INTO orders (id, amount) VALUES ($1, $2)").bind(&order.id);
        insert.bind(order.input()["amount"].to_string()).execute(&mut *self).await?;
        self.start(&order.id, &order.input().to_string()).await
    }

    async fn start(&mut self, id: &str, input: &str) -> Result<(), sqlx::Error> {
        let call = sqlx::query("SELECT overdue.start_workflow($1, $2, $3::text::json)").bind(ORDER_TIMEOUT);
        call.bind(id.to_owned()).bind(input.to_owned()).execute(self).await.map(drop)
    }

    async fn pay(&mut self, order: &str, transaction: &str, signal_id: Option<&str>) -> Result<(), sqlx::Error> {
        let payload = json!({ "transactionId": transaction, "amount": "19.99", "currency": "USD", "paidAt": now() });
        self.send(order, "payment-succeeded", &payload.to_string(), signal_id).await
    }

    async fn send(&mut self, order: &str, name: &str, payload: &str, signal_id: Option<&str>) -> Result<(), sqlx::Error> {
        let call = sqlx::query("SELECT overdue.signal_workflow($1, $2, $3, $4::text::json, $5)").bind(ORDER_TIMEOUT);
        let call = call.bind(order.to_owned()).bind(name.to_owned()).bind(payload.to_owned());
        call.bind(signal_id.map(str::to_owned)).execute(self).await.map(drop)
    }
}

/// What a function raised.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

pub(crate) fn raised(result: Result<(), sqlx::Error>) -> Raised {
    let error = result.expect_err("it is refused");
    let error = error.as_database_error().expect("the server refused it").downcast_ref::<PgDatabaseError>();
    let hint = error.hint().unwrap_or_default().to_owned();
    Raised { code: error.code().to_owned(), message: error.message().to_owned(), hint }
}

/// The events of this kind in a history.
pub(crate) fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["kind"] == *kind).collect()
}
