//! A downstream's configuration, checked: every refusal names the key and says what to write.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use overdue_runtime::activity::RetryPolicy;
use overdue_runtime::engine::breaker::{BreakerPolicy, RatioPolicy};
use url::Url;

use crate::config::{AuthConfig, BreakerConfig, DownstreamConfig, Hidden, RateConfig, RetryConfig};
use crate::error::ConfigError;

/// Headers that every request has from us, or that belong to the connection.
const OWN_HEADERS: [&str; 9] = [
    "idempotency-key",
    "traceparent",
    "tracestate",
    "content-type",
    "content-length",
    "host",
    "connection",
    "transfer-encoding",
    "expect",
];
/// More attempts than anybody waits for; a larger number is a slip.
const ATTEMPTS_MAX: i64 = 1_000_000;

/// How far back calls count for a ratio, where the configuration does not say.
const WINDOW_DEFAULT: Duration = Duration::from_secs(30);

/// One downstream's settings.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) name: &'static str,
    /// Without a slash at its end.
    pub(crate) base: String,
    pub(crate) timeout: Duration,
    pub(crate) tries: u32,
    pub(crate) retry: RetryPolicy,
    pub(crate) breaker: BreakerPolicy,
    pub(crate) rate: Option<Rate>,
    pub(crate) concurrency: usize,
    pub(crate) retry_after_max: Duration,
    pub(crate) headers: HeaderMap,
    /// The secret in the headers, to be kept out of what downstreams say back.
    pub(crate) secret: Option<String>,
}

/// A limit on sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Time between two sends at the full rate.
    pub(crate) period: Duration,
    pub(crate) burst: u32,
}

impl Settings {
    pub(crate) fn check(name: &'static str, config: &DownstreamConfig) -> Result<Self, ConfigError> {
        let keys = Keys(format!("downstreams.{name}"));
        keys.check_place(name, config)?;
        let (mut headers, secret) = (keys.headers("headers", &config.headers)?, keys.secret(config.auth.as_ref())?);
        let secret = secret.map(|(header, value, secret)| {
            headers.insert(header, value);
            secret
        });
        Ok(Self {
            name,
            base: if config.sql.is_some() { String::new() } else { keys.base(&config.url)? },
            timeout: keys.within("timeout", config.timeout.0, Duration::from_millis(1), Duration::from_secs(600))?,
            tries: keys.whole("tries", config.tries, 10)?,
            retry: keys.retry(&config.retry)?,
            breaker: keys.breaker(&config.breaker)?,
            rate: config.rate.as_ref().map(|rate| keys.rate(rate)).transpose()?,
            concurrency: keys.whole("concurrency", config.concurrency, 10_000)? as usize,
            retry_after_max: keys.within(
                "retry_after_max",
                config.retry_after_max.0,
                Duration::from_millis(1),
                Duration::from_secs(30 * 24 * 3600),
            )?,
            headers,
            secret,
        })
    }
}

/// The place of a table in the configuration.
pub(crate) struct Keys(pub(crate) String);

impl Keys {
    pub(crate) fn refuse<T>(&self, key: &str, message: impl Into<String>) -> Result<T, ConfigError> {
        Err(ConfigError::invalid(format!("{}.{key}", self.0), message))
    }

    /// A service is at a URL, and orders may be a table instead; what one of them does not understand is refused.
    fn check_place(&self, name: &str, config: &DownstreamConfig) -> Result<(), ConfigError> {
        match &config.sql {
            None if config.url.0.is_empty() => self.refuse("url", "is missing: say where the service is"),
            None => Ok(()),
            Some(_) if name != "orders" => self.refuse("sql", "is for orders alone: the others are called over HTTP"),
            Some(_) if !config.url.0.is_empty() => self.refuse("url", "stands beside `sql`: leave one of them out"),
            Some(_) if !config.calls.is_empty() => self.refuse("calls", "says how HTTP calls are made, and `sql` makes none"),
            Some(_) if !config.headers.is_empty() || config.auth.is_some() => {
                self.refuse("headers", "and `auth` belong to HTTP calls: the database's password is named by sql.auth")
            }
            Some(_) => Ok(()),
        }?;
        if config.breaker.by_channel && name != "payments" {
            return self.refuse("breaker.by_channel", "is for payments alone: nothing else has channels");
        }
        Ok(())
    }

    pub(crate) fn base(&self, url: &Hidden) -> Result<String, ConfigError> {
        let Ok(parsed) = Url::parse(&url.0) else {
            return self.refuse("url", "must be a URL such as http://stock.internal:9002");
        };
        if !matches!(parsed.scheme(), "http" | "https") {
            return self.refuse("url", "must begin with http:// or https://");
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return self.refuse("url", "must hold no credentials: name an environment variable or a file under `auth`");
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return self.refuse(
                "url",
                "must end before the '?' and the '#': secrets belong under `auth`, parameters into a call's `path`",
            );
        }
        Ok(parsed.as_str().trim_end_matches('/').to_owned())
    }

    pub(crate) fn whole(&self, key: &str, value: i64, max: i64) -> Result<u32, ConfigError> {
        match u32::try_from(value) {
            Ok(whole) if (1..=max).contains(&value) => Ok(whole),
            _ => self.refuse(key, format!("must be a whole number from 1 to {max}")),
        }
    }

    pub(crate) fn within(&self, key: &str, value: Duration, min: Duration, max: Duration) -> Result<Duration, ConfigError> {
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        let shown = |duration| overdue_runtime::ConfigDuration(duration);
        self.refuse(key, format!("must be from {} to {}", shown(min), shown(max)))
    }

    pub(crate) fn retry(&self, retry: &RetryConfig) -> Result<RetryPolicy, ConfigError> {
        let attempts = match retry.attempts {
            Some(attempts) if !(1..=ATTEMPTS_MAX).contains(&attempts) => {
                let message = format!("must be from 1 to {ATTEMPTS_MAX}, the first attempt included; leave it out for no limit");
                return self.refuse("retry.attempts", message);
            }
            attempts => attempts.and_then(|attempts| u32::try_from(attempts).ok()),
        };
        let policy = RetryPolicy {
            initial: retry.initial.0,
            factor: retry.factor,
            cap: retry.cap.0,
            attempts,
            give_up_after: retry.give_up_after.map(|limit| limit.0),
            jitter: retry.jitter,
        };
        policy.checked().or_else(|error| self.refuse("retry", error.to_string()))
    }

    /// When it opens; what its parked calls do is the stack's to say.
    fn breaker(&self, breaker: &BreakerConfig) -> Result<BreakerPolicy, ConfigError> {
        let (millisecond, hour) = (Duration::from_millis(1), Duration::from_secs(3600));
        let ratio = match (breaker.ratio, breaker.window, breaker.slow_call) {
            (None, None, None) => None,
            (None, ..) => return self.refuse("breaker.ratio", "is needed for `window` and `slow_call`: a share such as 0.5"),
            (Some(ratio), window, slow_call) => {
                if !(ratio > 0.0 && ratio <= 1.0) {
                    return self.refuse("breaker.ratio", "must be above 0 and at most 1: the share of failed and slow calls");
                }
                let slow_call = slow_call.map(|slow| self.within("breaker.slow_call", slow.0, millisecond, hour)).transpose()?;
                let window = window.map_or(WINDOW_DEFAULT, |window| window.0);
                Some(RatioPolicy {
                    window: self.within("breaker.window", window, Duration::from_secs(1), hour)?,
                    ratio,
                    calls_min: self.whole("breaker.calls_min", breaker.calls_min, 1_000_000)?,
                    slow_call,
                })
            }
        };
        Ok(BreakerPolicy {
            failures: self.whole("breaker.failures", breaker.failures, 10_000)?,
            open: self.within("breaker.open", breaker.open.0, millisecond, hour)?,
            ratio,
            spacing: Duration::ZERO,
            probe_max: Duration::ZERO,
            by_part: breaker.by_channel,
        })
    }

    fn rate(&self, rate: &RateConfig) -> Result<Rate, ConfigError> {
        if !(0.001..=1_000_000.0).contains(&rate.per_second) {
            return self.refuse("rate.per_second", "must be a number from 0.001 to 1000000; leave out `rate` for no limit");
        }
        let period = Duration::from_secs_f64(1.0 / rate.per_second);
        Ok(Rate { period, burst: self.whole("rate.burst", rate.burst, 1_000_000)? })
    }

    pub(crate) fn headers<'a>(
        &self,
        key: &str,
        headers: impl IntoIterator<Item = (&'a String, &'a Hidden)>,
    ) -> Result<HeaderMap, ConfigError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let (name, value) = (self.header_name(key, name)?, HeaderValue::from_str(&value.0));
            let Ok(value) = value else {
                return self.refuse(&format!("{key}.{name}"), "must be visible ASCII text");
            };
            if name == http::header::AUTHORIZATION {
                return self.refuse(&format!("{key}.{name}"), "secrets are given by reference: use `auth`");
            }
            map.insert(name, value);
        }
        Ok(map)
    }

    fn header_name(&self, key: &str, name: &str) -> Result<HeaderName, ConfigError> {
        match HeaderName::try_from(name) {
            Ok(name) if OWN_HEADERS.contains(&name.as_str()) => {
                self.refuse(&format!("{key}.{name}"), "is set by the call itself and cannot be configured")
            }
            Ok(name) => Ok(name),
            Err(_) => self.refuse(key, "holds a name that no header can have"),
        }
    }

    /// A secret from the variable or the file that `key` names.
    pub(crate) fn referenced(&self, key: &str, env: Option<&str>, file: Option<&str>) -> Result<String, ConfigError> {
        let secret = match (env, file) {
            (Some(variable), None) => match std::env::var(variable) {
                Ok(secret) => secret,
                Err(_) => return self.refuse(&format!("{key}.env"), format!("the environment variable {variable} is not set")),
            },
            (None, Some(file)) => match std::fs::read_to_string(file) {
                Ok(secret) => secret,
                Err(error) => {
                    return self.refuse(&format!("{key}.file"), format!("{file} cannot be read: {}", error.kind()));
                }
            },
            _ => return self.refuse(key, "needs either `env` or `file`"),
        };
        match secret.trim_end_matches(['\r', '\n']) {
            "" => self.refuse(key, "names an empty secret"),
            secret => Ok(secret.to_owned()),
        }
    }

    /// The header, its value, and the bare secret.
    fn secret(&self, auth: Option<&AuthConfig>) -> Result<Option<(HeaderName, HeaderValue, String)>, ConfigError> {
        let Some(auth) = auth else { return Ok(None) };
        let secret = self.referenced("auth", auth.env.as_deref(), auth.file.as_deref())?;
        let header = self.header_name("auth.header", &auth.header)?;
        let default_prefix = if header == http::header::AUTHORIZATION { "Bearer " } else { "" };
        let prefix = auth.prefix.as_deref().unwrap_or(default_prefix);
        let Ok(mut value) = HeaderValue::from_str(&format!("{prefix}{secret}")) else {
            return self.refuse("auth", "names a secret that no header can carry: it must be one line of visible ASCII text");
        };
        value.set_sensitive(true);
        Ok(Some((header, value, secret)))
    }
}
