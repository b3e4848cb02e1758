//! What became of a batch whose commit has no known outcome.
//!
//! Asked only after the own epoch was raised: from then on the old commit is in the store, or never will be. A batch is
//! one transaction, but of its writes some may have been refused by the store; those are committed again and judged anew.

use std::collections::HashMap;

use crate::id::WorkflowKey;
use crate::store::{Advance, Loaded, NewExecution, Outcome, Retire, Store, StoreError, Write};

/// For each write, the outcome that it certainly had; `None` when it left no trace and is to be committed again. What
/// cannot be told from what is stored may be repeated without harm: a deposit, a refusal, what becomes of an event (a second
/// time it is stale), and what only takes up inbox rows.
pub(super) async fn applied(store: &dyn Store, writes: &[Write]) -> Result<Vec<Option<Outcome>>, StoreError> {
    let keys: Vec<WorkflowKey> = writes.iter().filter_map(subject).cloned().collect();
    let loaded = store.load(&keys).await?;
    let found: HashMap<WorkflowKey, Loaded> =
        keys.into_iter().zip(loaded).filter_map(|(key, loaded)| Some((key, loaded?))).collect();
    let outcome = |write: &Write| match write {
        Write::Start(new) => found.get(&new.key).filter(|loaded| is_ours(new, loaded)).map(|_| {
            // Rows that wait for it are looked for once more than needed.
            Outcome::Started { inbox: true }
        }),
        Write::Advance(advance) => {
            found.get(&advance.key).filter(|loaded| is_applied(advance, loaded)).map(|_| Outcome::Advanced)
        }
        Write::Deposit(_) | Write::Refuse(_) | Write::Dispatch(_) => None,
        Write::Retire(retire) => found.get(&retire.key).filter(|loaded| is_retired(retire, loaded)).map(|_| Outcome::Retired),
        // Nobody but this lane removes it.
        Write::Forget(forget) => match found.get(&forget.key) {
            Some(loaded) if loaded.execution.run_id == forget.run_id => None,
            _ => Some(Outcome::Forgotten),
        },
    };
    Ok(writes.iter().map(outcome).collect())
}

fn subject(write: &Write) -> Option<&WorkflowKey> {
    match write {
        Write::Start(new) => Some(&new.key),
        Write::Advance(advance) => Some(&advance.key),
        Write::Retire(retire) => Some(&retire.key),
        Write::Forget(forget) => Some(&forget.key),
        Write::Deposit(_) | Write::Refuse(_) | Write::Dispatch(_) => None,
    }
}

fn is_retired(retire: &Retire, loaded: &Loaded) -> bool {
    let row = &loaded.execution;
    row.retired && row.run_id == retire.run_id && row.rev == retire.rev + 1
}

fn is_ours(new: &NewExecution, loaded: &Loaded) -> bool {
    loaded.execution.run_id == new.run_id
}

fn is_applied(advance: &Advance, loaded: &Loaded) -> bool {
    if loaded.execution.run_id != advance.run_id {
        return false;
    }
    match (&advance.record, &advance.row) {
        (Some(record), _) => loaded.records.contains(record),
        // Nobody but this lane raises the number.
        (None, Some(_)) => loaded.execution.rev == advance.rev + 1,
        (None, None) => false,
    }
}
