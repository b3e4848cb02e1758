//! Storing signals for executions that cannot take them now.

use std::collections::HashMap;

use super::commit::Batch;
use super::error::Fault;
use super::inbox::{self, RowKey};
use crate::store::{Deposit, INBOX_ROWS_MAX, INBOX_ROWS_PER_KEY_MAX, Outcome, Refuse};

/// Deposits of one round, judged in their order.
pub(super) async fn apply(
    batch: &mut Batch<'_>,
    deposits: &[(usize, &Deposit)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if deposits.is_empty() {
        return Ok(());
    }
    let mut keys: Vec<RowKey<'_>> = Vec::with_capacity(deposits.len());
    for (_, deposit) in deposits {
        let code = batch.type_code(deposit.row.key.workflow_type()).await?;
        keys.push((code, deposit.row.key.id(), &deposit.row.signal_id));
    }
    let known = inbox::known(batch.connection, &keys).await?;
    let mut rows_in_all = batch.inbox_rows().await?;
    let mut rows_per_key = HashMap::new();
    let mut stored = HashMap::new();
    let mut accepted = Vec::new();
    for ((key, known), (index, deposit)) in keys.iter().zip(known).zip(deposits) {
        let (code, id, _) = *key;
        let rows: &mut usize = rows_per_key.entry((code, id)).or_insert(known.rows);
        let earlier = known.identity.or_else(|| stored.get(key).copied());
        outcomes[*index] = Some(match earlier {
            Some(identity) if identity == deposit.row.identity => Outcome::Duplicate,
            Some(_) => Outcome::Conflict,
            None if *rows >= INBOX_ROWS_PER_KEY_MAX || rows_in_all >= INBOX_ROWS_MAX as u64 => Outcome::InboxFull,
            None => {
                *rows += 1;
                rows_in_all += 1;
                stored.insert(*key, deposit.row.identity);
                accepted.push((code, &deposit.row));
                Outcome::Deposited
            }
        });
    }
    accepted.sort_unstable_by_key(|(code, row)| (*code, row.key.id(), row.signal_id.as_str()));
    inbox::insert(batch.connection, &accepted).await?;
    batch.inbox_changed(accepted.len() as u64, 0);
    Ok(())
}

/// Marks signals held. Nobody asks for starts inside this store.
pub(super) async fn refuse(
    batch: &mut Batch<'_>,
    refused: &[(usize, &Refuse)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    let mut rows: Vec<RowKey<'_>> = Vec::new();
    for (index, refuse) in refused {
        outcomes[*index] = Some(Outcome::Refused);
        if let Some(signal_id) = &refuse.signal_id {
            rows.push((batch.type_code(refuse.key.workflow_type()).await?, refuse.key.id(), signal_id));
        }
    }
    rows.sort_unstable();
    inbox::hold(batch.connection, &rows).await?;
    Ok(())
}
