//! Storing signals for executions that cannot take them now.

use std::collections::{BTreeMap, HashMap};

use super::commit::Transaction;
use super::error::Fault;
use super::executions::{self, CodedKey};
use super::inbox::{self, RowKey, Says};
use crate::store::{Deposit, INBOX_ROWS_PER_KEY_MAX, Outcome};

/// Deposits of one round, judged in their order.
pub(super) async fn apply(
    within: &mut Transaction<'_>,
    deposits: &[(usize, &Deposit)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if deposits.is_empty() {
        return Ok(());
    }
    let mut keys: Vec<RowKey<'_>> = Vec::with_capacity(deposits.len());
    for (_, deposit) in deposits {
        let row = &deposit.row;
        keys.push((within.key_in(row.shard, &row.key).await?, &row.signal_id));
    }
    let mut rows_of = rows_of_each(within, &keys).await?;
    let known = inbox::known(within.connection, &within.layout, &keys).await?;
    let mut room = within.inbox_room().await?;

    let mut stored = HashMap::new();
    let mut accepted = Vec::new();
    for ((key, known), (index, deposit)) in keys.iter().zip(known).zip(deposits) {
        let rows = rows_of.get_mut(&key.0).expect("every key was counted");
        let earlier = known.or_else(|| stored.get(key).cloned());
        outcomes[*index] = Some(match earlier {
            Some(says) if says.same_as(&deposit.row) => Outcome::Duplicate,
            Some(_) => Outcome::Conflict,
            None if *rows >= INBOX_ROWS_PER_KEY_MAX || room == 0 => Outcome::InboxFull,
            None => {
                *rows += 1;
                room -= 1;
                stored.insert(*key, Says::Identity(deposit.row.identity));
                accepted.push((key.0, &deposit.row));
                Outcome::Deposited
            }
        });
    }
    accepted.sort_unstable_by_key(|(key, row)| (*key, row.signal_id.as_str()));
    let inserted = inbox::insert(within.connection, &within.layout, &accepted).await?;
    within.inbox_grew(accepted.len());
    // Another node stored the same signal since it was looked for.
    if inserted == accepted.len() as u64 { Ok(()) } else { Err(Fault::Overtaken("the inbox")) }
}

/// How many rows each execution has that signals are for. Takes a share of the executions' rows first, which makes each
/// of the signals precede or follow a guarded transition and never slip past it.
async fn rows_of_each<'a>(within: &mut Transaction<'_>, keys: &[RowKey<'a>]) -> Result<BTreeMap<CodedKey<'a>, usize>, Fault> {
    let mut executions: Vec<CodedKey<'a>> = keys.iter().map(|(key, _)| *key).collect();
    executions.sort_unstable();
    executions.dedup();
    executions::lock_shared(within.connection, &within.layout, &executions).await?;
    let rows = inbox::count_each(within.connection, &within.layout, &executions, INBOX_ROWS_PER_KEY_MAX).await?;
    Ok(executions.into_iter().zip(rows).collect())
}
