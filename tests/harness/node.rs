//! A node in this process: the real engine, workflows and activities on an embedded store, with a shop of wiremock
//! servers and a clock that moves only when a test says so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use overdue_activities::{DownstreamConfig, init_crypto};
use overdue_runtime::activity::ActivityRegistry;
use overdue_runtime::client::{
    ActionOutcome, Client, ClientError, Explanation, Jobs, SignalOutcome, SignalRequest, StartRequest, StartResponse,
};
use overdue_runtime::engine::breaker::{BreakerName, BreakerPosition, Breakers, Setting};
use overdue_runtime::engine::{Clock, Engine, EngineConfig, Environment, OperatorAction, Registries};
use overdue_runtime::outbox::SinkRegistry;
use overdue_runtime::store::{CopyReport, SqliteStore, Store, copy};
use overdue_runtime::testing::{ManualClock, eventually, manual_environment};
use overdue_runtime::workflow::WorkflowRegistry;
use overdue_runtime::{Payload, Timestamp};
use overdue_workflows::{LATE_PAYMENT, ORDER_TIMEOUT, Settings, register};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::START;
use super::clock::{NodeClock, SCAN};
use super::order::Order;
use super::shop::Shop;
use super::story::retell;

/// How many shards a store of a test has.
const SHARDS: u16 = 4;
/// No condition is waited for any longer.
const PATIENCE: Duration = Duration::from_secs(10);

type Configure = Arc<dyn Fn(&mut DownstreamConfig) + Send + Sync>;
type Rewrite = Arc<dyn Fn(&mut WorkflowRegistry) + Send + Sync>;
type Tell = Arc<dyn Fn(&mut SinkRegistry, &Environment) + Send + Sync>;

/// How a node is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) engine: EngineConfig,
    configure: Configure,
    rewrite: Rewrite,
    tell: Tell,
}

impl Default for Setup {
    fn default() -> Self {
        let settings = Settings::default();
        let engine = EngineConfig { scan: SCAN, ..EngineConfig::default() };
        Self { settings, engine, configure: Arc::new(|_| {}), rewrite: Arc::new(|_| {}), tell: Arc::new(|_, _| {}) }
    }
}

impl Setup {
    /// Changes how every service is called.
    pub(crate) fn calling(mut self, configure: impl Fn(&mut DownstreamConfig) + Send + Sync + 'static) -> Self {
        self.configure = Arc::new(configure);
        self
    }

    /// Changes how the engine runs.
    pub(crate) fn running(mut self, engine: EngineConfig) -> Self {
        self.engine = engine;
        self
    }

    /// Changes the workflows, as a deployment would.
    pub(crate) fn deploying(mut self, rewrite: impl Fn(&mut WorkflowRegistry) + Send + Sync + 'static) -> Self {
        self.rewrite = Arc::new(rewrite);
        self
    }

    /// Says who is told of events.
    pub(crate) fn telling(mut self, tell: impl Fn(&mut SinkRegistry, &Environment) + Send + Sync + 'static) -> Self {
        self.tell = Arc::new(tell);
        self
    }

    pub(crate) async fn start(self) -> Node {
        init_crypto();
        let (environment, clock) = manual_environment(START, 7);
        let shop = Shop::open(&clock).await;
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("orders.db"), SHARDS).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let scans = NodeClock::new(&clock);
        let (client, breakers, couriers) = boot(&store, &scans.within(&environment), &self, &shop).await;
        scans.expect_couriers(couriers);
        Node { shop, clock, scans, client, breakers, environment, store, setup: self, folder }
    }

    /// Starts it on a store that nodes share. It goes by that one's clock: time passes as it does outside.
    pub(crate) async fn start_on(self, store: Arc<dyn Store>) -> Node {
        init_crypto();
        let (_, clock) = manual_environment(START, 7);
        let (environment, shop) = (Environment::system(), Shop::open(&clock).await);
        let (client, breakers, _) = boot(&store, &environment, &self, &shop).await;
        let (scans, folder) = (NodeClock::new(&clock), tempfile::tempdir().unwrap());
        Node { shop, clock, scans, client, breakers, environment, store, setup: self, folder }
    }
}

/// A node's client, its breakers, and how many couriers it has.
async fn boot(store: &Arc<dyn Store>, environment: &Environment, setup: &Setup, shop: &Shop) -> (Client, Breakers, usize) {
    let mut code = Registries::default();
    register(&mut code.workflows, setup.settings);
    (setup.rewrite)(&mut code.workflows);
    (setup.tell)(&mut code.sinks, environment);
    let breakers = register_calls(&mut code.activities, shop, setup, environment);
    code.breakers = Some(breakers.clone());
    let (jobs, couriers) = (Jobs::register(&mut code), code.sinks.all().count());
    let engine = Engine::start(Arc::clone(store), code, environment.clone(), setup.engine.clone()).await.unwrap();
    let client = Client::new(engine);
    jobs.attach(&client);
    (client, breakers, couriers)
}

fn register_calls(activities: &mut ActivityRegistry, shop: &Shop, setup: &Setup, environment: &Environment) -> Breakers {
    let configure = Arc::clone(&setup.configure);
    let config = shop.configuration(move |config| configure(config));
    overdue_activities::register(activities, &config, environment).unwrap().breakers
}

/// A running node.
pub(crate) struct Node {
    pub(crate) shop: Shop,
    pub(crate) clock: ManualClock,
    scans: NodeClock,
    pub(crate) client: Client,
    pub(crate) breakers: Breakers,
    pub(crate) store: Arc<dyn Store>,
    environment: Environment,
    setup: Setup,
    folder: TempDir,
}

impl Node {
    pub(crate) async fn start() -> Self {
        Setup::default().start().await
    }

    /// A new process takes the store over; what the old one still does is fenced off.
    pub(crate) async fn restart(&mut self) {
        self.restart_with(self.setup.clone()).await;
    }

    pub(crate) async fn restart_with(&mut self, setup: Setup) {
        self.scans = NodeClock::new(&self.clock);
        let environment = self.scans.within(&self.environment);
        let couriers;
        (self.client, self.breakers, couriers) = boot(&self.store, &environment, &setup, &self.shop).await;
        self.scans.expect_couriers(couriers);
        self.setup = setup;
    }

    /// A person closes a breaker of the payment service.
    pub(crate) async fn close_breaker(&self, channel: Option<&str>) {
        self.breakers.set(&BreakerName::new("payments", channel), Setting::Close, "mended", "ops").await.unwrap();
    }

    /// The process ends without warning, its store is moved into a new file, and a new process serves that one.
    pub(crate) async fn move_to(&mut self, file: &str) -> CopyReport {
        self.store.close().await;
        let from = SqliteStore::open_to_copy(self.folder.path().join("orders.db"), None).await.unwrap();
        let there = self.folder.path().join(file);
        let to = SqliteStore::open_to_copy(&there, Some(SHARDS)).await.unwrap();
        let report = copy(&from, &to).await.unwrap();
        Store::close(&from).await;
        Store::close(&to).await;
        self.store = Arc::new(SqliteStore::open(&there, SHARDS).await.unwrap());
        self.restart().await;
        report
    }

    // Time.

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn pass(&self, duration: Duration) {
        self.scans.quiet().await;
        self.clock.advance(duration);
    }

    pub(crate) async fn pass_to(&self, instant: Timestamp) {
        self.scans.quiet().await;
        self.clock.advance_to(instant);
    }

    /// Lets the deadline of an order that was placed as usual come.
    pub(crate) async fn let_the_deadline_come(&self) {
        self.pass_to(START.saturating_add(Order::TIME_TO_PAY)).await;
    }

    // What happens to orders.

    pub(crate) async fn place(&self, order: &Order) -> StartResponse {
        self.try_to_place(order).await.unwrap()
    }

    pub(crate) async fn try_to_place(&self, order: &Order) -> Result<StartResponse, ClientError> {
        let request = StartRequest {
            workflow_type: ORDER_TIMEOUT.into(),
            id: order.id.clone(),
            input: Payload::of(&order.input()).unwrap(),
            start_at: None,
            attributes: Default::default(),
            traceparent: None,
        };
        self.client.start(request).await
    }

    /// Starts a workflow of another type.
    pub(crate) async fn start_workflow(&self, workflow_type: &str, id: &str, input: &Value) -> StartResponse {
        let request = StartRequest {
            workflow_type: workflow_type.into(),
            id: id.into(),
            input: Payload::of(input).unwrap(),
            start_at: None,
            attributes: Default::default(),
            traceparent: None,
        };
        self.client.start(request).await.unwrap()
    }

    /// The payment service tells of a payment of 19.99 USD.
    pub(crate) async fn pay(&self, order: &str, transaction: &str) -> SignalOutcome {
        self.pay_amount(order, transaction, "19.99", "USD").await
    }

    pub(crate) async fn pay_amount(&self, order: &str, transaction: &str, amount: &str, currency: &str) -> SignalOutcome {
        let payload = json!({
            "transactionId": transaction, "amount": amount, "currency": currency, "paidAt": self.now(),
        });
        self.signal(order, "payment-succeeded", payload).await
    }

    pub(crate) async fn signal(&self, order: &str, name: &str, payload: Value) -> SignalOutcome {
        self.try_to_signal(order, name, None, payload).await.unwrap()
    }

    pub(crate) async fn try_to_signal(
        &self,
        order: &str,
        name: &str,
        signal_id: Option<&str>,
        payload: Value,
    ) -> Result<SignalOutcome, ClientError> {
        let request = SignalRequest {
            workflow_type: ORDER_TIMEOUT.into(),
            id: order.into(),
            name: name.into(),
            signal_id: signal_id.map(str::to_owned),
            payload: Payload::of(&payload).unwrap(),
        };
        self.client.signal(request).await.map(|response| response.outcome)
    }

    /// A person decides about the step of this name that is pending.
    pub(crate) async fn decide(&self, order: &str, step: &str, action: OperatorAction, reason: &str) -> ActionOutcome {
        let number = self.pending(order, step).await["number"].as_u64().unwrap();
        self.client.operate(ORDER_TIMEOUT, order, number, action, reason, "ops").await.unwrap()
    }

    pub(crate) async fn retry(&self, order: &str, step: &str) {
        assert_eq!(self.decide(order, step, OperatorAction::Retry, "it is mended").await, ActionOutcome::Applied);
    }

    pub(crate) async fn resolve(&self, order: &str, step: &str, result: Value) {
        let result = Payload::of(&result).unwrap();
        let outcome = self.decide(order, step, OperatorAction::Resolve(result), "done by hand, ticket 4711").await;
        assert_eq!(outcome, ActionOutcome::Applied);
    }

    pub(crate) async fn skip(&self, order: &str, step: &str) {
        assert_eq!(self.decide(order, step, OperatorAction::Skip, "not worth it").await, ActionOutcome::Applied);
    }

    // What can be seen of them.

    /// The description, as the API writes it.
    pub(crate) async fn look(&self, order: &str) -> Value {
        self.look_at(ORDER_TIMEOUT, order).await
    }

    pub(crate) async fn look_at(&self, workflow_type: &str, id: &str) -> Value {
        serde_json::to_value(self.client.describe(workflow_type, id).await.unwrap()).unwrap()
    }

    pub(crate) async fn progress(&self, order: &str) -> Value {
        self.look(order).await["progress"].clone()
    }

    /// The pending step of this name.
    pub(crate) async fn pending(&self, order: &str, step: &str) -> Value {
        let look = self.look(order).await;
        let found = look["pendingActivities"].as_array().unwrap().iter().find(|pending| pending["name"] == *step).cloned();
        found.unwrap_or_else(|| panic!("{order} has no pending step {step}: {look}"))
    }

    pub(crate) async fn explain(&self, order: &str) -> Explanation {
        self.client.explain(ORDER_TIMEOUT, order).await.unwrap()
    }

    pub(crate) async fn events(&self, order: &str) -> Vec<Value> {
        self.events_of(ORDER_TIMEOUT, order).await
    }

    pub(crate) async fn events_of(&self, workflow_type: &str, id: &str) -> Vec<Value> {
        let page = self.client.history(workflow_type, id, 0, 1000).await.unwrap();
        let Value::Array(events) = serde_json::to_value(page.events).unwrap() else { unreachable!("events are a list") };
        events
    }

    /// The history as a person would retell it.
    pub(crate) async fn story(&self, order: &str) -> Vec<String> {
        retell(&self.events(order).await)
    }

    pub(crate) async fn late_story(&self, id: &str) -> Vec<String> {
        retell(&self.events_of(LATE_PAYMENT, id).await)
    }

    /// The executions that act for the same order: their ids.
    pub(crate) async fn linked(&self, order: &str) -> Vec<String> {
        let look = self.look(order).await;
        look["linked"].as_array().unwrap().iter().map(|link| link["id"].as_str().unwrap().to_owned()).collect()
    }

    // Waiting.

    pub(crate) async fn until(&self, order: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.until_at(ORDER_TIMEOUT, order, what, condition).await
    }

    pub(crate) async fn until_at(&self, workflow_type: &str, id: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let look = self.client.describe(workflow_type, id).await.ok().map(|look| serde_json::to_value(look).unwrap());
            match look {
                Some(look) if condition(&look) => return look,
                look => assert!(Instant::now() < until, "{id} at {}: {what}: {look:#?}", self.now()),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn until_phase(&self, order: &str, phase: &str) -> Value {
        self.until(order, &format!("phase {phase}"), |look| look["progress"]["phase"] == *phase).await
    }

    /// Waits until this step waits for a person, and gives it.
    pub(crate) async fn until_a_person_is_needed(&self, order: &str, step: &str) -> Value {
        let needed = |pending: &Value| pending["name"] == *step && pending["state"] == "needs-attention";
        self.until(order, &format!("{step} needs a person"), |look| {
            look["pendingActivities"].as_array().unwrap().iter().any(needed)
        })
        .await;
        self.pending(order, step).await
    }

    /// Waits until this step waits for its next attempt.
    pub(crate) async fn until_it_backs_off(&self, order: &str, step: &str, attempt: u32) -> Value {
        let backs_off =
            |pending: &Value| pending["name"] == *step && pending["state"] == "backing-off" && pending["attempt"] == attempt;
        self.until(order, &format!("{step} backs off after attempt {attempt}"), |look| {
            look["pendingActivities"].as_array().unwrap().iter().any(backs_off)
        })
        .await;
        self.pending(order, step).await
    }

    /// Lets time pass, from one wake-up to the next and never while a call is under way, until `condition` holds.
    pub(crate) async fn pass_until(&self, order: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.pass_until_at(ORDER_TIMEOUT, order, what, condition).await
    }

    pub(crate) async fn pass_until_at(
        &self,
        workflow_type: &str,
        id: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let condition = &condition;
        let step = || async move {
            let description = self.client.describe(workflow_type, id).await.ok()?;
            let wake_at = description.wake_at;
            let look = serde_json::to_value(description).unwrap();
            if condition(&look) {
                return Some(look);
            }
            let is_waiting = |pending: &Value| !matches!(pending["state"].as_str(), Some("running" | "scheduled"));
            let pending = look["pendingActivities"].as_array().unwrap();
            let idle = pending.iter().all(is_waiting);
            let parked: Vec<_> = pending.iter().filter(|pending| pending["state"] == "parked").collect();
            // Whoever is parked may wait for the call of another, for which no time is to pass.
            let is_probed = || self.breakers.views().iter().any(|breaker| breaker.position == BreakerPosition::HalfOpen);
            let waits_for_another = !parked.is_empty() && (is_probed() || self.client.engine().executions_at_work() > 0);
            if let (true, false, Some(wake_at)) = (idle, waits_for_another, wake_at) {
                let let_go_at = parked.iter().filter_map(|parked| parked["nextAttemptAt"].as_str()?.parse().ok()).min();
                let stage = self.now().saturating_add(Duration::from_millis(100));
                self.pass_to(let_go_at.map_or(wake_at, |at: Timestamp| at.max(stage).min(wake_at))).await;
            }
            None
        };
        eventually(&format!("{id}: {what}"), step).await
    }

    /// Lets time pass until the order's workflow has ended, and gives its result.
    pub(crate) async fn ended(&self, order: &str) -> Value {
        let look = self.pass_until(order, "the workflow ends", |look| !look["closedAt"].is_null()).await;
        assert_eq!(look["status"], "completed", "{look}");
        look["result"].clone()
    }

    /// Lets time pass until a late payment's workflow has ended, and gives its result.
    pub(crate) async fn late_payment_ended(&self, id: &str) -> Value {
        self.pass_until_at(LATE_PAYMENT, id, "the late payment is settled", |look| !look["closedAt"].is_null()).await["result"]
            .clone()
    }
}
