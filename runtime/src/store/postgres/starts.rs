//! Creating executions: those that callers start and those that transitions spawn.

use std::collections::{BTreeMap, HashMap};

use super::commit::Transaction;
use super::error::Fault;
use super::{attributes, executions, history, inbox, outbox};
use crate::id::WorkflowKey;
use crate::store::{Execution, NewExecution, Outcome};

/// What came of one start.
pub(super) enum Creation {
    /// Created; `inbox` tells whether unread inbox rows wait for it.
    Created { inbox: bool },
    /// Its key is taken.
    Exists(Box<Execution>),
}

/// Starts of one round.
pub(super) async fn apply(
    within: &mut Transaction<'_>,
    starts: &[(usize, &NewExecution)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if starts.is_empty() {
        return Ok(());
    }
    let new: Vec<&NewExecution> = starts.iter().map(|(_, new)| *new).collect();
    for ((index, _), creation) in starts.iter().zip(create(within, &new).await?) {
        outcomes[*index] = Some(match creation {
            Creation::Created { inbox } => Outcome::Started { inbox },
            Creation::Exists(execution) => Outcome::Exists(execution),
        });
    }
    Ok(())
}

/// Creates executions with their first records and attributes. One whose key is taken, by another node perhaps at this
/// very moment, is left out.
pub(super) async fn create(within: &mut Transaction<'_>, new: &[&NewExecution]) -> Result<Vec<Creation>, Fault> {
    // Before the rows that wait for the new executions are looked for.
    take_up(within, new).await?;

    let mut sorted = Vec::with_capacity(new.len());
    for new in new {
        sorted.push((within.key_in(new.shard, &new.key).await?, *new));
    }
    // Stable: of two with one key, which only one transition can spawn in one round, the first is created.
    sorted.sort_by_key(|(key, _)| *key);
    sorted.dedup_by(|(_, later), (_, first)| later.key == first.key);

    let created = insert(within, &sorted).await?;
    let mut signals_wait = HashMap::new();
    let mut taken = Vec::new();
    sorted.retain(|((shard, code, id), new)| match created.get(&(*shard, *code, (*id).to_owned())) {
        Some(inbox) => {
            signals_wait.insert(new.key.clone(), *inbox);
            true
        }
        None => {
            taken.push((*shard, *code, *id));
            false
        }
    });
    let existing = existing(within, &taken).await?;

    let records = sorted.iter().map(|((shard, ..), new)| (*shard, new.run_id, &new.record)).collect();
    history::append(within.connection, &within.layout, records).await?;
    let attributes =
        sorted.iter().flat_map(|(key, new)| new.attributes.iter().map(|(name, value)| (*key, name.as_str(), value))).collect();
    attributes::insert(within.connection, &within.layout, attributes).await?;
    outbox::insert(within.connection, &within.layout, sorted.iter().flat_map(|(_, new)| &new.emit).collect()).await?;

    let creation = |new: &&NewExecution| match (signals_wait.get(&new.key), existing.get(&new.key)) {
        (Some(inbox), _) => Ok(Creation::Created { inbox: *inbox }),
        (None, Some(execution)) => Ok(Creation::Exists(Box::new(execution.clone()))),
        // It was there a moment ago.
        (None, None) => Err(Fault::Overtaken("the key of an execution")),
    };
    new.iter().map(creation).collect()
}

/// Creates the rows whose keys are free; those that were, and whether unread inbox rows wait for them.
async fn insert(
    within: &mut Transaction<'_>,
    rows: &[(executions::CodedKey<'_>, &NewExecution)],
) -> Result<BTreeMap<(i16, i16, String), bool>, Fault> {
    let created = executions::insert(within.connection, &within.layout, rows).await?;
    if created.iter().all(|(_, inbox)| inbox.is_some()) {
        return Ok(created.into_iter().filter_map(|(key, inbox)| Some((key, inbox?))).collect());
    }
    let keys: Vec<executions::CodedKey<'_>> = created.iter().map(|((shard, code, id), _)| (*shard, *code, id.as_str())).collect();
    let unread = inbox::unread(within.connection, &within.layout, &keys).await?;
    Ok(created.into_iter().map(|(key, _)| key).zip(unread.iter().map(|unread| !unread.is_empty())).collect())
}

async fn existing(
    within: &mut Transaction<'_>,
    taken: &[executions::CodedKey<'_>],
) -> Result<HashMap<WorkflowKey, Execution>, Fault> {
    if taken.is_empty() {
        return Ok(HashMap::new());
    }
    let found = executions::existing(within.connection, &within.layout, taken).await?;
    Ok(found.into_iter().map(|execution| (execution.key.clone(), execution)).collect())
}

/// Removes the inbox rows that starts take up.
async fn take_up(within: &mut Transaction<'_>, new: &[&NewExecution]) -> Result<(), Fault> {
    let mut rows: Vec<inbox::RowKey<'_>> = Vec::new();
    for (key, signal_id) in new.iter().flat_map(|new| &new.consume) {
        rows.push((within.key(key).await?, signal_id));
    }
    Ok(inbox::delete(within.connection, &within.layout, rows).await?)
}
