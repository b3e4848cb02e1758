//! The configuration that the demo's engine runs with: the shop's URLs, and times short enough to watch.

use std::time::Duration;

use crate::sandbox::{Service, Urls};

/// How long the engine waits for one answer of the shop.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);
/// How long the shop withholds an answer: the engine must have given up by then.
pub(super) const WITHHOLD: Duration = Duration::from_millis(900);

/// How long the shards of a killed node wait for another, where there are several: short enough to watch.
const LEASE: &str = "2s";

/// The whole file.
pub(super) fn toml(urls: &Urls) -> String {
    let mut text = format!("[engine]\ndrain = \"2s\"\nlease = \"{LEASE}\"\n");
    for service in Service::ALL {
        text.push_str(&downstream(service, urls.of(service)));
    }
    text.push_str("\n[workflows.order-timeout]\nclose_payment = \"afterCancel\"\nlate_payment_window = \"3s\"\n");
    text
}

fn downstream(service: Service, url: &str) -> String {
    let (name, timeout_ms) = (service.name(), TIMEOUT.as_millis());
    format!(
        r#"
[downstreams.{name}]
url = "{url}"
timeout = "{timeout_ms}ms"
tries = 1
retry = {{ initial = "200ms", factor = 2.0, cap = "2s", give_up_after = "10m", jitter = true }}
breaker = {{ failures = 5, open = "1s" }}
concurrency = 64
retry_after_max = "2s"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_its_url_and_an_answer_is_withheld_beyond_the_timeout() {
        let url = |name: &str| format!("http://127.0.0.1/{name}");
        let urls = Urls { orders: url("o"), stock: url("s"), coupons: url("c"), payments: url("p") };
        let text = toml(&urls);
        for service in Service::ALL {
            assert!(text.contains(&format!("[downstreams.{}]\nurl = \"{}\"", service.name(), urls.of(service))));
        }
        assert!(WITHHOLD > TIMEOUT);
    }
}
