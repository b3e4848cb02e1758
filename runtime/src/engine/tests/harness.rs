//! A node on the model store, a workflow that waits for "paid" or a deadline, and an activity that does as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions, Exhausted, RetryPolicy};
use crate::client::{Client, ClientError, Description, SignalOutcome, SignalRequest, StartRequest};
use crate::engine::{Engine, EngineConfig, Environment, Registries};
use crate::history::{Event, EventKind};
use crate::payload::Payload;
use crate::store::{ModelStore, Status, Store};
use crate::testing::{ManualClock, eventually, manual_environment};
use crate::time::Timestamp;
use crate::workflow::*;

pub(super) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) deadline: Timestamp,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Paid {
    pub(super) by: String,
}

impl Signal for Paid {
    const NAME: &'static str = "paid";

    fn subject(&self) -> Option<String> {
        Some(self.by.clone())
    }
}

/// Waits for `paid` or the deadline; at the deadline calls `cancel` and then waits for a minute.
pub(super) struct Waits;

#[async_trait]
impl Workflow for Waits {
    const TYPE: &'static str = "waits";
    type Input = Order;
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, order: Order) -> Result<String, WorkflowError> {
        ctx.set_progress(&"waiting");
        match race(ctx.signal::<Paid>(), ctx.sleep_until(order.deadline).named("deadline")).await {
            Either::Left(paid) => Ok(format!("paid by {}", paid?.value().by)),
            Either::Right(fired) => {
                fired?;
                ctx.set_progress(&"cancelling");
                let answer = ctx.activity::<Script>(&"cancel".to_owned()).await?;
                if let Either::Left(paid) = race(ctx.signal::<Paid>(), ctx.sleep(Duration::from_secs(60))).await {
                    let paid = paid?;
                    paid.answer_late();
                    return Ok(format!("{answer}, then paid by {}", paid.value().by));
                }
                Ok(answer)
            }
        }
    }

    fn signals(&self) -> Vec<SignalDeclaration> {
        vec![SignalDeclaration::of::<Paid>()]
    }
}

/// Calls at once, without waiting for anything first.
pub(super) struct CallsAtOnce;

#[async_trait]
impl Workflow for CallsAtOnce {
    const TYPE: &'static str = "calls-at-once";
    type Input = ();
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        Ok(ctx.activity::<Script>(&"now".to_owned()).await?)
    }
}

/// Waits as [`Waits`] does, and is started by the program alone.
pub(super) struct Own;

#[async_trait]
impl Workflow for Own {
    const TYPE: &'static str = "own";
    type Input = Order;
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, order: Order) -> Result<String, WorkflowError> {
        Waits.run(ctx, order).await
    }

    fn is_open_to_callers(&self) -> bool {
        false
    }
}

/// What the activity does on its next call.
#[derive(Clone)]
pub(super) enum Act {
    Answer(&'static str),
    Fail(ActivityFailure),
    /// Waits until the gate is opened, then answers.
    Gate(Arc<Notify>, &'static str),
    Panic,
}

/// An activity that follows a script, and then answers "done".
#[derive(Clone, Default)]
pub(super) struct Script {
    pub(super) acts: Arc<Mutex<VecDeque<Act>>>,
    pub(super) calls: Arc<Mutex<Vec<(String, u32, Timestamp)>>>,
    pub(super) clock: Option<ManualClock>,
    pub(super) options: Option<ActivityOptions>,
}

#[async_trait]
impl Activity for Script {
    const NAME: &'static str = "script";
    type Input = String;
    type Output = String;

    fn options(&self) -> ActivityOptions {
        self.options.clone().unwrap_or_else(script_options)
    }

    async fn execute(&self, ctx: &ActivityContext, _input: String) -> Result<String, ActivityFailure> {
        use crate::engine::Clock;
        ctx.record_send();
        let now = self.clock.as_ref().unwrap().now();
        self.calls.lock().unwrap().push((ctx.idempotency_key().to_owned(), ctx.attempt(), now));
        let act = self.acts.lock().unwrap().pop_front().unwrap_or(Act::Answer("done"));
        match act {
            Act::Answer(text) => Ok(text.to_owned()),
            Act::Fail(failure) => Err(failure),
            Act::Gate(gate, text) => {
                gate.notified().await;
                Ok(text.to_owned())
            }
            Act::Panic => panic!("the activity panics"),
        }
    }
}

/// Five attempts without jitter, then a person.
pub(super) fn script_options() -> ActivityOptions {
    ActivityOptions {
        retry: RetryPolicy { jitter: false, attempts: Some(5), cap: Duration::from_secs(60), ..RetryPolicy::default() },
        exhausted: Exhausted::NeedsAttention,
        ..ActivityOptions::default()
    }
}

/// A node that can be killed and started again on the same store.
pub(super) struct Node {
    pub(super) store: Arc<ModelStore>,
    pub(super) clock: ManualClock,
    pub(super) script: Script,
    environment: Environment,
    config: EngineConfig,
    pub(super) client: Client,
}

impl Node {
    pub(super) async fn start() -> Self {
        Self::with(EngineConfig::default()).await
    }

    pub(super) async fn with(config: EngineConfig) -> Self {
        Self::with_options(config, None).await
    }

    pub(super) async fn with_options(config: EngineConfig, options: Option<ActivityOptions>) -> Self {
        let (environment, clock) = manual_environment(START, 7);
        let store = Arc::new(ModelStore::new(4));
        let script = Script { clock: Some(clock.clone()), options, ..Script::default() };
        let client = engine(&store, &environment, &config, registries(Waits, &script)).await;
        Self { store, clock, script, environment, config, client }
    }

    /// Starts a new process on the same store; what the old one still does is fenced off.
    pub(super) async fn restart(&mut self) {
        self.restart_with(Waits).await;
    }

    pub(super) async fn restart_with<W: Workflow>(&mut self, workflow: W) {
        self.client = engine(&self.store, &self.environment, &self.config, registries(workflow, &self.script)).await;
    }

    pub(super) fn plan(&self, acts: impl IntoIterator<Item = Act>) {
        self.script.acts.lock().unwrap().extend(acts);
    }

    pub(super) fn calls(&self) -> Vec<(String, u32, Timestamp)> {
        self.script.calls.lock().unwrap().clone()
    }

    pub(super) async fn order(&self, id: &str, seconds: u64) {
        let input = Payload::of(&Order { deadline: START.saturating_add(Duration::from_secs(seconds)) }).unwrap();
        let started = self.client.start(start_request(id, input)).await.unwrap();
        assert_eq!(started.status, Status::Running);
    }

    pub(super) async fn pay(&self, id: &str, by: &str) -> Result<SignalOutcome, ClientError> {
        let request = SignalRequest {
            workflow_type: "waits".into(),
            id: id.into(),
            name: "paid".into(),
            signal_id: None,
            payload: Payload::of(&Paid { by: by.into() }).unwrap(),
        };
        self.client.signal(request).await.map(|response| response.outcome)
    }

    /// Lets time pass in small steps, letting everything settle after each.
    pub(super) async fn pass(&self, duration: Duration) {
        let step = Duration::from_millis(500);
        let mut left = duration;
        while !left.is_zero() {
            self.clock.advance(left.min(step));
            left = left.saturating_sub(step);
            settle().await;
        }
    }

    pub(super) async fn describe(&self, id: &str) -> Description {
        self.client.describe("waits", id).await.unwrap()
    }

    pub(super) async fn until(&self, id: &str, what: &str, condition: impl Fn(&Description) -> bool) -> Description {
        let describe = || async {
            let description = self.client.describe("waits", id).await.ok()?;
            condition(&description).then_some(description)
        };
        eventually(what, describe).await
    }

    pub(super) async fn closed(&self, id: &str) -> String {
        let description = self.until(id, "the execution ends", |description| description.closed_at.is_some()).await;
        description.result.unwrap().parse().unwrap()
    }

    pub(super) async fn events(&self, id: &str) -> Vec<Event> {
        self.client.history("waits", id, 0, 1000).await.unwrap().events
    }

    pub(super) async fn kinds(&self, id: &str) -> Vec<&'static str> {
        self.events(id).await.iter().map(|event| event.kind.name()).collect()
    }
}

async fn engine(store: &Arc<ModelStore>, environment: &Environment, config: &EngineConfig, code: Registries) -> Client {
    let store: Arc<dyn Store> = store.clone();
    let engine = Engine::start(store, code, environment.clone(), config.clone()).await.unwrap();
    settle().await;
    Client::new(engine)
}

pub(super) fn registries<W: Workflow>(workflow: W, script: &Script) -> Registries {
    let mut code = Registries::default();
    code.workflows.register(workflow);
    code.workflows.register(CallsAtOnce);
    code.workflows.register(Own);
    code.activities.register(script.clone());
    code
}

pub(super) fn start_request(id: &str, input: Payload) -> StartRequest {
    StartRequest {
        workflow_type: "waits".into(),
        id: id.into(),
        input,
        start_at: None,
        attributes: BTreeMap::new(),
        traceparent: None,
    }
}

/// Lets every task run until all of them wait for something outside.
pub(super) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn count(events: &[Event], wanted: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| wanted(&event.kind)).count()
}
