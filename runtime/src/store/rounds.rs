//! Batches in rounds: writes whose order makes no difference are applied together.

use std::collections::HashSet;
use std::ops::Range;

use super::{NewExecution, Write};
use crate::id::WorkflowKey;

/// Cuts a batch before each write that is about an execution which the round so far touches. Deposits to one inbox may
/// share a round: they are judged one by one.
pub(super) fn rounds(writes: &[Write]) -> Vec<Range<usize>> {
    let mut rounds = Vec::new();
    let mut begin = 0;
    let (mut changed, mut deposited): (HashSet<&WorkflowKey>, HashSet<&WorkflowKey>) = Default::default();
    for (index, write) in writes.iter().enumerate() {
        let (changes, deposit) = keys(write);
        let met = changes.iter().any(|key| changed.contains(key) || deposited.contains(key))
            || deposit.is_some_and(|key| changed.contains(key));
        if met {
            rounds.push(begin..index);
            begin = index;
            changed.clear();
            deposited.clear();
        }
        changed.extend(changes);
        deposited.extend(deposit);
    }
    rounds.push(begin..writes.len());
    rounds
}

/// The executions that a write changes, and the one whose inbox it adds to.
fn keys(write: &Write) -> (Vec<&WorkflowKey>, Option<&WorkflowKey>) {
    fn of_new(new: &NewExecution) -> impl Iterator<Item = &WorkflowKey> {
        std::iter::once(&new.key).chain(new.consume.iter().map(|(key, _)| key))
    }
    match write {
        Write::Start(new) => (of_new(new).collect(), None),
        Write::Advance(advance) => (std::iter::once(&advance.key).chain(advance.spawn.iter().flat_map(of_new)).collect(), None),
        Write::Deposit(deposit) => (Vec::new(), Some(&deposit.row.key)),
        Write::Refuse(refuse) => (vec![&refuse.key], None),
        Write::Retire(retire) => (vec![&retire.key], None),
        Write::Forget(forget) => (vec![&forget.key], None),
        Write::Dispatch(dispatch) => (vec![&dispatch.key], None),
    }
}
