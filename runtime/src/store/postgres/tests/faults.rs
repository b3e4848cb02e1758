//! What a server may answer, and what each answer means: by its code, before the COMMIT and in it.

use std::sync::Arc;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use super::{database, opened, session};
use crate::store::conformance::fixtures::{Node, new, order};
use crate::store::postgres::PostgresStore;
use crate::store::{CommitError, Outcome, Store, StoreError, Write};

/// A server that answers as a test wants it to.
struct Rigged {
    store: Arc<PostgresStore>,
    node: Node,
    connection: PgConnection,
}

/// Where the server answers.
#[derive(Clone, Copy, PartialEq)]
enum Moment {
    /// To the statement that writes.
    Statement,
    /// To the COMMIT.
    Commit,
}

impl Rigged {
    async fn new() -> Self {
        let url = database().await;
        let store = opened(&url).await;
        let node = Node::on(store.clone()).await;
        let mut connection = session(&url).await;
        // A sequence counts what was tried, also when it was rolled back.
        connection.execute("CREATE SEQUENCE tries").await.unwrap();
        Self { store, node, connection }
    }

    /// From now on, the first `times` new executions are answered so.
    async fn answer(&mut self, moment: Moment, times: u32, statement: &str) {
        let trigger = match moment {
            Moment::Statement => "CREATE TRIGGER rigged BEFORE INSERT ON overdue.executions",
            Moment::Commit => "CREATE CONSTRAINT TRIGGER rigged AFTER INSERT ON overdue.executions DEFERRABLE INITIALLY DEFERRED",
        };
        let sql = format!(
            "DROP TRIGGER IF EXISTS rigged ON overdue.executions;
             ALTER SEQUENCE tries RESTART;
             CREATE OR REPLACE FUNCTION rig() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN IF nextval('public.tries') <= {times} THEN {statement}; END IF; RETURN new; END $$;
             {trigger} FOR EACH ROW EXECUTE FUNCTION rig()"
        );
        self.connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }

    async fn raise(&mut self, moment: Moment, times: u32, code: &str) {
        // The text tells something else, so that whoever looks at it goes wrong.
        let text = "could not serialize access, deadlock detected, disk full";
        self.answer(moment, times, &format!("RAISE EXCEPTION '{text}' USING ERRCODE = '{code}'")).await;
    }

    async fn tries(&mut self) -> i64 {
        self.connection.fetch_one("SELECT last_value FROM tries").await.unwrap().get(0)
    }

    async fn start(&self, id: &str) -> Result<Outcome, CommitError> {
        self.node.try_commit(&[Write::Start(new(&order(id)))]).await.map(|mut outcomes| outcomes.remove(0))
    }
}

fn name(error: &CommitError) -> &'static str {
    match error {
        CommitError::FenceLost { .. } => "fence lost",
        CommitError::Rejected(_) => "rejected",
        CommitError::DiskFull(_) => "full",
        CommitError::Unavailable(_) => "unavailable",
        CommitError::Unknown(_) => "unknown",
    }
}

const STARTED: Outcome = Outcome::Started { inbox: false };

#[tokio::test]
async fn a_batch_that_others_were_in_the_way_of_is_tried_again_and_nobody_notices() {
    let mut rigged = Rigged::new().await;
    for (number, code) in ["40001", "40P01", "55P03", "23505"].into_iter().enumerate() {
        rigged.raise(Moment::Statement, 3, code).await;
        assert_eq!(rigged.start(&format!("{number}")).await.unwrap(), STARTED, "{code}");
        assert_eq!(rigged.tries().await, 4, "{code}");
    }
    rigged.raise(Moment::Commit, 3, "40001").await;
    assert_eq!(rigged.start("at commit").await.unwrap(), STARTED);
    assert_eq!(rigged.tries().await, 4);
}

#[tokio::test]
async fn a_batch_that_others_are_always_in_the_way_of_is_given_up_and_the_next_one_is_not() {
    let mut rigged = Rigged::new().await;
    for (code, expected) in [("40001", "unavailable"), ("40P01", "unavailable"), ("55P03", "unavailable"), ("23505", "rejected")]
    {
        rigged.raise(Moment::Statement, 1000, code).await;
        assert_eq!(name(&rigged.start(code).await.unwrap_err()), expected, "{code}");
        assert!((2..10).contains(&rigged.tries().await), "it is tried a few times");
        assert_eq!(rigged.node.find(&order(code)).await, None);
    }
    rigged.raise(Moment::Statement, 0, "40001").await;
    assert_eq!(rigged.start("next").await.unwrap(), STARTED);
}

#[tokio::test]
async fn before_the_commit_every_answer_is_definite() {
    let mut rigged = Rigged::new().await;
    for (code, expected) in [
        ("22001", "rejected"),
        ("22P05", "rejected"),
        ("23514", "rejected"),
        ("54000", "rejected"),
        ("53100", "full"),
        ("53200", "unavailable"),
        ("57014", "unavailable"),
        ("58030", "unavailable"),
        ("XX000", "unavailable"),
        ("XX001", "unavailable"),
        ("42501", "unavailable"),
        ("25006", "unavailable"),
        ("P0001", "unavailable"),
        ("OV001", "fence lost"),
    ] {
        rigged.raise(Moment::Statement, 1, code).await;
        assert_eq!(name(&rigged.start(code).await.unwrap_err()), expected, "{code}");
        assert_eq!(rigged.node.find(&order(code)).await, None, "{code}");
        assert_eq!(rigged.start(code).await.unwrap(), STARTED, "{code}: the session is of use again");
    }
}

#[tokio::test]
async fn a_failed_commit_is_definite_only_where_the_server_says_so() {
    let mut rigged = Rigged::new().await;
    for (code, expected) in [
        ("23514", "rejected"),
        ("22001", "rejected"),
        ("53100", "full"),
        ("57014", "unknown"),
        ("58030", "unknown"),
        ("XX000", "unknown"),
    ] {
        rigged.raise(Moment::Commit, 1, code).await;
        assert_eq!(name(&rigged.start(code).await.unwrap_err()), expected, "{code}");
        assert_eq!(rigged.start(code).await.unwrap(), STARTED, "{code}: there is a session again");
    }
}

#[tokio::test]
async fn a_session_that_is_ended_before_the_commit_applied_nothing_and_in_it_nobody_knows() {
    let mut rigged = Rigged::new().await;
    let end = "PERFORM pg_terminate_backend(pg_backend_pid())";
    rigged.answer(Moment::Statement, 1, end).await;
    assert_eq!(name(&rigged.start("1").await.unwrap_err()), "unavailable");
    assert_eq!(rigged.start("1").await.unwrap(), STARTED);
    rigged.answer(Moment::Commit, 1, end).await;
    assert_eq!(name(&rigged.start("2").await.unwrap_err()), "unknown");
    let raised = rigged.store.raise(&rigged.node.fence).await.unwrap().unwrap();
    rigged.node.fence = raised;
    assert_eq!(rigged.start("2").await.unwrap(), STARTED);
}

#[tokio::test]
async fn a_session_that_was_ended_between_two_commits_is_replaced_and_the_lane_names_the_new_one() {
    let mut rigged = Rigged::new().await;
    rigged.start("1").await.unwrap();
    let recorded = "SELECT l.pid FROM overdue.lanes AS l JOIN pg_stat_activity AS a USING (pid, backend_start)";
    let before: i32 = rigged.connection.fetch_one(recorded).await.unwrap().get(0);
    let ended = sqlx::query("SELECT pg_terminate_backend($1, 5000)").bind(before);
    assert!(ended.fetch_one(&mut rigged.connection).await.unwrap().get::<bool, _>(0));
    assert_eq!(rigged.start("2").await.unwrap(), STARTED);
    let after: i32 = rigged.connection.fetch_one(recorded).await.unwrap().get(0);
    assert_ne!(after, before);
}

#[tokio::test]
async fn a_text_that_postgresql_cannot_store_is_rejected_and_its_neighbour_is_not() {
    let rigged = Rigged::new().await;
    assert_eq!(name(&rigged.start("nul \0 in it").await.unwrap_err()), "rejected");
    assert_eq!(rigged.start("neighbour").await.unwrap(), STARTED);
}

#[tokio::test]
async fn a_type_that_was_named_in_a_batch_that_failed_is_not_remembered() {
    let mut rigged = Rigged::new().await;
    rigged.raise(Moment::Statement, 3, "23514").await;
    let mut start = new(&crate::id::WorkflowKey::new("new-type", "1"));
    start.shard = start.key.shard(64);
    for _ in 0..3 {
        assert!(rigged.node.try_commit(&[Write::Start(start.clone())]).await.is_err());
    }
    assert_eq!(rigged.node.write(Write::Start(start.clone())).await, STARTED);
    assert_eq!(rigged.node.find(&start.key).await.unwrap().key, start.key, "its type has a name");
    let codes: Vec<i16> = sqlx::query_scalar("SELECT code FROM overdue.types").fetch_all(&mut rigged.connection).await.unwrap();
    assert_eq!(codes, [1], "and no number was used up");
}

#[tokio::test]
async fn a_failed_read_tells_damage_from_a_store_that_is_away() {
    let mut rigged = Rigged::new().await;
    rigged.start("1").await.unwrap();
    rigged.connection.execute("ALTER TABLE overdue.executions DROP CONSTRAINT executions_status_check").await.unwrap();
    rigged.connection.execute("UPDATE overdue.executions SET status = -1").await.unwrap();
    assert!(matches!(rigged.store.find(&order("1")).await, Err(StoreError::Corrupt(_))));
    rigged.connection.execute("ALTER TABLE overdue.executions RENAME TO elsewhere").await.unwrap();
    assert!(matches!(rigged.store.find(&order("1")).await, Err(StoreError::Unavailable(_))));
    rigged.connection.close().await.unwrap();
}
