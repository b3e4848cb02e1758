//! Creating executions: those that callers start and those that transitions spawn.

use std::collections::HashMap;

use super::commit::Batch;
use super::error::Fault;
use super::{attributes, executions, history, inbox, outbox};
use crate::id::WorkflowKey;
use crate::store::{Execution, NewExecution, Outcome};

/// Starts of one round.
pub(super) async fn apply(
    batch: &mut Batch<'_>,
    starts: &[(usize, &NewExecution)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    let new: Vec<&NewExecution> = starts.iter().map(|(_, new)| *new).collect();
    let existing = create(batch, &new).await?;
    let mut created = Vec::new();
    for ((index, new), existing) in starts.iter().zip(existing) {
        match existing {
            Some(execution) => outcomes[*index] = Some(Outcome::Exists(Box::new(execution))),
            None => created.push((*index, *new)),
        }
    }
    for ((index, _), waits) in created.iter().zip(signals_wait(batch, &created).await?) {
        outcomes[*index] = Some(Outcome::Started { inbox: waits });
    }
    Ok(())
}

/// Creates executions with their first records and attributes. One whose key is taken is left out, and what has its key
/// is returned in its place.
pub(super) async fn create(batch: &mut Batch<'_>, new: &[&NewExecution]) -> Result<Vec<Option<Execution>>, Fault> {
    let mut sorted = Vec::with_capacity(new.len());
    for new in new {
        sorted.push((batch.type_code(new.key.workflow_type()).await?, *new));
    }
    // Stable: of two with one key, which only one transition can spawn in one round, the first is created.
    sorted.sort_by(|(code, new), (other_code, other)| (code, new.key.id()).cmp(&(other_code, other.key.id())));
    sorted.dedup_by(|(_, later), (_, first)| later.key == first.key);

    let keys: Vec<_> = sorted.iter().map(|(code, new)| (*code, new.key.id())).collect();
    let existing = executions::existing(batch.connection, &keys).await?;
    let existing: HashMap<WorkflowKey, Execution> =
        existing.into_iter().map(|execution| (execution.key.clone(), execution)).collect();

    sorted.retain(|(_, new)| !existing.contains_key(&new.key));
    executions::insert(batch.connection, &sorted).await?;
    history::append(batch.connection, sorted.iter().map(|(_, new)| (new.run_id, &new.record)).collect()).await?;
    let attributes: Vec<_> = sorted
        .iter()
        .flat_map(|(code, new)| new.attributes.iter().map(|(name, value)| (*code, new.key.id(), name.as_str(), value)))
        .collect();
    attributes::insert(batch.connection, &attributes).await?;
    outbox::insert(batch.connection, sorted.iter().flat_map(|(_, new)| &new.emit).collect()).await?;

    take_up(batch, new).await?;

    Ok(new.iter().map(|new| existing.get(&new.key).cloned()).collect())
}

/// Removes the inbox rows that starts take up.
async fn take_up(batch: &mut Batch<'_>, new: &[&NewExecution]) -> Result<(), Fault> {
    let mut rows: Vec<inbox::RowKey<'_>> = Vec::new();
    for (key, signal_id) in new.iter().flat_map(|new| &new.consume) {
        rows.push((batch.type_code(key.workflow_type()).await?, key.id(), signal_id));
    }
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable();
    let removed = inbox::delete(batch.connection, &rows).await?;
    batch.inbox_changed(0, removed);
    Ok(())
}

/// Whether unread inbox rows wait for each of these executions.
async fn signals_wait(batch: &mut Batch<'_>, created: &[(usize, &NewExecution)]) -> Result<Vec<bool>, Fault> {
    if batch.inbox_rows().await? == 0 {
        return Ok(vec![false; created.len()]);
    }
    let mut keys = Vec::with_capacity(created.len());
    for (_, new) in created {
        keys.push((batch.type_code(new.key.workflow_type()).await?, new.key.id()));
    }
    let unread = inbox::unread(batch.connection, &keys).await?;
    Ok(unread.iter().map(|rows| !rows.is_empty()).collect())
}
