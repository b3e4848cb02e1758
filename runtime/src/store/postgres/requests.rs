//! Starts that callers asked for inside the database, and what such callers may ask for.

use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection, PgRow};

use super::commit::Transaction;
use super::error::Fault;
use super::executions::CodedKey;
use super::inbox::{self, RowKey};
use super::layout::Layout;
use super::statement::Statement;
use super::values::{limit_of, shard_of};
use super::writer::Work;
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::store::{DeclaredType, NewExecution, Outcome, Refuse, RequestedStart, STARTED_BY_ANOTHER};
use crate::time::Timestamp;

/// Makes types known, with the signals that they take. Programs of two versions beside each other take both their signals.
pub(super) struct Declare(pub(super) Vec<DeclaredType>);

const DECLARE: &str = "UPDATE overdue.types AS t
     SET signals = ARRAY(SELECT s FROM unnest(t.signals || $2::text[]) AS s GROUP BY s ORDER BY s)
     WHERE t.name = $1 AND NOT t.signals @> $2::text[]";

impl Work for Declare {
    type Value = ();

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<(), Fault> {
        for declared in &self.0 {
            within.type_code(&declared.name).await?;
            sqlx::query(DECLARE).bind(&declared.name).bind(&declared.signals).execute(&mut *within.connection).await?;
        }
        Ok(())
    }
}

pub(super) static REQUESTED: Statement = Statement::new(
    "SELECT r.name, r.id, r.shard, r.input, r.attributes, r.start_at, r.refused, r.requested_at
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT t.name, r.id, r.shard, r.input, r.attributes, r.start_at, r.refused, r.requested_at
         FROM overdue.starts AS r
         JOIN overdue.types AS t ON t.code = r.type
         WHERE r.shard = s.shard /*citus AND r.shard = ANY ($1)*/ AND r.refused IS NULL AND t.name = ANY ($2)
         ORDER BY r.requested_at
         LIMIT $3) AS r
     ORDER BY r.requested_at, r.name, r.id
     LIMIT $3",
);

/// Starts of these types that were asked for in these shards and not refused, oldest first, with the times of asking.
pub(super) async fn requested(
    connection: &mut PgConnection,
    layout: &Layout,
    shards: &[i16],
    types: &[String],
    limit: usize,
) -> Result<Vec<(i64, RequestedStart)>, sqlx::Error> {
    let rows = sqlx::query(REQUESTED.on(layout)).bind(shards).bind(types).bind(limit_of(limit)).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get(7)?, requested_of(row)?))).collect()
}

pub(super) const FIND: &str = "SELECT t.name, r.id, r.shard, r.input, r.attributes, r.start_at, r.refused
     FROM overdue.types AS t
     JOIN overdue.starts AS r ON r.type = t.code
     WHERE r.shard = $1 AND t.name = $2 AND r.id = $3";

/// The start that was asked for under this key.
pub(super) async fn find(
    connection: &mut PgConnection,
    shard: i16,
    key: &WorkflowKey,
) -> Result<Option<RequestedStart>, sqlx::Error> {
    let row = sqlx::query(FIND).bind(shard).bind(key.workflow_type()).bind(key.id()).fetch_optional(connection).await?;
    row.as_ref().map(requested_of).transpose()
}

/// The start in the first seven columns of a row.
pub(super) fn requested_of(row: &PgRow) -> Result<RequestedStart, sqlx::Error> {
    Ok(RequestedStart {
        key: WorkflowKey::new(row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?),
        shard: shard_of("starts.shard", row.try_get(2)?)?,
        input: row.try_get(3)?,
        attributes: row.try_get(4)?,
        start_at: row.try_get::<Option<i64>, _>(5)?.map(Timestamp::from_micros),
        refused: row.try_get(6)?,
    })
}

const INSERT: &str = "INSERT INTO overdue.starts (requested_at, shard, type, id, input, attributes, start_at, refused)
     SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            w.shard, w.type, w.id, w.input, w.attributes, w.start_at, w.refused
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[])
          AS w (shard, type, id, input, attributes, start_at, refused)";

/// Stores starts that were asked for inside another store. Their keys are free.
pub(super) async fn insert(
    connection: &mut PgConnection,
    mut rows: Vec<(CodedKey<'_>, &RequestedStart)>,
) -> Result<(), sqlx::Error> {
    rows.sort_unstable_by_key(|(key, _)| *key);
    sqlx::query(INSERT)
        .bind(rows.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(rows.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(rows.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(rows.iter().map(|(_, row)| &row.input[..]).bind_iter())
        .bind(rows.iter().map(|(_, row)| row.attributes.as_deref()).bind_iter())
        .bind(rows.iter().map(|(_, row)| row.start_at.map(Timestamp::as_micros)).bind_iter())
        .bind(rows.iter().map(|(_, row)| row.refused.as_deref()).bind_iter())
        .execute(connection)
        .await
        .map(drop)
}

// A caller that repeats a request has its row locked for as long as its transaction is open, and that must not hold up the
// lane: such a row is passed over. The next scan finds it again, and its start made. Distributed tables have no such lock in
// a join: there the lane waits.
pub(super) static DELETE: Statement = Statement::new(
    "DELETE FROM overdue.starts AS r
     USING /*one*/(
         SELECT s.shard, s.type, s.id
         FROM unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)
         JOIN overdue.starts AS s ON s.shard = w.shard AND s.type = w.type AND s.id = w.id
         FOR UPDATE OF s SKIP LOCKED) AS w/*citus unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)*/
     WHERE r.shard = w.shard AND r.type = w.type AND r.id = w.id /*citus AND r.shard = ANY ($1)*/",
);

pub(super) static REFUSE: Statement = Statement::new(
    "UPDATE overdue.starts AS r SET refused = w.reason
     FROM /*one*/(
         SELECT s.shard, s.type, s.id, w.reason
         FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[]) AS w (shard, type, id, reason)
         JOIN overdue.starts AS s ON s.shard = w.shard AND s.type = w.type AND s.id = w.id
         FOR UPDATE OF s SKIP LOCKED) AS w/*citus unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[]) AS w (shard, type, id, reason)*/
     WHERE r.shard = w.shard AND r.type = w.type AND r.id = w.id /*citus AND r.shard = ANY ($1)*/",
);

/// Settles the requests of starts that were made: removed, or refused where the key exists by another request.
pub(super) async fn settle(
    within: &mut Transaction<'_>,
    starts: &[(usize, &NewExecution)],
    outcomes: &[Option<Outcome>],
) -> Result<(), Fault> {
    let (mut made, mut contradicted) = (Vec::new(), Vec::new());
    for (index, new) in starts.iter().filter(|(_, new)| new.requested) {
        let key = within.key_in(new.shard, &new.key).await?;
        match &outcomes[*index] {
            Some(Outcome::Exists(existing)) if existing.request_hash != new.request_hash => {
                contradicted.push((key, STARTED_BY_ANOTHER));
            }
            _ => made.push(key),
        }
    }
    if !made.is_empty() {
        made.sort_unstable();
        sqlx::query(DELETE.on(&within.layout))
            .bind(made.iter().map(|(shard, ..)| *shard).bind_iter())
            .bind(made.iter().map(|(_, code, _)| *code).bind_iter())
            .bind(made.iter().map(|(.., id)| *id).bind_iter())
            .execute(&mut *within.connection)
            .await?;
        point(Point::RequestedStartUncommitted);
    }
    note(within.connection, &within.layout, contradicted).await
}

/// Notes what is not taken up: requests with the reason, signals as held.
pub(super) async fn refuse(
    within: &mut Transaction<'_>,
    refused: &[(usize, &Refuse)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    let (mut requests, mut signals): (Vec<(CodedKey<'_>, &str)>, Vec<RowKey<'_>>) = Default::default();
    for (index, refuse) in refused {
        outcomes[*index] = Some(Outcome::Refused);
        let key = within.key_in(refuse.shard, &refuse.key).await?;
        match &refuse.signal_id {
            Some(signal_id) => signals.push((key, signal_id)),
            None => requests.push((key, &refuse.reason)),
        }
    }
    inbox::hold(within.connection, &within.layout, signals).await?;
    note(within.connection, &within.layout, requests).await
}

async fn note(connection: &mut PgConnection, layout: &Layout, mut reasons: Vec<(CodedKey<'_>, &str)>) -> Result<(), Fault> {
    if reasons.is_empty() {
        return Ok(());
    }
    reasons.sort_unstable();
    sqlx::query(REFUSE.on(layout))
        .bind(reasons.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(reasons.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(reasons.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(reasons.iter().map(|(_, reason)| *reason).bind_iter())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) const ALLOW: &str = "SELECT format(
         'GRANT USAGE ON SCHEMA overdue TO %1$I; GRANT EXECUTE ON FUNCTION
          overdue.start_workflow(text, text, json, json, timestamptz),
          overdue.signal_workflow(text, text, text, json, text) TO %1$I', $1::text)";

/// Lets a role ask for starts and send signals, and nothing else.
pub(super) async fn allow(connection: &mut PgConnection, role: &str) -> Result<(), sqlx::Error> {
    let grant: String = sqlx::query_scalar(ALLOW).bind(role).fetch_one(&mut *connection).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(grant)).execute(connection).await.map(drop)
}
