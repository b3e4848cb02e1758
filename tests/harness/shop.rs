//! The shop's services as wiremock servers that answer what a test tells them to, and remember what they were asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use overdue_activities::{DownstreamConfig, DownstreamsConfig};
use overdue_runtime::Timestamp;
use overdue_runtime::engine::Clock;
use overdue_runtime::testing::{ManualClock, eventually};
use serde_json::{Value, json};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate, matchers};

/// Nothing is held longer, so that a test that forgot a gate ends.
const HOLD_MAX: Duration = Duration::from_secs(20);

/// A request that a service received.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) call: String,
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) body: Value,
    /// The body, byte by byte.
    pub(crate) raw: String,
    /// What the node's clock showed.
    pub(crate) at: Timestamp,
}

impl Sent {
    /// The order, reservation, coupon or payment that the request is about.
    pub(crate) fn subject(&self) -> &str {
        self.path.split('/').nth(2).unwrap_or_default()
    }
}

/// What a service does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    Answer(ResponseTemplate),
    /// Answers once the gate is open.
    Held(Gate, Box<Reply>),
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(ResponseTemplate::new(status))
    }

    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self::Answer(ResponseTemplate::new(status).set_body_json(body))
    }

    pub(crate) fn raw(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Answer(ResponseTemplate::new(status).set_body_raw(body, "application/json"))
    }

    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        match self {
            Self::Answer(answer) => Self::Answer(answer.insert_header(name, value)),
            held => held,
        }
    }

    pub(crate) fn held(self, gate: &Gate) -> Self {
        Self::Held(gate.clone(), Box::new(self))
    }
}

/// An answer of 200 with this outcome, and with `fields` beside it.
pub(crate) fn outcome(word: &str, fields: Value) -> Reply {
    let mut body = json!({ "outcome": word });
    if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
        body.extend(fields);
    }
    Reply::json(200, body)
}

/// Holds answers back until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let until = Instant::now() + HOLD_MAX;
        let mut open = self.0.0.lock().unwrap();
        while !*open && Instant::now() < until {
            open = self.0.1.wait_timeout(open, HOLD_MAX).unwrap().0;
        }
    }
}

type Judge = Arc<dyn Fn(&Sent) -> Reply + Send + Sync>;

struct Desk {
    sent: Vec<Sent>,
    planned: BTreeMap<String, VecDeque<Reply>>,
    judges: BTreeMap<String, Judge>,
}

/// The four services.
pub(crate) struct Shop {
    desk: Arc<Mutex<Desk>>,
    orders: MockServer,
    stock: MockServer,
    coupons: MockServer,
    payments: MockServer,
}

impl Shop {
    pub(crate) async fn open(clock: &ManualClock) -> Self {
        let desk = Arc::new(Mutex::new(Desk { sent: Vec::new(), planned: BTreeMap::new(), judges: BTreeMap::new() }));
        let (orders, stock) = (service(&desk, clock).await, service(&desk, clock).await);
        let (coupons, payments) = (service(&desk, clock).await, service(&desk, clock).await);
        Self { desk, orders, stock, coupons, payments }
    }

    /// The configuration with which the node calls these services: five attempts, 1, 2, 4, 8 seconds apart, and a breaker
    /// that stays closed.
    pub(crate) fn configuration(&self, configure: impl Fn(&mut DownstreamConfig)) -> DownstreamsConfig {
        let service = |server: &MockServer| {
            let mut config = DownstreamConfig::at(server.uri());
            config.retry.jitter = false;
            config.retry.attempts = Some(5);
            config.retry.cap = overdue_runtime::ConfigDuration(Duration::from_secs(60));
            config.breaker.failures = 10_000;
            configure(&mut config);
            config
        };
        DownstreamsConfig {
            orders: service(&self.orders),
            stock: service(&self.stock),
            coupons: service(&self.coupons),
            payments: service(&self.payments),
        }
    }

    /// The next requests of this call are answered so, one after the other; the later ones as by default.
    pub(crate) fn answers(&self, call: &str, replies: impl IntoIterator<Item = Reply>) {
        self.desk.lock().unwrap().planned.entry(call.to_owned()).or_default().extend(replies);
    }

    /// From now on requests of this call are answered by `judge`, once what is planned is used up.
    pub(crate) fn judges(&self, call: &str, judge: impl Fn(&Sent) -> Reply + Send + Sync + 'static) {
        self.desk.lock().unwrap().judges.insert(call.to_owned(), Arc::new(judge));
    }

    /// From now on every request of this call is answered so.
    pub(crate) fn always(&self, call: &str, reply: Reply) {
        self.judges(call, move |_| reply.clone());
    }

    /// The next request of this call is received, and answered only once the gate is open.
    pub(crate) fn holds(&self, call: &str, reply: Reply) -> Gate {
        let gate = Gate::default();
        self.answers(call, [reply.held(&gate)]);
        gate
    }

    /// Everything that was received, in order of arrival.
    pub(crate) fn all(&self) -> Vec<Sent> {
        self.desk.lock().unwrap().sent.clone()
    }

    /// The requests of one call, in order of arrival.
    pub(crate) fn sent(&self, call: &str) -> Vec<Sent> {
        self.all().into_iter().filter(|sent| sent.call == call).collect()
    }

    /// How many requests of one call there were.
    pub(crate) fn count(&self, call: &str) -> usize {
        self.desk.lock().unwrap().sent.iter().filter(|sent| sent.call == call).count()
    }

    /// How often each call was made.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for sent in self.all() {
            *counts.entry(sent.call).or_default() += 1;
        }
        counts
    }

    /// The one request of this call.
    pub(crate) fn only(&self, call: &str) -> Sent {
        let mut sent = self.sent(call);
        assert_eq!(sent.len(), 1, "requests of {call}: {sent:?}");
        sent.remove(0)
    }

    /// The keys of a call's requests, in order of arrival.
    pub(crate) fn keys(&self, call: &str) -> Vec<String> {
        self.sent(call).into_iter().map(|sent| sent.key).collect()
    }

    /// Waits until so many requests of this call have arrived.
    pub(crate) async fn received(&self, call: &str, count: usize) {
        let enough = || async { (self.count(call) >= count).then_some(()) };
        eventually(&format!("{count} requests of {call} arrive"), enough).await;
    }
}

async fn service(desk: &Arc<Mutex<Desk>>, clock: &ManualClock) -> MockServer {
    let server = MockServer::builder().disable_request_recording().start().await;
    let answering = Answering { desk: desk.clone(), clock: clock.clone() };
    Mock::given(matchers::any()).respond_with(answering).mount(&server).await;
    server
}

struct Answering {
    desk: Arc<Mutex<Desk>>,
    clock: ManualClock,
}

impl Respond for Answering {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let text = |name: &str| request.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        if !request.headers.contains_key("idempotency-key") {
            // Not from the node: something else on this machine tried the port.
            return ResponseTemplate::new(404);
        }
        let raw = String::from_utf8(request.body.clone()).unwrap();
        let sent = Sent {
            call: call_of(request).to_owned(),
            path: request.url.path().to_owned(),
            key: text("idempotency-key"),
            body: serde_json::from_str(&raw).unwrap_or(Value::Null),
            raw,
            at: self.clock.now(),
        };
        let planned = {
            let mut desk = self.desk.lock().unwrap();
            desk.sent.push(sent.clone());
            let planned = desk.planned.get_mut(&sent.call).and_then(VecDeque::pop_front);
            planned.ok_or_else(|| desk.judges.get(&sent.call).cloned())
        };
        let mut reply = match planned {
            Ok(reply) => reply,
            Err(Some(judge)) => judge(&sent),
            Err(None) => by_default(&sent.call),
        };
        loop {
            match reply {
                Reply::Answer(answer) => return answer,
                Reply::Held(gate, then) => {
                    gate.pass();
                    reply = *then;
                }
            }
        }
    }
}

fn call_of(request: &Request) -> &'static str {
    let path = request.url.path();
    match path.rsplit('/').next().unwrap_or_default() {
        "cancel" => "cancel-order",
        "confirm-paid" => "confirm-paid",
        "release" => "release-stock",
        "return" => "return-coupon",
        "close" => "close-payment",
        "void" => "void-payment",
        "refunds" => "refund-payment",
        _ if path.contains("/refunds/") => "refund-status",
        _ => "unknown",
    }
}

fn by_default(call: &str) -> Reply {
    let word = match call {
        "cancel-order" => "CANCELLED",
        "confirm-paid" => "PAID",
        "release-stock" => "RELEASED",
        "return-coupon" => "RETURNED",
        "close-payment" => "CLOSED",
        "void-payment" => "VOIDED",
        "refund-payment" | "refund-status" => "REFUNDED",
        _ => return Reply::status(404),
    };
    outcome(word, json!({}))
}
