//! The append-only history.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::error::Fault;
use super::values::{Sized, four, place, sixteen, sixty_four, sized};
use crate::fault::{Point, point};
use crate::history::Record;
use crate::id::RunId;

static INSERT: Sized = sized!("INSERT INTO history (run_id, first_event, events) VALUES ", "(?, ?, ?)", "");

/// Appends records; their positions are free. Sorts them, so that neighbours share pages.
pub(super) async fn append(connection: &mut SqliteConnection, mut records: Vec<(RunId, &Record)>) -> Result<(), Fault> {
    records.sort_unstable_by_key(|(run_id, record)| (*run_id, record.first_event));
    for (sql, piece) in INSERT.pieces(&records) {
        let mut query = sqlx::query(sql);
        for (run_id, record) in piece {
            query = query.bind(run_id.as_bytes().to_vec()).bind(event_number(record)?).bind(record.bytes.to_vec());
        }
        query.execute(&mut *connection).await?;
        point(Point::HistoryWritten);
    }
    Ok(())
}

/// A record's position as it is stored.
pub(super) fn event_number(record: &Record) -> Result<i64, Fault> {
    i64::try_from(record.first_event).map_err(|_| Fault::Unstorable(format!("event number {}", record.first_event)))
}

pub(super) const READ: &str = "SELECT w.key, h.first_event, h.events
         FROM json_each(?1) AS w
         CROSS JOIN types AS t ON t.name = w.value ->> 0
         CROSS JOIN executions AS e ON e.type = t.code AND e.id = w.value ->> 1
         CROSS JOIN history AS h ON h.run_id = e.run_id
         ORDER BY w.key, h.first_event";

/// The histories of the executions named in `keys` (a JSON array of pairs of type and id), each record with the place of
/// its execution in `keys`.
pub(super) async fn read(connection: &mut SqliteConnection, keys: &str) -> Result<Vec<(usize, Record)>, sqlx::Error> {
    sqlx::query(READ)
        .bind(keys)
        .fetch_all(connection)
        .await?
        .iter()
        .map(|row| {
            let bytes: Vec<u8> = row.try_get(2)?;
            let first_event = row.try_get::<i64, _>(1)?.unsigned_abs();
            Ok((place(row.try_get(0)?), Record { first_event, bytes: bytes.into() }))
        })
        .collect()
}
