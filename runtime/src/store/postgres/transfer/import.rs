//! Storing what another store exported. What is there already is compared and left as it is.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::postgres::{PgBindIterExt, PgConnection};
use uuid::Uuid;

use super::export::whole;
use crate::id::WorkflowKey;
use crate::store::postgres::commit::Transaction;
use crate::store::postgres::error::Fault;
use crate::store::postgres::executions::CodedKey;
use crate::store::postgres::inbox::{self, RowKey};
use crate::store::postgres::requests::{self, requested_of};
use crate::store::postgres::values::{stored_rev, stored_run, stored_shard};
use crate::store::postgres::writer::Work;
use crate::store::postgres::{attributes, controls, history, outbox, tokens};
use crate::store::{CarriedExecution, CarriedSignal, Control, Imported, OutboxRow, Parcel, RequestedStart, Token};
use crate::time::Timestamp;

/// Stores a parcel, or nothing of it.
pub(in crate::store::postgres) struct Import(pub(super) Parcel);

impl Work for Import {
    type Value = Imported;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<Imported, Fault> {
        match &self.0 {
            Parcel::Executions(all) => import_executions(within, all).await,
            Parcel::Signals(all) => import_signals(within, all).await,
            Parcel::Requests(all) => import_requests(within, all).await,
            Parcel::Outbox(all) => import_outbox(within, all).await,
            Parcel::Tokens(all) => import_tokens(within, all).await,
            Parcel::Controls(all) => import_controls(within, all).await,
        }
    }
}

const INSERT: &str = "INSERT INTO overdue.executions
         (shard, type, id, run_id, status, wake_at, closed_at, rev, request_hash, needs_attention, attempts, tombstone, parked_by,
          parked_since)
     SELECT w.shard, w.type, w.id, w.run_id, w.status, w.wake_at, w.closed_at, w.rev, w.request_hash, w.needs_attention,
            w.attempts, w.tombstone, w.parked_by, w.parked_since
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::uuid[], $5::smallint[], $6::bigint[], $7::bigint[],
                 $8::integer[], $9::uuid[], $10::boolean[], $11::bytea[], $12::bytea[], $13::text[], $14::bigint[])
          AS w (shard, type, id, run_id, status, wake_at, closed_at, rev, request_hash, needs_attention, attempts, tombstone,
                parked_by, parked_since)";

async fn import_executions(within: &mut Transaction<'_>, all: &[CarriedExecution]) -> Result<Imported, Fault> {
    let mut new = match not_there(within.connection, all).await? {
        Ok(new) => within_types(within, new).await?,
        Err(differs) => return Ok(differs),
    };
    if new.is_empty() {
        return Ok(Imported::Whole);
    }
    new.sort_unstable_by_key(|(key, _)| *key);
    let revs = new.iter().map(|(_, one)| stored_rev(one.execution.rev)).collect::<Result<Vec<i32>, Fault>>()?;
    let status = |one: &CarriedExecution| i16::try_from(one.execution.status.code()).expect("there are few statuses");
    sqlx::query(INSERT)
        .bind(new.iter().map(|((shard, ..), _)| *shard).bind_iter())
        .bind(new.iter().map(|((_, code, _), _)| *code).bind_iter())
        .bind(new.iter().map(|((.., id), _)| *id).bind_iter())
        .bind(new.iter().map(|(_, one)| stored_run(one.execution.run_id)).bind_iter())
        .bind(new.iter().map(|(_, one)| status(one)).bind_iter())
        .bind(new.iter().map(|(_, one)| one.execution.wake_at.map(Timestamp::as_micros)).bind_iter())
        .bind(new.iter().map(|(_, one)| one.execution.closed_at.map(Timestamp::as_micros)).bind_iter())
        .bind(revs)
        .bind(new.iter().map(|(_, one)| Uuid::from_bytes(one.execution.request_hash)).bind_iter())
        .bind(new.iter().map(|(_, one)| one.execution.needs_attention).bind_iter())
        .bind(new.iter().map(|(_, one)| stored_bytes(&one.execution.attempts)).bind_iter())
        .bind(new.iter().map(|(_, one)| stored_bytes(&one.tombstone)).bind_iter())
        .bind(new.iter().map(|(_, one)| one.parked.as_ref().map(|parked| parked.gate.as_str())).bind_iter())
        .bind(new.iter().map(|(_, one)| one.parked.as_ref().map(|parked| parked.since.as_micros())).bind_iter())
        .execute(&mut *within.connection)
        .await?;
    let records = new.iter().flat_map(|((shard, ..), one)| one.records.iter().map(|of| (*shard, one.execution.run_id, of)));
    history::append(within.connection, &within.layout, records.collect()).await?;
    let values = new.iter().flat_map(|(key, one)| one.attributes.iter().map(|(name, value)| (*key, name.as_str(), value)));
    attributes::insert(within.connection, &within.layout, values.collect()).await?;
    Ok(Imported::Whole)
}

/// Those that are not stored yet, unless one is and is something else.
async fn not_there<'a>(
    connection: &mut PgConnection,
    all: &'a [CarriedExecution],
) -> Result<Result<Vec<&'a CarriedExecution>, Imported>, Fault> {
    let mut keys = Vec::with_capacity(all.len());
    for CarriedExecution { execution, .. } in all {
        keys.push((stored_shard(execution.shard)?, execution.key.workflow_type(), execution.key.id()));
    }
    let there = whole(connection, &keys).await?;
    let there: HashMap<&WorkflowKey, &CarriedExecution> = there.iter().map(|found| (&found.execution.key, found)).collect();
    Ok(new_among(all, |one| there.get(&one.execution.key).copied(), |one| one.execution.key.to_string()))
}

async fn within_types<'a>(
    within: &mut Transaction<'_>,
    new: Vec<&'a CarriedExecution>,
) -> Result<Vec<(CodedKey<'a>, &'a CarriedExecution)>, Fault> {
    let mut keyed = Vec::with_capacity(new.len());
    for one in new {
        keyed.push((within.key_in(one.execution.shard, &one.execution.key).await?, one));
    }
    Ok(keyed)
}

const SIGNALS: &str = "SELECT t.name, x.id, x.signal_id, x.shard, x.name, x.payload, x.identity, x.received_at, x.held
     FROM unnest($1::smallint[], $2::smallint[], $3::text[], $4::text[]) AS w (shard, type, id, signal_id)
     JOIN overdue.inbox AS x ON x.shard = w.shard AND x.type = w.type AND x.id = w.id AND x.signal_id = w.signal_id
     JOIN overdue.types AS t ON t.code = x.type";

async fn import_signals(within: &mut Transaction<'_>, all: &[CarriedSignal]) -> Result<Imported, Fault> {
    let mut keys: Vec<RowKey<'_>> = Vec::with_capacity(all.len());
    for CarriedSignal { row, .. } in all {
        keys.push((within.key_in(row.shard, &row.key).await?, &row.signal_id));
    }
    let mut there = HashMap::new();
    for row in inbox::bind_keys(SIGNALS, &keys).fetch_all(&mut *within.connection).await? {
        let found = CarriedSignal { row: inbox::inbox_row_of(&row)?, held: row.try_get(8)? };
        there.insert((found.row.key.clone(), found.row.signal_id.clone()), found);
    }
    let find = |one: &CarriedSignal| there.get(&(one.row.key.clone(), one.row.signal_id.clone()));
    let new = match new_among(all, find, |one| format!("signal {} of {}", one.row.signal_id, one.row.key)) {
        Ok(new) => new,
        Err(differs) => return Ok(differs),
    };
    let (mut rows, mut held) = (Vec::with_capacity(new.len()), Vec::new());
    for CarriedSignal { row, held: is_held } in new {
        let key = within.key_in(row.shard, &row.key).await?;
        rows.push((key, row));
        if *is_held {
            held.push((key, row.signal_id.as_str()));
        }
    }
    rows.sort_unstable_by_key(|(key, row)| (*key, row.signal_id.as_str()));
    inbox::insert(within.connection, &within.layout, &rows).await?;
    inbox::hold(within.connection, &within.layout, held).await?;
    Ok(Imported::Whole)
}

const REQUESTS: &str = "SELECT t.name, r.id, r.shard, r.input, r.attributes, r.start_at, r.refused
     FROM unnest($1::smallint[], $2::smallint[], $3::text[]) AS w (shard, type, id)
     JOIN overdue.starts AS r ON r.shard = w.shard AND r.type = w.type AND r.id = w.id
     JOIN overdue.types AS t ON t.code = r.type";

async fn import_requests(within: &mut Transaction<'_>, all: &[RequestedStart]) -> Result<Imported, Fault> {
    let mut keys = Vec::with_capacity(all.len());
    for request in all {
        keys.push(within.key_in(request.shard, &request.key).await?);
    }
    let rows = sqlx::query(REQUESTS)
        .bind(keys.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(keys.iter().map(|(_, code, _)| *code).bind_iter())
        .bind(keys.iter().map(|(.., id)| *id).bind_iter())
        .fetch_all(&mut *within.connection)
        .await?;
    let there = rows.iter().map(requested_of).collect::<Result<Vec<_>, _>>()?;
    let there: HashMap<&WorkflowKey, &RequestedStart> = there.iter().map(|found| (&found.key, found)).collect();
    let new = match new_among(all, |one| there.get(&one.key).copied(), |one| format!("the request for {}", one.key)) {
        Ok(new) => new,
        Err(differs) => return Ok(differs),
    };
    let mut keyed = Vec::with_capacity(new.len());
    for one in new {
        keyed.push((within.key_in(one.shard, &one.key).await?, one));
    }
    requests::insert(within.connection, keyed).await?;
    Ok(Imported::Whole)
}

async fn import_outbox(within: &mut Transaction<'_>, all: &[OutboxRow]) -> Result<Imported, Fault> {
    for row in all {
        match outbox::row(within.connection, &row.place).await? {
            Some(found) if found == *row => {}
            Some(_) => return Ok(Imported::Differs(format!("event {} of {} for {}", row.place.event, row.key, row.place.sink))),
            None => outbox::put(within.connection, row).await?,
        }
    }
    Ok(Imported::Whole)
}

async fn import_tokens(within: &mut Transaction<'_>, all: &[Token]) -> Result<Imported, Fault> {
    let there = tokens::all(within.connection).await?;
    let find = |one: &Token| there.iter().find(|found| found.name == one.name);
    match new_among(all, find, |one| format!("token {}", one.name)) {
        Ok(new) => {
            for token in new {
                tokens::insert(within.connection, token).await?;
            }
            Ok(Imported::Whole)
        }
        Err(differs) => Ok(differs),
    }
}

async fn import_controls(within: &mut Transaction<'_>, all: &[Control]) -> Result<Imported, Fault> {
    let there = controls::all(within.connection).await?;
    let find = |one: &Control| there.iter().find(|found| found.name == one.name);
    match new_among(all, find, |one| one.name.clone()) {
        Ok(new) => {
            for control in new {
                controls::insert(within.connection, control).await?;
            }
            Ok(Imported::Whole)
        }
        Err(differs) => Ok(differs),
    }
}

/// Those that are not there; or the first that is there and is something else.
fn new_among<'a, 'b, T: PartialEq + 'b>(
    all: &'a [T],
    find: impl Fn(&T) -> Option<&'b T>,
    name: impl Fn(&T) -> String,
) -> Result<Vec<&'a T>, Imported> {
    let mut new = Vec::new();
    for one in all {
        match find(one) {
            Some(found) if found == one => {}
            Some(_) => return Err(Imported::Differs(name(one))),
            None => new.push(one),
        }
    }
    Ok(new)
}

/// Most rows have none, and NULL costs no byte.
fn stored_bytes(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}
