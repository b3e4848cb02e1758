//! A secret of the configuration shows up nowhere: not in failures, not in debug output, not in a log.

use std::io::Write;
use std::sync::{Arc, Mutex};

use overdue_activities::{AuthConfig, DownstreamConfig, Hidden};
use tracing_subscriber::fmt::MakeWriter;
use wiremock::{MockServer, ResponseTemplate};

use crate::harness::{Calls, context, header, raw, received, release, service};

const SECRET: &str = "S3CRET-1";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

struct SecretFile(tempfile::NamedTempFile);

impl SecretFile {
    fn new() -> Self {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{SECRET}").unwrap();
        Self(file)
    }

    fn configure(&self, config: &mut DownstreamConfig) {
        let file = Some(self.0.path().to_str().unwrap().to_owned());
        config.auth = Some(AuthConfig { env: None, file, header: "authorization".into(), prefix: None });
        config.headers.insert("x-api-key".into(), Hidden(format!("{SECRET}-header")));
        let call = config.calls.entry("release-stock".into()).or_default();
        call.path = Some(Hidden(format!("/release/{{stockToken}}?api_key={SECRET}")));
    }
}

fn calls(url: &str, secret: &SecretFile) -> Calls {
    let stock = {
        let mut stock = DownstreamConfig::at(url);
        secret.configure(&mut stock);
        stock
    };
    let debug = format!("{stock:?}");
    assert!(!debug.contains(SECRET), "{debug}");
    let other = || DownstreamConfig::at(url);
    Calls::with(&overdue_activities::DownstreamsConfig { orders: other(), stock, coupons: other(), payments: other() })
}

#[tokio::test]
async fn no_failure_and_no_log_line_holds_a_secret() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let secret = SecretFile::new();
    let echo = || raw(500, format!("{{\"title\":\"Bearer {SECRET} is not allowed\"}}"));
    let (failing, refusing, released) = (
        service(echo()).await,
        service(ResponseTemplate::new(302).insert_header("location", "/x")).await,
        service(raw(200, "{\"outcome\":\"RELEASED\"}")).await,
    );
    let tls = MockServer::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let urls = [
        failing.uri(),
        refusing.uri(),
        released.uri(),
        format!("http://{closed}"),
        "http://no-such-host.invalid".to_owned(),
        tls.uri().replace("http:", "https:"),
    ];
    let mut shown = String::new();
    for url in &urls {
        let reply = calls(url, &secret).attempt(&context(), "release-stock", release()).await;
        shown.push_str(&format!("{reply:?}\n"));
        if let Err(failure) = reply {
            shown.push_str(&format!("{failure} {:#?}\n", failure.failure));
        }
    }
    let sent = received(&released).await;
    assert_eq!(header(&sent[0], "authorization"), format!("Bearer {SECRET}"));
    assert_eq!(sent[0].url.query(), Some(format!("api_key={SECRET}").as_str()));
    shown.push_str(&String::from_utf8_lossy(&log.0.lock().unwrap()));
    assert!(shown.lines().count() > 20, "nothing was captured");
    for line in shown.lines() {
        assert!(!line.contains(SECRET), "{line}");
    }
}

#[tokio::test]
async fn a_refused_configuration_does_not_quote_it() {
    let environment = overdue_runtime::testing::manual_environment(Default::default(), 1).0;
    overdue_activities::init_crypto();
    for url in ["http://user:S3CRET-1@stock.test", "http://stock.test/?api_key=S3CRET-1", "ftp://S3CRET-1", "S3CRET-1"] {
        let service = || DownstreamConfig::at(url);
        let config = overdue_activities::DownstreamsConfig {
            orders: service(),
            stock: service(),
            coupons: service(),
            payments: service(),
        };
        let error = overdue_activities::register(&mut Default::default(), &config, &environment).err().unwrap();
        let shown = format!("{error} {error:?} {config:?}");
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.starts_with("downstreams.orders.url: must "), "{shown}");
    }
}
