//! The append-only history.

use sqlx::postgres::{PgBindIterExt, PgConnection};

use super::error::Fault;
use super::layout::Layout;
use super::statement::Statement;
use super::values::{event_number, stored_run};
use crate::fault::{Point, point};
use crate::history::Record;
use crate::id::RunId;

pub(super) static INSERT: Statement = Statement::new(
    "INSERT INTO overdue.history (shard, run_id, first_event, events)
     SELECT /*one*/w.shard/*citus a.shard*/, w.run_id, w.first_event, w.events
     FROM unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::bytea[]) AS w (shard, run_id, first_event, events)
     /*citus JOIN overdue.anchors AS a ON a.shard = w.shard AND a.shard = ANY ($1)*/",
);

/// A record to be appended: its shard, its run, and the record.
pub(super) type NewRecord<'a> = (i16, RunId, &'a Record);

/// Appends records; their positions are free. Sorts them, so that neighbours share pages.
pub(super) async fn append(connection: &mut PgConnection, layout: &Layout, mut records: Vec<NewRecord<'_>>) -> Result<(), Fault> {
    if records.is_empty() {
        return Ok(());
    }
    records.sort_unstable_by_key(|(shard, run_id, record)| (*shard, *run_id, record.first_event));
    let positions = records.iter().map(|(.., record)| event_number(record)).collect::<Result<Vec<i64>, Fault>>()?;
    sqlx::query(INSERT.on(layout))
        .bind(records.iter().map(|(shard, ..)| *shard).bind_iter())
        .bind(records.iter().map(|(_, run_id, _)| stored_run(*run_id)).bind_iter())
        .bind(positions)
        .bind(records.iter().map(|(.., record)| &record.bytes[..]).bind_iter())
        .execute(connection)
        .await?;
    point(Point::HistoryWritten);
    Ok(())
}
