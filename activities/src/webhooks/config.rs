//! `[webhooks.NAME]`, as it is written and as it is checked: every refusal names the key and says what to write, and shows
//! neither the URL nor a secret.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use overdue_runtime::ConfigDuration;
use overdue_runtime::outbox::{EventPattern, SinkOptions};
use serde::Deserialize;

use super::signature::Key;
use crate::config::{Hidden, RetryConfig};
use crate::error::ConfigError;
use crate::settings::Keys;

/// More secrets than a rotation needs; each adds a signature to every request.
const SECRETS_MAX: usize = 5;
/// More at once than one receiver wants.
const CONCURRENCY_MAX: i64 = 1_000;
/// The headers that the specification has.
const SIGNED: &str = "webhook-";

/// `[webhooks]`: receivers by name.
pub type WebhooksConfig = BTreeMap<String, WebhookConfig>;

/// `[webhooks.NAME]`: one receiver.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Where it is: `http` or `https`, without credentials.
    pub url: Hidden,
    /// The events that it takes: `order.paid`, `order.*` or `*`.
    pub events: Vec<String>,
    /// What requests are signed with, the first one that a receiver knows counts: two while one is replaced by another.
    pub secrets: Vec<SecretConfig>,
    /// How long one request may take, its answer read.
    #[serde(default = "default_timeout")]
    pub timeout: ConfigDuration,
    /// When requests that failed are repeated.
    #[serde(default)]
    pub retry: WebhookRetryConfig,
    /// Requests under way at once on one node.
    #[serde(default = "default_concurrency")]
    pub concurrency: i64,
    /// A longer `Retry-After` is cut to this.
    #[serde(default = "default_retry_after_max")]
    pub retry_after_max: ConfigDuration,
    /// Headers of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, Hidden>,
}

/// A secret by reference.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretConfig {
    /// The environment variable that holds it.
    #[serde(default)]
    pub env: Option<String>,
    /// Or the file.
    #[serde(default)]
    pub file: Option<String>,
}

/// `retry`: when requests are repeated. Receivers are down for longer than services of our own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookRetryConfig {
    /// Delay after the first attempt.
    pub initial: ConfigDuration,
    /// Each next delay is this many times the one before.
    pub factor: f64,
    /// No delay is longer.
    pub cap: ConfigDuration,
    /// Attempts in all, the first included, before a person is asked; unlimited by default.
    pub attempts: Option<i64>,
    /// Time of failing after which a person is asked.
    pub give_up_after: Option<ConfigDuration>,
    /// Whether delays are shortened at random.
    pub jitter: bool,
}

impl Default for WebhookRetryConfig {
    fn default() -> Self {
        let retry = SinkOptions::default().retry;
        Self {
            initial: ConfigDuration(retry.initial),
            factor: retry.factor,
            cap: ConfigDuration(retry.cap),
            attempts: None,
            give_up_after: retry.give_up_after.map(ConfigDuration),
            jitter: retry.jitter,
        }
    }
}

fn default_timeout() -> ConfigDuration {
    ConfigDuration(SinkOptions::default().timeout)
}

fn default_concurrency() -> i64 {
    16
}

fn default_retry_after_max() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(3600))
}

/// One webhook's settings.
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) events: Vec<EventPattern>,
    pub(super) keys: Vec<Key>,
    pub(super) headers: HeaderMap,
    pub(super) options: SinkOptions,
    pub(super) retry_after_max: Duration,
}

impl Settings {
    pub(super) fn check(name: &str, config: &WebhookConfig) -> Result<Self, ConfigError> {
        let keys = Keys(format!("webhooks.{name}"));
        if config.events.is_empty() {
            return keys.refuse("events", "names no events: write [\"*\"] for all");
        }
        let pattern = |text: &String| EventPattern::parse(text).or_else(|error| keys.refuse("events", error.to_string()));
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));
        let retry = &config.retry;
        let retry = RetryConfig {
            initial: retry.initial,
            factor: retry.factor,
            cap: retry.cap,
            attempts: retry.attempts,
            give_up_after: retry.give_up_after,
            jitter: retry.jitter,
        };
        Ok(Self {
            name: name.to_owned(),
            url: keys.base(&config.url)?,
            events: config.events.iter().map(pattern).collect::<Result<_, _>>()?,
            keys: secrets(&keys, &config.secrets)?,
            headers: headers(&keys, &config.headers)?,
            options: SinkOptions {
                concurrency: keys.whole("concurrency", config.concurrency, CONCURRENCY_MAX)? as usize,
                timeout: keys.within("timeout", config.timeout.0, Duration::from_millis(10), second * 300)?,
                retry: keys.retry(&retry)?,
            },
            retry_after_max: keys.within("retry_after_max", config.retry_after_max.0, second, day)?,
        })
    }
}

fn headers(keys: &Keys, configured: &BTreeMap<String, Hidden>) -> Result<HeaderMap, ConfigError> {
    let mut headers = keys.headers("headers", configured)?;
    if let Some(name) = headers.keys().find(|name| name.as_str().starts_with(SIGNED)) {
        return keys.refuse(&format!("headers.{name}"), "is what requests are signed by and cannot be configured");
    }
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(headers)
}

fn secrets(keys: &Keys, configured: &[SecretConfig]) -> Result<Vec<Key>, ConfigError> {
    if configured.is_empty() || configured.len() > SECRETS_MAX {
        let message = format!("needs 1 to {SECRETS_MAX} secrets by reference, such as [{{ env = \"CRM_WEBHOOK_SECRET\" }}]");
        return keys.refuse("secrets", message);
    }
    let read = |(place, secret): (usize, &SecretConfig)| {
        let key = format!("secrets[{place}]");
        let text = keys.referenced(&key, secret.env.as_deref(), secret.file.as_deref())?;
        Key::read(&text).or_else(|error| keys.refuse(&key, error.to_string()))
    };
    configured.iter().enumerate().map(read).collect()
}
