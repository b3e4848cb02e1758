//! The order workflow in every order of what may happen to it: the saga explorer plays its start, its payment, its deadline
//! and every answer in every sequence, with a fault at each place, against the shop's own ledgers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::SignedDuration;
use overdue_activities::{DownstreamsConfig, Incoming, NoAnswer, Outgoing, Wire, register_over};
use overdue_runtime::Timestamp;
use overdue_runtime::engine::{Environment, Registries};
use overdue_runtime::simulation::{BEGINNING, Ended, Explorer, Fault};
use overdue_runtime::store::Status;
use overdue_workflows::sandbox::{Capture, Effect, EffectRecord, FaultPlan, NewOrder, Service, Shop};
use overdue_workflows::{ORDER_TIMEOUT, Settings, register};
use serde_json::{Value, json};

const ORDER: &str = "o-1";
const PAYMENT: &str = "o-1-pay";

/// How long the buyer has.
const TIME_TO_PAY: Duration = Duration::from_secs(60);

struct City {
    shop: Arc<Shop>,
}

impl City {
    /// A shop that goes by the virtual time and has placed the order.
    fn new(environment: &Environment) -> Self {
        let clock = Arc::clone(&environment.clock);
        let shop = Shop::in_memory(FaultPlan::none(), move || at(clock.now()));
        let order = NewOrder::new(ORDER, at(BEGINNING.saturating_add(TIME_TO_PAY))).with_everything();
        futures::executor::block_on(shop.place_order(&order)).unwrap();
        Self { shop: Arc::new(shop) }
    }

    fn capture(&self, transaction: &str) {
        let capture = Capture {
            transaction_id: transaction.into(),
            amount: "10.00".into(),
            currency: "USD".into(),
            paid_at: at(BEGINNING),
        };
        futures::executor::block_on(self.shop.capture(PAYMENT, &capture)).unwrap();
    }

    fn times(&self, service: Service, wanted: impl Fn(&EffectRecord) -> bool) -> usize {
        self.shop.effects(service).unwrap().iter().filter(|effect| wanted(effect)).count()
    }
}

/// The shop, as the activities' calls reach it.
struct Counter(Arc<Shop>);

#[async_trait]
impl Wire for Counter {
    async fn send(&self, request: Outgoing) -> Result<Incoming, NoAnswer> {
        let key = request.headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
        let told = self.0.ask(&request.url, key, &request.body).unwrap();
        let status = StatusCode::from_u16(told.status).unwrap();
        Ok(Incoming { status, headers: HeaderMap::new(), body: Some(Bytes::from(told.answer.to_string())) })
    }
}

fn program(city: &Arc<City>, environment: &Environment) -> Registries {
    let service = |name: &str| json!({ "url": format!("http://{name}") });
    let config: DownstreamsConfig = serde_json::from_value(json!({
        "orders": service("orders"), "stock": service("stock"), "coupons": service("coupons"), "payments": service("payments"),
    }))
    .unwrap();
    let mut code = Registries::default();
    register_over(&mut code.activities, &config, environment, Arc::new(Counter(Arc::clone(&city.shop)))).unwrap();
    register(&mut code.workflows, Settings::default());
    code
}

fn at(time: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::UNIX_EPOCH + SignedDuration::from_micros(time.as_micros())
}

fn order(close_payment: &str) -> Value {
    json!({
        "orderId": ORDER, "payDeadline": BEGINNING.saturating_add(TIME_TO_PAY), "amount": "10.00", "currency": "USD",
        "stockToken": "o-1-stock", "couponId": "o-1-coupon", "paymentId": PAYMENT, "latePaymentWindow": "PT30S",
        "closePayment": close_payment,
    })
}

fn payment(transaction: &str) -> Value {
    json!({
        "transactionId": transaction, "amount": "10.00", "currency": "USD", "paidAt": BEGINNING, "paymentId": PAYMENT,
    })
}

fn orders(close_payment: &str) -> Explorer<City> {
    Explorer::with_environment(City::new, program).start(ORDER_TIMEOUT, ORDER, &order(close_payment))
}

/// The rules of money and goods, whatever has happened.
fn all_is_right(city: &City, ended: &Ended) -> Result<(), String> {
    let own = ended.of_type(ORDER_TIMEOUT).ok_or("the order has no execution")?;
    if let Some(open) = ended.executions.iter().find(|execution| execution.status != Status::Completed) {
        return Err(format!("{} {} ended as {:?}", open.workflow_type, open.id, open.status));
    }
    let cancelled = city.times(Service::Orders, |effect| matches!(effect.effect, Effect::OrderCancelled { .. }));
    let paid = city.times(Service::Orders, |effect| matches!(effect.effect, Effect::OrderPaid { .. }));
    if cancelled + paid != 1 {
        return Err(format!("cancelled {cancelled} times, paid {paid} times"));
    }
    let released = city.times(Service::Stock, |effect| effect.effect == Effect::StockReleased);
    let returned = city.times(Service::Coupons, |effect| effect.effect == Effect::CouponReturned);
    if released != cancelled || returned != cancelled {
        return Err(format!("cancelled {cancelled} times, stock released {released}, coupon returned {returned}"));
    }
    for effect in city.shop.effects(Service::Payments).unwrap() {
        let Effect::PaymentCaptured { transaction_id: captured, .. } = effect.effect else { continue };
        let pays = city.times(
            Service::Orders,
            |effect| matches!(&effect.effect, Effect::OrderPaid { transaction_id } if *transaction_id == captured),
        );
        let back = city.times(
            Service::Payments,
            |effect| matches!(&effect.effect, Effect::RefundAccepted { transaction_id, .. } if *transaction_id == captured),
        );
        if pays + back != 1 {
            return Err(format!("{captured} pays {pays} orders and went back {back} times"));
        }
    }
    let says = own.result.as_ref().map(|result| result.as_str().to_owned()).unwrap_or_default();
    let word = if cancelled == 1 { "\"decision\":\"cancelled\"" } else { "\"decision\":\"paid\"" };
    if says.contains(word) { Ok(()) } else { Err(format!("the order service says {word}, the workflow {says}")) }
}

const EVERY_FAULT: [Fault; 7] = [
    Fault::FailsBeforeEffect,
    Fault::UnknownAfterEffect,
    Fault::Twice,
    Fault::DeliveredAgain,
    Fault::Crash,
    Fault::CrashBeforeCommit,
    Fault::CrashAfterCommit,
];

#[test]
fn an_order_that_nobody_pays_gives_everything_back_in_every_order_and_with_every_fault() {
    let explored = orders("afterCancel").explore(all_is_right);
    assert!(explored.is_exhaustive, "{explored:?}");
    let missing: Vec<_> = EVERY_FAULT.iter().filter(|fault| !explored.injected.contains_key(fault)).collect();
    assert_eq!(missing, [&Fault::DeliveredAgain], "there is no signal to be delivered again");
}

#[test]
fn a_payment_at_any_moment_pays_the_order_or_goes_back_with_every_fault() {
    for close_payment in ["afterCancel", "beforeCancel"] {
        let explored = orders(close_payment)
            .signal_after("payment-succeeded", "t-1", &payment("t-1"), |city| city.capture("t-1"))
            .schedules(300)
            .explore(all_is_right);
        let missing: Vec<_> = EVERY_FAULT.iter().filter(|fault| !explored.injected.contains_key(fault)).collect();
        assert_eq!(missing, [] as [&Fault; 0], "{explored:?}");
    }
}

#[test]
fn a_cancel_and_two_payments_at_any_moments_leave_one_winner() {
    orders("afterCancel")
        .signal("cancel-order", "c-1", &json!({ "reason": "changed my mind" }))
        .signal_after("payment-succeeded", "t-1", &payment("t-1"), |city| city.capture("t-1"))
        .signal_after("payment-succeeded", "t-2", &payment("t-2"), |city| city.capture("t-2"))
        .faults(2)
        .schedules(200)
        .explore(all_is_right);
}

/// A shop that does not deduplicate is found out, and the schedule that did it plays again.
#[test]
#[should_panic(expected = "play it again: OVERDUE_SCHEDULE=")]
fn what_does_not_hold_is_shown_with_the_schedule_that_plays_it_again() {
    orders("afterCancel").explore(|city, _| {
        let asked = city.shop.requests(Service::Stock).unwrap().len();
        if asked > 1 { Err(format!("the stock service was asked {asked} times")) } else { Ok(()) }
    });
}
