//! Query plans: no hot statement walks over a table that grows with the number of executions, neither with the plan that
//! is made once for all values nor with one that is made for some.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor, Row};
use tokio::sync::OnceCell;

use super::{database, session};
use crate::store::postgres::layout::Layout;
use crate::store::postgres::list::{self, rows};
use crate::store::postgres::{
    attributes, audit, due, executions, gates, history, inbox, load, nodes, outbox, requests, retention,
};

/// Enough that an index pays, in every shard; the inbox is small, as it is in life, but not empty.
async fn filled() -> PgConnection {
    static FILLED: OnceCell<String> = OnceCell::const_new();
    session(FILLED.get_or_init(fill).await).await
}

async fn fill() -> String {
    let url = database().await;
    let mut connection = session(&url).await;
    for sql in [
        "INSERT INTO overdue.types SELECT n, 'type-' || n FROM generate_series(1, 3) AS n",
        "INSERT INTO overdue.executions
             (shard, type, id, run_id, status, wake_at, closed_at, rev, request_hash, needs_attention, tombstone)
         SELECT n % 64, n % 3 + 1, 'order-' || n, gen_random_uuid(), CASE WHEN n % 4 > 1 THEN 2 WHEN n % 97 = 0 THEN 1 ELSE 0 END,
                CASE WHEN n % 4 < 2 THEN n END, CASE WHEN n % 4 > 1 THEN n END, 0, gen_random_uuid(), n % 89 = 0,
                CASE WHEN n % 4 = 3 THEN '\\x01'::bytea END
         FROM generate_series(1, 60000) AS n",
        "UPDATE overdue.executions SET parked_by = 'stock', parked_since = wake_at WHERE status = 0 AND rev = 0 AND id LIKE '%4'",
        "INSERT INTO overdue.history SELECT k, shard, run_id, '\\x01' FROM overdue.executions, generate_series(1, 3) AS k",
        "INSERT INTO overdue.attributes
         SELECT shard, type, id, a, 't' || length(id) FROM overdue.executions, unnest(ARRAY['region', 'sku']) AS a",
        "INSERT INTO overdue.inbox
         SELECT n, e.shard, e.type, n % 3 = 0, e.run_id, e.id, 's' || n, 'n', '1'
         FROM overdue.executions AS e, generate_series(1, 10) AS n WHERE e.id LIKE '%7'",
        "INSERT INTO overdue.starts
         SELECT n, NULL, n % 64, n % 3 + 1, 'order-' || n, '1', NULL, CASE WHEN n % 50 > 0 THEN 'no' END
         FROM generate_series(1, 20000) AS n",
        "INSERT INTO overdue.outbox (shard, sink, run_id, event, type, id, name, data, emitted_at, next_at, attempts)
         SELECT e.shard, s.sink, e.run_id, n, 'type-1', e.id, 'a.b', '1', n, CASE WHEN n = 1 THEN e.rev + n END,
                CASE WHEN e.shard = 7 THEN 1 ELSE 0 END
         FROM (SELECT e.* FROM overdue.executions AS e LIMIT 20000) AS e, unnest(ARRAY['crm', 'mail']) AS s (sink),
              generate_series(1, 2) AS n",
        "ANALYZE",
    ] {
        connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }
    url
}

/// The lines of a statement's plan. `generic`: as it is prepared once; else for these values.
pub(super) async fn plan(connection: &mut PgConnection, sql: &str, values: &str, generic: bool) -> Vec<String> {
    let mode = if generic { "force_generic_plan" } else { "force_custom_plan" };
    let setup = format!("SET plan_cache_mode = {mode}; DEALLOCATE ALL; PREPARE asked AS {sql}");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(setup))).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE asked({values})");
    let lines = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await;
    lines.unwrap_or_else(|error| panic!("{error}: {values}")).iter().map(|row| row.get(0)).collect()
}

const KEYS: &str = "ARRAY[1, 2]::smallint[], ARRAY[2, 3]::smallint[], ARRAY['order-1', 'order-2']";

/// A row of the outbox.
const AFTER: &str = "1::smallint, 'crm', '00000000-0000-0000-0000-000000000000'::uuid, 1";

/// All shards, as a literal.
fn shards() -> String {
    format!("ARRAY[{}]::smallint[]", (0..64).map(|shard| shard.to_string()).collect::<Vec<_>>().join(", "))
}

/// The statements of reads, with values, and the index that each must walk along.
fn reads() -> Vec<(&'static str, &'static str, String, &'static str)> {
    let shards = shards();
    let runs = "ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[]";
    vec![
        ("due", due::DUE.on(&Layout::One), format!("{shards}, 5000, 10"), "executions_due"),
        ("upcoming", due::UPCOMING.on(&Layout::One), format!("{shards}, 3000, 5000, 10"), "executions_due"),
        ("parked", gates::PARKED.on(&Layout::One), format!("{shards}, 'stock', 10"), "executions_parked"),
        (
            "forecast",
            due::COUNT.on(&Layout::One),
            format!("{shards}, ARRAY[3000, 4000]::bigint[], ARRAY[4000, 5000]::bigint[], ARRAY['type-2'], 100"),
            "executions_due",
        ),
        ("find", executions::FIND, "1::smallint, 'type-2', 'order-1'".into(), "executions_pkey"),
        (
            "load",
            load::LOAD.on(&Layout::One),
            "ARRAY[1, 2]::smallint[], ARRAY['type-2', 'type-3'], ARRAY['order-1', 'order-2']".into(),
            "history_pkey",
        ),
        ("unread", inbox::UNREAD_KEYS.on(&Layout::One), format!("{shards}, 100, 1::smallint"), "executions_pkey"),
        ("unclaimed", inbox::UNCLAIMED.on(&Layout::One), format!("{shards}, 5, 100"), "inbox"),
        (
            "requested starts",
            requests::REQUESTED.on(&Layout::One),
            format!("{shards}, ARRAY['type-2', 'type-3'], 100"),
            "starts_requested",
        ),
        ("requested start", requests::FIND, "1::smallint, 'type-2', 'order-1'".into(), "starts_pkey"),
        ("attributes", attributes::OF_ONE, "1::smallint, 'type-2', 'order-1'".into(), "attributes_pkey"),
        ("derived", list::DERIVED, "1::smallint, 'order-1~', 'order-1\x7f', 10".into(), "executions_pkey"),
        ("list", rows::ANY.on(&Layout::One), format!("{shards}, 1::smallint, 'order-2', NULL, NULL, 20"), "executions_pkey"),
        (
            "list, needing attention",
            rows::NEEDING_ATTENTION.on(&Layout::One),
            format!("{shards}, 1::smallint, 'order-2', NULL, 20"),
            "executions_attention",
        ),
        (
            "list, blocked",
            rows::BLOCKED.on(&Layout::One),
            format!("{shards}, 1::smallint, 'order-2', NULL, 20"),
            "executions_attention",
        ),
        (
            "list, with an attribute",
            rows::WITH_ATTRIBUTE.on(&Layout::One),
            format!("{shards}, 1::smallint, 'order-2', NULL, NULL, {runs}, 'sku', 't9', 20"),
            "attributes_search",
        ),
        (
            "list, due before",
            rows::DUE_BEFORE.on(&Layout::One),
            format!("{shards}, 9000, NULL, NULL, NULL, {runs}, 2000, '', '', 20"),
            "executions_due",
        ),
        ("retirable", retention::RETIRABLE, "1::smallint, 9000, 100, '', '', 20".into(), "executions_closed"),
        ("forgettable", retention::FORGETTABLE, "1::smallint, 9000, 100, '', '', 20".into(), "executions_retired"),
        ("audit, runs", audit::RUNS, "1::smallint, '00000000-0000-0000-0000-000000000000', 20".into(), "history_pkey"),
        ("audit, types", audit::UNNAMED, "1::smallint, 20".into(), "executions_pkey"),
        ("audit, attributes", audit::ATTRIBUTES, "1::smallint, 1::smallint, '', '', 20".into(), "attributes_pkey"),
        ("audit, signals", audit::SIGNALS, "1::smallint, 1::smallint, '', '', 20".into(), "inbox_pkey"),
        ("audit, starts", audit::STARTS, "1::smallint, 1::smallint, '', '', 20".into(), "starts_pkey"),
        ("outbox, due", outbox::DUE.on(&Layout::One), format!("{shards}, 'crm', 1000, 20"), "outbox_due"),
        ("outbox, page", outbox::PAGE, format!("{AFTER}, 'crm', NULL, 20"), "outbox_pkey"),
        ("outbox, tried", outbox::TRIED, format!("{AFTER}, 'crm', false, 20"), "outbox_tried"),
        ("outbox, row", outbox::ROW, AFTER.into(), "outbox_pkey"),
    ]
}

/// The statements of the writer.
fn writes() -> Vec<(&'static str, &'static str, String, &'static str)> {
    let runs = "ARRAY[gen_random_uuid(), gen_random_uuid()]";
    let (bytes, none) = ("ARRAY['\\x01', '\\x01']::bytea[]", "ARRAY[NULL, NULL]::bigint[]");
    let signals = format!("{KEYS}, ARRAY['s1', 's2']");
    let sinks = "ARRAY['crm', 'mail']";
    let events = format!("ARRAY[1, 2]::smallint[], {sinks}, {runs}, ARRAY[1, 1]::bigint[]");
    let reasons = format!("{KEYS}, ARRAY['no', 'no']");
    vec![
        (
            "insert",
            executions::INSERT.on(&Layout::One),
            format!(
                "{KEYS}, {runs}, ARRAY[0, 0]::smallint[], ARRAY[1, 2]::bigint[], {none}, {runs}, ARRAY[false, false], {bytes}"
            ),
            "executions_pkey",
        ),
        ("existing", executions::EXISTING.on(&Layout::One), KEYS.into(), "executions_pkey"),
        ("lock", executions::LOCK.on(&Layout::One), KEYS.into(), "executions_pkey"),
        ("lock shared", executions::LOCK_SHARED.on(&Layout::One), KEYS.into(), "executions_pkey"),
        (
            "unexpected",
            executions::UNEXPECTED.on(&Layout::One),
            format!("{KEYS}, {runs}, ARRAY[0, NULL]::integer[], ARRAY[1, NULL]::bigint[]"),
            "history_pkey",
        ),
        (
            "update",
            executions::UPDATE.on(&Layout::One),
            format!(
                "{KEYS}, ARRAY[0, 0], ARRAY[0, 0]::smallint[], ARRAY[1, 2]::bigint[], {none}, ARRAY[false, false], {bytes}, ARRAY['stock', NULL], {none}"
            ),
            "executions_pkey",
        ),
        (
            "append",
            history::INSERT.on(&Layout::One),
            format!("ARRAY[1, 2]::smallint[], {runs}, ARRAY[1, 1]::bigint[], {bytes}"),
            "",
        ),
        ("unread of the batch", inbox::UNREAD.on(&Layout::One), KEYS.into(), "inbox"),
        ("known signals", inbox::KNOWN.on(&Layout::One), format!("{signals}, gen_random_uuid()"), "inbox_pkey"),
        ("signals of each", inbox::COUNT_EACH.on(&Layout::One), format!("{KEYS}, 1000"), "inbox"),
        ("taking up", inbox::DELETE.on(&Layout::One), signals.clone(), "inbox_pkey"),
        ("a requested start that was made", requests::DELETE.on(&Layout::One), KEYS.into(), "starts_pkey"),
        ("a requested start that is refused", requests::REFUSE.on(&Layout::One), reasons, "starts_pkey"),
        ("holding", inbox::HOLD.on(&Layout::One), signals, "inbox_pkey"),
        (
            "judging ends",
            retention::JUDGE.on(&Layout::One),
            format!("{KEYS}, {runs}, ARRAY[0, 0], ARRAY[false, true]"),
            "executions_pkey",
        ),
        (
            "deleting histories",
            retention::DELETE_HISTORIES.on(&Layout::One),
            format!("ARRAY[1, 2]::smallint[], {runs}"),
            "history_pkey",
        ),
        ("deleting attributes", retention::DELETE_ATTRIBUTES.on(&Layout::One), KEYS.into(), "attributes_pkey"),
        ("stripping", retention::STRIP.on(&Layout::One), format!("{KEYS}, {bytes}"), "executions_pkey"),
        ("forgetting", retention::DELETE.on(&Layout::One), KEYS.into(), "executions_pkey"),
        (
            "emitting",
            outbox::INSERT.on(&Layout::One),
            format!(
                "ARRAY[1, 2]::smallint[], {sinks}, {runs}, ARRAY[1, 1]::bigint[], {sinks}, {sinks}, {sinks}, {sinks}, \
                 ARRAY[1, 1]::bigint[], ARRAY[true, false]"
            ),
            "outbox_pkey",
        ),
        ("an event that is delivered", outbox::REMOVE.on(&Layout::One), format!("{events}, ARRAY[0, 0]"), "outbox_pkey"),
        ("the next event", outbox::PROMOTE.on(&Layout::One), events.clone(), "outbox_pkey"),
        (
            "an event that failed",
            outbox::UPDATE.on(&Layout::One),
            format!("{events}, ARRAY[0, 0], {none}, ARRAY[1, 1], {none}, ARRAY[false, true], {sinks}"),
            "outbox_pkey",
        ),
    ]
}

#[tokio::test]
async fn no_hot_statement_walks_over_a_table_that_grows() {
    let mut connection = filled().await;
    for (name, sql, values, index) in reads().into_iter().chain(writes()) {
        for generic in [true, false] {
            let plan = plan(&mut connection, sql, &values, generic).await;
            let walks =
                ["executions", "history", "attributes", "inbox", "starts", "outbox"].map(|table| format!("Seq Scan on {table}"));
            for line in &plan {
                assert!(!walks.iter().any(|walk| line.contains(walk)), "{name} walks over a table: {plan:#?}");
                assert!(!line.contains("hashed SubPlan"), "{name} reads a table whole: {plan:#?}");
            }
            assert!(plan.iter().any(|line| line.contains(index)), "{name} does not use {index}: {plan:#?}");
        }
    }
}

#[tokio::test]
async fn what_is_due_or_ended_is_read_in_the_order_of_its_index() {
    let mut connection = filled().await;
    for (name, sql, values, index) in reads() {
        if !["due", "upcoming", "forecast", "retirable", "forgettable"].contains(&name) {
            continue;
        }
        let plan = plan(&mut connection, sql, &values, true).await;
        let scan = plan.iter().position(|line| line.contains(&format!("Index Scan using {index}")));
        assert!(scan.is_some_and(|at| plan[at + 1].contains("wake_at") || plan[at + 1].contains("closed_at")), "{plan:#?}");
    }
}

#[tokio::test]
async fn the_sessions_plans_are_the_same_when_they_are_made_on_empty_tables() {
    let url = database().await;
    let store = super::opened(&url).await;
    let mut writer = store.target.open_writer().await.unwrap();
    for (name, sql, values, _) in writes() {
        let plan = plan(&mut writer, sql, &values, true).await;
        assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{name}: {plan:#?}");
    }
    let mut reader = store.readers.connection().await.unwrap();
    for (name, sql, values, _) in reads() {
        let plan = plan(&mut reader, sql, &values, true).await;
        assert!(!plan.iter().any(|line| line.contains("Seq Scan on executions")), "{name}: {plan:#?}");
    }
}

#[tokio::test]
async fn a_renewal_reads_as_much_as_there_are_nodes_and_shards() {
    let mut connection = filled().await;
    let plan = plan(&mut connection, nodes::RENEW, "'node-1', '10 s'", true).await;
    assert!(!plan.iter().any(|line| line.contains("executions") || line.contains("history")), "{plan:#?}");
}
