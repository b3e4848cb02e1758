//! A service that answers as it is told, and the registered calls that ask it.

use overdue_activities::{DownstreamConfig, DownstreamsConfig, init_crypto, register};
use overdue_runtime::activity::{ActivityContext, ActivityFailure, ActivityRegistry};
use overdue_runtime::engine::breaker::{BreakerError, BreakerName, Breakers, Setting};
use overdue_runtime::history::FailureClass;
use overdue_runtime::testing::{ManualClock, manual_environment};
use overdue_runtime::{Payload, WorkflowKey};
use serde_json::{Value, json};
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers};

/// When the tests take place.
pub(crate) const NOW: &str = "2026-11-30T18:00:00Z";
pub(crate) const KEY: &str = "order-timeout/o-1/step";

/// The registered calls.
pub(crate) struct Calls {
    pub(crate) activities: ActivityRegistry,
    pub(crate) breakers: Breakers,
    pub(crate) clock: ManualClock,
}

impl Calls {
    /// Calls of services that are all at `url`, each configured by `configure`.
    pub(crate) fn to(url: &str, configure: impl Fn(&mut DownstreamConfig)) -> Self {
        let service = || {
            let mut config = DownstreamConfig::at(url);
            configure(&mut config);
            config
        };
        Self::with(&DownstreamsConfig { orders: service(), stock: service(), coupons: service(), payments: service() })
    }

    pub(crate) fn with(config: &DownstreamsConfig) -> Self {
        init_crypto();
        let (environment, clock) = manual_environment(NOW.parse().unwrap(), 7);
        let mut activities = ActivityRegistry::default();
        let breakers = register(&mut activities, config, &environment).unwrap().breakers;
        Self { activities, breakers, clock }
    }

    /// A person sets a breaker.
    pub(crate) async fn set(&self, downstream: &str, key: Option<&str>, setting: Setting) -> Result<(), BreakerError> {
        self.breakers.set(&BreakerName::new(downstream, key), setting, "maintenance", "ops").await
    }

    /// One attempt.
    pub(crate) async fn call(&self, name: &str, input: Value) -> Result<Value, ActivityFailure> {
        self.attempt(&context(), name, input).await
    }

    pub(crate) async fn attempt(&self, ctx: &ActivityContext, name: &str, input: Value) -> Result<Value, ActivityFailure> {
        let input = Payload::of(&input).unwrap();
        let output = self.activities.get(name).unwrap().execute(ctx, input).await?;
        Ok(serde_json::from_str(output.as_str()).unwrap())
    }

    /// One attempt of `release-stock`, which fails: its class, its type and its wait in milliseconds.
    pub(crate) async fn failure(&self) -> (FailureClass, String, Option<u128>) {
        let failure = self.call("release-stock", release()).await.unwrap_err();
        (failure.failure.class, failure.failure.error_type, failure.retry_after.map(|wait| wait.as_millis()))
    }
}

pub(crate) fn context() -> ActivityContext {
    ActivityContext::detached(WorkflowKey::new("order-timeout", "o-1"), KEY)
}

pub(crate) fn release() -> Value {
    json!({ "stockToken": "t-1", "orderId": "o-1" })
}

/// A service that gives every request the same answer.
pub(crate) async fn service(answer: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(matchers::any()).respond_with(answer).mount(&server).await;
    server
}

pub(crate) fn json(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

pub(crate) fn raw(status: u16, body: impl Into<Vec<u8>>) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_raw(body, "application/json")
}

/// The requests that a service received.
pub(crate) async fn received(server: &MockServer) -> Vec<Request> {
    server.received_requests().await.unwrap()
}

pub(crate) fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers.get(name).map_or("", |value| value.to_str().unwrap())
}
