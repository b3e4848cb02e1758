//! The real program, killed with SIGKILL at many moments in the life of a batch of orders, against a shop with durable
//! ledgers. Whatever the moment: what was acknowledged is there, what was done was done once, and keys are stable.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_workflows::sandbox::{Call, Effect, Fault, FaultPlan, NewOrder, OrderStatus, ReservationStatus, Service, Shop};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::harness::city::{City, TIME_TO_PAY};
use crate::harness::{Server, Site, run};

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
