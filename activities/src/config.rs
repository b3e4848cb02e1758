//! The configuration of the downstreams as it is written; `settings.rs` checks it.
//!
//! Numbers are read wide and strings unchecked, so that one place can name the key and say what to write, and so that
//! nothing of a URL or header is ever shown: not by `Debug`, not by an error.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use overdue_runtime::ConfigDuration;
use serde::Deserialize;

use crate::sql::SqlConfig;

/// `[downstreams]`: the services of the shop.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DownstreamsConfig {
    /// The order service.
    pub orders: DownstreamConfig,
    /// The stock service.
    pub stock: DownstreamConfig,
    /// The coupon service.
    pub coupons: DownstreamConfig,
    /// The payment service.
    pub payments: DownstreamConfig,
}

/// `[downstreams.NAME]`: one service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DownstreamConfig {
    /// Where it is: `http` or `https`, with a path before those of the calls if need be. Empty where `sql` is.
    #[serde(default = "no_url")]
    pub url: Hidden,
    /// How long one send may take, its answer read.
    #[serde(default = "default_timeout")]
    pub timeout: ConfigDuration,
    /// Sends inside one attempt.
    #[serde(default = "default_tries")]
    pub tries: i64,
    /// When attempts follow each other.
    #[serde(default)]
    pub retry: RetryConfig,
    /// When the circuit breaker opens.
    #[serde(default)]
    pub breaker: BreakerConfig,
    /// How many sends in a time; unlimited by default.
    #[serde(default)]
    pub rate: Option<RateConfig>,
    /// Sends under way at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: i64,
    /// A longer `Retry-After` is cut to this.
    #[serde(default = "default_retry_after_max")]
    pub retry_after_max: ConfigDuration,
    /// Headers of every call.
    #[serde(default)]
    pub headers: BTreeMap<String, Hidden>,
    /// A secret that every call carries.
    #[serde(default)]
    pub auth: Option<AuthConfig>,
    /// What a call does otherwise than by default, by the call's name.
    #[serde(default)]
    pub calls: BTreeMap<String, CallConfig>,
    /// Of orders: the table that stands in the place of a service.
    #[serde(default)]
    pub sql: Option<SqlConfig>,
}

impl DownstreamConfig {
    /// The defaults for the service at `url`.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: Hidden(url.into()),
            timeout: default_timeout(),
            tries: default_tries(),
            retry: RetryConfig::default(),
            breaker: BreakerConfig::default(),
            rate: None,
            concurrency: default_concurrency(),
            retry_after_max: default_retry_after_max(),
            headers: BTreeMap::new(),
            auth: None,
            calls: BTreeMap::new(),
            sql: None,
        }
    }
}

/// `retry`: when attempts follow each other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// Delay after the first attempt.
    pub initial: ConfigDuration,
    /// Each next delay is this many times the one before.
    pub factor: f64,
    /// No delay is longer.
    pub cap: ConfigDuration,
    /// Attempts in all, the first included; unlimited by default.
    pub attempts: Option<i64>,
    /// Time after which no attempt is begun.
    pub give_up_after: Option<ConfigDuration>,
    /// Whether delays are shortened at random.
    pub jitter: bool,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            initial: ConfigDuration(Duration::from_secs(1)),
            factor: 2.0,
            cap: ConfigDuration(Duration::from_secs(5 * 60)),
            attempts: None,
            give_up_after: Some(ConfigDuration(Duration::from_secs(72 * 3600))),
            jitter: true,
        }
    }
}

/// `breaker`: when the circuit breaker opens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Transient failures in a row.
    pub failures: i64,
    /// How long nothing is sent, before one call probes.
    pub open: ConfigDuration,
    /// The share of failed and slow calls of the last `window` that opens it too; off unless set.
    pub ratio: Option<f64>,
    /// How far back calls count for `ratio`. Default 30 s.
    pub window: Option<ConfigDuration>,
    /// Fewer calls in the window say nothing. Default 20.
    pub calls_min: i64,
    /// A call that took so long counts as a failed one for `ratio`; off unless set.
    pub slow_call: Option<ConfigDuration>,
    /// Whether each payment channel counts for itself, so that one that fails holds back no order of another.
    pub by_channel: bool,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let open = ConfigDuration(Duration::from_secs(2));
        Self { failures: 5, open, ratio: None, window: None, calls_min: 20, slow_call: None, by_channel: false }
    }
}

/// `rate`: how many sends in a time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// Sends in a second; may be a fraction.
    pub per_second: f64,
    /// Sends that may go at once after a quiet time. Default 1.
    #[serde(default = "default_burst")]
    pub burst: i64,
}

/// `auth`: a secret by reference, and the header that carries it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// The environment variable that holds it.
    #[serde(default)]
    pub env: Option<String>,
    /// Or the file.
    #[serde(default)]
    pub file: Option<String>,
    /// The header. Default `authorization`.
    #[serde(default = "default_auth_header")]
    pub header: String,
    /// What stands before the secret. Default `Bearer ` in `authorization`, else nothing.
    #[serde(default)]
    pub prefix: Option<String>,
}

/// `[downstreams.NAME.calls.CALL]`: how an existing service wants to be called.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallConfig {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`; the first and the last have no body.
    pub method: Option<String>,
    /// Its path under the URL, with fields in braces, such as `/stock/{stockToken}`.
    pub path: Option<Hidden>,
    /// Headers of this call.
    pub headers: BTreeMap<String, Hidden>,
    /// Our field → the name in the body. An empty name leaves the field out; a field that is not in the body by
    /// default is added by naming it.
    pub body: BTreeMap<String, String>,
    /// Where the outcome stands in the answer.
    pub outcome: OutcomeConfig,
}

/// `outcome`: how an existing service's answer is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutcomeConfig {
    /// The member that holds the outcome, with dots between levels. Default `outcome`.
    pub field: Option<String>,
    /// Their word → our outcome.
    pub words: BTreeMap<String, String>,
    /// Their status → our outcome, where the body has no word.
    pub status: BTreeMap<String, String>,
    /// Our field of an outcome → the member that holds it, with dots between levels.
    pub fields: BTreeMap<String, String>,
}

/// A text of the configuration that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hidden(pub String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl From<&str> for Hidden {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

fn no_url() -> Hidden {
    Hidden(String::new())
}

fn default_timeout() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(5))
}

fn default_tries() -> i64 {
    1
}

fn default_concurrency() -> i64 {
    64
}

fn default_retry_after_max() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(3600))
}

fn default_burst() -> i64 {
    1
}

fn default_auth_header() -> String {
    "authorization".to_owned()
}
