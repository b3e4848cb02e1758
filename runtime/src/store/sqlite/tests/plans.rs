//! Query plans: no read walks over a table that grows with the number of executions.

use sqlx::{AssertSqlSafe, Row};

use super::scratch;
use crate::store::sqlite::list::{self, rows};
use crate::store::sqlite::{SqliteStore, attributes, audit, due, executions, gates, history, inbox, outbox, retention, transfer};

/// The lines of a statement's plan.
async fn plan(sql: &str) -> Vec<String> {
    let dir = scratch();
    let store = SqliteStore::open(dir.path().join("a.db"), 64).await.unwrap();
    let mut connection = store.readers.connection().await.unwrap();
    sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
        .fetch_all(&mut *connection)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get("detail"))
        .collect()
}

/// Fails when a plan walks over a table other than the caller's own list, or sorts what it should read in order.
fn is_bounded(name: &str, plan: &[String]) {
    for line in plan {
        let own_list = line.contains("VIRTUAL TABLE") || line.starts_with("SCAN w") || line.contains("CONSTANT ROW");
        // There are as many types as the program has; a subquery's rows were limited inside of it.
        let few = line.starts_with("SCAN t ") || line == "SCAN t" || line == "SCAN r" || line == "SCAN (subquery-1)";
        assert!(!line.starts_with("SCAN") || own_list || few, "{name} walks over a table: {plan:#?}");
        assert!(!line.contains("AUTOMATIC"), "{name} builds an index of its own: {plan:#?}");
    }
}

#[tokio::test]
async fn no_read_walks_over_the_executions_the_history_or_the_inbox() {
    let statements = [
        ("due", due::DUE),
        ("upcoming", due::UPCOMING),
        ("parked", gates::PARKED),
        ("forecast", due::COUNT),
        ("forecast, of types", due::COUNT_OF_TYPES),
        ("find", executions::FIND),
        ("load, rows", executions::FIND_MANY),
        ("load, history", history::READ),
        ("load, inbox", inbox::READ),
        ("unread", inbox::UNREAD_KEYS),
        ("unclaimed", inbox::UNCLAIMED),
        ("attributes", attributes::OF_ONE),
        ("attributes of a page", attributes::OF_MANY),
        ("derived", list::DERIVED),
        ("list", rows::ANY),
        ("list, needing attention", rows::NEEDING_ATTENTION),
        ("list, blocked", rows::BLOCKED),
        ("list, with an attribute", rows::WITH_ATTRIBUTE),
        ("list, due before", rows::DUE_BEFORE),
        ("retirable", retention::RETIRABLE),
        ("export, executions", transfer::export::EXECUTIONS),
        ("export, sizes", transfer::export::HISTORY_BYTES),
        ("export, signals", transfer::export::SIGNALS),
        ("import, signals", inbox::WHOLE),
        ("forgettable", retention::FORGETTABLE),
        ("audit, attributes", audit::ATTRIBUTES),
        ("audit, signals", audit::SIGNALS),
        ("audit, runs", audit::RUNS),
        ("outbox, due", outbox::DUE),
        ("outbox, page", outbox::PAGE),
        ("outbox, tried", outbox::TRIED),
        ("outbox, row", outbox::ROW),
        ("outbox, delivered", outbox::REMOVE),
        ("outbox, next", outbox::PROMOTE),
        ("outbox, failed", outbox::UPDATE),
    ];
    for (name, sql) in statements {
        is_bounded(name, &plan(sql).await);
    }
}

#[tokio::test]
async fn the_writer_reads_by_keys_alone() {
    let statements = [
        ("existing", &executions::EXISTING),
        ("unexpected", &executions::UNEXPECTED),
        ("update", &executions::UPDATE),
        ("unread of the batch", &inbox::UNREAD),
        ("known signals", &inbox::KNOWN),
        ("taking up", &inbox::DELETE),
        ("holding", &inbox::HOLD),
        ("judging ends", &retention::JUDGE),
        ("deleting histories", &retention::DELETE_HISTORIES),
        ("deleting attributes", &retention::DELETE_ATTRIBUTES),
        ("stripping", &retention::STRIP),
        ("forgetting", &retention::DELETE),
        ("emitting", &outbox::INSERT),
    ];
    for (name, sized) in statements {
        for sql in sized.0 {
            is_bounded(name, &plan(sql).await);
        }
    }
}

#[tokio::test]
async fn what_is_due_is_read_in_the_order_of_its_index() {
    for sql in [due::DUE, due::UPCOMING] {
        let plan = plan(sql).await;
        let range = plan.iter().position(|line| line.contains("USING COVERING INDEX executions_due (shard=? AND wake_at"));
        assert!(range.is_some(), "{plan:#?}");
        assert!(plan.iter().any(|line| line.contains("SEARCH e USING INTEGER PRIMARY KEY")), "{plan:#?}");
    }
}

#[tokio::test]
async fn a_forecast_is_counted_along_the_index_alone_unless_it_is_of_some_types() {
    let range = "(shard=? AND wake_at>? AND wake_at<?)";
    let all = plan(due::COUNT).await;
    assert!(all.iter().any(|line| line.ends_with(&format!("COVERING INDEX executions_due {range}"))), "{all:#?}");
    let of_types = plan(due::COUNT_OF_TYPES).await;
    assert!(of_types.iter().any(|line| line.ends_with(&format!("USING INDEX executions_due {range}"))), "{of_types:#?}");
}

#[tokio::test]
async fn a_page_is_read_in_the_order_of_its_index() {
    let exports = [transfer::export::EXECUTIONS, transfer::export::SIGNALS];
    for sql in [rows::ANY, rows::NEEDING_ATTENTION, rows::BLOCKED, rows::WITH_ATTRIBUTE].into_iter().chain(exports) {
        let plan = plan(sql).await;
        assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{plan:#?}");
    }
}

#[tokio::test]
async fn what_ended_is_read_in_the_order_of_its_index() {
    for (sql, index) in [(retention::RETIRABLE, "executions_closed"), (retention::FORGETTABLE, "executions_retired")] {
        let plan = plan(sql).await;
        let range = format!("USING INDEX {index} (shard=? AND closed_at>? AND closed_at<?)");
        assert!(plan.iter().any(|line| line.contains(&range)), "{plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE FOR ORDER BY")), "{plan:#?}");
    }
}
