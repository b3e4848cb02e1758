//! Retention: closed executions by the time of their end, and taking away what is left of them.
//!
//! Each is retired or forgotten within one transaction, so that no interruption leaves a part behind.

use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection, PgRow};

use super::commit::Transaction;
use super::error::{Fault, unreadable};
use super::executions::{self, CodedKey};
use super::layout::Layout;
use super::statement::Statement;
use super::values::{limit_of, place, stored_rev, stored_run, stored_shards};
use crate::fault::{Point, point};
use crate::id::{RunId, WorkflowKey};
use crate::store::{Closed, Forget, Outcome, Retire};
use crate::time::Timestamp;

pub(super) const RETIRABLE: &str = "SELECT t.name, e.id, e.run_id, e.rev, e.closed_at
     FROM overdue.executions AS e JOIN overdue.types AS t ON t.code = e.type
     WHERE e.shard = $1 AND e.tombstone IS NULL AND e.closed_at >= $3 AND e.closed_at < $2
       AND (e.closed_at, t.name, e.id) > ($3, $4, $5)
     ORDER BY e.closed_at, t.name, e.id
     LIMIT $6";

/// Executions of a shard that ended before `before` and are not retired, behind `after`.
pub(super) async fn retirable(
    connection: &mut PgConnection,
    shard: u16,
    before: Timestamp,
    after: Option<&Closed>,
    limit: usize,
) -> Result<Vec<Closed>, sqlx::Error> {
    closed(connection, RETIRABLE, shard, before, after, limit).await
}

pub(super) const FORGETTABLE: &str = "SELECT t.name, e.id, e.run_id, e.rev, e.closed_at
     FROM overdue.executions AS e JOIN overdue.types AS t ON t.code = e.type
     WHERE e.shard = $1 AND e.tombstone IS NOT NULL AND e.closed_at >= $3 AND e.closed_at < $2
       AND (e.closed_at, t.name, e.id) > ($3, $4, $5)
     ORDER BY e.closed_at, t.name, e.id
     LIMIT $6";

/// Executions of a shard that ended before `before` and are retired, behind `after`.
pub(super) async fn forgettable(
    connection: &mut PgConnection,
    shard: u16,
    before: Timestamp,
    after: Option<&Closed>,
    limit: usize,
) -> Result<Vec<Closed>, sqlx::Error> {
    closed(connection, FORGETTABLE, shard, before, after, limit).await
}

async fn closed(
    connection: &mut PgConnection,
    sql: &'static str,
    shard: u16,
    before: Timestamp,
    after: Option<&Closed>,
    limit: usize,
) -> Result<Vec<Closed>, sqlx::Error> {
    let Some(shard) = stored_shards(&[shard]).pop() else { return Ok(Vec::new()) };
    sqlx::query(sql)
        .bind(shard)
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

fn closed_of(row: &PgRow) -> Result<Closed, sqlx::Error> {
    let rev: i32 = row.try_get(3)?;
    Ok(Closed {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        run_id: RunId(row.try_get(2)?),
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
    fn parts(self) -> (&'a WorkflowKey, u16, RunId, u64) {
        match self {
            Self::Retire(retire) => (&retire.key, retire.shard, retire.run_id, retire.rev),
            Self::Forget(forget) => (&forget.key, forget.shard, forget.run_id, forget.rev),
        }
    }
}

/// The ends of one round: judged first, so that a refused one leaves no trace.
pub(super) async fn apply(
    within: &mut Transaction<'_>,
    ends: &[(usize, End<'_>)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if ends.is_empty() {
        return Ok(());
    }
    let mut coded = Vec::with_capacity(ends.len());
    for (_, end) in ends {
        let (key, shard, ..) = end.parts();
        coded.push((within.key_in(shard, key).await?, *end));
    }
    let (mut retired, mut forgotten) = (Vec::new(), Vec::new());
    let verdicts = judge(within.connection, &within.layout, &coded).await?;
    for (((index, _), (key, end)), refused) in ends.iter().zip(&coded).zip(verdicts) {
        outcomes[*index] = Some(match (refused, end) {
            (Some(refused), _) => refused,
            (None, End::Retire(retire)) => {
                retired.push((*key, *retire));
                Outcome::Retired
            }
            (None, End::Forget(_)) => {
                forgotten.push(*key);
                Outcome::Forgotten
            }
        });
    }
    retired.sort_unstable_by_key(|(key, _)| *key);
    forgotten.sort_unstable();
    retire(within.connection, &within.layout, &retired).await?;
    forget(within.connection, &within.layout, &forgotten).await
}

pub(super) static JUDGE: Statement = Statement::new(
    "SELECT w.place, e.id IS NOT NULL, (
         SELECT true FROM overdue.inbox AS x WHERE x.shard = w.shard AND x.type = w.type AND x.id = w.id
         /*citus AND x.shard = ANY ($1)*/ LIMIT 1) IS NOT NULL
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::uuid[], $5::integer[], $6::boolean[])
          WITH ORDINALITY AS w (shard, type, id, run_id, rev, retired, place)
     LEFT JOIN overdue.executions AS e
       ON e.shard = w.shard AND e.type = w.type AND e.id = w.id AND e.run_id = w.run_id AND e.rev = w.rev
      AND e.closed_at IS NOT NULL AND (e.tombstone IS NOT NULL) = w.retired /*citus AND e.shard = ANY ($1)*/
     ORDER BY w.place",
);

/// Why each of them is refused, if it is. Locks the rows first: like a guarded transition it must not miss a signal that is
/// just being stored.
async fn judge(
    connection: &mut PgConnection,
    layout: &Layout,
    ends: &[(CodedKey<'_>, End<'_>)],
) -> Result<Vec<Option<Outcome>>, Fault> {
    let keys: Vec<CodedKey<'_>> = ends.iter().map(|(key, _)| *key).collect();
    executions::lock(connection, layout, &keys).await?;
    let revs = ends.iter().map(|(_, end)| stored_rev(end.parts().3)).collect::<Result<Vec<i32>, Fault>>()?;
    let rows = sqlx::query(JUDGE.on(layout))
        .bind(keys.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(keys.iter().map(|(_, code, _)| *code).bind_iter())
        .bind(keys.iter().map(|(.., id)| *id).bind_iter())
        .bind(ends.iter().map(|(_, end)| stored_run(end.parts().2)).bind_iter())
        .bind(revs)
        .bind(ends.iter().map(|(_, end)| matches!(end, End::Forget(_))).bind_iter())
        .fetch_all(connection)
        .await?;
    let mut verdicts = vec![None; ends.len()];
    for row in rows {
        let (is_expected, has_signals): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
        verdicts[place(row.try_get(0)?)] = match (is_expected, has_signals) {
            (false, _) => Some(Outcome::Stale),
            (true, true) => Some(Outcome::UnreadInbox),
            (true, false) => None,
        };
    }
    Ok(verdicts)
}

async fn retire(connection: &mut PgConnection, layout: &Layout, retired: &[(CodedKey<'_>, &Retire)]) -> Result<(), Fault> {
    if retired.is_empty() {
        return Ok(());
    }
    delete_histories(connection, layout, retired).await?;
    delete_attributes(connection, layout, retired).await?;
    point(Point::RetireHalfDone);
    strip(connection, layout, retired).await
}

pub(super) static DELETE_HISTORIES: Statement = Statement::new(
    "DELETE FROM overdue.history AS h
     USING unnest($1::smallint[], $2::uuid[]) AS w (shard, run_id)
     WHERE h.shard = w.shard AND h.run_id = w.run_id /*citus AND h.shard = ANY ($1)*/",
);

async fn delete_histories(
    connection: &mut PgConnection,
    layout: &Layout,
    retired: &[(CodedKey<'_>, &Retire)],
) -> Result<(), Fault> {
    sqlx::query(DELETE_HISTORIES.on(layout))
        .bind(retired.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(retired.iter().map(|(_, retire)| stored_run(retire.run_id)).bind_iter())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) static DELETE_ATTRIBUTES: Statement = Statement::new(
    "DELETE FROM overdue.attributes AS a
     USING unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)
     WHERE a.shard = w.shard AND a.type = w.type AND a.id = w.id /*citus AND a.shard = ANY ($1)*/",
);

async fn delete_attributes(
    connection: &mut PgConnection,
    layout: &Layout,
    retired: &[(CodedKey<'_>, &Retire)],
) -> Result<(), Fault> {
    sqlx::query(DELETE_ATTRIBUTES.on(layout))
        .bind(retired.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(retired.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(retired.iter().map(|((.., id), _)| *id).bind_iter())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) static STRIP: Statement = Statement::new(
    "UPDATE overdue.executions AS e
     SET rev = e.rev + 1, needs_attention = false, attempts = NULL, tombstone = w.tombstone
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::bytea[]) AS w (shard, type, id, tombstone)
     WHERE e.shard = w.shard AND e.type = w.type AND e.id = w.id /*citus AND e.shard = ANY ($1)*/",
);

async fn strip(connection: &mut PgConnection, layout: &Layout, retired: &[(CodedKey<'_>, &Retire)]) -> Result<(), Fault> {
    sqlx::query(STRIP.on(layout))
        .bind(retired.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(retired.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(retired.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(retired.iter().map(|(_, retire)| &retire.tombstone[..]).bind_iter())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) static DELETE: Statement = Statement::new(
    "DELETE FROM overdue.executions AS e
     USING unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)
     WHERE e.shard = w.shard AND e.type = w.type AND e.id = w.id /*citus AND e.shard = ANY ($1)*/",
);

async fn forget(connection: &mut PgConnection, layout: &Layout, forgotten: &[CodedKey<'_>]) -> Result<(), Fault> {
    if forgotten.is_empty() {
        return Ok(());
    }
    sqlx::query(DELETE.on(layout))
        .bind(forgotten.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(forgotten.iter().map(|(_, code, _)| *code).bind_iter())
        .bind(forgotten.iter().map(|(.., id)| *id).bind_iter())
        .execute(connection)
        .await?;
    point(Point::ForgetUncommitted);
    Ok(())
}
