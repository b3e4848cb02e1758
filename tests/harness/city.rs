//! A batch of orders against a shop with durable ledgers and the real program, and what must hold of them in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_runtime::testing::PostgresCluster;
use overdue_workflows::sandbox::{
    Call, Capture, Effect, EffectRecord, Fault, FaultPlan, NewOrder, OrderStatus, RequestRecord, Service, Shop,
};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::{Server, Site, run};

/// Until when an order may be paid, from its placement.
pub(crate) const TIME_TO_PAY: Duration = Duration::from_millis(1200);
/// How long the shop withholds an answer: the engine has given up by then.
pub(crate) const WITHHOLD: Duration = Duration::from_millis(800);
/// Every node has looked at who owns what within this: a few of its rounds.
pub(crate) const LOOKED: Duration = Duration::from_millis(600);
/// How long a node's lease is, where several share a store.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
/// No moment and no end is waited for any longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// What the buyer does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Buyer {
    Leaves,
    Pays,
    /// Before the order's workflow is started.
    PaysFirst,
    PaysTwice,
    /// Once the order is cancelled.
    PaysLate,
}

/// The batch: each order and its buyer.
pub(crate) const BATCH: [(&str, Buyer); 14] = [
    ("left-0", Buyer::Leaves),
    ("left-1", Buyer::Leaves),
    ("left-2", Buyer::Leaves),
    ("left-3", Buyer::Leaves),
    ("left-4", Buyer::Leaves),
    ("left-5", Buyer::Leaves),
    ("paid-0", Buyer::Pays),
    ("paid-1", Buyer::Pays),
    ("first-0", Buyer::PaysFirst),
    ("twice-0", Buyer::PaysTwice),
    ("twice-1", Buyer::PaysTwice),
    ("late-0", Buyer::PaysLate),
    ("late-1", Buyer::PaysLate),
    ("late-2", Buyer::PaysLate),
];

/// A shop that loses an answer of every call, fails for a while, and takes its time over a refund.
fn faults() -> FaultPlan {
    FaultPlan::none()
        .withholding(WITHHOLD)
        .plant(Service::Orders, "left-0", 1..=1, Fault::TimeoutAfterEffect)
        .plant(Service::Orders, "paid-0", 1..=1, Fault::TimeoutAfterEffect)
        .plant(Service::Stock, "left-1-stock", 1..=1, Fault::TimeoutAfterEffect)
        .plant(Service::Coupons, "left-2-coupon", 1..=2, Fault::Unavailable)
        .plant(Service::Stock, "left-3-stock", 1..=1, Fault::ConnectionClosed)
        .plant(Service::Payments, "left-4-pay", 1..=1, Fault::TimeoutAfterEffect)
        .plant(Service::Payments, "late-0-pay", 2..=2, Fault::TimeoutAfterEffect)
        .plant(Service::Orders, "twice-0", 2..=2, Fault::TimeoutAfterEffect)
}

pub(crate) struct City {
    pub(crate) shop: Shop,
    pub(crate) server: Server,
    pub(crate) _folder: TempDir,
}

async fn open_shop() -> (TempDir, Shop) {
    let folder = tempfile::tempdir().unwrap();
    let shop = Shop::start(folder.path(), faults()).await.unwrap();
    (folder, shop)
}

/// How many nodes own shards, and how many shards the one with most and the one with fewest has.
const SPREAD: &str = "SELECT count(*), coalesce(max(owned), 0), coalesce(min(owned), 0)
     FROM (SELECT count(*) AS owned FROM overdue.shards AS s
           JOIN overdue.nodes AS n ON n.node_id = s.node_id AND n.expires_at > clock_timestamp()
           GROUP BY s.node_id) AS o
     WHERE NOT EXISTS (SELECT FROM overdue.shards WHERE node_id IS NULL)";

/// A signal that was acknowledged: its order and its transaction.
pub(crate) type Acknowledged = (String, String);

impl City {
    pub(crate) async fn open() -> Self {
        let (folder, shop) = open_shop().await;
        let server = Server::start(Site::calling(shop.urls())).await;
        Self { shop, server, _folder: folder }
    }

    /// With so many nodes on one store.
    pub(crate) async fn of_nodes(nodes: usize, store: &str) -> Self {
        Self::of_nodes_with(nodes, store, |site| site).await
    }

    /// The same, with sites that `configure` makes of the usual ones.
    pub(crate) async fn of_nodes_with(nodes: usize, store: &str, configure: impl Fn(Site) -> Site) -> Self {
        let (folder, shop) = open_shop().await;
        let site = || {
            Site::calling(shop.urls()).on(store).with("[engine]\n", &format!("[engine]\nlease = \"{}ms\"\n", LEASE.as_millis()))
        };
        let server = Server::start_all((0..nodes).map(|_| configure(site())).collect()).await;
        Self { shop, server, _folder: folder }
    }

    /// Plays the batch; gives the payments that were acknowledged.
    pub(crate) async fn play(&self) -> Vec<Acknowledged> {
        let orders = BATCH.iter().map(|(id, buyer)| self.one_order(id, *buyer));
        futures::future::join_all(orders).await.into_iter().flatten().collect()
    }

    /// Places an order whose buyer leaves, and starts its workflow.
    pub(crate) async fn place(&self, id: &str, deadline: Timestamp) {
        self.shop.place_order(&NewOrder::new(id, deadline).with_everything()).await.unwrap();
        let started = self.server.start_order(id, &Self::input(id, deadline)).await;
        assert!(started.status.is_success(), "{id}: {started:?}");
    }

    /// What the workflow of an order with everything is started with.
    pub(crate) fn input(id: &str, deadline: Timestamp) -> Value {
        json!({
            "orderId": id, "payDeadline": format!("{deadline:.3}"), "amount": "10.00", "currency": "USD",
            "paymentId": format!("{id}-pay"), "stockToken": format!("{id}-stock"), "couponId": format!("{id}-coupon"),
        })
    }

    /// Waits until so many living nodes own all shards evenly.
    pub(crate) async fn spread(&self, cluster: &PostgresCluster, nodes: i64) {
        let mut session = cluster.connect("postgres").await;
        let until = Instant::now() + PATIENCE;
        loop {
            let spread: (i64, i64, i64) = sqlx::query_as(SPREAD).fetch_one(&mut session).await.unwrap();
            if spread.0 == nodes && spread.1 - spread.2 <= 1 {
                // And until each of them has looked.
                return sleep(LOOKED).await;
            }
            assert!(Instant::now() < until, "nodes, most and fewest shards: {spread:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn one_order(&self, id: &str, buyer: Buyer) -> Vec<Acknowledged> {
        let deadline = Timestamp::now() + TIME_TO_PAY;
        let mut order = NewOrder::new(id, deadline).with_everything();
        if let Some(payment) = &mut order.payment {
            payment.terms.refund_queries = if id == "late-1" { 2 } else { 0 };
            payment.terms.in_progress_asks = if id == "left-5" { 1 } else { 0 };
        }
        self.shop.place_order(&order).await.unwrap();
        let input = Self::input(id, deadline);
        let mut acknowledged = Vec::new();
        if buyer == Buyer::PaysFirst {
            acknowledged.push(self.pay(id, "txn-1").await);
        }
        let started = self.server.start_order(id, &input).await;
        assert!(started.status.is_success(), "{id}: {started:?}");
        match buyer {
            Buyer::Leaves | Buyer::PaysFirst => {}
            Buyer::Pays => acknowledged.push(self.pay(id, "txn-1").await),
            Buyer::PaysTwice => {
                acknowledged.push(self.pay(id, "txn-1").await);
                acknowledged.push(self.pay(id, "txn-2").await);
            }
            Buyer::PaysLate => {
                self.until(&format!("{id} is cancelled"), || {
                    self.shop.order(id).is_some_and(|order| matches!(order.status, OrderStatus::Cancelled { .. }))
                })
                .await;
                acknowledged.push(self.pay(id, "txn-1").await);
            }
        }
        acknowledged
    }

    /// The channel takes the money and tells the engine, until that has said yes.
    pub(crate) async fn pay(&self, id: &str, transaction: &str) -> Acknowledged {
        let transaction = format!("{id}-{transaction}");
        let capture = Capture::now(&transaction, "10.00", "USD");
        self.shop.capture(&format!("{id}-pay"), &capture).await.unwrap();
        let payload = json!({
            "transactionId": transaction, "amount": "10.00", "currency": "USD", "paidAt": format!("{:.3}", capture.paid_at),
        });
        let answer = self.server.signal(id, "payment-succeeded", &payload).await;
        assert!(answer.status.is_success(), "{id}: {answer:?}");
        (id.to_owned(), transaction)
    }

    /// Pays an order and tells the engine once; the status.
    pub(crate) async fn pay_once(&self, id: &str) -> Option<u16> {
        let capture = Capture::now(&format!("{id}-txn-1"), "10.00", "USD");
        self.shop.capture(&format!("{id}-pay"), &capture).await.unwrap();
        let payload = json!({
            "transactionId": capture.transaction_id, "amount": "10.00", "currency": "USD",
            "paidAt": format!("{:.3}", capture.paid_at),
        });
        let path = format!("/v1/workflows/order-timeout/{id}/signals/payment-succeeded");
        let body = json!({ "payload": payload }).to_string();
        self.server.try_to_ask(Method::POST, &path, Some(&body)).await.map(|answer| answer.status.as_u16())
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < until, "{what}\n{}", self.server.site.log());
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a request of this call about this subject has arrived.
    pub(crate) async fn asked(&self, service: Service, call: Call, subject: &str) {
        let arrived = || self.requests(service).iter().any(|request| request.call == call && request.subject == subject);
        self.until(&format!("{call:?} of {subject} is asked"), arrived).await;
    }

    pub(crate) fn requests(&self, service: Service) -> Vec<RequestRecord> {
        self.shop.requests(service).unwrap()
    }

    pub(crate) fn effects(&self) -> Vec<EffectRecord> {
        Service::ALL.iter().flat_map(|service| self.shop.effects(*service).unwrap()).collect()
    }

    pub(crate) async fn kill_and_restart(&self) {
        self.server.kill().await;
        self.server.restart().await;
    }

    /// Every execution, by type and id, once all have ended.
    pub(crate) async fn all_settled(&self) -> BTreeMap<(String, String), Vec<Value>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let open = self.server.get("/v1/workflows?status=running&limit=1000").await;
            let open = open["workflows"].as_array().unwrap();
            if open.is_empty() {
                break;
            }
            assert!(Instant::now() < until, "these do not end: {open:?}\n{}", self.server.site.log());
            sleep(Duration::from_millis(50)).await;
        }
        let all = self.server.get("/v1/workflows?limit=1000").await;
        let mut histories = BTreeMap::new();
        for listed in all["workflows"].as_array().unwrap() {
            let name = |key: &str| listed[key].as_str().unwrap().to_owned();
            let events = self.server.history(&name("type"), &name("id")).await;
            assert_eq!(listed["status"], "completed", "{listed}");
            histories.insert((name("type"), name("id")), events);
        }
        histories
    }

    /// What must hold, whenever the process was killed.
    pub(crate) async fn audit(&self, acknowledged: &[Acknowledged]) {
        let histories = self.all_settled().await;
        for (id, _) in BATCH {
            assert!(histories.contains_key(&("order-timeout".into(), id.into())), "the start of {id} was acknowledged");
        }
        for (order, transaction) in acknowledged {
            let of_the_order = histories.iter().filter(|((_, id), _)| id.split('~').next() == Some(order));
            let recorded = of_the_order.flat_map(|(_, events)| events).filter(|event| match event["kind"].as_str() {
                Some("SignalReceived") => event["payload"]["transactionId"] == **transaction,
                Some("WorkflowStarted") => event["input"]["transactionId"] == **transaction,
                _ => false,
            });
            assert_eq!(recorded.count(), 1, "{transaction} was acknowledged: it is in a history of {order}, once");
        }
        for (name, events) in &histories {
            let numbers: Vec<_> = events.iter().map(|event| event["number"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "{name:?} has no gap");
        }
        self.audit_effects(acknowledged);
        self.audit_keys(&histories);
        self.verify().await;
    }

    /// What is stored holds together, looked at beside the nodes that run on it.
    pub(crate) async fn verify(&self) -> Value {
        let looked = run(&mut self.server.site.verify()).await;
        assert_eq!(looked.code, Some(0), "{looked:?}");
        let report = looked.json();
        assert_eq!(report["violations"], json!([]));
        report
    }

    pub(crate) fn audit_effects(&self, acknowledged: &[Acknowledged]) {
        let counts = self.shop.counts();
        assert_eq!((counts.duplicate_effects, counts.reused_keys), (0, 0));
        let effects = self.effects();
        let times = |subject: &str, wanted: fn(&Effect) -> bool| {
            effects.iter().filter(|effect| effect.subject == subject && wanted(&effect.effect)).count()
        };
        for (id, buyer) in BATCH {
            let status = self.shop.order(id).unwrap().status;
            let kept_by = match &status {
                OrderStatus::Paid { transaction_id } => Some(transaction_id.clone()),
                OrderStatus::Cancelled { .. } => None,
                OrderStatus::WaitPay => panic!("{id} is not decided"),
            };
            if matches!(buyer, Buyer::Leaves | Buyer::PaysLate) {
                assert_eq!(kept_by, None, "{id}: nobody paid in time");
            }
            let given_back = usize::from(kept_by.is_none());
            let (stock, coupon) = (format!("{id}-stock"), format!("{id}-coupon"));
            assert_eq!(times(&stock, |effect| *effect == Effect::StockReleased), given_back, "{id}: its stock, exactly once");
            assert_eq!(times(&coupon, |effect| *effect == Effect::CouponReturned), given_back, "{id}: its coupon, exactly once");
            for (_, transaction) in acknowledged.iter().filter(|(order, _)| order == id) {
                let refunds = effects.iter().filter(|effect| {
                    matches!(&effect.effect, Effect::RefundAccepted { transaction_id, .. } if transaction_id == transaction)
                });
                let owed = usize::from(kept_by.as_ref() != Some(transaction));
                assert_eq!(refunds.count(), owed, "{transaction}: goods owed or a refund, never both and never neither");
            }
        }
    }

    /// Repeats of one question have one key; a new question after an answer that was not final has a new one.
    pub(crate) fn audit_keys(&self, histories: &BTreeMap<(String, String), Vec<Value>>) {
        let scheduled: BTreeSet<&str> = histories
            .values()
            .flatten()
            .filter(|event| event["kind"] == "ActivityScheduled")
            .filter_map(|event| event["idempotencyKey"].as_str())
            .collect();
        let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut not_final: BTreeMap<String, usize> = BTreeMap::new();
        for request in Service::ALL.iter().flat_map(|service| self.requests(*service)) {
            let key = request.key.clone().unwrap();
            assert!(scheduled.contains(key.as_str()), "{key} is no history's intent");
            let about = request.body["transactionId"].as_str().unwrap_or_default();
            let question = format!("{:?} {} {about}", request.call, request.subject);
            keys.entry(question.clone()).or_default().insert(key);
            let word = request.answer["outcome"].as_str().unwrap_or_default();
            let is_open = matches!(word, "IN_PROGRESS" | "TOO_EARLY" | "NOT_READY" | "NOT_DUE")
                || (request.call == Call::RefundStatus && word == "PROCESSING");
            *not_final.entry(question).or_default() += usize::from(is_open && !request.repeated);
        }
        for (question, keys) in keys {
            let allowed = 1 + not_final[&question];
            assert!(keys.len() <= allowed, "{question}: {keys:?}, though only {allowed} questions were asked");
        }
    }
}
