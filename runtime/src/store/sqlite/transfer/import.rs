//! Storing what another store exported. What is there already is compared and left as it is.

use std::collections::HashMap;

use bytes::Bytes;
use sqlx::sqlite::SqliteConnection;

use crate::id::WorkflowKey;
use crate::store::sqlite::commit::Batch;
use crate::store::sqlite::error::Fault;
use crate::store::sqlite::executions::{self, keys_as_json, stored_rev};
use crate::store::sqlite::values::{Sized, four, sixteen, sixty_four, sized};
use crate::store::sqlite::{attributes, controls, history, inbox, outbox, tokens};
use crate::store::{CarriedExecution, CarriedSignal, Control, Imported, InboxRow, OutboxRow, Parcel, Token};
use crate::time::Timestamp;

/// Stores a parcel. Needs a transaction; unless the answer is [`Imported::Whole`] it must be rolled back.
pub(in crate::store::sqlite) async fn import(batch: &mut Batch<'_>, parcel: &Parcel) -> Result<Imported, Fault> {
    match parcel {
        Parcel::Executions(all) => import_executions(batch, all).await,
        Parcel::Signals(all) => import_signals(batch, all).await,
        // Checked at the door: there is none.
        Parcel::Requests(_) => Ok(Imported::Whole),
        Parcel::Outbox(all) => import_outbox(batch.connection, all).await,
        Parcel::Tokens(all) => import_tokens(batch.connection, all).await,
        Parcel::Controls(all) => import_controls(batch.connection, all).await,
    }
}

static INSERT: Sized = sized!(
    "INSERT INTO executions
     (type, id, shard, run_id, status, wake_at, closed_at, rev, request_hash, needs_attention, attempts, tombstone, parked_by, parked_since)
     VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ""
);

async fn import_executions(batch: &mut Batch<'_>, all: &[CarriedExecution]) -> Result<Imported, Fault> {
    let there = stored(batch.connection, all).await?;
    let mut new = Vec::new();
    for carried in all {
        match there.get(&carried.execution.key) {
            Some(found) if found == carried => {}
            Some(_) => return Ok(Imported::Differs(carried.execution.key.to_string())),
            None => new.push((batch.type_code(carried.execution.key.workflow_type()).await?, carried)),
        }
    }
    for (sql, piece) in INSERT.pieces(&new) {
        let mut query = sqlx::query(sql);
        for (code, CarriedExecution { execution: row, tombstone, parked, .. }) in piece {
            query = query
                .bind(*code)
                .bind(row.key.id())
                .bind(i64::from(row.shard))
                .bind(row.run_id.as_bytes().to_vec())
                .bind(row.status.code())
                .bind(row.wake_at.map(Timestamp::as_micros))
                .bind(row.closed_at.map(Timestamp::as_micros))
                .bind(stored_rev(row.rev)?)
                .bind(row.request_hash.to_vec())
                .bind(row.needs_attention)
                .bind(stored_bytes(&row.attempts))
                .bind(stored_bytes(tombstone))
                .bind(parked.as_ref().map(|parked| parked.gate.as_str()))
                .bind(parked.as_ref().map(|parked| parked.since.as_micros()));
        }
        query.execute(&mut *batch.connection).await?;
    }
    let records = new.iter().flat_map(|(_, one)| one.records.iter().map(|record| (one.execution.run_id, record)));
    history::append(batch.connection, records.collect()).await?;
    let attributes: Vec<_> = new
        .iter()
        .flat_map(|(code, one)| one.attributes.iter().map(|(name, value)| (*code, one.execution.key.id(), name.as_str(), value)))
        .collect();
    attributes::insert(batch.connection, &attributes).await?;
    Ok(Imported::Whole)
}

/// Those of the executions that are there, whole.
async fn stored(
    connection: &mut SqliteConnection,
    all: &[CarriedExecution],
) -> Result<HashMap<WorkflowKey, CarriedExecution>, sqlx::Error> {
    let keys = keys_as_json(all.iter().map(|carried| &carried.execution.key));
    let mut found: HashMap<usize, CarriedExecution> = HashMap::new();
    for (place, execution, tombstone, parked) in executions::find_many(connection, &keys).await? {
        let tombstone = tombstone.map(Bytes::from).unwrap_or_default();
        found.insert(place, CarriedExecution { execution, tombstone, parked, records: Vec::new(), attributes: Vec::new() });
    }
    if found.is_empty() {
        return Ok(HashMap::new());
    }
    for (place, record) in history::read(connection, &keys).await? {
        found.entry(place).and_modify(|carried| carried.records.push(record));
    }
    for (place, attribute) in attributes::of_many(connection, &keys).await? {
        found.entry(place).and_modify(|carried| carried.attributes.push(attribute));
    }
    Ok(found.into_values().map(|carried| (carried.execution.key.clone(), carried)).collect())
}

async fn import_signals(batch: &mut Batch<'_>, all: &[CarriedSignal]) -> Result<Imported, Fault> {
    let keys = keys_as_json(all.iter().map(|carried| &carried.row.key));
    let mut there: HashMap<(WorkflowKey, String), CarriedSignal> = HashMap::new();
    for carried in inbox::whole(batch.connection, &keys).await? {
        there.insert((carried.row.key.clone(), carried.row.signal_id.clone()), carried);
    }
    let (mut new, mut held) = (Vec::new(), Vec::new());
    for carried in all {
        let InboxRow { key, signal_id, .. } = &carried.row;
        match there.get(&(key.clone(), signal_id.clone())) {
            Some(found) if found == carried => continue,
            Some(_) => return Ok(Imported::Differs(format!("signal {signal_id} of {key}"))),
            None => {}
        }
        let code = batch.type_code(key.workflow_type()).await?;
        new.push((code, &carried.row));
        if carried.held {
            held.push((code, key.id(), signal_id.as_str()));
        }
    }
    inbox::insert(batch.connection, &new).await?;
    inbox::hold(batch.connection, &held).await?;
    batch.inbox_changed(new.len() as u64, 0);
    Ok(Imported::Whole)
}

async fn import_outbox(connection: &mut SqliteConnection, all: &[OutboxRow]) -> Result<Imported, Fault> {
    for row in all {
        match outbox::row(connection, &row.place).await? {
            Some(found) if found == *row => {}
            Some(_) => return Ok(Imported::Differs(format!("event {} of {} for {}", row.place.event, row.key, row.place.sink))),
            None => outbox::put(connection, row).await?,
        }
    }
    Ok(Imported::Whole)
}

async fn import_tokens(connection: &mut SqliteConnection, all: &[Token]) -> Result<Imported, Fault> {
    let there = tokens::all(connection).await?;
    for token in all {
        match there.iter().find(|found| found.name == token.name) {
            Some(found) if found == token => {}
            Some(_) => return Ok(Imported::Differs(format!("token {}", token.name))),
            None => drop(tokens::create(connection, token).await?),
        }
    }
    Ok(Imported::Whole)
}

async fn import_controls(connection: &mut SqliteConnection, all: &[Control]) -> Result<Imported, Fault> {
    let there = controls::all(connection).await?;
    for control in all {
        match there.iter().find(|found| found.name == control.name) {
            Some(found) if found == control => {}
            Some(_) => return Ok(Imported::Differs(control.name.clone())),
            None => controls::insert(connection, control).await?,
        }
    }
    Ok(Imported::Whole)
}

/// Most rows have none, and NULL costs no byte.
fn stored_bytes(bytes: &Bytes) -> Option<Vec<u8>> {
    (!bytes.is_empty()).then(|| bytes.to_vec())
}
