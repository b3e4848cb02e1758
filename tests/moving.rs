//! A store is moved into another one while orders are in flight: each goes on where it stood, under the keys it had.

use std::collections::{BTreeMap, BTreeSet};

use overdue_runtime::client::SignalOutcome;
use overdue_runtime::testing::PostgresCluster;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::city::{BATCH, City};
use crate::harness::{Gate, Node, Order, Ran, Reply, Server, Site, outcome, program, run};
use crate::race::refund;

/// Orders at every place at which one can stand, when their process ends without warning.
const ORDERS: [&str; 6] = ["asleep", "called", "backing-off", "watched", "for-a-person", "ended"];

/// The gate holds back the answer to a call that is under way.
async fn in_flight() -> (Node, Gate) {
    let node = Node::start().await;
    node.shop.judges("release-stock", |sent| match sent.subject() {
        "backing-off-stock" => Reply::status(503),
        _ => outcome("RELEASED", json!({})),
    });
    node.shop.judges("close-payment", |sent| match sent.subject() {
        "for-a-person-pay" => outcome("REJECTED", json!({})),
        _ => outcome("CLOSED", json!({})),
    });
    node.place(&Order::new("ended").with("latePaymentWindow", "PT0S")).await;
    for order in ["watched", "backing-off"] {
        node.place(&Order::new(order)).await;
    }
    // A channel that rejects a close is not asked by the others either.
    node.place(&Order::new("for-a-person").with("paymentChannel", "of-its-own")).await;
    node.let_the_deadline_come().await;
    node.until("ended", "it ends", |look| look["status"] == "completed").await;
    node.until_phase("watched", "watching").await;
    node.until_a_person_is_needed("for-a-person", "review-close-payment").await;
    node.until_it_backs_off("backing-off", "release-stock", 1).await;
    let later = node.now().saturating_add(Order::TIME_TO_PAY);
    for order in ["asleep", "called"] {
        node.place(&Order::new(order).due(later)).await;
    }
    let gate = node.shop.holds("cancel-order", outcome("CANCELLED", json!({})));
    node.signal("called", "cancel-order", json!({ "reason": "changed my mind" })).await;
    node.shop.received("cancel-order", 5).await;
    // Paid, and not started yet.
    assert_eq!(node.pay("unborn", "txn-1").await, SignalOutcome::Buffered);
    (node, gate)
}

/// The keys under which each path was asked.
fn keys(node: &Node) -> BTreeMap<String, BTreeSet<String>> {
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sent in node.shop.all() {
        keys.entry(sent.path.clone()).or_default().insert(sent.key);
    }
    keys
}

#[tokio::test]
async fn orders_that_are_moved_in_flight_go_on_where_they_stood_and_ask_under_the_same_keys() {
    let (mut node, gate) = in_flight().await;
    let mut before = Vec::new();
    for order in ORDERS {
        before.push((node.look(order).await["runId"].clone(), node.events(order).await));
    }

    let report = node.move_to("moved.db").await;
    // The answer reaches nobody any more.
    gate.open();

    assert_eq!((report.workflows, report.inbox_rows), (6, 1));
    assert_eq!(report.events, before.iter().map(|(_, events)| events.len() as u64).sum::<u64>());
    for (order, (run_id, events)) in ORDERS.iter().zip(&before) {
        assert_eq!(node.look(order).await["runId"], *run_id);
        assert_eq!(node.events(order).await[..events.len()], events[..], "{order}");
    }
    node.shop.judges("release-stock", |_| outcome("RELEASED", json!({})));
    assert_eq!(node.pay("watched", "txn-9").await, SignalOutcome::Late);
    node.resolve("for-a-person", "review-close-payment", json!({ "outcome": "CLOSED" })).await;
    node.place(&Order::new("unborn")).await;
    assert_eq!(node.ended("unborn").await["decision"], "paid", "the payment came along");
    for order in ORDERS {
        assert_eq!(node.ended(order).await["decision"], "cancelled", "{order}");
    }
    assert_eq!(node.look("watched").await["result"]["refunds"], json!([refund("txn-9", "refunded")]));
    for (path, keys) in keys(&node) {
        assert_eq!(keys.len(), 1, "{path}: {keys:?}");
    }
    for order in ["asleep", "watched", "ended"] {
        let asked = node.shop.sent("cancel-order").into_iter().filter(|sent| sent.subject() == order).count();
        assert_eq!(asked, 1, "{order} is cancelled once");
    }
}

// The command.

async fn copy(from: &str, to: &str) -> Ran {
    run(program().args(["copy", "--from", from, "--to", to, "--json"])).await
}

fn refused(ran: &Ran, saying: &str) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(saying), "{saying}: {ran:?}");
}

#[tokio::test]
async fn a_store_is_moved_by_a_command_while_nobody_serves_it_and_is_refused_to_everybody_afterwards() {
    let server = Server::start(Site::alone()).await;
    let (here, there) = (server.site.store(), format!("sqlite:{}", server.site.path("moved.db").display()));
    for id in ["o-1", "o-2"] {
        let order = Order::new(id).with("payDeadline", "2099-01-01T00:00:00Z");
        assert_eq!(server.start_order(id, &order.input()).await.status, 201);
    }
    refused(&copy(&here, &there).await, "in use by another overdue");
    server.terminate().await;
    server.ended().await;

    let moved = copy(&here, &there).await;

    assert_eq!(moved.code, Some(0), "{moved:?}");
    let report = moved.json();
    let counts = ["workflows", "history_rows", "inbox_rows", "tokens"].map(|name| report[name].as_u64().unwrap());
    assert_eq!((counts, report["hash"].as_str().unwrap().len()), ([2, 2, 0, 0], 64));
    refused(&copy(&here, &there).await, "already");
    refused(&run(server.site.serve("127.0.0.1:0").stderr(std::process::Stdio::piped())).await, "moved.db");
    refused(&run(program().args(["token", "create", "ops", "--scopes", "admin", "--store", &here])).await, "was moved to");
    refused(&copy(&format!("{here}-absent"), &there).await, "there is no database");

    let back = copy(&there, &here).await;
    assert_eq!((back.code, &back.json()["hash"]), (Some(0), &report["hash"]), "{back:?}");
    server.restart().await;
    for id in ["o-1", "o-2"] {
        let answer = server.ask(Method::GET, &format!("/v1/workflows/order-timeout/{id}"), None::<&Value>).await;
        assert_eq!(answer.json()["status"], "running");
    }
}

// From a file to many nodes.

#[tokio::test]
async fn orders_in_flight_are_moved_from_a_file_into_postgres_and_end_there_as_they_must() {
    let (city, cluster) = (City::open().await, PostgresCluster::shared());
    let (here, there) = (city.server.site.store(), cluster.url(&cluster.create_database().await));
    let moving = async {
        city.until("the first orders are cancelled", || city.shop.counts().requests > 8).await;
        city.server.kill().await;
        let moved = copy(&here, &there).await;
        assert_eq!(moved.code, Some(0), "{moved:?}");
        assert!(moved.json()["workflows"].as_u64().unwrap() >= BATCH.len() as u64, "{moved:?}");
        city.server.restart_on(&there).await;
    };
    let (acknowledged, ()) = tokio::join!(city.play(), moving);
    city.audit(&acknowledged).await;
    // And back, once nobody serves it any more.
    refused(&copy(&there, &here).await, "is in use by node");
    city.server.terminate().await;
    city.server.ended().await;
    refused(&copy(&here, &there).await, "already");
    let back = copy(&there, &here).await;
    assert_eq!(back.code, Some(0), "{back:?}");
    refused(&run(city.server.site.serve("127.0.0.1:0").stderr(std::process::Stdio::piped())).await, "was moved to sqlite:");
    city.server.restart_on(&here).await;
    city.audit(&acknowledged).await;
}

#[tokio::test]
async fn a_time_of_retention_that_is_too_short_is_refused_when_the_server_starts() {
    let site = Site::alone();
    let mut serve = site.serve("127.0.0.1:0");
    serve.args(["--retain", "10ms"]).stderr(std::process::Stdio::piped());
    refused(&run(&mut serve).await, "engine.retain");
    let mut serve = site.serve("127.0.0.1:0");
    serve.args(["--retain", "401d"]).stderr(std::process::Stdio::piped());
    refused(&run(&mut serve).await, "engine.tombstones");
}
