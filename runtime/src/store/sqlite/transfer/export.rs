//! Reading out everything that a store holds, in the order of types, ids and signal ids.

use bytes::Bytes;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::id::WorkflowKey;
use crate::store::sqlite::executions::{execution_of, keys_as_json, parked_of};
use crate::store::sqlite::inbox::inbox_row_of;
use crate::store::sqlite::values::limit_of;
use crate::store::sqlite::{attributes, controls, history, outbox, tokens, types};
use crate::store::{CarriedExecution, CarriedSignal, OutboxFilter, Parcel, Place};

/// The most bytes of history that one parcel has, unless a single execution has more: they are in memory twice.
const BYTES_PER_PARCEL_MAX: i64 = 16 << 20;
/// The most events of one parcel: with as much data as they may have they are no more than that.
const EVENTS_PER_PARCEL_MAX: usize = 250;

/// What comes next from `place` on. Needs a transaction: rows, histories and attributes must be of one state.
pub(super) async fn export(
    connection: &mut SqliteConnection,
    place: &Place,
    limit: usize,
) -> Result<(Parcel, Option<Place>), sqlx::Error> {
    match place {
        Place::Executions(after) => {
            let all = executions(connection, after.as_ref(), limit).await?;
            let next = all.last().map_or(Place::Signals(None), |last| Place::Executions(Some(last.execution.key.clone())));
            Ok((Parcel::Executions(all), Some(next)))
        }
        Place::Signals(after) => {
            let all = signals(connection, after.as_ref(), limit).await?;
            let next = all.last().map_or(Place::Outbox(None), |CarriedSignal { row, .. }| {
                Place::Signals(Some((row.key.clone(), row.signal_id.clone())))
            });
            Ok((Parcel::Signals(all), Some(next)))
        }
        Place::Requests(_) => Ok((Parcel::Requests(Vec::new()), Some(Place::Outbox(None)))),
        Place::Outbox(after) => {
            let all =
                outbox::page(connection, &OutboxFilter::default(), after.as_ref(), limit.min(EVENTS_PER_PARCEL_MAX)).await?;
            let next = all.last().map_or(Place::Tokens, |last| Place::Outbox(Some(last.place.clone())));
            Ok((Parcel::Outbox(all), Some(next)))
        }
        Place::Tokens => Ok((Parcel::Tokens(tokens::all(connection).await?), Some(Place::Controls))),
        Place::Controls => Ok((Parcel::Controls(controls::all(connection).await?), None)),
    }
}

pub(in crate::store::sqlite) const EXECUTIONS: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
                e.needs_attention, e.attempts, e.tombstone IS NOT NULL, e.tombstone, e.parked_by, e.parked_since
         FROM types AS t CROSS JOIN executions AS e ON e.type = t.code
         WHERE t.code = ?1 AND e.id > ?2
         ORDER BY e.id
         LIMIT ?3";

async fn executions(
    connection: &mut SqliteConnection,
    after: Option<&WorkflowKey>,
    limit: usize,
) -> Result<Vec<CarriedExecution>, sqlx::Error> {
    let mut found: Vec<CarriedExecution> = Vec::new();
    for (code, after_id) in types_from(connection, after).await? {
        let left = limit_of(limit - found.len());
        let rows = sqlx::query(EXECUTIONS).bind(code).bind(after_id).bind(left).fetch_all(&mut *connection).await?;
        for row in &rows {
            let tombstone: Option<Vec<u8>> = row.try_get(12)?;
            found.push(CarriedExecution {
                execution: execution_of(row)?,
                tombstone: tombstone.map(Bytes::from).unwrap_or_default(),
                parked: parked_of(row, 13)?,
                records: Vec::new(),
                attributes: Vec::new(),
            });
        }
        if found.len() >= limit {
            break;
        }
    }
    found.truncate(fitting(connection, &found).await?);
    let keys = keys_as_json(found.iter().map(|carried| &carried.execution.key));
    for (place, record) in history::read(connection, &keys).await? {
        found[place].records.push(record);
    }
    for (place, attribute) in attributes::of_many(connection, &keys).await? {
        found[place].attributes.push(attribute);
    }
    Ok(found)
}

pub(in crate::store::sqlite) const HISTORY_BYTES: &str = "SELECT w.key, coalesce(sum(length(h.events)), 0)
         FROM json_each(?1) AS w
         CROSS JOIN types AS t ON t.name = w.value ->> 0
         CROSS JOIN executions AS e ON e.type = t.code AND e.id = w.value ->> 1
         LEFT JOIN history AS h ON h.run_id = e.run_id
         GROUP BY w.key
         ORDER BY w.key";

/// How many of the executions have histories that fit into one parcel; one at least.
async fn fitting(connection: &mut SqliteConnection, found: &[CarriedExecution]) -> Result<usize, sqlx::Error> {
    let keys = keys_as_json(found.iter().map(|carried| &carried.execution.key));
    let rows = sqlx::query(HISTORY_BYTES).bind(keys).fetch_all(connection).await?;
    let mut bytes = 0;
    for (count, row) in rows.iter().enumerate() {
        bytes += row.try_get::<i64, _>(1)?;
        if bytes > BYTES_PER_PARCEL_MAX {
            return Ok(count.max(1));
        }
    }
    Ok(rows.len())
}

pub(in crate::store::sqlite) const SIGNALS: &str =
    "SELECT t.name, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at, x.held
         FROM types AS t CROSS JOIN inbox AS x ON x.type = t.code
         WHERE t.code = ?1 AND (x.id, x.signal_id) > (?2, ?3)
         ORDER BY x.id, x.signal_id
         LIMIT ?4";

async fn signals(
    connection: &mut SqliteConnection,
    after: Option<&(WorkflowKey, String)>,
    limit: usize,
) -> Result<Vec<CarriedSignal>, sqlx::Error> {
    let mut found = Vec::new();
    let after_signal = after.map_or("", |(_, signal_id)| signal_id.as_str());
    // Where the id is the empty one, the signal id does not matter.
    for (code, after_id) in types_from(connection, after.map(|(key, _)| key)).await? {
        let rows = sqlx::query(SIGNALS)
            .bind(code)
            .bind(after_id)
            .bind(after_signal)
            .bind(limit_of(limit - found.len()))
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            found.push(CarriedSignal { row: inbox_row_of(row)?, held: row.try_get::<i64, _>(8)? != 0 });
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// The types from that of `after` on, by name, each with the id behind which to begin.
async fn types_from<'a>(
    connection: &mut SqliteConnection,
    after: Option<&'a WorkflowKey>,
) -> Result<Vec<(i64, &'a str)>, sqlx::Error> {
    let first = after.map_or("", WorkflowKey::workflow_type);
    let from = types::all(connection).await?.into_iter().filter(|(name, _)| name.as_str() >= first);
    // Ids are not empty, so the empty one is before all.
    let begin = |name: &str| after.filter(|after| after.workflow_type() == name).map_or("", |after| after.id());
    Ok(from.map(|(name, code)| (code, begin(&name))).collect())
}
