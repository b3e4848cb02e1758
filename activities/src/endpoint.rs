//! One call of one downstream, as its activity uses it.

use std::sync::Arc;

use overdue_runtime::activity::{ActivityContext, ActivityFailure, ActivityOptions, DispatchLimit, Exhausted};
use overdue_runtime::engine::Environment;
use overdue_runtime::engine::breaker::{Breaker, Breakers};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::Call;
use crate::config::DownstreamConfig;
use crate::definition::Definition;
use crate::error::ConfigError;
use crate::layers::Next;
use crate::settings::{Keys, Settings};
use crate::stack::{Stack, breaker_policy, start_to_close};

/// A downstream, ready to be called.
pub(crate) struct Downstream<'a> {
    config: &'a DownstreamConfig,
    settings: Settings,
    stack: Stack,
    breaker: Breaker,
}

/// What an activity needs to make its call.
pub(crate) struct Endpoint {
    call: Arc<Call>,
    stack: Stack,
    breaker: Breaker,
    options: ActivityOptions,
}

impl<'a> Downstream<'a> {
    /// Checks the configuration of the downstream that offers `calls`, and builds its stack.
    pub(crate) fn new(
        name: &'static str,
        config: &'a DownstreamConfig,
        calls: &[&Definition],
        client: &impl Next,
        environment: &Environment,
        breakers: &Breakers,
    ) -> Result<Self, ConfigError> {
        let settings = Settings::check(name, config)?;
        if let Some(unknown) = config.calls.keys().find(|call| !calls.iter().any(|known| known.name == **call)) {
            let known = calls.iter().map(|call| call.name).collect::<Vec<_>>().join(", ");
            let keys = Keys(format!("downstreams.{name}.calls"));
            return keys.refuse(unknown, format!("is no call of this service: it has {known}"));
        }
        let breaker = breakers.add(settings.name, breaker_policy(&settings));
        let stack = Stack::new(&settings, environment, &breaker, client.clone());
        Ok(Self { config, settings, stack, breaker })
    }

    pub(crate) fn endpoint(&self, definition: &'static Definition, exhausted: Exhausted) -> Result<Endpoint, ConfigError> {
        let config = self.config.calls.get(definition.name).cloned().unwrap_or_default();
        let options = ActivityOptions {
            start_to_close: start_to_close(&self.settings),
            retry: self.settings.retry.clone(),
            exhausted,
            limit: Some(DispatchLimit { name: self.settings.name.to_owned(), concurrency: self.settings.concurrency }),
            ..ActivityOptions::default()
        };
        Ok(Endpoint {
            call: Arc::new(Call::new(definition, &self.settings, &config)?),
            stack: self.stack.clone(),
            breaker: self.breaker.clone(),
            options,
        })
    }
}

impl Endpoint {
    pub(crate) fn options(&self) -> ActivityOptions {
        self.options.clone()
    }

    /// Makes one attempt.
    pub(crate) async fn call<O: DeserializeOwned>(
        &self,
        ctx: &ActivityContext,
        input: &impl Serialize,
        channel: Option<&str>,
    ) -> Result<O, ActivityFailure> {
        let request = self.call.request(ctx, input, channel)?;
        self.stack.send(request).await?.typed(&self.call)
    }

    /// Opens the breaker of a channel, or of the whole downstream where no channel is known, until a person closes it.
    pub(crate) fn force_open(&self, channel: Option<&str>, reason: &str) {
        self.breaker.refused(channel, reason);
        tracing::error!(
            downstream = self.call.downstream,
            channel = channel.unwrap_or_default(),
            reason,
            "the circuit breaker is open until a person closes it"
        );
    }
}
