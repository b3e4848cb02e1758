//! Reading executions whole, in one statement: its snapshot is what makes row, history and inbox one state, and a caller
//! that goes away leaves no transaction behind.

use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection, PgRow};
use uuid::Uuid;

use super::executions::execution_of;
use super::inbox::content_of;
use super::layout::Layout;
use super::statement::Statement;
use super::values::{or_empty, place};
use crate::history::Record;
use crate::id::WorkflowKey;
use crate::store::{Execution, InboxRow, Loaded};
use crate::time::Timestamp;

pub(super) static LOAD: Statement = Statement::new(
    "SELECT t.name, e.id, e.shard, e.run_id, e.status, e.wake_at, e.closed_at, e.rev, e.request_hash,
            e.needs_attention, e.attempts, e.tombstone IS NOT NULL, w.place, h.first_events, h.events,
            x.signal_ids, x.names, x.payloads, x.identities, x.received, e.tombstone
     FROM unnest($1::smallint[], $2::text[], $3::text[]) WITH ORDINALITY AS w (shard, type, id, place)
     JOIN overdue.types AS t ON t.name = w.type
     JOIN overdue.executions AS e ON e.shard = w.shard AND e.type = t.code AND e.id = w.id /*citus AND e.shard = ANY ($1)*/
     CROSS JOIN LATERAL (
         SELECT array_agg(h.first_event ORDER BY h.first_event) AS first_events,
                array_agg(h.events ORDER BY h.first_event) AS events
         FROM overdue.history AS h
         WHERE h.shard = e.shard AND h.run_id = e.run_id /*citus AND h.shard = ANY ($1)*/) AS h
     CROSS JOIN LATERAL (
         SELECT array_agg(x.signal_id ORDER BY x.received_at, x.signal_id) AS signal_ids,
                array_agg(x.name ORDER BY x.received_at, x.signal_id) AS names,
                array_agg(x.payload ORDER BY x.received_at, x.signal_id) AS payloads,
                array_agg(x.identity ORDER BY x.received_at, x.signal_id) AS identities,
                array_agg(x.received_at ORDER BY x.received_at, x.signal_id) AS received
         FROM overdue.inbox AS x
         WHERE x.shard = e.shard AND x.type = e.type AND x.id = e.id AND NOT x.held /*citus AND x.shard = ANY ($1)*/) AS x
     ORDER BY w.place",
);

/// Rows, histories and inboxes of the named executions, in the order of `keys`.
pub(super) async fn load(
    connection: &mut PgConnection,
    layout: &Layout,
    keys: &[WorkflowKey],
    shards: &[i16],
) -> Result<Vec<Option<Loaded>>, sqlx::Error> {
    let mut loaded: Vec<Option<Loaded>> = keys.iter().map(|_| None).collect();
    let rows = sqlx::query(LOAD.on(layout))
        .bind(shards)
        .bind(keys.iter().map(WorkflowKey::workflow_type).bind_iter())
        .bind(keys.iter().map(WorkflowKey::id).bind_iter())
        .fetch_all(connection)
        .await?;
    for row in &rows {
        let execution = execution_of(row)?;
        let inbox = inbox_of(row, &execution)?;
        let tombstone = row.try_get::<Option<Vec<u8>>, _>(20)?.map(Bytes::from).unwrap_or_default();
        loaded[place(row.try_get(12)?)] = Some(Loaded { records: records_of(row, 13)?, inbox, execution, tombstone });
    }
    Ok(loaded)
}

/// The records in two columns of a row: an array of positions and one of events.
pub(super) fn records_of(row: &PgRow, column: usize) -> Result<Vec<Record>, sqlx::Error> {
    let positions = or_empty::<i64>(row.try_get(column)?);
    let events = or_empty::<Vec<u8>>(row.try_get(column + 1)?);
    let records = positions.into_iter().zip(events);
    Ok(records.map(|(first_event, bytes)| Record { first_event: first_event.unsigned_abs(), bytes: bytes.into() }).collect())
}

fn inbox_of(row: &PgRow, execution: &Execution) -> Result<Vec<InboxRow>, sqlx::Error> {
    let Some(signal_ids) = row.try_get::<Option<Vec<String>>, _>(15)? else { return Ok(Vec::new()) };
    let names = or_empty::<String>(row.try_get(16)?);
    let payloads = or_empty::<String>(row.try_get(17)?);
    let identities = or_empty::<Uuid>(row.try_get(18)?);
    let received = or_empty::<i64>(row.try_get(19)?);
    let rows = signal_ids.into_iter().zip(names).zip(payloads).zip(identities).zip(received);
    rows.map(|((((signal_id, name), payload), identity), received_at)| {
        let (payload, identity, unchecked) = content_of(&payload, identity)?;
        Ok(InboxRow {
            key: execution.key.clone(),
            shard: execution.shard,
            signal_id,
            name,
            payload,
            identity,
            received_at: Timestamp::from_micros(received_at),
            unchecked,
        })
    })
    .collect()
}
