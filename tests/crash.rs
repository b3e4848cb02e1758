//! The real program, killed with SIGKILL at many moments in the life of a batch of orders, against a shop with durable
//! ledgers. Whatever the moment: what was acknowledged is there, what was done was done once, and keys are stable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_workflows::sandbox::{
    Call, Capture, Effect, EffectRecord, Fault, FaultPlan, NewOrder, OrderStatus, RequestRecord, ReservationStatus, Service, Shop,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::harness::{Server, Site, run};

/// Until when an order may be paid, from its placement.
const TIME_TO_PAY: Duration = Duration::from_millis(1200);
/// How long the shop withholds an answer: the engine has given up by then.
const WITHHOLD: Duration = Duration::from_millis(800);
/// No moment and no end is waited for any longer.
const PATIENCE: Duration = Duration::from_secs(40);

/// What the buyer does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Buyer {
    Leaves,
    Pays,
    /// Before the order's workflow is started.
    PaysFirst,
    PaysTwice,
    /// Once the order is cancelled.
    PaysLate,
}

/// The batch: each order and its buyer.
const BATCH: [(&str, Buyer); 14] = [
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

struct City {
    shop: Shop,
    server: Server,
    _folder: TempDir,
}

/// A signal that was acknowledged: its order and its transaction.
type Acknowledged = (String, String);

impl City {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::start(folder.path(), faults()).await.unwrap();
        let server = Server::start(Site::calling(shop.urls())).await;
        Self { shop, server, _folder: folder }
    }

    /// Plays the batch; gives the payments that were acknowledged.
    async fn play(&self) -> Vec<Acknowledged> {
        let orders = BATCH.iter().map(|(id, buyer)| self.one_order(id, *buyer));
        futures::future::join_all(orders).await.into_iter().flatten().collect()
    }

    async fn one_order(&self, id: &str, buyer: Buyer) -> Vec<Acknowledged> {
        let deadline = Timestamp::now() + TIME_TO_PAY;
        let mut order = NewOrder::new(id, deadline).with_everything();
        if let Some(payment) = &mut order.payment {
            payment.terms.refund_queries = if id == "late-1" { 2 } else { 0 };
            payment.terms.in_progress_asks = if id == "left-5" { 1 } else { 0 };
        }
        self.shop.place_order(&order).await.unwrap();
        let input = json!({
            "orderId": id, "payDeadline": format!("{deadline:.3}"), "amount": "10.00", "currency": "USD",
            "paymentId": format!("{id}-pay"), "stockToken": format!("{id}-stock"), "couponId": format!("{id}-coupon"),
        });
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
    async fn pay(&self, id: &str, transaction: &str) -> Acknowledged {
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

    async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < until, "{what}\n{}", self.server.site.log());
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a request of this call about this subject has arrived.
    async fn asked(&self, service: Service, call: Call, subject: &str) {
        let arrived = || self.requests(service).iter().any(|request| request.call == call && request.subject == subject);
        self.until(&format!("{call:?} of {subject} is asked"), arrived).await;
    }

    fn requests(&self, service: Service) -> Vec<RequestRecord> {
        self.shop.requests(service).unwrap()
    }

    fn effects(&self) -> Vec<EffectRecord> {
        Service::ALL.iter().flat_map(|service| self.shop.effects(*service).unwrap()).collect()
    }

    async fn kill_and_restart(&self) {
        self.server.kill().await;
        self.server.restart().await;
    }

    /// Every execution, by type and id, once all have ended.
    async fn all_settled(&self) -> BTreeMap<(String, String), Vec<Value>> {
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
    async fn audit(&self, acknowledged: &[Acknowledged]) {
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
    }

    fn audit_effects(&self, acknowledged: &[Acknowledged]) {
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
    fn audit_keys(&self, histories: &BTreeMap<(String, String), Vec<Value>>) {
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

/// Plays the batch while `strike` does its worst, and audits what is left.
async fn survives(strike: impl AsyncFnOnce(&City)) {
    let city = City::open().await;
    let (acknowledged, ()) = tokio::join!(city.play(), strike(&city));
    city.audit(&acknowledged).await;
}

#[tokio::test]
async fn a_batch_that_nobody_kills_ends_as_it_must() {
    survives(async |_: &City| {}).await;
}

#[tokio::test]
async fn killed_after_the_first_start_was_acknowledged() {
    survives(async |city: &City| {
        city.server.until("left-0", "it is started", |_| true).await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_after_a_payment_was_acknowledged_before_its_order_started() {
    let city = City::open().await;
    let early = city.shop.place_order(&NewOrder::new("early", Timestamp::now() + TIME_TO_PAY).with_everything()).await;
    early.unwrap();
    let acknowledged = city.pay("early", "txn-1").await;
    city.kill_and_restart().await;
    let input = json!({
        "orderId": "early", "payDeadline": format!("{:.3}", Timestamp::now() + TIME_TO_PAY), "amount": "10.00", "currency": "USD",
        "paymentId": "early-pay", "stockToken": "early-stock", "couponId": "early-coupon",
    });
    city.server.start_order("early", &input).await;

    let look = city.server.until("early", "it has ended", |look| !look["closedAt"].is_null()).await;

    assert_eq!(look["result"]["decision"], "paid");
    let kept_by = OrderStatus::Paid { transaction_id: acknowledged.1 };
    assert_eq!(city.shop.order("early").unwrap().status, kept_by);
    assert_eq!(city.shop.reservation("early-stock"), Some(ReservationStatus::Reserved), "nothing was given back");
}

#[tokio::test]
async fn killed_after_a_payment_was_acknowledged_and_before_it_is_confirmed() {
    survives(async |city: &City| {
        city.asked(Service::Orders, Call::ConfirmPaid, "paid-1").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_while_an_answer_to_confirm_paid_is_withheld() {
    survives(async |city: &City| {
        city.asked(Service::Orders, Call::ConfirmPaid, "paid-0").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_when_the_first_deadlines_come() {
    survives(async |city: &City| {
        sleep(TIME_TO_PAY).await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_while_cancel_order_has_taken_effect_and_its_answer_is_withheld() {
    survives(async |city: &City| {
        city.asked(Service::Orders, Call::CancelOrder, "left-0").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_between_the_cancel_and_what_is_given_back() {
    survives(async |city: &City| {
        let cancelled = || city.effects().iter().any(|effect| matches!(effect.effect, Effect::OrderCancelled { .. }));
        city.until("an order is cancelled", cancelled).await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_while_stock_was_released_and_its_answer_is_withheld() {
    survives(async |city: &City| {
        city.asked(Service::Stock, Call::ReleaseStock, "left-1-stock").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_in_back_off() {
    survives(async |city: &City| {
        let is_backing_off =
            |look: &Value| look["pendingActivities"].as_array().unwrap().iter().any(|pending| pending["state"] == "backing-off");
        city.asked(Service::Coupons, Call::ReturnCoupon, "left-2-coupon").await;
        let look = city.server.until("left-2", "it backs off or is past it", |look| {
            is_backing_off(look) || look["progress"]["phase"] == "watching"
        });
        look.await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_while_a_payment_was_closed_and_its_answer_is_withheld() {
    survives(async |city: &City| {
        city.asked(Service::Payments, Call::ClosePayment, "left-4-pay").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_during_the_watch() {
    survives(async |city: &City| {
        city.server.until("left-3", "it is watched", |look| look["progress"]["phase"] == "watching").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_while_a_refund_has_taken_effect_and_its_answer_is_withheld() {
    survives(async |city: &City| {
        city.asked(Service::Payments, Call::RefundPayment, "late-0-pay").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_while_a_refund_is_processing() {
    survives(async |city: &City| {
        city.asked(Service::Payments, Call::RefundPayment, "late-1-pay").await;
        city.kill_and_restart().await;
        city.asked(Service::Payments, Call::RefundStatus, "late-1-pay").await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_while_it_drains() {
    survives(async |city: &City| {
        city.asked(Service::Orders, Call::CancelOrder, "left-0").await;
        city.server.terminate().await;
        sleep(Duration::from_millis(50)).await;
        city.kill_and_restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_again_while_it_recovers() {
    survives(async |city: &City| {
        city.asked(Service::Orders, Call::CancelOrder, "left-0").await;
        city.server.kill().await;
        for life_ms in [10, 30, 60, 120, 250] {
            city.server.flicker(Duration::from_millis(life_ms)).await;
        }
        city.server.restart().await;
    })
    .await;
}

#[tokio::test]
async fn killed_again_and_again_all_along() {
    survives(async |city: &City| {
        for round in 0..10 {
            sleep(Duration::from_millis(120 + 60 * (round % 4))).await;
            city.kill_and_restart().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_process_was_down_when_all_deadlines_came_and_needs_no_further_event() {
    // B012.
    let city = City::open().await;
    let deadline = Timestamp::now() + Duration::from_secs(2);
    let ids: Vec<String> = (0..50).map(|number| format!("o-{number}")).collect();
    for id in &ids {
        city.shop.place_order(&NewOrder::new(id, deadline).with_everything()).await.unwrap();
    }
    for id in &ids {
        let input = json!({
            "orderId": id, "payDeadline": format!("{deadline:.3}"), "amount": "10.00", "currency": "USD",
            "paymentId": format!("{id}-pay"), "stockToken": format!("{id}-stock"), "couponId": format!("{id}-coupon"),
        });
        assert_eq!(city.server.start_order(id, &input).await.status, 201);
    }
    city.server.kill().await;
    sleep((deadline.duration_since(Timestamp::now()) + jiff::SignedDuration::from_millis(500)).unsigned_abs()).await;

    city.server.restart().await;
    let ready = Instant::now();
    city.until("all have begun", || city.shop.decided().cancelled == 50).await;

    assert!(ready.elapsed() < Duration::from_secs(2), "{:?}", ready.elapsed());
    city.until("all are given back", || {
        ids.iter().all(|id| city.shop.reservation(&format!("{id}-stock")) == Some(ReservationStatus::Released))
    })
    .await;
    let cancels: Vec<_> = city.requests(Service::Orders);
    assert_eq!(cancels.len(), 50, "one call each");
}

// Ending in good order (B047), and one process a file (B068).

/// A city with one order whose stock service takes `answer_after` to answer, and a drain limit.
async fn draining(answer_after: Duration, drain: &str) -> City {
    let folder = tempfile::tempdir().unwrap();
    let slow = FaultPlan::none().withholding(answer_after).plant(Service::Stock, "o-1-stock", 1..=1, Fault::TimeoutAfterEffect);
    let shop = Shop::start(folder.path(), slow).await.unwrap();
    let site = Site::calling(shop.urls())
        .with("scan = \"200ms\"", &format!("scan = \"200ms\"\ndrain = \"{drain}\""))
        .with("timeout = \"500ms\"", "timeout = \"20s\"");
    let city = City { server: Server::start(site).await, shop, _folder: folder };
    let deadline = Timestamp::now();
    city.shop.place_order(&NewOrder::new("o-1", deadline).with_everything()).await.unwrap();
    let input = json!({
        "orderId": "o-1", "payDeadline": format!("{deadline:.3}"), "amount": "10.00", "currency": "USD",
        "paymentId": "o-1-pay", "stockToken": "o-1-stock", "couponId": "o-1-coupon",
    });
    city.server.start_order("o-1", &input).await;
    city.asked(Service::Stock, Call::ReleaseStock, "o-1-stock").await;
    city
}

#[tokio::test]
async fn a_call_under_way_when_it_is_asked_to_end_is_waited_for_and_its_result_recorded() {
    let city = draining(Duration::from_secs(2), "10s").await;
    city.server.terminate().await;
    let (status, took) = city.server.ended().await;

    assert_eq!(status.code(), Some(0), "{}", city.server.site.log());
    assert!(took < Duration::from_secs(10), "{took:?}");
    city.server.restart().await;
    let events = city.server.history("order-timeout", "o-1").await;
    let released = events.iter().find(|event| event["result"]["outcome"] == "RELEASED").expect("it is recorded");
    assert_eq!((&released["attempts"], &released["sends"]), (&json!(1), &json!(1)));
    city.server.until("o-1", "it ends", |look| look["status"] == "completed").await;
    assert_eq!(city.requests(Service::Stock).len(), 1, "it was called once");
}

#[tokio::test]
async fn a_call_that_outlasts_the_drain_is_left_and_repeated_by_the_successor_under_its_key() {
    let city = draining(Duration::from_secs(6), "1s").await;
    city.server.terminate().await;
    let (status, took) = city.server.ended().await;

    assert_eq!(status.code(), Some(0), "{}", city.server.site.log());
    assert!(took < Duration::from_secs(3), "{took:?}");
    city.server.restart().await;
    city.server.until("o-1", "it ends", |look| look["status"] == "completed").await;
    let keys: Vec<_> = city.requests(Service::Stock).into_iter().map(|request| request.key.unwrap()).collect();
    assert_eq!(keys, ["order-timeout/o-1/release-stock"; 2]);
    assert_eq!(city.shop.counts().duplicate_effects, 0);
}

#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused_at_once_and_a_killed_one_leaves_no_lock() {
    let server = Server::start(Site::alone()).await;
    let begun = Instant::now();
    let mut second = crate::harness::program();
    second.args(["serve", "--store", &server.site.store(), "--listen", "127.0.0.1:0", "--config"]);
    let second = run(second.arg(server.site.config_file())).await;

    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(second.stderr.contains("orders.db is in use by another") && second.stderr.contains("--url"), "{}", second.stderr);
    let mut list = crate::harness::program();
    let listed = run(list.args(["list", "--json", "--url", &server.url().await])).await;
    assert_eq!(listed.code, Some(0), "the running server still answers: {listed:?}");

    server.kill().await;
    server.restart().await;
    assert_eq!(server.ask(reqwest::Method::GET, "/readyz", None).await.text, "ok\n");
}
