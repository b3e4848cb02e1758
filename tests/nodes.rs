//! Real nodes on a real PostgreSQL whose commits reach the disk, and what happens to them: killed, stopped, drained, cut
//! off from the database, the database itself ended in the middle of it. Judged by the callers' log, the shop's ledgers
//! and the stored histories, as in the chapter on crashes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_runtime::testing::{CommitFault, Fsync, PostgresCluster, Proxy};
use overdue_workflows::sandbox::{Effect, NewOrder, OrderStatus};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::harness::city::{City, LEASE, LOOKED, PATIENCE, TIME_TO_PAY};
use crate::harness::program;

/// What follows a lease at the latest: the takeover, and the scan of the heir.
const AFTER_THE_LEASE: Duration = Duration::from_secs(2);

/// A server of its own: what happens to it must not happen to another test's.
fn database() -> PostgresCluster {
    PostgresCluster::new(Fsync::On, &[("max_connections", "120")])
}

fn is_cancel(effect: &Effect) -> bool {
    matches!(effect, Effect::OrderCancelled { .. })
}

/// Plays the batch on three nodes while `strike` does its worst, and audits what is left.
async fn survives(strike: impl AsyncFnOnce(&City, &PostgresCluster)) {
    let cluster = database();
    let city = City::of_nodes(3, &cluster.url("postgres")).await;
    let (acknowledged, ()) = tokio::join!(city.play(), strike(&city, &cluster));
    city.audit(&acknowledged).await;
}

/// Runs a statement as the superuser.
async fn run(cluster: &PostgresCluster, sql: &'static str) {
    let mut session = cluster.connect("postgres").await;
    sqlx::raw_sql(sql).execute(&mut session).await.unwrap();
}

#[tokio::test]
async fn a_batch_on_three_nodes_ends_as_it_must() {
    survives(async |_: &City, _: &PostgresCluster| {}).await;
}

#[tokio::test]
async fn killed_nodes_are_succeeded_by_the_others_and_come_back_as_new_ones() {
    survives(async |city: &City, _: &PostgresCluster| {
        city.until("the first order is cancelled", || city.shop.counts().requests > 3).await;
        city.server.peers[0].kill().await;
        sleep(Duration::from_millis(300)).await;
        city.server.peers[1].kill().await;
        city.server.peers[0].restart().await;
        sleep(Duration::from_millis(300)).await;
        city.server.peers[1].restart().await;
    })
    .await;
}

#[tokio::test]
async fn the_orders_of_a_killed_node_are_cancelled_within_its_lease_and_two_seconds() {
    let cluster = database();
    let city = City::of_nodes(3, &cluster.url("postgres")).await;
    city.spread(&cluster, 3).await;
    let placed: Vec<String> = (0..24).map(|n| format!("left-{n}")).collect();
    let deadline = Timestamp::now() + Duration::from_secs(2);
    for id in &placed {
        city.place(id, deadline).await;
    }
    city.server.peers[0].kill().await;
    let killed = Timestamp::now();
    city.all_settled().await;
    let within = LEASE + AFTER_THE_LEASE;
    let latest = deadline.max(killed) + within;
    for id in &placed {
        let cancelled = city.effects().into_iter().find(|effect| effect.subject == *id && is_cancel(&effect.effect));
        let at = cancelled.unwrap_or_else(|| panic!("{id} is not cancelled")).at;
        assert!(at >= deadline && at <= latest, "{id}: cancelled at {at}, its deadline was {deadline}, the kill at {killed}");
    }
}

#[tokio::test]
async fn a_node_stopped_for_any_time_and_continued_changes_nothing_that_is_not_its_own() {
    for leases in [0.5, 1.5, 5.0] {
        survives(async |city: &City, _: &PostgresCluster| {
            let stopped = &city.server.peers[0];
            stopped.signal_process("STOP").await;
            sleep(LEASE.mul_f64(leases)).await;
            stopped.signal_process("CONT").await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_database_that_ends_without_warning_loses_nothing_that_was_acknowledged() {
    survives(async |city: &City, cluster: &PostgresCluster| {
        city.until("calls are made", || city.shop.counts().requests > 5).await;
        cluster.stop_immediate();
        sleep(Duration::from_millis(500)).await;
        cluster.start();
        // Again, while the nodes find back.
        sleep(Duration::from_millis(700)).await;
        cluster.stop_immediate();
        cluster.start();
    })
    .await;
}

#[tokio::test]
async fn sessions_that_the_server_ends_are_replaced_again_and_again() {
    survives(async |_: &City, cluster: &PostgresCluster| {
        for _ in 0..10 {
            run(cluster, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'overdue%'").await;
            sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_on_the_way_happened_once_or_not_at_all() {
    let cluster = database();
    let proxy = Proxy::before(cluster.port()).await.unwrap();
    let city = City::of_nodes(3, &cluster.url_through(proxy.port(), "postgres")).await;
    let strikes = async {
        for n in 0..20 {
            let fault = if n % 2 == 0 { CommitFault::LoseTheAnswer } else { CommitFault::LoseTheCommit };
            proxy.fail_next_commit(fault);
            sleep(Duration::from_millis(120)).await;
        }
    };
    let (acknowledged, ()) = tokio::join!(city.play(), strikes);
    city.audit(&acknowledged).await;
    assert!(proxy.struck() >= 5, "{} commits were struck", proxy.struck());
}

#[tokio::test]
async fn a_node_that_drains_leaves_its_shards_to_the_others_at_once() {
    let cluster = database();
    let city = City::of_nodes(2, &cluster.url("postgres")).await;
    city.spread(&cluster, 2).await;
    let begun = Instant::now();
    city.server.peers[0].terminate().await;
    let (status, _) = city.server.peers[0].ended().await;
    assert!(status.success());
    city.spread(&cluster, 1).await;
    let taken = begun.elapsed() - LOOKED;
    assert!(taken < LEASE, "nobody waited for a lease to be over: {taken:?}");
}

#[tokio::test]
async fn twenty_cancels_the_deadline_and_a_late_payment_at_once_on_four_nodes_end_in_one_decision() {
    let cluster = database();
    let city = City::of_nodes(4, &cluster.url("postgres")).await;
    city.spread(&cluster, 4).await;
    for round in 0..5 {
        let id = format!("raced-{round}");
        let deadline = Timestamp::now() + Duration::from_millis(700);
        city.place(&id, deadline).await;
        sleep(Duration::from_millis(680)).await;
        let path = format!("/v1/workflows/order-timeout/{id}/cancel");
        let cancels = (0..20)
            .map(|_| city.server.ask(Method::POST, &path, Some(CANCEL.get_or_init(|| json!({ "reason": "changed my mind" })))));
        let (cancelled, paid) = tokio::join!(futures::future::join_all(cancels), city.pay(&id, "txn-1"));
        assert!(cancelled.iter().all(|answer| answer.status.is_success()), "{cancelled:?}");
        city.all_settled().await;
        let effects = city.effects();
        let count = |wanted: &dyn Fn(&Effect) -> bool| {
            let of_order = |subject: &str| subject == id || subject.starts_with(&format!("{id}-"));
            effects.iter().filter(|effect| of_order(&effect.subject) && wanted(&effect.effect)).count()
        };
        let refunds = count(&|effect| matches!(effect, Effect::RefundAccepted { .. }));
        match city.shop.order(&id).unwrap().status {
            OrderStatus::Paid { transaction_id } => {
                assert_eq!((transaction_id, refunds), (paid.1, 0));
                assert_eq!(count(&|effect| *effect == Effect::StockReleased), 0);
            }
            OrderStatus::Cancelled { .. } => {
                assert_eq!((refunds, count(&|effect| *effect == Effect::StockReleased)), (1, 1), "{id}");
                assert_eq!(count(&is_cancel), 1);
            }
            OrderStatus::WaitPay => panic!("{id} is not decided"),
        }
    }
    assert_eq!(city.shop.counts().duplicate_effects, 0);
}

static CANCEL: std::sync::OnceLock<Value> = std::sync::OnceLock::new();

#[tokio::test]
async fn fifty_identical_starts_at_once_on_three_nodes_are_one_execution() {
    let cluster = database();
    let city = City::of_nodes(3, &cluster.url("postgres")).await;
    let deadline = Timestamp::now() + TIME_TO_PAY;
    city.shop.place_order(&NewOrder::new("once", deadline).with_everything()).await.unwrap();
    let input = City::input("once", deadline);
    let starts = futures::future::join_all((0..50).map(|_| city.server.start_order("once", &input))).await;
    let created = starts.iter().filter(|answer| answer.status == 201).count();
    let runs: BTreeSet<String> = starts.iter().map(|answer| answer.json()["runId"].as_str().unwrap().to_owned()).collect();
    assert_eq!((created, runs.len()), (1, 1), "{starts:?}");
    city.all_settled().await;
    assert_eq!(city.effects().iter().filter(|effect| is_cancel(&effect.effect)).count(), 1);
}

#[tokio::test]
async fn a_signal_through_any_node_is_applied_at_once_and_while_the_owner_is_stopped_it_is_kept() {
    let cluster = database();
    let city = City::of_nodes(3, &cluster.url("postgres")).await;
    city.spread(&cluster, 3).await;
    let deadline = Timestamp::now() + Duration::from_secs(3600);
    let mut times = Vec::new();
    for n in 0..12 {
        let id = format!("signalled-{n}");
        city.place(&id, deadline).await;
        let begun = Instant::now();
        let answer = city.server.signal(&id, "payment-failed", &json!({ "reason": "card refused" })).await;
        times.push(begun.elapsed());
        assert_eq!(answer.json()["outcome"], "applied", "the owner is reachable: {answer:?}");
    }
    times.sort_unstable();
    assert!(times[times.len() / 2] < Duration::from_millis(100), "the median of {times:?}");

    // Some of these are the stopped node's.
    let (stopped, living) = (&city.server.peers[0], &city.server.peers[1]);
    stopped.signal_process("STOP").await;
    let reason = json!({ "reason": "changed my mind" });
    let ids: Vec<String> = (0..12).map(|n| format!("signalled-{n}")).collect();
    let answers = futures::future::join_all(ids.iter().map(|id| living.signal(id, "cancel-order", &reason))).await;
    let outcomes: BTreeSet<String> = answers.iter().map(|answer| answer.json()["outcome"].as_str().unwrap().to_owned()).collect();
    assert!(outcomes.contains("buffered"), "{outcomes:?}");
    let until = Instant::now() + PATIENCE;
    while city.effects().iter().filter(|effect| is_cancel(&effect.effect)).count() < 12 {
        assert!(Instant::now() < until, "the heir takes up what was kept");
        sleep(Duration::from_millis(50)).await;
    }
    stopped.signal_process("CONT").await;
    city.all_settled().await;
    assert_eq!(city.shop.counts().duplicate_effects, 0);
}

#[tokio::test]
async fn callers_that_go_away_leave_no_session_in_a_transaction_and_nobody_else_waits() {
    let cluster = database();
    let city = City::of_nodes(2, &cluster.url("postgres")).await;
    let deadline = Timestamp::now() + Duration::from_secs(3600);
    let urls = [city.server.url().await, city.server.peers[0].url().await];
    let hasty = (0u64..400).map(|n| {
        let (http, url) = (&city.server.http, &urls[n as usize % 2]);
        async move {
            let body = json!({ "input": City::input(&format!("hasty-{n}"), deadline) });
            let request = http.post(format!("{url}/v1/workflows/order-timeout/hasty-{n}")).json(&body);
            let _ = tokio::time::timeout(Duration::from_millis(n % 6), request.send()).await;
        }
    });
    futures::future::join_all(hasty).await;
    let ids: Vec<String> = (0..200).map(|n| format!("patient-{n}")).collect();
    let patient = ids.iter().map(|id| city.server.start_order_once(id, deadline));
    let answers = futures::future::join_all(patient).await;
    assert!(answers.iter().all(|status| *status == Some(201)), "{answers:?}");
    let mut session = cluster.connect("postgres").await;
    let idle = "SELECT count(*) FROM pg_stat_activity
                WHERE state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > '1 s'";
    assert_eq!(sqlx::query_scalar::<_, i64>(idle).fetch_one(&mut session).await.unwrap(), 0);
}

#[tokio::test]
async fn many_orders_due_at_one_instant_with_cancels_and_payments_between_them_all_end_once_and_nobody_gets_a_5xx() {
    let cluster = database();
    let city = City::of_nodes(4, &cluster.url("postgres")).await;
    city.spread(&cluster, 4).await;
    let deadline = Timestamp::now() + Duration::from_secs(6);
    let ids: Vec<String> = (0..160).map(|n| format!("due-{n}")).collect();
    futures::future::join_all(ids.iter().map(|id| city.place(id, deadline))).await;
    city.server.wait_until(deadline - Duration::from_millis(30)).await;
    let acts = ids.iter().enumerate().map(|(n, id)| {
        let city = &city;
        async move {
            match n % 4 {
                0 => city.server.cancel_once(id).await,
                1 => city.pay_once(id).await,
                _ => Some(200),
            }
        }
    });
    let statuses = futures::future::join_all(acts).await;
    assert!(statuses.iter().all(|status| *status == Some(200)), "{statuses:?}");
    city.all_settled().await;
    let counts = city.shop.counts();
    assert_eq!((counts.duplicate_effects, counts.reused_keys), (0, 0));
    let effects = city.effects();
    for id in &ids {
        let given_back =
            effects.iter().filter(|it| it.subject == format!("{id}-stock") && it.effect == Effect::StockReleased).count();
        let is_cancelled = matches!(city.shop.order(id).unwrap().status, OrderStatus::Cancelled { .. });
        assert_eq!(given_back, usize::from(is_cancelled), "{id}");
    }
}

#[tokio::test]
async fn an_order_that_waits_for_several_leases_on_four_nodes_fires_once() {
    let cluster = database();
    let city = City::of_nodes(4, &cluster.url("postgres")).await;
    city.spread(&cluster, 4).await;
    let deadline = Timestamp::now() + LEASE * 3;
    let ids: Vec<String> = (0..8).map(|n| format!("long-{n}")).collect();
    for id in &ids {
        city.place(id, deadline).await;
    }
    city.server.wait_until(deadline - Duration::from_millis(100)).await;
    assert_eq!(city.shop.counts().requests, 0, "nothing before the deadline");
    let histories = city.all_settled().await;
    for id in &ids {
        let events = &histories[&("order-timeout".to_owned(), id.clone())];
        let deadline = events.iter().find(|event| event["name"] == "payDeadline").unwrap();
        let fired = events.iter().filter(|event| event["kind"] == "TimerFired" && event["timer"] == deadline["number"]).count();
        assert_eq!(fired, 1, "{id}: {events:?}");
        assert_eq!(city.effects().iter().filter(|effect| effect.subject == *id && is_cancel(&effect.effect)).count(), 1);
    }
}

#[tokio::test]
async fn an_order_that_is_due_soon_is_begun_in_time_whichever_node_takes_it_without_a_scan() {
    let cluster = database();
    let city = City::of_nodes_with(3, &cluster.url("postgres"), |site| site.with("scan = \"200ms\"", "scan = \"30s\"")).await;
    city.spread(&cluster, 3).await;
    let ids: Vec<String> = (0..12).map(|n| format!("soon-{n}")).collect();
    let mut deadlines = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        let deadline = Timestamp::now() + if n % 2 == 0 { Duration::ZERO } else { Duration::from_secs(4) };
        city.place(id, deadline).await;
        deadlines.push(deadline.max(Timestamp::now()));
    }
    let all_cancelled = || ids.iter().all(|id| matches!(city.shop.order(id).unwrap().status, OrderStatus::Cancelled { .. }));
    city.until("every order is cancelled", all_cancelled).await;
    let effects = city.effects();
    for (id, due) in ids.iter().zip(deadlines) {
        let at = effects.iter().find(|effect| effect.subject == *id && is_cancel(&effect.effect)).unwrap().at;
        assert!(at < due + AFTER_THE_LEASE, "{id}: cancelled at {at}, due at {due}");
    }
}

#[tokio::test]
async fn the_demo_on_three_nodes_that_are_killed_in_turn_ends_without_a_violation() {
    let cluster = database();
    let url = cluster.url("postgres");
    let args = ["demo", "--nodes", "3", "--store", &url, "--orders", "150", "--seed", "7", "--kills", "3", "--json"];
    let output = program().args(args).stdin(std::process::Stdio::null()).output();
    let output = tokio::time::timeout(Duration::from_secs(180), output).await.expect("the demo ends").unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let report: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&report["nodes"], &report["kills"], &report["orders"]), (&json!(3), &json!(3), &json!(150)));
    assert_eq!((&report["violations"], &report["duplicate_effects"]), (&json!(0), &json!(0)), "{report}");
}

#[tokio::test]
async fn a_bulk_job_outlives_the_node_that_it_runs_on_and_acts_once_on_the_orders_of_all_nodes() {
    let cluster = database();
    let city = City::of_nodes(3, &cluster.url("postgres")).await;
    city.spread(&cluster, 3).await;
    let placed: Vec<String> = (0..24).map(|n| format!("moved-{n}")).collect();
    let hours = |hours: i64| Timestamp::now() + jiff::SignedDuration::from_hours(hours);
    for id in &placed {
        city.place(id, hours(1)).await;
    }
    let body = json!({
        "action": "set-deadline", "deadline": format!("{:.3}", hours(2)), "filter": { "type": "order-timeout" }, "reason": "a drill",
        "perSecond": 5,
    });
    let started = city.server.ask(Method::POST, "/v1/jobs", Some(&body)).await;
    assert_eq!(started.status, 201, "{started:?}");
    let job = started.json()["id"].as_str().unwrap().to_owned();
    let moved = async || {
        let mut moved = 0;
        for id in &placed {
            let history = city.server.history("order-timeout", id).await;
            let signals = history.iter().filter(|event| event["name"] == "set-deadline").count();
            assert!(signals <= 1, "{id}: {history:?}");
            moved += signals;
        }
        moved
    };
    let until = Instant::now() + PATIENCE;
    while moved().await < 3 {
        assert!(Instant::now() < until, "the job does not begin");
    }

    let shard = i16::try_from(overdue_runtime::shard_of(&job, 64)).unwrap();
    let owner = "SELECT n.url FROM overdue.shards AS s JOIN overdue.nodes AS n ON n.node_id = s.node_id WHERE s.shard = $1";
    let mut session = cluster.connect("postgres").await;
    let owner: String = sqlx::query_scalar(owner).bind(shard).fetch_one(&mut session).await.unwrap();
    for server in city.server.all() {
        if server.url().await == owner {
            server.kill().await;
        }
    }
    assert!(moved().await < 24, "it is killed in the middle");

    let ended = loop {
        let view = city.server.get(&format!("/v1/jobs/{job}")).await;
        if view["status"] != "running" {
            break view;
        }
        assert!(Instant::now() < until, "{view}");
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((&ended["status"], &ended["outcomes"]), (&json!("completed"), &json!({ "applied": 24 })), "{ended}");
    assert_eq!(moved().await, 24);
}
