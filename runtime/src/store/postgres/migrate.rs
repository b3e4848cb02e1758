//! Running migrations: one program at a time, never waiting for long, and saying who is in the way.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};

use super::connection::Target;
use super::error::{sqlstate, store_error};
use super::schema::{self, MIGRATIONS};
use crate::fault::{Point, is_armed, point};
use crate::store::StoreError;

/// The list of applied migrations.
pub(super) const APPLIED: &str = "overdue._sqlx_migrations";

/// The longest that a migration waits for a lock. While it waits, everybody else waits behind it.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(4);
/// How often it is looked who is in the way.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// "Lock not available".
pub(super) const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Applies what is not applied yet. Each migration is one transaction, so that an interrupted run is simply repeated; runs
/// at the same time come one after another.
pub(super) async fn run(target: &Target) -> Result<(), StoreError> {
    let mut connection = target.open_migrator(LOCK_WAIT_MAX).await?;
    let migrator = migrator(&mut connection, MIGRATIONS.iter().count()).await?;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.map_err(store_error)?;
    let in_the_way = Mutex::new(Vec::new());
    let applied = tokio::select! {
        biased;
        applied = apply(&migrator, &mut connection) => applied,
        never = look_who_is_in_the_way(target, pid, &in_the_way) => match never {},
    };
    // The session ends with its lock, whatever came of the run.
    let _ = connection.close().await;
    let blockers = in_the_way.into_inner().unwrap_or_else(PoisonError::into_inner);
    applied.map_err(|error| refusal(&error, &blockers))
}

async fn apply(migrator: &Migrator, connection: &mut PgConnection) -> Result<(), MigrateError> {
    if is_armed(Point::MigrationApplied) {
        // The same, seen between any two of them.
        for number in 1..=MIGRATIONS.iter().count() {
            let first = self::migrator(connection, number).await.map_err(|error| MigrateError::Source(Box::new(error)))?;
            first.run(&mut *connection).await?;
            point(Point::MigrationApplied);
        }
    }
    migrator.run(connection).await
}

/// The first migrations, their list in our schema; with a program that knows less than the database, the rest is left alone.
async fn migrator(connection: &mut PgConnection, number: usize) -> Result<Migrator, StoreError> {
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().take(number).cloned().collect());
    // Others may know more of them.
    migrator.set_ignore_missing(number < MIGRATIONS.iter().count());
    migrator.dangerous_set_table_name(APPLIED);
    // To create a schema "if it does not exist" takes the right to create one even where it does.
    if !schema::exists(connection).await? {
        migrator.create_schema("overdue");
    }
    Ok(migrator)
}

fn refusal(error: &MigrateError, blockers: &[String]) -> StoreError {
    let failed = match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Some(error),
        _ => None,
    };
    if failed.and_then(sqlstate) != Some(LOCK_NOT_AVAILABLE) {
        return StoreError::Refused(format!("the database's schema cannot be used: {error}"));
    }
    let who = if blockers.is_empty() { "another session".to_owned() } else { blockers.join("; ") };
    StoreError::Refused(format!(
        "the migration was given up after {} s: {who} holds a lock that it needs. Let it finish, or end it with \
         SELECT pg_terminate_backend(pid), then run `overdue migrate` again; nothing is half done",
        LOCK_WAIT_MAX.as_secs()
    ))
}

enum Never {}

/// Keeps noting the sessions that the session `pid` waits for. Has no part in the migration: where it cannot look, nothing
/// is noted.
async fn look_who_is_in_the_way(target: &Target, pid: i32, in_the_way: &Mutex<Vec<String>>) -> Never {
    let mut connection = target.open_plain().await.ok();
    loop {
        if let Some(looking) = &mut connection {
            match blockers(looking, pid).await {
                Ok(found) if found.is_empty() => {}
                Ok(found) => *in_the_way.lock().unwrap_or_else(PoisonError::into_inner) = found,
                Err(_) => connection = None,
            }
        }
        #[expect(clippy::disallowed_methods, reason = "it is somebody else's lock that is waited for, in real time")]
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn blockers(connection: &mut PgConnection, pid: i32) -> Result<Vec<String>, sqlx::Error> {
    // A role sees of others' sessions only what it may see; the pid it always sees.
    let rows = sqlx::query(
        "SELECT b.pid, a.usename::text, a.application_name, a.state, left(a.query, 100)
         FROM unnest(pg_blocking_pids($1)) AS b (pid) LEFT JOIN pg_stat_activity AS a ON a.pid = b.pid
         ORDER BY b.pid LIMIT 10",
    )
    .bind(pid)
    .fetch_all(connection)
    .await?;
    rows.iter().map(blocker).collect()
}

/// A session as messages name it: its pid, user, application, state and last statement.
pub(super) fn blocker(row: &PgRow) -> Result<String, sqlx::Error> {
    let text = |column: usize| row.try_get::<Option<String>, _>(column).map(|text| text.unwrap_or_else(|| "unknown".into()));
    let (pid, user, application) = (row.try_get::<i32, _>(0)?, text(1)?, text(2)?);
    Ok(format!("pid {pid} (user {user}, application {application:?}, {}, last statement {:?})", text(3)?, text(4)?))
}
