//! Reading executions whole.

use bytes::Bytes;
use sqlx::sqlite::SqliteConnection;

use super::{executions, history, inbox};
use crate::id::WorkflowKey;
use crate::store::Loaded;

/// Rows, histories and inboxes of the named executions, in the order of `keys`. Needs a transaction: the three reads
/// must see one state.
pub(super) async fn load(connection: &mut SqliteConnection, keys: &[WorkflowKey]) -> Result<Vec<Option<Loaded>>, sqlx::Error> {
    let asked = executions::keys_as_json(keys.iter());
    let mut loaded: Vec<Option<Loaded>> = keys.iter().map(|_| None).collect();
    for (place, execution, tombstone, _) in executions::find_many(connection, &asked).await? {
        let tombstone = tombstone.map(Bytes::from).unwrap_or_default();
        loaded[place] = Some(Loaded { execution, records: Vec::new(), inbox: Vec::new(), tombstone });
    }
    for (place, record) in history::read(connection, &asked).await? {
        if let Some(whole) = &mut loaded[place] {
            whole.records.push(record);
        }
    }
    for (place, row) in inbox::read(connection, &asked).await? {
        if let Some(whole) = &mut loaded[place] {
            whole.inbox.push(row);
        }
    }
    Ok(loaded)
}
