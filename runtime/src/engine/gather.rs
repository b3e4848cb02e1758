//! Which of the waiting writes make the next batch.
//!
//! The oldest is always in it, and says of which place all of it is: so that one batch is one place's transaction, where a
//! store has several, and no place waits for ever. Of one execution there is one write in a batch; what comes after it
//! waits for it.

use std::collections::HashSet;

use super::committer::CommitRequest;
use crate::fault::{Whim, whim};
use crate::id::WorkflowKey;
use crate::store::{OutboxRow, Store, Write};

/// The most writes of one batch: beyond that, a batch takes longer without costing less per write.
const WRITES_PER_BATCH_MAX: usize = 500;
/// The most bytes of history in one batch, so that a few large payloads do not hold everybody up.
const BYTES_PER_BATCH_MAX: usize = 4 * 1024 * 1024;
/// The most writes that are looked at and put off: enough that those of one of several places fill a batch.
const PUT_OFF_MAX: usize = 2_000;

/// A batch while it gathers. Writes are offered in the order of their arrival.
pub(super) struct Gathering<'a> {
    store: &'a dyn Store,
    placement: Option<u32>,
    batch: Vec<CommitRequest>,
    keys: HashSet<WorkflowKey>,
    bytes: usize,
    put_off: Vec<CommitRequest>,
    keys_put_off: HashSet<WorkflowKey>,
}

impl<'a> Gathering<'a> {
    pub(super) fn new(store: &'a dyn Store) -> Self {
        Self {
            store,
            placement: None,
            batch: Vec::new(),
            keys: HashSet::new(),
            bytes: 0,
            put_off: Vec::new(),
            keys_put_off: HashSet::new(),
        }
    }

    /// Whether nothing more is to be offered.
    pub(super) fn is_full(&self) -> bool {
        (!self.batch.is_empty() && whim(Whim::TinyBatch))
            || self.batch.len() >= WRITES_PER_BATCH_MAX
            || self.bytes >= BYTES_PER_BATCH_MAX
            || self.put_off.len() >= PUT_OFF_MAX
    }

    /// Takes a write into the batch, or puts it off.
    pub(super) fn offer(&mut self, request: CommitRequest) {
        let placement = self.store.placement(request.write.shard());
        if *self.placement.get_or_insert(placement) != placement {
            // Whatever follows it is of the same place, and put off as well.
            self.put_off.push(request);
            return;
        }
        let touched = keys_of(&request.write);
        if touched.iter().any(|key| self.keys.contains(*key) || self.keys_put_off.contains(*key)) {
            self.keys_put_off.extend(touched.into_iter().cloned());
            self.put_off.push(request);
            return;
        }
        self.keys.extend(touched.into_iter().cloned());
        self.bytes += bytes_of(&request.write);
        self.batch.push(request);
    }

    /// The batch, and what was put off, in the order of arrival.
    pub(super) fn finish(self) -> (Vec<CommitRequest>, Vec<CommitRequest>) {
        (self.batch, self.put_off)
    }
}

/// The executions that a write is about. Deposits may stand beside anything.
fn keys_of(write: &Write) -> Vec<&WorkflowKey> {
    match write {
        Write::Start(new) => vec![&new.key],
        Write::Advance(advance) => std::iter::once(&advance.key).chain(advance.spawn.iter().map(|new| &new.key)).collect(),
        Write::Refuse(refuse) => vec![&refuse.key],
        Write::Deposit(_) => Vec::new(),
        Write::Retire(retire) => vec![&retire.key],
        Write::Forget(forget) => vec![&forget.key],
        Write::Dispatch(dispatch) => vec![&dispatch.key],
    }
}

fn bytes_of(write: &Write) -> usize {
    match write {
        Write::Start(new) => new.record.bytes.len() + emitted(&new.emit),
        Write::Advance(advance) => advance.record.as_ref().map_or(0, |record| record.bytes.len()) + emitted(&advance.emit),
        Write::Deposit(deposit) => deposit.row.payload.len(),
        Write::Retire(retire) => retire.tombstone.len(),
        Write::Refuse(_) | Write::Forget(_) | Write::Dispatch(_) => 0,
    }
}

fn emitted(rows: &[OutboxRow]) -> usize {
    rows.iter().map(|row| row.data.len()).sum()
}
