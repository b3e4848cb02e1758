//! Looking at everything that a store holds: beside the servers that use it, off line, and after it was damaged.

use std::time::Duration;

use overdue_runtime::testing::PostgresCluster;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::harness::city::City;
use crate::harness::{Order, Ran, Server, Site, program, run};

/// Every invariant that stored data can show.
const INVARIANTS: [&str; 14] = ["I9", "I10", "I14", "I15", "I16", "I17", "I18", "I19", "I20", "I21", "I22", "I26", "I35", "I42"];

/// Looks again and again while the batch is played, and nodes are killed; what the looks came to.
async fn looked_at_all_along(city: &City, strike: impl AsyncFn()) -> Vec<Value> {
    let played = city.play();
    let looking = async {
        let mut reports = Vec::new();
        for round in 0..4 {
            reports.push(city.verify().await);
            if round == 1 {
                strike().await;
            }
        }
        reports
    };
    let (acknowledged, reports) = tokio::join!(played, looking);
    city.audit(&acknowledged).await;
    reports
}

#[tokio::test]
async fn nothing_is_found_beside_a_server_under_load_that_is_killed_meanwhile() {
    let city = City::open().await;
    let reports = looked_at_all_along(&city, async || city.kill_and_restart().await).await;
    assert!(reports.iter().any(|report| report["workflows"].as_u64() > Some(0) && report["nodes_alive"] == 1), "{reports:?}");

    let report = city.verify().await;
    let checked: Vec<&str> = INVARIANTS.into_iter().filter(|invariant| report["checks"][invariant].as_u64() > Some(0)).collect();
    assert_eq!(checked, INVARIANTS, "{report}");
}

#[tokio::test]
async fn nothing_is_found_beside_three_nodes_of_which_one_is_killed_meanwhile() {
    let database = PostgresCluster::shared();
    let url = database.url(&database.create_database().await);
    let city = City::of_nodes(3, &url).await;
    let reports = looked_at_all_along(&city, async || {
        city.server.peers[0].kill().await;
        city.server.peers[0].restart().await;
    })
    .await;
    assert!(reports.iter().any(|report| report["nodes_alive"].as_u64() >= Some(2)), "{reports:?}");
}

/// A server that was killed, with a store of one open order.
async fn killed_server() -> Server {
    let server = Server::start(Site::alone()).await;
    server.start_order("o-1", &Order::bare("o-1").due("2099-01-01T00:00:00Z".parse().unwrap()).input()).await;
    server.kill().await;
    server
}

async fn damage(server: &Server, sql: &str) {
    let mut session = SqliteConnection::connect(server.site.path("orders.db").to_str().unwrap()).await.unwrap();
    assert!(sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut session).await.unwrap().rows_affected() > 0, "{sql}");
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_store_off_line_is_looked_at_and_its_report_is_one_object() {
    let server = killed_server().await;
    let report = run(&mut server.site.verify()).await;
    assert_eq!(report.code, Some(0), "{report:?}");
    let report = report.json();
    for (field, expected) in [
        ("workflows", json!(1)),
        ("events", json!(3)),
        ("retired", json!(0)),
        ("not_replayed", json!(0)),
        ("nodes_alive", json!(0)),
        ("unknown_types", json!({})),
        ("violations", json!([])),
        ("violations_left_out", json!(0)),
    ] {
        assert_eq!(report[field], expected, "{field}");
    }
    assert_eq!((&report["checks"]["I14"], &report["checks"]["I16"]), (&json!(1), &json!(1)));

    let without_configuration = run(program().args(["verify", "--store", &server.site.store()])).await;
    assert_eq!(without_configuration.code, Some(0), "{without_configuration:?}");
    assert!(without_configuration.stdout.ends_with("1 workflows, 3 events, 0 violations\n"), "{without_configuration:?}");
    // It held nobody off, and changed nothing: the server goes on.
    server.restart().await;
    server.until("o-1", "it is there", |look| look["status"] == "running").await;
}

#[tokio::test]
async fn what_is_wrong_ends_with_1_and_is_named_for_people_and_for_scripts() {
    let server = killed_server().await;
    damage(&server, "UPDATE executions SET wake_at = wake_at + 1000000, needs_attention = 1").await;
    let told = run(&mut server.site.verify()).await;
    assert_eq!(told.code, Some(1), "{told:?}");
    let report = told.json();
    let found: Vec<_> = report["violations"].as_array().unwrap().iter().map(|it| it["invariant"].as_str().unwrap()).collect();
    assert_eq!(found, ["I15", "I22"]);
    for violation in report["violations"].as_array().unwrap() {
        assert_eq!((&violation["type"], &violation["id"]), (&json!("order-timeout"), &json!("o-1")));
        assert!(violation["run_id"].is_string() && violation["message"].is_string(), "{violation}");
    }
    let shown = run(program().args(["verify", "--store", &server.site.store()])).await;
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(shown.stdout.contains("I22 order-timeout o-1 (run ") && shown.stdout.ends_with("2 violations\n"), "{shown:?}");
}

fn refused(ran: &Ran, saying: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(saying), "{saying}: {ran:?}");
}

#[tokio::test]
async fn a_store_that_is_not_there_or_of_another_program_is_refused_and_not_created() {
    let look = async |store: &str| run(program().args(["verify", "--store", store])).await;
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere.db");
    refused(&look(&format!("sqlite:{}", nowhere.display())).await, "there is no database at");
    assert!(!nowhere.exists());
    refused(&look("mysql://x").await, "write sqlite:PATH");
    let cluster = PostgresCluster::shared();
    let empty = cluster.url(&cluster.create_database().await);
    refused(&look(&empty).await, "no overdue has used it yet");
    refused(&look(&empty).await, "no overdue has used it yet");

    let server = killed_server().await;
    damage(&server, "UPDATE _sqlx_migrations SET version = 9999 WHERE version = (SELECT max(version) FROM _sqlx_migrations)")
        .await;
    refused(&look(&server.site.store()).await, "was written by a newer overdue");
    damage(&server, "DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    refused(&look(&server.site.store()).await, "run `overdue migrate`");
}

#[tokio::test]
async fn a_stored_signal_of_an_ended_order_is_no_violation_while_nobody_serves_the_store() {
    let server = Server::start(Site::alone()).await;
    let start = server.start_order("o-1", &Order::bare("o-1").due("2020-01-01T00:00:00Z".parse().unwrap()).input()).await;
    assert!(start.status.is_success(), "{start:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut terminate = program();
    let url = server.url().await;
    let ended = run(terminate.args(["terminate", "order-timeout", "o-1", "--reason", "r", "--url", &url])).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    server.kill().await;
    damage(
        &server,
        "INSERT INTO inbox (type, id, signal_id, shard, name, payload, identity, received_at)
         SELECT type, id, 's-1', shard, 'cancel-order', '{\"reason\":\"r\"}', zeroblob(16), 1 FROM executions",
    )
    .await;
    let report = run(&mut server.site.verify()).await;
    assert_eq!(report.code, Some(0), "{report:?}");
    server.restart().await;
    let report = run(&mut server.site.verify()).await;
    assert_eq!(report.code, Some(0), "it is taken up: {report:?}");
}
