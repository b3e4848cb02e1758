//! What the SQL functions refuse, how they say it, and who may call them.

use std::collections::BTreeSet;

use overdue_runtime::check_id;
use overdue_runtime::store::PostgresStore;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor};

use crate::harness::order_service::in_the_future;
use crate::harness::{Order, OrderService, Sql, program, raised, run};

const INVALID: &str = "22023";
const MISSING: &str = "22004";
const UNKNOWN: &str = "42704";
const NOT_ALLOWED: &str = "42501";

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

async fn call(session: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(format!("SELECT overdue.{sql}"))).execute(session).await.map(drop)
}

/// A JSON string of so many bytes, as SQL.
fn large(bytes: usize) -> String {
    format!(r#"('"' || repeat('x', {bytes} - 2) || '"')::json"#)
}

fn start(id: &str, rest: &str) -> String {
    format!("start_workflow('order-timeout', {id}, {rest})")
}

fn signal(rest: &str) -> String {
    format!("signal_workflow('order-timeout', 'o-1', {rest})")
}

#[tokio::test]
async fn a_request_that_no_program_could_take_is_refused_at_once_and_says_why() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let id = |id: &str| start(id, "'{}'");
    let refusals = [
        ("start_workflow('order', 'o-1', '{}')".to_owned(), UNKNOWN, "no workflow type 'order'"),
        ("start_workflow(NULL, 'o-1', '{}')".to_owned(), UNKNOWN, "no workflow type NULL"),
        (id("''"), INVALID, "id: an id has 1 to 200 bytes"),
        (id("NULL"), INVALID, "id: an id has 1 to 200 bytes"),
        (id("repeat('x', 201)"), INVALID, "id: an id has 1 to 200 bytes"),
        (id("repeat('é', 101)"), INVALID, "id: an id has 1 to 200 bytes"),
        (id("'..'"), INVALID, "must not be '.'"),
        (id("'a/b'"), INVALID, "printable text"),
        (id("'o-1~0123456789abcdef'"), INVALID, "printable text"),
        (id("' a'"), INVALID, "white space"),
        (id(r"U&'e\0301'"), INVALID, "normalization form C"),
        (start("'o-1'", "NULL"), MISSING, "input: missing"),
        (start("'o-1'", r#"'{"a": "\u0000"}'"#), INVALID, "input contains the character U+0000"),
        (start("'o-1'", r#"'["\\\u0000"]'"#), INVALID, "input contains the character U+0000"),
        (start("'o-1'", &format!("'{}'", nested(129))), INVALID, "input is nested deeper than 128"),
        (start("'o-1'", &large(1_048_577)), INVALID, "input has 1048577 bytes, the limit is 1048576"),
        (start("'o-1'", "'{}', '[]'"), INVALID, "attributes: an object"),
        (start("'o-1'", &format!("'{{}}', '{}'", nested(129))), INVALID, "attributes is nested deeper"),
        (signal("'paid', '{}'"), UNKNOWN, "order-timeout takes no signal 'paid'"),
        (signal("NULL, '{}'"), UNKNOWN, "takes no signal NULL"),
        (signal("'cancel-order', NULL"), MISSING, "payload: missing"),
        (signal(&format!("'cancel-order', {}", large(65_537))), INVALID, "payload has 65537 bytes, the limit is 65536"),
        (signal("'cancel-order', '{}', ''"), INVALID, "signal_id: 1 to 200 bytes"),
        (signal(r"'cancel-order', '{}', E'a\nb'"), INVALID, "signal_id: 1 to 200 bytes"),
        ("signal_workflow('order-timeout', 'a/b', 'cancel-order', '{}')".to_owned(), INVALID, "id: an id is printable"),
        ("signal_workflow('order', 'o-1', 'cancel-order', '{}')".to_owned(), UNKNOWN, "no workflow type"),
    ];
    for (sql, code, says) in refusals {
        let refused = raised(call(&mut session, &sql).await);
        assert!(refused.code == code && refused.message.contains(says), "{sql:.90}: {refused:?}");
    }
    let hint = raised(call(&mut session, "start_workflow('order', 'o-1', '{}')").await).hint;
    assert!(hint.contains("order-timeout"), "{hint}");
    let hint = raised(call(&mut session, &signal("'paid', '{}'")).await).hint;
    assert!(hint.contains("payment-succeeded") && hint.contains("cancel-order"), "{hint}");
    let left = "SELECT (SELECT count(*) FROM overdue.starts) + (SELECT count(*) FROM overdue.inbox)";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&mut session).await.unwrap(), 0);
}

#[tokio::test]
async fn what_is_just_within_the_limits_is_taken() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let brackets_in_a_text = format!(r#"["{}", "\"[[["]"#, nested(200));
    let many = format!("[{}]", vec!["[]"; 1_000].join(","));
    let large = format!("\"{}\"", "x".repeat(1_048_574));
    let inputs = [nested(128), brackets_in_a_text, r#"["\\u0000", "\\\\u0000"]"#.to_owned(), many, large];
    for (n, input) in inputs.iter().enumerate() {
        session.start(&format!("o-{n}"), input).await.unwrap();
    }
    session.start(&"x".repeat(200), "{}").await.unwrap();
    session.start("order 4711, Müller & Söhne (注文)", "{}").await.unwrap();
}

#[tokio::test]
async fn an_id_is_one_in_sql_if_and_only_if_it_is_one_over_http() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session
        .run(
            "CREATE FUNCTION pg_temp.is_id(id text) RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN PERFORM overdue.check_id(id, 'id'); RETURN true;
             EXCEPTION WHEN invalid_parameter_value THEN RETURN false; END $$",
        )
        .await;
    let points: Vec<i32> = (1..0xd800).chain(0xe000..0x1_0000).chain(0xe_0000..0xe_0100).chain(0x1_f600..0x1_f610).collect();
    for (before, behind) in [("a", "b"), ("", "b"), ("a", "")] {
        let refused: Vec<i32> =
            sqlx::query_scalar("SELECT p FROM unnest($1::integer[]) AS p WHERE NOT pg_temp.is_id($2 || chr(p) || $3)")
                .bind(&points)
                .bind(before)
                .bind(behind)
                .fetch_all(&mut session)
                .await
                .unwrap();
        let is_refused = |point: &&i32| {
            let point = char::from_u32(u32::try_from(**point).unwrap()).unwrap();
            check_id(&format!("{before}{point}{behind}")).is_err()
        };
        let in_sql: BTreeSet<i32> = refused.into_iter().collect();
        let over_http: BTreeSet<i32> = points.iter().filter(is_refused).copied().collect();
        let differ: Vec<String> = in_sql.symmetric_difference(&over_http).map(|point| format!("U+{point:04X}")).collect();
        assert_eq!(differ, Vec::<String>::new(), "between {before:?} and {behind:?}");
    }
}

#[tokio::test]
async fn a_start_that_the_program_refuses_stops_no_other_is_told_to_whoever_asks_and_can_be_made_good() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    session.start("surrogate", r#"{"orderId": "\ud800"}"#).await.unwrap();
    session.start("o-1", r#"{"orderId": "o-1"}"#).await.unwrap();
    session.run(r#"SELECT overdue.start_workflow('order-timeout', 'o-2', '{}', '{"a": [1]}')"#).await;
    let reason = service.refusal("o-1").await;
    assert!(reason.contains("not started") && reason.contains("payDeadline"), "{reason}");
    assert!(service.refusal("surrogate").await.contains("not started"));
    let api = service.node.listen().await;
    let answer = api.get("/v1/workflows/order-timeout/o-1").await;
    assert!(answer.status == 404 && answer.text.contains("payDeadline"), "{answer:?}");

    session.place(&Order::bare("o-1").due(in_the_future())).await.unwrap();
    service.started("o-1").await;
    let left: Vec<String> =
        sqlx::query_scalar("SELECT id FROM overdue.starts ORDER BY id").fetch_all(&mut session).await.unwrap();
    assert_eq!(left, ["o-2", "surrogate"]);
}

#[tokio::test]
async fn a_role_that_was_allowed_to_can_call_the_two_functions_and_do_nothing_else() {
    const ROLE: &str = "order \"service";
    let service = OrderService::open().await;
    let mut owner = service.session().await;
    owner.run(r#"CREATE ROLE "order ""service" LOGIN; GRANT INSERT ON orders TO "order ""service""#).await;
    let allowed = run(program().args(["migrate", "--store", &service.url, "--allow", ROLE])).await;
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    let mut session = service.session_of("order%20%22service").await;

    session.place(&Order::bare("o-1").due(in_the_future())).await.unwrap();
    session.pay("o-1", "txn-1", None).await.unwrap();
    // Tables of its own under their names change nothing.
    session.run("CREATE TEMP TABLE starts (id text); CREATE TEMP TABLE types (id text)").await;
    session.place(&Order::bare("o-2").due(in_the_future())).await.unwrap();
    service.started("o-2").await;
    service.node.until("o-1", "it is paid", |look| look["progress"]["decision"] == "paid").await;

    let tables = "SELECT c.relname::text FROM pg_class AS c
                  WHERE c.relnamespace = 'overdue'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut owner).await.unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    for table in tables {
        for does in ["SELECT * FROM", "DELETE FROM", "TRUNCATE", "TABLE"] {
            let refused = session.execute(sqlx::raw_sql(AssertSqlSafe(format!("{does} overdue.{table}")))).await;
            assert_eq!(raised(refused.map(drop)).code, NOT_ALLOWED, "{does} {table}");
        }
        let refused = session.execute(sqlx::raw_sql(AssertSqlSafe(format!("INSERT INTO overdue.{table} DEFAULT VALUES")))).await;
        assert_eq!(raised(refused.map(drop)).code, NOT_ALLOWED, "INSERT INTO {table}");
    }
    assert_eq!(raised(session.execute("SELECT nextval('overdue.epochs')").await.map(drop)).code, NOT_ALLOWED);
    let may = "SELECT p.proname::text FROM pg_proc AS p
               WHERE p.pronamespace = 'overdue'::regnamespace AND has_function_privilege($1, p.oid, 'EXECUTE') ORDER BY 1";
    let may: Vec<String> = sqlx::query_scalar(may).bind(ROLE).fetch_all(&mut owner).await.unwrap();
    assert_eq!(may, ["signal_workflow", "start_workflow"]);
    assert_eq!(raised(call(&mut session, "stay()").await).code, NOT_ALLOWED);
    assert_eq!(raised(session.execute("CREATE TABLE overdue.mine (id text)").await.map(drop)).code, NOT_ALLOWED);
    let nobody = PostgresStore::allow(&service.url, "nobody").await.unwrap_err().to_string();
    assert!(nobody.contains("nobody"), "{nobody}");
}

#[tokio::test]
async fn a_role_that_was_not_allowed_to_can_call_neither() {
    let service = OrderService::open().await;
    service.session().await.run("CREATE ROLE stranger LOGIN; GRANT USAGE ON SCHEMA overdue TO stranger").await;
    let mut session = service.session_of("stranger").await;
    assert_eq!(raised(session.start("o-1", "{}").await).code, NOT_ALLOWED);
    assert_eq!(raised(session.pay("o-1", "txn-1", None).await).code, NOT_ALLOWED);
}

#[tokio::test]
async fn an_order_lies_in_the_shard_in_which_every_node_looks_for_it() {
    let service = OrderService::open().await;
    let mut session = service.session().await;
    let golden = include_str!("../runtime/golden/shards.txt");
    for (id, shard) in golden.lines().map(|line| line.rsplit_once(' ').unwrap()) {
        for id in [id.to_owned(), format!("{id}~0123456789abcdef")] {
            let found: i16 = sqlx::query_scalar("SELECT overdue.shard_of($1)").bind(&id).fetch_one(&mut session).await.unwrap();
            assert_eq!(found.to_string(), shard, "{id}");
        }
    }
}
