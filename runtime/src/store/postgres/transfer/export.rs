//! Reading out everything that a store holds, in the order of types, ids and signal ids.
//!
//! Rows lie by shard, so that each page takes the first of every shard and of those the first. Nobody writes meanwhile.

use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection};

use crate::id::WorkflowKey;
use crate::store::postgres::attributes::attributes_of;
use crate::store::postgres::executions::{execution_of, parked_of};
use crate::store::postgres::inbox::inbox_row_of;
use crate::store::postgres::load::records_of;
use crate::store::postgres::requests::requested_of;
use crate::store::postgres::values::limit_of;
use crate::store::postgres::{controls, outbox, tokens, types};
use crate::store::{CarriedExecution, CarriedSignal, OutboxFilter, Parcel, Place, RequestedStart};

/// The most bytes of history that one parcel has, unless a single execution has more: they are in memory twice.
const BYTES_PER_PARCEL_MAX: i64 = 16 << 20;
/// The most events of one parcel: with as much data as they may have they are no more than that.
const EVENTS_PER_PARCEL_MAX: usize = 250;

/// What comes next from `place` on.
pub(super) async fn export(
    connection: &mut PgConnection,
    place: &Place,
    limit: usize,
    shards: &[i16],
) -> Result<(Parcel, Option<Place>), sqlx::Error> {
    match place {
        Place::Executions(after) => {
            let all = executions(connection, after.as_ref(), limit, shards).await?;
            let next = all.last().map_or(Place::Signals(None), |last| Place::Executions(Some(last.execution.key.clone())));
            Ok((Parcel::Executions(all), Some(next)))
        }
        Place::Signals(after) => {
            let all = signals(connection, after.as_ref(), limit, shards).await?;
            let next = all.last().map_or(Place::Requests(None), |CarriedSignal { row, .. }| {
                Place::Signals(Some((row.key.clone(), row.signal_id.clone())))
            });
            Ok((Parcel::Signals(all), Some(next)))
        }
        Place::Requests(after) => {
            let all = requests(connection, after.as_ref(), limit, shards).await?;
            let next = all.last().map_or(Place::Outbox(None), |last| Place::Requests(Some(last.key.clone())));
            Ok((Parcel::Requests(all), Some(next)))
        }
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

pub(in crate::store::postgres) const KEYS: &str = "SELECT p.shard, p.id, (
         SELECT coalesce(sum(octet_length(h.events)), 0)::bigint
         FROM overdue.executions AS e
         JOIN overdue.history AS h ON h.shard = e.shard AND h.run_id = e.run_id
         WHERE e.shard = p.shard AND e.type = $2 AND e.id = p.id)
     FROM (
         SELECT e.shard, e.id
         FROM unnest($1::smallint[]) AS s (shard)
         CROSS JOIN LATERAL (
             SELECT e.shard, e.id FROM overdue.executions AS e
             WHERE e.shard = s.shard AND e.type = $2 AND e.id > $3
             ORDER BY e.id
             LIMIT $4) AS e
         ORDER BY e.id
         LIMIT $4) AS p
     ORDER BY p.id";

async fn executions(
    connection: &mut PgConnection,
    after: Option<&WorkflowKey>,
    limit: usize,
    shards: &[i16],
) -> Result<Vec<CarriedExecution>, sqlx::Error> {
    let (mut keys, mut bytes) = (Vec::new(), 0);
    'full: for (name, code, after_id) in types_from(connection, after).await? {
        let left = limit_of(limit - keys.len());
        let rows = sqlx::query(KEYS).bind(shards).bind(code).bind(after_id).bind(left).fetch_all(&mut *connection).await?;
        for row in &rows {
            bytes += row.try_get::<i64, _>(2)?;
            if keys.len() >= limit || (bytes > BYTES_PER_PARCEL_MAX && !keys.is_empty()) {
                break 'full;
            }
            keys.push((row.try_get(0)?, name.clone(), row.try_get(1)?));
        }
        if keys.len() >= limit {
            break;
        }
    }
    let keys: Vec<_> = keys.iter().map(|(shard, name, id): &(i16, String, String)| (*shard, &name[..], &id[..])).collect();
    whole(connection, &keys).await
}

pub(in crate::store::postgres) const WHOLE: &str =
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL, e.tombstone, h.first_events, h.events, a.names, a.values,
            e.parked_by, e.parked_since
     FROM unnest($1::smallint[], $2::text[], $3::text[]) WITH ORDINALITY AS w (shard, type, id, place)
     JOIN overdue.types AS t ON t.name = w.type
     JOIN overdue.executions AS e ON e.shard = w.shard AND e.type = t.code AND e.id = w.id
     CROSS JOIN LATERAL (
         SELECT array_agg(h.first_event ORDER BY h.first_event) AS first_events,
                array_agg(h.events ORDER BY h.first_event) AS events
         FROM overdue.history AS h
         WHERE h.shard = e.shard AND h.run_id = e.run_id) AS h
     CROSS JOIN LATERAL (
         SELECT array_agg(a.name ORDER BY a.name) AS names, array_agg(a.value ORDER BY a.name) AS values
         FROM overdue.attributes AS a
         WHERE a.shard = e.shard AND a.type = e.type AND a.id = e.id) AS a
     ORDER BY w.place";

/// Those of the named executions that are there, with all that belongs to them: shard, type and id of each.
pub(super) async fn whole(
    connection: &mut PgConnection,
    keys: &[(i16, &str, &str)],
) -> Result<Vec<CarriedExecution>, sqlx::Error> {
    let rows = sqlx::query(WHOLE)
        .bind(keys.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(keys.iter().map(|(_, name, _)| *name).bind_iter())
        .bind(keys.iter().map(|(.., id)| *id).bind_iter())
        .fetch_all(connection)
        .await?;
    let carried = rows.iter().map(|row| {
        Ok(CarriedExecution {
            execution: execution_of(row)?,
            tombstone: row.try_get::<Option<Vec<u8>>, _>(12)?.map(Bytes::from).unwrap_or_default(),
            parked: parked_of(row, 17)?,
            records: records_of(row, 13)?,
            attributes: attributes_of(row, 15)?,
        })
    });
    carried.collect()
}

pub(in crate::store::postgres) const SIGNALS: &str =
    "SELECT $5::text, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at, x.held
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at, x.held
         FROM overdue.inbox AS x
         WHERE x.shard = s.shard AND x.type = $2 AND (x.id, x.signal_id) > ($3, $4)
         ORDER BY x.id, x.signal_id
         LIMIT $6) AS x
     ORDER BY x.id, x.signal_id
     LIMIT $6";

async fn signals(
    connection: &mut PgConnection,
    after: Option<&(WorkflowKey, String)>,
    limit: usize,
    shards: &[i16],
) -> Result<Vec<CarriedSignal>, sqlx::Error> {
    let mut found = Vec::new();
    let after_signal = after.map_or("", |(_, signal_id)| signal_id.as_str());
    // Where the id is the empty one, the signal id does not matter.
    for (name, code, after_id) in types_from(connection, after.map(|(key, _)| key)).await? {
        let rows = sqlx::query(SIGNALS)
            .bind(shards)
            .bind(code)
            .bind(after_id)
            .bind(after_signal)
            .bind(name)
            .bind(limit_of(limit - found.len()))
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            found.push(CarriedSignal { row: inbox_row_of(row)?, held: row.try_get(8)? });
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

pub(in crate::store::postgres) const REQUESTS: &str =
    "SELECT $4::text, r.id, r.shard, r.input, r.attributes, r.start_at, r.refused
     FROM unnest($1::smallint[]) AS s (shard)
     CROSS JOIN LATERAL (
         SELECT r.id, r.shard, r.input, r.attributes, r.start_at, r.refused
         FROM overdue.starts AS r
         WHERE r.shard = s.shard AND r.type = $2 AND r.id > $3
         ORDER BY r.id
         LIMIT $5) AS r
     ORDER BY r.id
     LIMIT $5";

async fn requests(
    connection: &mut PgConnection,
    after: Option<&WorkflowKey>,
    limit: usize,
    shards: &[i16],
) -> Result<Vec<RequestedStart>, sqlx::Error> {
    let mut found = Vec::new();
    for (name, code, after_id) in types_from(connection, after).await? {
        let rows = sqlx::query(REQUESTS)
            .bind(shards)
            .bind(code)
            .bind(after_id)
            .bind(name)
            .bind(limit_of(limit - found.len()))
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            found.push(requested_of(row)?);
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// The types from that of `after` on, by name, each with the id behind which to begin.
async fn types_from<'a>(
    connection: &mut PgConnection,
    after: Option<&'a WorkflowKey>,
) -> Result<Vec<(String, i16, &'a str)>, sqlx::Error> {
    let first = after.map_or("", WorkflowKey::workflow_type);
    let from = types::all(connection).await?.into_iter().filter(|(name, _)| name.as_str() >= first);
    let begun = from.map(|(name, code)| {
        // Ids are not empty, so the empty one is before all.
        let begin = after.filter(|after| after.workflow_type() == name).map_or("", |after| after.id());
        (name, code, begin)
    });
    Ok(begun.collect())
}
