//! Webhooks: sinks that tell a receiver over HTTP, signed by the Standard Webhooks specification
//! (<https://www.standardwebhooks.com>, version 1 with symmetric keys).
//!
//! They stand with the calls, not in the runtime: they need the same HTTP client (no redirects, no proxies, bounded answers), the
//! same secrets by reference and the same wire that a simulation replaces. The runtime keeps what is to be sent and when.

mod config;
mod signature;
mod sink;

use std::sync::Arc;

use overdue_runtime::engine::Environment;
use overdue_runtime::outbox::SinkRegistry;

pub use config::{SecretConfig, WebhookConfig, WebhookRetryConfig, WebhooksConfig};

use crate::client::HttpClient;
use crate::error::ConfigError;
use crate::wire::Wire;
use config::Settings;
use sink::Webhook;

/// Registers a sink for each webhook.
///
/// # Errors
/// [`ConfigError`], which names the key and says what to write; also when [`crate::init_crypto`] was not called.
pub fn register_webhooks(
    sinks: &mut SinkRegistry,
    config: &WebhooksConfig,
    environment: &Environment,
) -> Result<(), ConfigError> {
    register_webhooks_over(sinks, config, environment, Arc::new(HttpClient::new(environment)?))
}

/// The same over another wire than HTTP; no crypto is needed.
///
/// # Errors
/// [`ConfigError`], which names the key and says what to write.
pub fn register_webhooks_over(
    sinks: &mut SinkRegistry,
    config: &WebhooksConfig,
    environment: &Environment,
    wire: Arc<dyn Wire>,
) -> Result<(), ConfigError> {
    for (name, config) in config {
        let settings = Settings::check(name, config)?;
        let clock = Arc::clone(&environment.clock);
        let registered = sinks.register(Webhook { settings, clock, wire: Arc::clone(&wire) });
        registered.map_err(|error| ConfigError::invalid(format!("webhooks.{name}"), error.to_string()))?;
    }
    Ok(())
}
