//! Many orders, far deadlines, a clock that is set, and a store that many ask at once: quick variants of what is measured
//! elsewhere at full size.

use std::time::{Duration, Instant};

use futures::StreamExt;
use overdue_activities::RateConfig;
use overdue_runtime::client::ListQuery;
use overdue_runtime::{ConfigDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Node, Order, START, Server, Setup, Site, program, run};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Calls that no step of time gives up: these tests let time pass while calls are under way.
fn patient() -> Setup {
    Setup::default().calling(|config| config.timeout = ConfigDuration(Duration::from_secs(600)))
}

fn after(millis: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(millis))
}

/// When each order was asked to be cancelled, once each.
fn cancelled_at(node: &Node) -> std::collections::BTreeMap<String, Timestamp> {
    let mut at = std::collections::BTreeMap::new();
    for sent in node.shop.sent("cancel-order") {
        let before = at.insert(sent.subject().to_owned(), sent.at);
        assert_eq!(before, None, "{} is cancelled once", sent.subject());
    }
    at
}

async fn place_all(node: &Node, orders: Vec<Order>) {
    let places = orders.iter().map(|order| node.place(order));
    futures::stream::iter(places).buffer_unordered(64).count().await;
}

/// Waits until the order's workflow has ended, while no time passes.
async fn ended(node: &Node, order: &Order) {
    node.until(&order.id, "it ends", |look| look["status"] == "completed").await;
}

// Mixed deadlines.

/// Three hundred orders, due from a second to ten years from now, in no order.
fn mixed() -> Vec<(Order, Timestamp)> {
    let scales = [1_000, 7_777, 60_000, 1_800_000, 86_400_000, 30 * 86_400_000, 3_650 * 86_400_000];
    let due = |number: u64| after(scales[number as usize % scales.len()] + 13 * number);
    (0..300)
        .map(|number| (Order::bare(&format!("o-{number}")).due(due(number)).with("latePaymentWindow", "PT0S"), due(number)))
        .collect()
}

#[tokio::test]
async fn orders_with_long_deadlines_never_hold_up_those_with_short_ones_and_none_is_early() {
    let node = Node::start().await;
    let orders = mixed();
    place_all(&node, orders.iter().map(|(order, _)| order.clone()).collect()).await;
    let mut in_time = orders.clone();
    in_time.sort_by_key(|(_, due)| *due);

    for (order, due) in &in_time {
        node.pass_to(*due).await;
        ended(&node, order).await;
    }

    let at = cancelled_at(&node);
    for (order, due) in &orders {
        assert_eq!(at[&order.id], *due, "{}", order.id);
    }
}

#[tokio::test]
async fn without_timers_the_scan_alone_fires_everything_within_a_scan_and_nothing_early() {
    let mut setup = patient();
    setup.engine.timers = false;
    let node = setup.clone().start().await;
    let orders = mixed();
    place_all(&node, orders.iter().map(|(order, _)| order.clone()).collect()).await;
    let mut in_time = orders.clone();
    in_time.sort_by_key(|(_, due)| *due);

    for (order, due) in &in_time {
        // What came due while the scan before passed was found by that scan.
        if *due > node.now() {
            node.pass_to(*due).await;
            node.pass(setup.engine.scan).await;
        }
        ended(&node, order).await;
    }

    let at = cancelled_at(&node);
    for (order, due) in &orders {
        assert!(at[&order.id] >= *due, "{} is early", order.id);
        let late = at[&order.id].since(*due);
        assert!(late <= setup.engine.scan, "{}: {late:?}", order.id);
    }
}

#[tokio::test]
async fn orders_due_at_one_instant_keep_the_services_rate_and_none_is_lost_or_early() {
    // B016 with a tenth of the orders.
    const ORDERS: usize = 1_000;
    let setup = Setup::default().calling(|config| {
        config.rate = Some(RateConfig { per_second: 100.0, burst: 1 });
        config.timeout = ConfigDuration(Duration::from_secs(600));
    });
    let node = setup.start().await;
    let due = after(60_000);
    let orders =
        (0..ORDERS).map(|number| Order::bare(&format!("o-{number}")).due(due).with("latePaymentWindow", "PT0S")).collect();
    place_all(&node, orders).await;
    node.pass_to(due).await;

    let mut slowest_look = Duration::ZERO;
    let begun = Instant::now();
    while node.shop.count("cancel-order") < ORDERS {
        assert!(begun.elapsed() < Duration::from_secs(90), "{} are cancelled", node.shop.count("cancel-order"));
        node.pass(Duration::from_millis(10)).await;
        // A call counts when it arrives: time does not run away from those that are on their way.
        let allowed = usize::try_from(node.now().since(due).as_millis() / 10).unwrap().min(ORDERS);
        let held = Instant::now();
        while node.shop.count("cancel-order") + 20 < allowed && held.elapsed() < Duration::from_millis(30) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let look = Instant::now();
        node.client.list(&ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap();
        slowest_look = slowest_look.max(look.elapsed());
    }

    let at = cancelled_at(&node);
    assert_eq!(at.len(), ORDERS, "none is lost");
    let mut millis: Vec<u128> = at.values().map(|at| at.since(due).as_millis()).collect();
    millis.sort();
    assert!(at.values().all(|at| *at >= due), "none is early");
    // Arrivals are seen a little later than they were sent, so that some more than a hundred may be seen in one second.
    for window in millis.windows(151) {
        assert!(window[150] - window[0] >= 1_000, "far more than a hundred calls in a second: {window:?}");
    }
    assert!(*millis.last().unwrap() >= 9_980, "{:?}", millis.last());
    assert!(slowest_look < Duration::from_secs(1), "a look is answered meanwhile: {slowest_look:?}");
}

// Far deadlines and old rows (B001, B003).

#[tokio::test]
async fn a_deadline_beyond_every_small_number_is_kept_to_the_millisecond_also_over_a_restart() {
    let mut node = Node::start().await;
    let far = [("o-1", after(4_294_967_296)), ("o-2", after(2_147_483_648)), ("o-3", "9999-12-31T23:59:59Z".parse().unwrap())];
    for (id, due) in far {
        node.place(&Order::new(id).due(due)).await;
    }
    for round in 0..2 {
        for (id, due) in far {
            let look = node.look(id).await;
            assert_eq!((&look["wakeAt"], &look["status"]), (&json!(due), &json!("running")), "{id} in round {round}");
        }
        node.pass(Duration::from_secs(5)).await;
        node.restart().await;
    }
    assert_eq!(node.shop.all().len(), 0);

    node.pass_to(after(2_147_483_647)).await;
    node.place(&Order::bare("today").due(node.now())).await;
    node.until_phase("today", "watching").await;
    assert_eq!(node.shop.sent("cancel-order").len(), 1, "not a millisecond early");
    node.pass(Duration::from_millis(1)).await;
    node.until_phase("o-2", "watching").await;
    node.pass_to(after(4_294_967_296)).await;
    node.until_phase("o-1", "watching").await;
    assert_eq!(node.look("o-3").await["status"], "running");
}

#[tokio::test]
async fn an_order_of_the_year_9999_and_a_row_of_25_days_disturb_nobody() {
    let node = Node::start().await;
    node.place(&Order::new("far").with("payDeadline", "9999-12-31T23:59:59Z")).await;
    node.pass(DAY * 25).await;
    let due = node.now().saturating_add(Duration::from_secs(3));
    let ids: Vec<String> = (0..10).map(|number| format!("o-{number}")).collect();
    for id in &ids {
        node.place(&Order::bare(id).due(due)).await;
    }
    node.pass_to(due).await;
    for id in &ids {
        node.until_phase(id, "watching").await;
    }
    let at = cancelled_at(&node);
    assert_eq!(at.len(), 10);
    assert!(at.values().all(|at| *at == due), "{at:?}");
    assert_eq!(node.look("far").await["status"], "running");
}

// A clock that is set (B010).

#[tokio::test]
async fn a_clock_that_is_set_back_delays_an_order_no_longer_than_until_its_deadline_is_shown_again() {
    let node = patient().start().await;
    let due = after(10_000);
    node.place(&Order::bare("o-1").due(due)).await;
    node.pass(Duration::from_secs(5)).await;
    node.clock.set(START.saturating_sub(Duration::from_secs(3600)));
    node.pass(Duration::from_secs(60)).await;
    assert_eq!(node.shop.all().len(), 0, "not before its time by the authority's clock");

    node.clock.set(due);
    let begun = Instant::now();
    let mut waited = Duration::ZERO;
    while node.shop.sent("cancel-order").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        node.pass(Duration::from_millis(100)).await;
        waited += Duration::from_millis(100);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
    node.until_phase("o-1", "watching").await;
    assert_eq!(node.shop.sent("cancel-order").len(), 1);
}

#[tokio::test]
async fn a_clock_that_is_set_forward_fires_what_is_due_by_it_and_nothing_else() {
    let node = patient().start().await;
    node.place(&Order::bare("soon").due(after(1_800_000))).await;
    node.place(&Order::bare("later").due(after(7_200_000))).await;
    node.clock.set(after(3_600_000));
    let begun = Instant::now();
    while node.shop.sent("cancel-order").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        node.pass(Duration::from_millis(100)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.until_phase("soon", "watching").await;
    assert_eq!(node.look("later").await["progress"]["phase"], "waiting-for-payment");
    assert_eq!(node.shop.sent("cancel-order").len(), 1);
}

// Many at once on one file (B066).

#[tokio::test]
async fn sixty_four_clients_on_one_file_meet_no_lock_and_no_5xx() {
    let server = Server::start(Site::alone()).await;
    let until = Instant::now() + Duration::from_secs(3);
    let client = |number: usize| {
        let server = &server;
        async move {
            let mut times: Vec<Duration> = Vec::new();
            for round in 0.. {
                if Instant::now() >= until {
                    break;
                }
                let id = format!("o-{number}-{round}");
                let path = format!("/v1/workflows/order-timeout/{id}");
                let input = Order::bare(&id).with("payDeadline", "2099-01-01T00:00:00Z").input();
                for (path, body) in [
                    (path.clone(), json!({ "input": input })),
                    (format!("{path}/signals/payment-failed"), json!({ "payload": { "reason": "card refused" } })),
                    (format!("{path}/terminate"), json!({ "reason": "a test order" })),
                ] {
                    let begun = Instant::now();
                    let answer = server.try_to_ask(Method::POST, &path, Some(&body.to_string())).await.expect("an answer");
                    assert!(answer.status.is_success(), "{path}: {answer:?}");
                    times.push(begun.elapsed());
                }
            }
            times
        }
    };
    let listing = async {
        let mut lists = 0;
        while Instant::now() < until {
            let url = server.url().await;
            let listed = run(program().args(["list", "--json", "--limit", "50", "--url", &url])).await;
            assert_eq!(listed.code, Some(0), "{listed:?}");
            lists += 1;
        }
        lists
    };
    let (times, lists) = tokio::join!(futures::future::join_all((0..64).map(client)), listing);

    let mut times: Vec<Duration> = times.into_iter().flatten().collect();
    times.sort();
    assert!(times.len() > 200 && lists > 1, "{} requests and {lists} lists", times.len());
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 < Duration::from_secs(2), "{p99:?}");
    assert!(!server.site.log().contains("locked"), "{}", server.site.log());
    let log = server.site.log();
    assert!(!log.contains("ERROR"), "{log}");
    let listed: Value = server.get("/v1/workflows?status=running&limit=10").await;
    assert!(listed["workflows"].as_array().unwrap().len() <= 10);
}

// A killed process leaves nothing behind that must be waited for (B046).

#[tokio::test]
async fn a_step_that_the_end_of_a_process_cut_off_moves_again_without_any_hand() {
    let mut node = Node::start().await;
    let gate = node.shop.holds("cancel-order", crate::harness::outcome("CANCELLED", json!({})));
    node.shop.answers("cancel-order", [crate::harness::outcome("ALREADY_CANCELLED", json!({}))]);
    node.place(&Order::bare("o-1").due(START)).await;
    node.shop.received("cancel-order", 1).await;

    node.restart().await;
    gate.open();
    let look = node.pass_until("o-1", "it moves again", |look| look["progress"]["phase"] == "watching").await;

    assert_eq!(look["status"], "running");
    assert!(node.now().since(START) <= Duration::from_secs(7), "{}", node.now());
    assert_eq!(node.shop.keys("cancel-order"), ["order-timeout/o-1/cancel-order"; 2]);
    let story = node.story("o-1").await;
    assert_eq!(story.iter().filter(|line| line.starts_with("cancel-order answered")).count(), 1, "one completion: {story:?}");
}
