//! Transitions: judged first, so that a refused one leaves no trace, then applied together.

use super::commit::Transaction;
use super::error::Fault;
use super::executions::CodedKey;
use super::{executions, history, inbox, outbox, starts};
use crate::store::{Advance, Outcome};

/// A transition with the name of its execution's row.
type Coded<'a> = (CodedKey<'a>, &'a Advance);

/// Transitions of one round.
pub(super) async fn apply(
    within: &mut Transaction<'_>,
    advances: &[(usize, &Advance)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if advances.is_empty() {
        return Ok(());
    }
    let mut coded = Vec::with_capacity(advances.len());
    for (_, advance) in advances {
        coded.push((within.key_in(advance.shard, &advance.key).await?, *advance));
    }
    let guarded = guard(within, &coded).await?;
    let stale = executions::unexpected(within.connection, &within.layout, &coded).await?;

    let mut accepted = Vec::with_capacity(advances.len());
    for (place, ((index, _), coded)) in advances.iter().zip(&coded).enumerate() {
        outcomes[*index] = Some(if stale.contains(&place) {
            Outcome::Stale
        } else if guarded[place] {
            Outcome::UnreadInbox
        } else {
            accepted.push(*coded);
            Outcome::Advanced
        });
    }
    write(within, &accepted).await
}

/// Which of the transitions are refused because of an unread row that they do not know of. A row that the same
/// transition holds counts as held.
///
/// A deposit holds a share of the execution's row until it is committed. So once the rows are locked, every deposit that
/// was begun before is there to be seen by the next statement, and every later one waits for this commit.
async fn guard(within: &mut Transaction<'_>, coded: &[Coded<'_>]) -> Result<Vec<bool>, Fault> {
    let mut refused = vec![false; coded.len()];
    let places: Vec<usize> = (0..coded.len()).filter(|place| coded[*place].1.guard_inbox).collect();
    if places.is_empty() {
        return Ok(refused);
    }
    let keys: Vec<CodedKey<'_>> = places.iter().map(|place| coded[*place].0).collect();
    executions::lock(within.connection, &within.layout, &keys).await?;
    for (place, unread) in places.into_iter().zip(inbox::unread(within.connection, &within.layout, &keys).await?) {
        let advance = coded[place].1;
        refused[place] = unread.iter().any(|signal_id| !advance.consume.contains(signal_id) && !advance.hold.contains(signal_id));
    }
    Ok(refused)
}

async fn write(within: &mut Transaction<'_>, accepted: &[Coded<'_>]) -> Result<(), Fault> {
    let records =
        accepted.iter().filter_map(|((shard, ..), advance)| Some((*shard, advance.run_id, advance.record.as_ref()?))).collect();
    history::append(within.connection, &within.layout, records).await?;

    let changes = accepted.iter().filter_map(|(key, advance)| Some((*key, advance.rev, advance.row.as_ref()?))).collect();
    executions::update(within.connection, &within.layout, changes).await?;

    inbox::delete(within.connection, &within.layout, rows(accepted, |advance| &advance.consume)).await?;
    inbox::hold(within.connection, &within.layout, rows(accepted, |advance| &advance.hold)).await?;

    let emitted = accepted.iter().flat_map(|(_, advance)| &advance.emit).collect();
    outbox::insert(within.connection, &within.layout, emitted).await?;

    let spawned: Vec<_> = accepted.iter().flat_map(|(_, advance)| &advance.spawn).collect();
    if !spawned.is_empty() {
        starts::create(within, &spawned).await?;
    }
    Ok(())
}

/// The inbox rows that the transitions name.
fn rows<'a>(accepted: &[Coded<'a>], named: fn(&Advance) -> &Vec<String>) -> Vec<inbox::RowKey<'a>> {
    accepted.iter().flat_map(|(key, advance)| named(advance).iter().map(move |signal_id| (*key, signal_id.as_str()))).collect()
}
