//! Transitions: judged first, so that a refused one leaves no trace, then applied together.

use super::commit::Batch;
use super::error::Fault;
use super::{executions, history, inbox, outbox, starts};
use crate::store::{Advance, Outcome};

/// A transition that was not refused.
struct Accepted<'a> {
    code: i64,
    advance: &'a Advance,
}

/// Transitions of one round.
pub(super) async fn apply(
    batch: &mut Batch<'_>,
    advances: &[(usize, &Advance)],
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Fault> {
    if advances.is_empty() {
        return Ok(());
    }
    let mut coded = Vec::with_capacity(advances.len());
    for (_, advance) in advances {
        coded.push((batch.type_code(advance.key.workflow_type()).await?, *advance));
    }
    let stale = executions::unexpected(batch.connection, &coded).await?;
    let guarded = guard(batch, &coded).await?;

    let mut accepted = Vec::with_capacity(advances.len());
    for (place, ((index, advance), (code, _))) in advances.iter().zip(&coded).enumerate() {
        outcomes[*index] = Some(if stale.contains(&place) {
            Outcome::Stale
        } else if guarded[place] {
            Outcome::UnreadInbox
        } else {
            accepted.push(Accepted { code: *code, advance });
            Outcome::Advanced
        });
    }
    write(batch, &accepted).await
}

/// Which of the transitions are refused because of an unread row that they do not know of. A row that the same
/// transition holds counts as held.
async fn guard(batch: &mut Batch<'_>, coded: &[(i64, &Advance)]) -> Result<Vec<bool>, Fault> {
    let mut refused = vec![false; coded.len()];
    if batch.inbox_rows().await? == 0 {
        return Ok(refused);
    }
    let places: Vec<usize> = (0..coded.len()).filter(|place| coded[*place].1.guard_inbox).collect();
    let keys: Vec<_> = places.iter().map(|place| (coded[*place].0, coded[*place].1.key.id())).collect();
    for (place, unread) in places.into_iter().zip(inbox::unread(batch.connection, &keys).await?) {
        let advance = coded[place].1;
        refused[place] = unread.iter().any(|signal_id| !advance.consume.contains(signal_id) && !advance.hold.contains(signal_id));
    }
    Ok(refused)
}

async fn write(batch: &mut Batch<'_>, accepted: &[Accepted<'_>]) -> Result<(), Fault> {
    let records =
        accepted.iter().filter_map(|accepted| Some((accepted.advance.run_id, accepted.advance.record.as_ref()?))).collect();
    history::append(batch.connection, records).await?;

    let changes = accepted
        .iter()
        .filter_map(|Accepted { code, advance }| Some(((*code, advance.key.id()), advance.rev, advance.row.as_ref()?)))
        .collect();
    executions::update(batch.connection, changes).await?;

    if batch.inbox_rows().await? > 0 {
        let removed = inbox::delete(batch.connection, &rows(accepted, |advance| &advance.consume)).await?;
        batch.inbox_changed(0, removed);
        inbox::hold(batch.connection, &rows(accepted, |advance| &advance.hold)).await?;
    }

    outbox::insert(batch.connection, accepted.iter().flat_map(|accepted| &accepted.advance.emit).collect()).await?;

    let spawned: Vec<_> = accepted.iter().flat_map(|accepted| &accepted.advance.spawn).collect();
    if !spawned.is_empty() {
        starts::create(batch, &spawned).await?;
    }
    Ok(())
}

/// The inbox rows that the transitions name, in the order of their keys.
fn rows<'a>(accepted: &[Accepted<'a>], named: fn(&Advance) -> &Vec<String>) -> Vec<inbox::RowKey<'a>> {
    let mut rows: Vec<_> = accepted
        .iter()
        .flat_map(|accepted| {
            let (code, id) = (accepted.code, accepted.advance.key.id());
            named(accepted.advance).iter().map(move |signal_id| (code, id, signal_id.as_str()))
        })
        .collect();
    rows.sort_unstable();
    rows
}
