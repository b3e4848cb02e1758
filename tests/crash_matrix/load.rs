//! Orders of every sort, played against a process that may end at any moment, and what must hold of them in the end.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_runtime::sqlx::{self, Connection};
use overdue_workflows::demo::{Acknowledged, judge};
use overdue_workflows::sandbox::{Capture, Fault, FaultPlan, NewOrder, OrderStatus, Service};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::ways::Scene;
use crate::harness::city::{City, PATIENCE, WITHHOLD};

/// Until when an order may be paid, from its placement.
const TIME_TO_PAY: Duration = Duration::from_millis(1000);
/// Nothing was found to do for so long: a few scans.
const QUIET: Duration = Duration::from_millis(500);

/// A shop that loses an answer and fails once.
pub(super) fn faults() -> FaultPlan {
    FaultPlan::none().withholding(WITHHOLD).plant(Service::Stock, "left-0-stock", 1..=1, Fault::TimeoutAfterEffect).plant(
        Service::Coupons,
        "left-1-coupon",
        1..=1,
        Fault::Unavailable,
    )
}

pub(super) struct Load<'a> {
    city: &'a City,
    orders: Mutex<Vec<String>>,
    signals: Mutex<Vec<Acknowledged>>,
}

impl<'a> Load<'a> {
    pub(super) fn on(city: &'a City) -> Self {
        Self { city, orders: Mutex::default(), signals: Mutex::default() }
    }

    /// Plays all of it; everything that is asked for is repeated until it is acknowledged.
    pub(super) async fn play(&self, scene: Scene) {
        match scene {
            Scene::Poison => self.due_at_once().await,
            Scene::Sql => self.by_sql().await,
            Scene::Retention => drop(tokio::join!(self.leaves("left-0"), self.leaves("left-1"), self.pays("paid-0"))),
            _ => {
                tokio::join!(
                    self.leaves("left-0"),
                    self.leaves("left-1"),
                    self.pays("paid-0"),
                    self.pays_first("first-0"),
                    self.pays_twice("twice-0"),
                    self.pays_late("late-0"),
                    self.pays_after_the_end("ended-0"),
                    self.gives_up("gone-0"),
                );
            }
        }
    }

    async fn placed(&self, id: &str, deadline: Timestamp) {
        self.city.shop.place_order(&NewOrder::new(id, deadline).with_everything()).await.unwrap();
        self.orders.lock().unwrap().push(id.to_owned());
    }

    async fn started(&self, id: &str) -> Timestamp {
        let deadline = Timestamp::now() + TIME_TO_PAY;
        self.placed(id, deadline).await;
        self.start(id, deadline).await;
        deadline
    }

    async fn start(&self, id: &str, deadline: Timestamp) {
        let started = self.city.server.start_order(id, &City::input(id, deadline)).await;
        assert!(started.status.is_success(), "{id}: {started:?}");
    }

    async fn leaves(&self, id: &str) {
        self.started(id).await;
    }

    async fn pays(&self, id: &str) {
        self.started(id).await;
        self.pay(id, "txn-1").await;
    }

    async fn pays_first(&self, id: &str) {
        let deadline = Timestamp::now() + TIME_TO_PAY;
        self.placed(id, deadline).await;
        self.pay(id, "txn-1").await;
        self.start(id, deadline).await;
    }

    async fn pays_twice(&self, id: &str) {
        self.pays(id).await;
        self.pay(id, "txn-2").await;
    }

    async fn pays_late(&self, id: &str) {
        self.started(id).await;
        let cancelled = || self.city.shop.order(id).is_some_and(|order| matches!(order.status, OrderStatus::Cancelled { .. }));
        self.city.until(&format!("{id} is cancelled"), cancelled).await;
        self.pay(id, "txn-1").await;
    }

    async fn pays_after_the_end(&self, id: &str) {
        self.started(id).await;
        self.city.server.until(id, "it has ended", |look| !look["closedAt"].is_null()).await;
        self.pay(id, "txn-1").await;
    }

    async fn gives_up(&self, id: &str) {
        self.started(id).await;
        self.signal(id, "cancel-order", &format!("{id}-cancel"), &json!({ "reason": "changed my mind" })).await;
    }

    /// All of one deadline; some are poison.
    async fn due_at_once(&self) {
        let deadline = Timestamp::now() + TIME_TO_PAY;
        for id in ["poison-0", "left-2", "left-3", "left-4", "poison-1", "left-5"] {
            self.placed(id, deadline).await;
            self.start(id, deadline).await;
        }
    }

    /// Through transactions of the caller, in the store's own database.
    async fn by_sql(&self) {
        let mut session = sqlx::PgConnection::connect(&plain(&self.city.server.site.store())).await.unwrap();
        for id in ["left-0", "left-1", "paid-0", "paid-1"] {
            let deadline = Timestamp::now() + TIME_TO_PAY;
            self.placed(id, deadline).await;
            let start = sqlx::query("SELECT overdue.start_workflow('order-timeout', $1, $2::text::json)").bind(id);
            start.bind(City::input(id, deadline).to_string()).execute(&mut session).await.unwrap();
        }
        // One with the start, and one that nothing but a scan finds.
        for id in ["paid-0", "paid-1"] {
            if id == "paid-1" {
                self.city.server.until(id, "it is started", |_| true).await;
            }
            let (transaction, payload) = self.capture(id, "txn-1").await;
            let pay = "SELECT overdue.signal_workflow('order-timeout', $1, 'payment-succeeded', $2::text::json, $3)";
            let pay = sqlx::query(pay).bind(id).bind(payload.to_string()).bind(&transaction);
            pay.execute(&mut session).await.unwrap();
            self.acknowledged(id, "payment-succeeded", &transaction, "buffered");
        }
        let _ = session.close().await;
    }

    async fn capture(&self, id: &str, transaction: &str) -> (String, Value) {
        let transaction = format!("{id}-{transaction}");
        let capture = Capture::now(&transaction, "10.00", "USD");
        self.city.shop.capture(&format!("{id}-pay"), &capture).await.unwrap();
        let payload = json!({
            "transactionId": transaction, "amount": "10.00", "currency": "USD", "paidAt": format!("{:.3}", capture.paid_at),
        });
        (transaction, payload)
    }

    async fn pay(&self, id: &str, transaction: &str) {
        let (transaction, payload) = self.capture(id, transaction).await;
        self.signal(id, "payment-succeeded", &transaction, &payload).await;
    }

    async fn signal(&self, id: &str, name: &str, signal_id: &str, payload: &Value) {
        let path = format!("/v1/workflows/order-timeout/{id}/signals/{name}");
        let body = json!({ "signalId": signal_id, "payload": payload });
        let answer = self.city.server.ask(reqwest::Method::POST, &path, Some(&body)).await;
        assert!(answer.status.is_success(), "{id}: {answer:?}");
        self.acknowledged(id, name, signal_id, answer.json()["outcome"].as_str().unwrap());
    }

    fn acknowledged(&self, id: &str, name: &str, signal_id: &str, outcome: &str) {
        let [order_id, name, signal_id, outcome] = [id, name, signal_id, outcome].map(str::to_owned);
        self.signals.lock().unwrap().push(Acknowledged { order_id, name, signal_id, outcome });
    }

    /// Waits until nothing moves any more, and gives what must not be.
    pub(super) async fn judged(&self, scene: Scene) -> Vec<String> {
        self.settled().await;
        sleep(QUIET).await;
        self.settled().await;
        let mut orders = self.orders.lock().unwrap().clone();
        if scene == Scene::Retention {
            orders = self.known(orders).await;
        }
        let signals = self.signals.lock().unwrap().clone();
        let mut violations = judge(&self.city.server.url().await, &self.city.shop, &orders, &signals).await.unwrap();
        if scene == Scene::Retention {
            // Of what was removed only the ledgers tell.
            violations.retain(|violation| ["D2", "D3", "D4"].iter().any(|rule| violation.contains(&format!(" {rule}: "))));
        }
        violations
    }

    async fn settled(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let all = self.city.server.get("/v1/workflows?limit=1000").await;
            let all = all["workflows"].as_array().unwrap();
            let open: Vec<_> = all.iter().filter(|listed| listed["status"] != "completed").collect();
            let decided = |id: &String| !matches!(self.city.shop.order(id).unwrap().status, OrderStatus::WaitPay);
            if open.is_empty() && self.orders.lock().unwrap().iter().all(decided) {
                return;
            }
            assert!(Instant::now() < until, "these do not end: {open:?}\n{}", self.city.server.site.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Those that are not forgotten.
    async fn known(&self, orders: Vec<String>) -> Vec<String> {
        let mut known = Vec::new();
        for id in orders {
            let path = format!("/v1/workflows/order-timeout/{id}");
            let answer = self.city.server.ask(reqwest::Method::GET, &path, None).await;
            if answer.status.is_success() {
                known.push(id);
            }
        }
        known
    }
}

/// A URL without what only the store understands.
pub(super) fn plain(url: &str) -> String {
    url.split('?').next().unwrap().to_owned()
}
