//! Starting workflows inside the transactions of an order service, on PostgreSQL: committed, they are started once; rolled
//! back, they never were.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use overdue_runtime::Payload;
use overdue_runtime::workflow::{Workflow, WorkflowContext, WorkflowError};
use overdue_workflows::ORDER_TIMEOUT;
use serde_json::json;
use sqlx::postgres::PgConnection;

use crate::harness::order_service::{SOON, in_the_future, of_kind};
use crate::harness::{Order, OrderService, Setup, Sql, raised};

/// An order without anything to give back that is not due for long.
fn order(id: &str) -> Order {
    Order::bare(id).due(in_the_future())
}

async fn orders(session: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar("SELECT id FROM orders WHERE id NOT LIKE 'witness%' ORDER BY id").fetch_all(session).await.unwrap()
}

#[tokio::test]
async fn an_order_and_its_workflow_are_there_together_once_the_transaction_is_committed_and_not_before() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.run("BEGIN").await;
    session.place(&order("o-1").due(service.now())).await.unwrap();

    service.everything_was_seen().await;
    assert!(service.is_missing("o-1").await);
    assert_eq!(service.node.shop.all().len(), 0, "nobody is called");

    session.run("COMMIT").await;
    assert!(service.started("o-1").await < SOON);
    service.node.shop.received("cancel-order", 1).await;
    assert_eq!(of_kind(&service.node.events("o-1").await, "WorkflowStarted").len(), 1);
}

#[tokio::test]
async fn what_is_rolled_back_whole_or_to_a_savepoint_leaves_nothing() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.run("BEGIN").await;
    session.place(&order("whole").due(service.now())).await.unwrap();
    session.pay("whole", "txn-1", None).await.unwrap();
    session.run("ROLLBACK; BEGIN").await;
    session.place(&order("kept")).await.unwrap();
    session.run("SAVEPOINT before").await;
    session.place(&order("part").due(service.now())).await.unwrap();
    session.run("ROLLBACK TO SAVEPOINT before; COMMIT").await;

    service.everything_was_seen().await;
    service.started("kept").await;
    assert!(service.is_missing("whole").await && service.is_missing("part").await);
    assert_eq!(orders(&mut session).await, ["kept"]);
    let left = "SELECT (SELECT count(*) FROM overdue.starts) + (SELECT count(*) FROM overdue.inbox)";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&mut session).await.unwrap(), 0);
    assert_eq!(service.node.shop.all().len(), 0);
}

#[tokio::test]
async fn a_deadline_that_passed_while_the_transaction_was_open_fires_at_once() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let deadline = service.now().saturating_add(Duration::from_millis(300));
    session.run("BEGIN").await;
    session.place(&order("o-1").due(deadline)).await.unwrap();
    session.run("SELECT pg_sleep(0.5)").await;
    assert_eq!(service.node.shop.all().len(), 0);
    let committed = Instant::now();
    session.run("COMMIT").await;
    service.node.shop.received("cancel-order", 1).await;
    assert!(committed.elapsed() < SOON, "{:?}", committed.elapsed());
}

#[tokio::test]
async fn starts_are_found_in_whatever_order_their_transactions_are_committed() {
    const OPEN: usize = 12;
    let service = OrderService::open().await;
    let mut sessions = Vec::new();
    for n in 0..OPEN {
        let mut session = service.session().await;
        session.run("BEGIN").await;
        session.place(&order(&format!("o-{n:02}"))).await.unwrap();
        sessions.push(session);
    }
    // The last to be opened ends first; between two ends, later ones come and go.
    for (n, mut session) in sessions.into_iter().enumerate().rev() {
        session.run("COMMIT").await;
        if n % 4 == 0 {
            service.everything_was_seen().await;
        }
    }
    for n in 0..OPEN {
        let id = format!("o-{n:02}");
        assert!(service.started(&id).await < SOON, "{id}");
        assert_eq!(of_kind(&service.node.events(&id).await, "WorkflowStarted").len(), 1);
    }
}

/// Takes whatever it is given, and sleeps.
struct Keep;

#[async_trait]
impl Workflow for Keep {
    const TYPE: &'static str = "keep";
    type Input = Payload;
    type Output = ();

    async fn run(&self, ctx: WorkflowContext, _: Payload) -> Result<(), WorkflowError> {
        Ok(ctx.sleep(Duration::from_secs(86_400)).await?)
    }
}

#[tokio::test]
async fn inputs_of_any_size_arrive_byte_for_byte() {
    let service = OrderService::running(Setup::default().deploying(|workflows| workflows.register(Keep))).await;
    let mut session = service.session().await;
    let api = service.node.listen().await;
    for bytes in [7_999, 8_000, 100_000] {
        let head = "{\n\t\"n\" : 9007199254740993, \"n\":1.0e+2,\r\n \"注文\":\"\\u00e9 \\/ ";
        let tail = "\",  \"z\": -0.10 }";
        // Nothing that a database could make smaller, and something that it could.
        let filler: String =
            (0u32..).map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 28) as u8)).take(bytes - 200).collect();
        let rest = " ".repeat(bytes - head.len() - filler.len() - tail.len());
        let input = format!("{head}{filler}{rest}{tail}");
        assert_eq!(input.len(), bytes);
        let id = format!("k-{bytes}");
        let call = sqlx::query("SELECT overdue.start_workflow('keep', $1, $2::text::json)").bind(&id).bind(&input);
        call.execute(&mut session).await.unwrap();
        service.node.until_at("keep", &id, "it is started", |_| true).await;
        let described = service.node.client.describe("keep", &id).await.unwrap();
        assert_eq!(described.input.unwrap().as_str(), input);
        let answer = api.get(&format!("/v1/workflows/keep/{id}")).await;
        assert!(answer.text.contains(&input), "over HTTP too");
    }
}

#[tokio::test]
async fn attributes_and_a_later_begin_travel_with_a_start() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let call = "SELECT overdue.start_workflow(type => 'order-timeout', id => 'o-1', input => $1::text::json,
                                              attributes => '{\"shop\": \"x\", \"vip\": true}', start_at => $2::text::timestamptz)";
    let begin = service.now().saturating_add(Duration::from_secs(3_600));
    let input = order("o-1").input().to_string();
    sqlx::query(call).bind(input).bind(begin.to_string()).execute(&mut session).await.unwrap();
    service.started("o-1").await;
    let look = service.node.look("o-1").await;
    assert_eq!(look["attributes"], json!({ "shop": "x", "vip": true }));
    assert_eq!(look["wakeAt"], json!(begin));
}

#[tokio::test]
async fn the_same_start_again_is_the_same_execution_however_it_is_asked_for() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let order = order("o-1");
    session.run("BEGIN").await;
    session.place(&order).await.unwrap();
    session.start("o-1", &order.input().to_string()).await.unwrap();
    session.run("COMMIT").await;
    service.started("o-1").await;
    let run = service.node.look("o-1").await["runId"].clone();

    // The same JSON value, written in another way.
    session.start("o-1", &format!(" {:#} ", order.input())).await.unwrap();
    service.everything_was_seen().await;
    let api = service.node.listen().await;
    let body = json!({ "input": order.input() });
    let again = api.post(&format!("/v1/workflows/{ORDER_TIMEOUT}/o-1"), &body).await;

    assert_eq!((again.status.as_u16(), &again.json()["runId"], &again.json()["replayed"]), (200, &run, &json!(true)));
    assert_eq!(of_kind(&service.node.events("o-1").await, "WorkflowStarted").len(), 1);
    assert!(service.node.look("o-1").await.get("refusedStart").is_none());
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM overdue.starts").fetch_one(&mut session).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_start_over_http_and_the_same_one_in_a_transaction_that_is_open_are_one_execution() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let order = order("o-1");
    session.run("BEGIN").await;
    session.place(&order).await.unwrap();
    let started = service.node.place(&order).await;
    session.run("COMMIT").await;
    service.everything_was_seen().await;
    assert_eq!(service.node.look("o-1").await["runId"], json!(started.run_id));
    assert!(service.node.look("o-1").await.get("refusedStart").is_none());
}

#[tokio::test]
async fn a_start_that_contradicts_one_that_waits_is_refused_at_once_and_one_made_already_is_kept_with_the_reason() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.run("BEGIN").await;
    session.place(&order("o-1")).await.unwrap();
    let other = order("o-1").with("amount", "5.00").input().to_string();
    session.run("SAVEPOINT before").await;
    let refused = raised(session.start("o-1", &other).await);
    assert!(refused.code == "23505" && refused.message.contains("ids are used once"), "{refused:?}");
    session.run("ROLLBACK TO SAVEPOINT before; COMMIT").await;
    service.started("o-1").await;

    session.start("o-1", &other).await.unwrap();
    let look = service.node.until("o-1", "the reason is told", |look| !look["refusedStart"].is_null()).await;
    assert!(look["refusedStart"].as_str().unwrap().contains("another request"), "{look}");
    assert_eq!(look["input"]["amount"], "19.99", "the first one goes on");
    // Nobody looks at it again: it would be found by every scan.
    service.everything_was_seen().await;
    assert_eq!(of_kind(&service.node.events("o-1").await, "WorkflowStarted").len(), 1);
}

#[tokio::test]
async fn callers_that_start_one_order_at_once_start_one_workflow() {
    let service = OrderService::open().await;
    let order = order("o-1");
    let input = order.input().to_string();
    let callers = (0..10).map(|_| async {
        let mut session = service.session().await;
        session.start("o-1", &input).await
    });
    for done in futures::future::join_all(callers).await {
        done.unwrap();
    }
    service.everything_was_seen().await;
    assert_eq!(of_kind(&service.node.events("o-1").await, "WorkflowStarted").len(), 1);
}
