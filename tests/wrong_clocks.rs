//! Nodes whose own time of day is wrong, on one PostgreSQL: the database's clock decides.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use overdue_runtime::client::{Client, StartRequest};
use overdue_runtime::engine::{Clock, Engine, EngineConfig, Environment, Registries};
use overdue_runtime::store::{PostgresStore, Store};
use overdue_runtime::testing::{PostgresCluster, eventually};
use overdue_runtime::workflow::{Workflow, WorkflowContext, WorkflowError};
use overdue_runtime::{Payload, Timestamp};
use sqlx::PgConnection;

/// How wrong a clock is here.
const WRONG_BY: Duration = Duration::from_secs(600);
/// How late a timer may be on a machine that runs other tests beside it.
const LATE_MAX: Duration = Duration::from_secs(2);

/// Sleeps until its input.
struct Sleeper;

#[async_trait]
impl Workflow for Sleeper {
    const TYPE: &'static str = "sleeper";
    type Input = Timestamp;
    type Output = ();

    async fn run(&self, ctx: WorkflowContext, until: Timestamp) -> Result<(), WorkflowError> {
        ctx.sleep_until(until).await?;
        Ok(())
    }
}

struct Wrong {
    system: Arc<dyn Clock>,
    ahead: Duration,
    behind: Duration,
}

#[async_trait]
impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        self.system.now().saturating_add(self.ahead).saturating_sub(self.behind)
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.system.sleep(duration).await;
    }
}

async fn node(url: &str, ahead: Duration, behind: Duration) -> Client {
    let environment = Environment::system();
    let clock = Arc::new(Wrong { system: Arc::clone(&environment.clock), ahead, behind });
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(url, 8).await.unwrap());
    let mut code = Registries::default();
    code.workflows.register(Sleeper);
    let config = EngineConfig { scan: Duration::from_millis(200), ..EngineConfig::default() };
    Client::new(Engine::start(store, code, Environment { clock, ..environment }, config).await.unwrap())
}

async fn database_time(session: &mut PgConnection) -> Timestamp {
    let micros = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    Timestamp::from_micros(sqlx::query_scalar(micros).fetch_one(session).await.unwrap())
}

#[tokio::test]
async fn ten_minutes_off_either_way_nothing_fires_early_by_the_databases_clock_and_nothing_late() {
    let cluster = PostgresCluster::shared();
    let database = cluster.create_database().await;
    let url = cluster.url(&database);
    let mut session = cluster.connect(&database).await;
    let nodes = [
        node(&url, Duration::ZERO, Duration::ZERO).await,
        node(&url, WRONG_BY, Duration::ZERO).await,
        node(&url, Duration::ZERO, WRONG_BY).await,
    ];
    for node in &nodes {
        eventually("each node owns shards", async || (node.engine().shards_owned() > 0).then_some(())).await;
    }
    let until = database_time(&mut session).await.saturating_add(Duration::from_secs(3));
    for n in 0..60 {
        let request = StartRequest {
            workflow_type: "sleeper".into(),
            id: n.to_string(),
            input: Payload::of(&until).unwrap(),
            start_at: None,
            attributes: Default::default(),
            traceparent: None,
        };
        nodes[n % nodes.len()].start(request).await.unwrap();
    }
    for n in 0..60 {
        let ended = eventually("it ends", async || {
            let look = nodes[0].describe("sleeper", &n.to_string()).await.unwrap();
            look.closed_at.is_some().then_some(look)
        });
        ended.await;
        let seen = database_time(&mut session).await;
        assert!(seen >= until, "{n} ended while the database showed {seen}, before {until}");
        let history = nodes[0].history("sleeper", &n.to_string(), 0, 10).await.unwrap();
        let fired = history.events.iter().find(|event| event.kind.name() == "TimerFired").unwrap().at;
        assert!(fired >= until && fired <= until.saturating_add(LATE_MAX), "{n} fired at {fired}, due at {until}");
    }
    for node in nodes {
        node.engine().drain().await;
    }
}
