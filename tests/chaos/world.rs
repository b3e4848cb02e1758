//! What there is: three nodes behind a proxy each, their database, the shop, and what the callers know.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use overdue_runtime::testing::{Fsync, PostgresCluster, Proxy};
use overdue_workflows::sandbox::{FaultPlan, FaultRates, Service, Shop, Urls};
use rand::RngExt;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::log::Log;
use crate::node::Node;

pub(crate) const NODES: usize = 3;
/// For how long a node that does not answer keeps its shards.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// So many sessions the server takes.
pub(crate) const SESSIONS_MAX: usize = 100;
/// A caller that has heard nothing by then asks again.
const ANSWER_MAX: Duration = Duration::from_millis(2500);
/// How long the shop withholds an answer: longer than the engine waits.
const WITHHOLD: Duration = Duration::from_millis(800);

/// How the shop misbehaves all the time.
const RATES: FaultRates =
    FaultRates { timeout_after_effect: 0.01, unavailable: 0.02, throttled: 0.01, server_error: 0.01, connection_closed: 0.01 };

pub(crate) struct World {
    // First the nodes go, then the database, then the shop.
    pub(crate) nodes: Vec<Node>,
    pub(crate) cluster: Arc<PostgresCluster>,
    pub(crate) shop: Shop,
    pub(crate) http: reqwest::Client,
    pub(crate) log: Log,
    pub(crate) folder: PathBuf,
    seed: u64,
}

impl World {
    pub(crate) async fn new(folder: &Path, seed: u64) -> Self {
        let sessions = SESSIONS_MAX.to_string();
        let cluster = Arc::new(PostgresCluster::new(Fsync::On, &[("max_connections", &sessions), ("autovacuum", "on")]));
        let ledgers = folder.join("shop");
        std::fs::create_dir_all(&ledgers).unwrap();
        let shop = Shop::start(&ledgers, misbehaviour(seed)).await.unwrap();
        std::fs::write(folder.join("overdue.toml"), configuration(shop.urls())).unwrap();
        let mut nodes = Vec::new();
        for n in 0..NODES {
            let proxy = Proxy::before(cluster.port()).await.unwrap();
            let store = cluster.url_through(proxy.port(), "postgres");
            nodes.push(Node::new(folder, &format!("node-{n}"), store, Some(proxy)));
        }
        for node in &nodes {
            assert!(node.start(0).await, "{} does not start: see {}", node.name, node.log.display());
        }
        let log = Log::new(&folder.join("callers.ndjson"));
        Self { nodes, cluster, shop, http: http(), log, folder: folder.to_owned(), seed }
    }

    /// A node that a caller happens to ask.
    pub(crate) fn any_url(&self) -> String {
        self.nodes[rand::rng().random_range(0..self.nodes.len())].url()
    }

    pub(crate) fn proxy(&self, node: usize) -> &Proxy {
        self.nodes[node].proxy.as_ref().unwrap()
    }

    /// A session of the database's superuser, which passes no proxy; none while the server takes none.
    pub(crate) async fn session(&self) -> Result<PgConnection, sqlx::Error> {
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(self.cluster.port()).username("postgres");
        let options = options.database("postgres").application_name("caller").disable_statement_logging();
        tokio::time::timeout(ANSWER_MAX, options.connect()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Does something to the database's server, while callers go on asking.
    pub(crate) async fn on_database(&self, act: fn(&PostgresCluster)) {
        let cluster = Arc::clone(&self.cluster);
        tokio::task::spawn_blocking(move || act(&cluster)).await.unwrap();
    }

    /// Ends every fault that lasts; what was ended runs again.
    pub(crate) async fn heal(&self) {
        self.shop.set_faults(misbehaviour(self.seed));
        for node in &self.nodes {
            node.proxy.as_ref().unwrap().heal();
            node.signal("CONT").await;
        }
        if self.cluster.pid().is_none() {
            self.on_database(PostgresCluster::start).await;
        }
        for node in &self.nodes {
            if node.has_ended().await && !node.start(0).await {
                self.log.violated(format!("{} does not start any more", node.name));
            }
        }
    }

    /// The shop answers nothing but 503.
    pub(crate) fn close_shop(&self) {
        let always = |plan: FaultPlan, service: &Service| plan.outage(*service, 1..=u64::MAX);
        self.shop.set_faults(Service::ALL.iter().fold(FaultPlan::none(), always));
    }

    pub(crate) fn open_shop(&self) {
        self.shop.set_faults(misbehaviour(self.seed));
    }
}

pub(crate) fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build().unwrap()
}

fn misbehaviour(seed: u64) -> FaultPlan {
    FaultPlan::drawn(seed, RATES).withholding(WITHHOLD)
}

/// The nodes' configuration, with times short enough to wait for.
pub(crate) fn configuration(urls: &Urls) -> String {
    let lease = LEASE.as_millis();
    let mut text = format!("[engine]\nscan = \"200ms\"\ndrain = \"2s\"\nlease = \"{lease}ms\"\n");
    text.push_str("\n[workflows.order-timeout]\nlate_payment_window = \"1s\"\n");
    for service in Service::ALL {
        let (name, url) = (service.name(), urls.of(service));
        text.push_str(&format!(
            "\n[downstreams.{name}]\nurl = \"{url}\"\ntimeout = \"500ms\"\nbreaker = {{ failures = 5, open = \"1s\" }}\n\
             retry = {{ initial = \"100ms\", cap = \"1s\", give_up_after = \"1h\", jitter = true }}\nretry_after_max = \"1s\"\n"
        ));
    }
    text
}
