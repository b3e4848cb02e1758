//! A store with executions in every state, made by the engine itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions, Exhausted, RetryPolicy};
use crate::client::{Client, SignalRequest, StartRequest};
use crate::engine::{Clock, Engine, EngineConfig, Environment, Registries, Retain};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Deposit, InboxRow, Loaded, ModelStore, Parcel, Place, Portable, Status, Store};
use crate::testing::{ManualClock, manual_environment};
use crate::time::Timestamp;
use crate::workflow::*;

pub(super) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
pub(super) const SHARDS: u16 = 8;
/// How long a history is kept, where it is not kept for ever.
const RETAIN: Duration = Duration::from_secs(3600);

/// What an execution does, one after another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Step {
    Sleep(u64),
    /// Calls the activity, which does as it is told.
    Call(String),
    ByHand,
    /// Waits for `paid`, so many seconds at most.
    Paid(u64),
    Fail,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Paid {
    pub(super) by: String,
    pub(super) amount: u32,
}

impl Signal for Paid {
    const NAME: &'static str = "paid";

    fn subject(&self) -> Option<String> {
        Some(self.by.clone())
    }
}

/// Does what its input says.
struct Does;

#[async_trait]
impl Workflow for Does {
    const TYPE: &'static str = "does";
    type Input = Vec<Step>;
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, steps: Vec<Step>) -> Result<String, WorkflowError> {
        let noted: u32 = ctx.side_effect(|| 7);
        for step in steps {
            match step {
                Step::Sleep(seconds) => ctx.sleep(Duration::from_secs(seconds)).await?,
                Step::Call(what) => drop(ctx.activity::<Told>(&what).await?),
                Step::ByHand => drop(ctx.by_hand::<String>("look", &"it", "somebody has to").await?),
                Step::Paid(seconds) => match race(ctx.signal::<Paid>(), ctx.sleep(Duration::from_secs(seconds))).await {
                    Either::Left(paid) => drop(paid?),
                    Either::Right(fired) => fired?,
                },
                Step::Fail => return Err(WorkflowError::failed("told-to", "it was told to")),
            }
        }
        Ok(format!("done {noted}"))
    }

    fn signals(&self) -> Vec<SignalDeclaration> {
        vec![SignalDeclaration::of::<Paid>()]
    }

    fn by_hand_steps(&self) -> Vec<ByHandStep> {
        vec![ByHandStep::of::<String>("look")]
    }
}

/// Asks for another timer once it was told to.
struct Changes(Duration);

#[async_trait]
impl Workflow for Changes {
    const TYPE: &'static str = "changes";
    type Input = ();
    type Output = ();

    async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        Ok(ctx.sleep(self.0).await?)
    }
}

/// What this program will not know any more.
struct Vanishes;

#[async_trait]
impl Workflow for Vanishes {
    const TYPE: &'static str = "vanishes";
    type Input = ();
    type Output = ();

    async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        Ok(ctx.sleep(Duration::from_secs(1_000_000)).await?)
    }
}

/// Answers, is refused, fails or never ends, as its input says.
struct Told;

#[async_trait]
impl Activity for Told {
    const NAME: &'static str = "told";
    type Input = String;
    type Output = String;

    fn options(&self) -> ActivityOptions {
        let retry = RetryPolicy { jitter: false, initial: Duration::from_secs(1000), ..RetryPolicy::default() };
        ActivityOptions {
            retry: RetryPolicy { cap: Duration::from_secs(5000), ..retry },
            exhausted: Exhausted::NeedsAttention,
            start_to_close: Duration::from_secs(1_000_000),
            ..ActivityOptions::default()
        }
    }

    async fn execute(&self, _: &ActivityContext, what: String) -> Result<String, ActivityFailure> {
        match what.as_str() {
            "hang" => std::future::pending().await,
            "fail" => Err(ActivityFailure::transient("http-503", "not now")),
            "refuse" => Err(ActivityFailure::permanent("http-422", "no")),
            _ => Ok(what),
        }
    }
}

/// The program of today.
pub(super) fn code() -> Registries {
    let mut code = Registries::default();
    code.workflows.register(Does);
    code.workflows.register(Changes(Duration::from_secs(20)));
    code.activities.register(Told);
    code
}

fn code_before() -> Registries {
    let mut code = code();
    code.workflows.register(Changes(Duration::from_secs(10)));
    code.workflows.register(Vanishes);
    code
}

/// Waiting lets the world go on.
pub(super) struct Patient(pub(super) ManualClock);

#[async_trait]
impl Clock for Patient {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        pass(&self.0, duration).await;
    }
}

async fn pass(clock: &ManualClock, duration: Duration) {
    let mut left = duration;
    while !left.is_zero() {
        let step = left.min(Duration::from_millis(500));
        clock.advance(step);
        left -= step;
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
}

pub(super) struct World {
    pub(super) store: Arc<ModelStore>,
    pub(super) clock: ManualClock,
    environment: Environment,
    pub(super) client: Client,
}

impl World {
    async fn new() -> Self {
        let (environment, clock) = manual_environment(START, 7);
        let store = Arc::new(ModelStore::new(SHARDS));
        let retain = Some(Retain { history: RETAIN, tombstone: 1000 * RETAIN });
        let client = engine(&store, &environment, code_before(), retain).await;
        let world = Self { store, clock, environment, client };
        world.pass(Duration::from_secs(3)).await;
        world
    }

    /// Executions in every state there is, and a node at work on them.
    pub(super) async fn full() -> Self {
        use Step::{ByHand, Call, Fail, Paid as WaitPaid, Sleep};
        let mut world = Self::new().await;
        let call = |what: &str| Call(what.to_owned());
        world.start("retired", vec![WaitPaid(5000)]).await;
        world.pay("retired", "s-0", "anna", 1).await;
        world.clock.advance(RETAIN);
        world.pass(Duration::from_secs(62)).await;
        assert!(world.load("retired").await.execution.retired);
        world.start("sleeping", vec![Sleep(100_000)]).await;
        world.start("waiting", vec![call("done"), WaitPaid(100_000)]).await;
        world.start("recovered", vec![Sleep(1), call("hang")]).await;
        world.start("backing-off", vec![WaitPaid(50_000), call("fail"), Sleep(3)]).await;
        world.pay("backing-off", "s-1", "anna", 1).await;
        world.start("attention", vec![call("refuse")]).await;
        world.start("by-hand", vec![ByHand]).await;
        world.start("completed", vec![call("done"), WaitPaid(1000), Sleep(1)]).await;
        world.pay("completed", "s-2", "anna", 1).await;
        world.start("failed", vec![Fail]).await;
        world.start("cancelled", vec![WaitPaid(100_000)]).await;
        world.start("terminated", vec![call("hang"), WaitPaid(100_000)]).await;
        world.start("held", vec![WaitPaid(100_000), WaitPaid(100_000)]).await;
        world.pay("held", "s-3", "anna", 1).await;
        world.start_type("changes", "blocked", &()).await;
        world.start_type("changes", "blocked-and-ended", &()).await;
        world.start_type("vanishes", "unknown", &()).await;
        world.pass(Duration::from_secs(3)).await;
        world.client.cancel("does", "cancelled", "not wanted", "ops").await.unwrap();
        world.client.terminate("does", "terminated", "not wanted", "ops").await.unwrap();
        world.pay("completed", "s-4", "late", 2).await;
        world.pay("nobody", "s-5", "early", 2).await;
        // By somebody beside the owner, saying something else than the first one.
        let row = inbox_row("held", "s-3", "berta");
        world.store.deposit_before_next_commit(Deposit { row });
        world.pay("waiting", "s-6", "carl", 1).await;
        // Another process, with code that has changed.
        world.client = engine(&world.store, &world.environment, code(), None).await;
        world.start("calling", vec![Sleep(1), call("hang")]).await;
        world.pass(Duration::from_secs(30)).await;
        world.client.terminate("changes", "blocked-and-ended", "cannot go on", "ops").await.unwrap();
        let request = WorkflowKey::new("changes", "blocked");
        assert_eq!(world.store.find(&request).await.unwrap().unwrap().status, Status::Blocked);
        world.pass(Duration::from_secs(2)).await;
        world
    }

    pub(super) async fn pass(&self, duration: Duration) {
        pass(&self.clock, duration).await;
    }

    pub(super) async fn start(&self, id: &str, steps: Vec<Step>) {
        self.start_type("does", id, &steps).await;
    }

    async fn start_type(&self, workflow_type: &str, id: &str, input: &impl Serialize) {
        let request = StartRequest {
            workflow_type: workflow_type.into(),
            id: id.into(),
            input: Payload::of(input).unwrap(),
            start_at: None,
            attributes: [("region".to_owned(), Payload::of("eu").unwrap()), ("n".to_owned(), Payload::of(&1).unwrap())].into(),
            traceparent: None,
        };
        self.client.start(request).await.unwrap();
    }

    pub(super) async fn pay(&self, id: &str, signal_id: &str, by: &str, amount: u32) {
        let request = SignalRequest {
            workflow_type: "does".into(),
            id: id.into(),
            name: "paid".into(),
            signal_id: Some(signal_id.into()),
            payload: Payload::of(&Paid { by: by.into(), amount }).unwrap(),
        };
        self.client.signal(request).await.unwrap();
    }

    pub(super) async fn load(&self, id: &str) -> Loaded {
        self.store.load(&[WorkflowKey::new("does", id)]).await.unwrap().remove(0).unwrap()
    }

    /// All that the store holds, to be put into another one.
    pub(super) async fn parcels(&self) -> Vec<Parcel> {
        let (mut parcels, mut place) = (Vec::new(), Some(Place::START));
        while let Some(from) = place {
            let (parcel, next) = self.store.export(&from, 1000).await.unwrap();
            parcels.push(parcel);
            place = next;
        }
        parcels
    }
}

pub(super) fn inbox_row(id: &str, signal_id: &str, by: &str) -> InboxRow {
    let key = WorkflowKey::new("does", id);
    let payload = Payload::of(&Paid { by: by.into(), amount: 9 }).unwrap();
    InboxRow {
        shard: key.shard(SHARDS),
        key,
        signal_id: signal_id.into(),
        name: "paid".into(),
        identity: payload.canonical_hash(),
        payload,
        received_at: START,
        unchecked: false,
    }
}

async fn engine(store: &Arc<ModelStore>, environment: &Environment, code: Registries, retain: Option<Retain>) -> Client {
    let store: Arc<dyn Store> = store.clone();
    let config = EngineConfig { retain, ..EngineConfig::default() };
    Client::new(Engine::start(store, code, environment.clone(), config).await.unwrap())
}
