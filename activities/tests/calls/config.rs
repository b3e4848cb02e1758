//! What the configuration accepts, and how it says what it does not.

use std::time::Duration;

use overdue_activities::{ConfigError, DownstreamConfig, DownstreamsConfig, init_crypto, register};
use overdue_runtime::activity::{ActivityRegistry, RetryPolicy};
use overdue_runtime::testing::manual_environment;

fn parse(stock: &str) -> Result<DownstreamsConfig, String> {
    let others = ["orders", "coupons", "payments"].map(|name| format!("[{name}]\nurl = \"http://{name}.test\"\n")).concat();
    toml::from_str(&format!("{others}[stock]\n{stock}")).map_err(|error| error.message().to_owned())
}

fn registered(stock: &str) -> Result<ActivityRegistry, String> {
    init_crypto();
    let mut activities = ActivityRegistry::default();
    let environment = manual_environment(Default::default(), 1).0;
    let config = parse(stock)?;
    register(&mut activities, &config, &environment).map(|_| ()).map_err(|error: ConfigError| error.to_string())?;
    Ok(activities)
}

fn with_url(rest: &str) -> Result<ActivityRegistry, String> {
    registered(&format!("url = \"http://stock.test\"\n{rest}"))
}

#[test]
fn a_url_alone_gives_the_documented_defaults() {
    assert_eq!(parse("url = \"http://stock.test\"").unwrap().stock, DownstreamConfig::at("http://stock.test"));
    let options = with_url("").unwrap().get("release-stock").unwrap().options();
    assert_eq!(options.retry, RetryPolicy::default());
    assert_eq!(options.limit.unwrap().concurrency, 64);
    let written = r#"
        timeout = "5s"
        tries = 1
        retry = { initial = "1s", factor = 2.0, cap = "5m", give_up_after = "72h", jitter = true }
        breaker = { failures = 5, open = "2s" }
        concurrency = 64
        retry_after_max = "1h""#;
    let written = parse(&format!("url = \"http://stock.test\"\n{written}")).unwrap();
    assert_eq!(written.stock, DownstreamConfig::at("http://stock.test"));
}

#[test]
fn one_attempt_and_two_are_accepted_and_what_is_no_number_of_attempts_is_refused() {
    for attempts in [1u32, 2] {
        let options = with_url(&format!("retry = {{ attempts = {attempts} }}")).unwrap().get("release-stock").unwrap().options();
        assert_eq!(options.retry.attempts, Some(attempts));
    }
    for attempts in ["0", "-1", "4294967296"] {
        let error = with_url(&format!("retry = {{ attempts = {attempts} }}")).err().unwrap();
        assert_eq!(
            error,
            "downstreams.stock.retry.attempts: must be from 1 to 1000000, the first attempt included; leave it out for no limit"
        );
    }
}

#[test]
fn every_refusal_names_the_key() {
    for (written, key) in [
        ("timeout = \"0s\"", "downstreams.stock.timeout: must be from 1ms to 10m"),
        ("tries = 0", "downstreams.stock.tries: must be a whole number from 1 to 10"),
        ("retry = { factor = 0.5 }", "downstreams.stock.retry: factor must be"),
        ("retry = { initial = \"10m\" }", "downstreams.stock.retry: initial must be above 0 and at most cap"),
        ("breaker = { failures = 0 }", "downstreams.stock.breaker.failures: must be"),
        ("breaker = { open = \"2h\" }", "downstreams.stock.breaker.open: must be from 1ms to 1h"),
        ("breaker = { by_channel = true }", "downstreams.stock.breaker.by_channel: is for payments alone"),
        ("rate = { per_second = 0 }", "downstreams.stock.rate.per_second: must be"),
        ("rate = { per_second = 5, burst = 0 }", "downstreams.stock.rate.burst: must be"),
        ("concurrency = -1", "downstreams.stock.concurrency: must be"),
        ("headers = { Host = \"x\" }", "downstreams.stock.headers.host: is set by the call itself"),
        ("headers = { Authorization = \"x\" }", "downstreams.stock.headers.authorization: secrets are given by reference"),
        ("auth = { header = \"x-key\" }", "downstreams.stock.auth: needs either `env` or `file`"),
        ("auth = { env = \"OVERDUE_NO_SUCH_VARIABLE\" }", "downstreams.stock.auth.env: the environment variable"),
        ("calls.release = {}", "downstreams.stock.calls.release: is no call of this service: it has release-stock"),
        ("calls.release-stock.method = \"post\"", "downstreams.stock.calls.release-stock.method: must be GET"),
        ("calls.release-stock.path = \"/x/{sku}\"", "downstreams.stock.calls.release-stock.path: may only name"),
        ("calls.release-stock.path = \"/../x\"", "downstreams.stock.calls.release-stock.path: must begin"),
        (
            "calls.release-stock = { method = \"DELETE\", body = { orderId = \"o\" } }",
            "downstreams.stock.calls.release-stock.body: cannot be sent with DELETE",
        ),
        ("calls.release-stock.body = { sku = \"s\" }", "downstreams.stock.calls.release-stock.body.sku: is no field"),
        (
            "calls.release-stock.outcome.words = { ok = \"DONE\" }",
            "downstreams.stock.calls.release-stock.outcome.words.ok: must be one of RELEASED",
        ),
        (
            "calls.release-stock.outcome.status = { 503 = \"RELEASED\" }",
            "downstreams.stock.calls.release-stock.outcome.status.503: must be a status",
        ),
        (
            "calls.release-stock.outcome.status = { 429 = \"RELEASED\" }",
            "downstreams.stock.calls.release-stock.outcome.status.429: must be a status",
        ),
        (
            "calls.release-stock.outcome.fields = { amount = \"a\" }",
            "downstreams.stock.calls.release-stock.outcome.fields.amount: is no field",
        ),
    ] {
        let error = with_url(written).err().unwrap_or_else(|| panic!("accepted: {written}"));
        assert!(error.starts_with(key), "{written}: {error}");
    }
}

#[test]
fn an_unknown_key_and_a_duration_without_its_unit_are_refused() {
    for (written, message) in [
        ("timout = \"5s\"", "unknown field `timout`"),
        ("breaker = { failures = 5, opened = \"2s\" }", "unknown field `opened`"),
        ("timeout = \"5\"", "not a duration: write a whole number and its unit"),
        ("timeout = 5", "expected a duration with its unit"),
    ] {
        let error = with_url(written).err().unwrap();
        assert!(error.contains(message), "{written}: {error}");
    }
    assert_eq!(registered("").err().unwrap(), "downstreams.stock.url: is missing: say where the service is");
}

#[test]
fn a_rate_may_be_a_fraction_of_a_send_in_a_second() {
    assert!(with_url("rate = { per_second = 0.5 }").is_ok());
    assert_eq!(parse("url = \"http://s\"\nretry.cap = \"90s\"").unwrap().stock.retry.cap.0, Duration::from_secs(90));
}
