//! Retention: closed executions by the time of their end, and taking away what is left of them.
//!
//! Each is retired or forgotten within one transaction, its history and attributes before its row, so that no
//! interruption leaves a part behind.

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::commit::Batch;
use super::error::{Fault, unreadable};
use super::executions::stored_rev;
use super::values::{Sized, four, limit_of, place, sixteen, sixty_four, sized};
use crate::fault::{Point, point};
use crate::id::{RunId, WorkflowKey};
use crate::store::{Closed, Forget, Outcome, Retire};
use crate::time::Timestamp;

pub(super) const RETIRABLE: &str = "SELECT t.name, e.id, e.run_id, e.rev, e.closed_at
         FROM executions AS e INDEXED BY executions_closed
         CROSS JOIN types AS t ON t.code = e.type
         WHERE e.shard = ?1 AND e.tombstone IS NULL AND e.closed_at >= ?3 AND e.closed_at < ?2
           AND (e.closed_at, t.name, e.id) > (?3, ?4, ?5)
         ORDER BY e.closed_at, t.name, e.id
         LIMIT ?6";

/// Executions of a shard that ended before `before` and are not retired, behind `after`.
pub(super) async fn retirable(
    connection: &mut SqliteConnection,
    shard: u16,
    before: Timestamp,
    after: Option<&Closed>,
    limit: usize,
) -> Result<Vec<Closed>, sqlx::Error> {
    closed(connection, RETIRABLE, shard, before, after, limit).await
}

pub(super) const FORGETTABLE: &str = "SELECT t.name, e.id, e.run_id, e.rev, e.closed_at
         FROM executions AS e INDEXED BY executions_retired
         CROSS JOIN types AS t ON t.code = e.type
         WHERE e.shard = ?1 AND e.tombstone IS NOT NULL AND e.closed_at >= ?3 AND e.closed_at < ?2
           AND (e.closed_at, t.name, e.id) > (?3, ?4, ?5)
         ORDER BY e.closed_at, t.name, e.id
         LIMIT ?6";

/// Executions of a shard that ended before `before` and are retired, behind `after`.
pub(super) async fn forgettable(
    connection: &mut SqliteConnection,
    shard: u16,
    before: Timestamp,
    after: Option<&Closed>,
    limit: usize,
) -> Result<Vec<Closed>, sqlx::Error> {
    closed(connection, FORGETTABLE, shard, before, after, limit).await
}

async fn closed(
    connection: &mut SqliteConnection,
    sql: &'static str,
    shard: u16,
    before: Timestamp,
    after: Option<&Closed>,
    limit: usize,
) -> Result<Vec<Closed>, sqlx::Error> {
    sqlx::query(sql)
        .bind(i64::from(shard))
        .bind(before.as_micros())
        .bind(after.map_or(i64::MIN, |after| after.closed_at.as_micros()))
        .bind(after.map_or("", |after| after.key.workflow_type()))
        .bind(after.map_or("", |after| after.key.id()))
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?
        .iter()
        .map(closed_of)
        .collect()
}

fn closed_of(row: &SqliteRow) -> Result<Closed, sqlx::Error> {
    let rev: i64 = row.try_get(3)?;
    let run_id = Uuid::from_slice(row.try_get(2)?).map_err(|_| unreadable("executions.run_id", "a value of another length"))?;
    Ok(Closed {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        run_id: RunId(run_id),
        rev: u64::try_from(rev).map_err(|_| unreadable("executions.rev", rev))?,
        closed_at: Timestamp::from_micros(row.try_get(4)?),
    })
}

/// One of the two last writes about an execution.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    Retire(&'a Retire),
    Forget(&'a Forget),
}

impl<'a> End<'a> {
    fn parts(self) -> (&'a WorkflowKey, RunId, u64) {
        match self {
            Self::Retire(retire) => (&retire.key, retire.run_id, retire.rev),
            Self::Forget(forget) => (&forget.key, forget.run_id, forget.rev),
        }
    }
}

/// The ends of one round: judged first, so that a refused one leaves no trace.
pub(super) async fn apply(
    batch: &mut Batch<'_>,
    ends: &[(usize, End<'_>)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if ends.is_empty() {
        return Ok(());
    }
    let mut coded = Vec::with_capacity(ends.len());
    for (_, end) in ends {
        coded.push((batch.type_code(end.parts().0.workflow_type()).await?, *end));
    }
    let (mut retired, mut forgotten) = (Vec::new(), Vec::new());
    let verdicts = judge(batch.connection, &coded).await?;
    for (((index, end), (code, _)), refused) in ends.iter().zip(&coded).zip(verdicts) {
        outcomes[*index] = Some(match (refused, end) {
            (Some(refused), _) => refused,
            (None, End::Retire(retire)) => {
                retired.push((*code, *retire));
                Outcome::Retired
            }
            (None, End::Forget(forget)) => {
                forgotten.push((*code, *forget));
                Outcome::Forgotten
            }
        });
    }
    retired.sort_unstable_by_key(|(code, retire)| (*code, retire.key.id()));
    forgotten.sort_unstable_by_key(|(code, forget)| (*code, forget.key.id()));
    delete_histories(batch.connection, &retired).await?;
    delete_attributes(batch.connection, &retired).await?;
    if !retired.is_empty() {
        point(Point::RetireHalfDone);
    }
    strip(batch.connection, &retired).await?;
    delete(batch.connection, &forgotten).await?;
    if !forgotten.is_empty() {
        point(Point::ForgetUncommitted);
    }
    Ok(())
}

pub(super) static JUDGE: Sized = sized!(
    "WITH w (place, type, id, run_id, rev, retired) AS (VALUES ",
    "(?, ?, ?, ?, ?, ?)",
    ")
     SELECT w.place,
            EXISTS (SELECT 1 FROM executions AS e
                    WHERE e.type = w.type AND e.id = w.id AND e.run_id = w.run_id AND e.rev = w.rev
                      AND e.closed_at IS NOT NULL AND (e.tombstone IS NOT NULL) = w.retired),
            EXISTS (SELECT 1 FROM inbox AS x WHERE x.type = w.type AND x.id = w.id)
     FROM w
     ORDER BY w.place"
);

/// Why each of them is refused, if it is.
async fn judge(connection: &mut SqliteConnection, ends: &[(i64, End<'_>)]) -> Result<Vec<Option<Outcome>>, Fault> {
    let mut verdicts = vec![None; ends.len()];
    let asked: Vec<(usize, &(i64, End<'_>))> = ends.iter().enumerate().collect();
    for (sql, piece) in JUDGE.pieces(&asked) {
        let mut query = sqlx::query(sql);
        for (index, (code, end)) in piece {
            let (key, run_id, rev) = end.parts();
            query = query
                .bind(i64::try_from(*index).expect("a batch has few writes"))
                .bind(*code)
                .bind(key.id())
                .bind(run_id.as_bytes().to_vec())
                .bind(stored_rev(rev)?)
                .bind(matches!(end, End::Forget(_)));
        }
        for row in query.fetch_all(&mut *connection).await? {
            let (is_expected, has_signals): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
            verdicts[place(row.try_get(0)?)] = match (is_expected, has_signals) {
                (false, _) => Some(Outcome::Stale),
                (true, true) => Some(Outcome::UnreadInbox),
                (true, false) => None,
            };
        }
    }
    Ok(verdicts)
}

pub(super) static DELETE_HISTORIES: Sized = sized!(
    "WITH w (run_id) AS (VALUES ",
    "(?)",
    ")
     DELETE FROM history WHERE run_id IN (SELECT w.run_id FROM w)"
);

async fn delete_histories(connection: &mut SqliteConnection, retired: &[(i64, &Retire)]) -> Result<(), Fault> {
    for (sql, piece) in DELETE_HISTORIES.pieces(retired) {
        let mut query = sqlx::query(sql);
        for (_, retire) in piece {
            query = query.bind(retire.run_id.as_bytes().to_vec());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

pub(super) static DELETE_ATTRIBUTES: Sized = sized!(
    "WITH w (type, id) AS (VALUES ",
    "(?, ?)",
    ")
     DELETE FROM attributes WHERE (type, id) IN (SELECT w.type, w.id FROM w)"
);

async fn delete_attributes(connection: &mut SqliteConnection, retired: &[(i64, &Retire)]) -> Result<(), Fault> {
    for (sql, piece) in DELETE_ATTRIBUTES.pieces(retired) {
        let mut query = sqlx::query(sql);
        for (code, retire) in piece {
            query = query.bind(*code).bind(retire.key.id());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

pub(super) static STRIP: Sized = sized!(
    "WITH w (type, id, tombstone) AS (VALUES ",
    "(?, ?, ?)",
    ")
     UPDATE executions
     SET rev = executions.rev + 1, needs_attention = 0, attempts = NULL, tombstone = w.tombstone
     FROM w
     WHERE executions.type = w.type AND executions.id = w.id"
);

async fn strip(connection: &mut SqliteConnection, retired: &[(i64, &Retire)]) -> Result<(), Fault> {
    for (sql, piece) in STRIP.pieces(retired) {
        let mut query = sqlx::query(sql);
        for (code, retire) in piece {
            query = query.bind(*code).bind(retire.key.id()).bind(retire.tombstone.to_vec());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

pub(super) static DELETE: Sized = sized!(
    "WITH w (type, id) AS (VALUES ",
    "(?, ?)",
    ")
     DELETE FROM executions WHERE (type, id) IN (SELECT w.type, w.id FROM w)"
);

async fn delete(connection: &mut SqliteConnection, forgotten: &[(i64, &Forget)]) -> Result<(), Fault> {
    for (sql, piece) in DELETE.pieces(forgotten) {
        let mut query = sqlx::query(sql);
        for (code, forget) in piece {
            query = query.bind(*code).bind(forget.key.id());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}
