//! Applying a batch: the fence first, then the writes in rounds in which their order makes no difference.
//!
//! Other nodes write at the same time. What a statement finds free may be taken when the next one comes: then the whole
//! batch is tried again, in a new transaction. Isolation is READ COMMITTED, so that each statement sees what was committed
//! before it began.

use std::collections::{BTreeSet, HashMap, HashSet};

use sqlx::postgres::PgConnection;

use super::error::Fault;
use super::executions::{CodedKey, coded};
use super::layout::Layout;
use super::retention::End;
use super::values::stored_shards;
use super::writer::Work;
use super::{advances, anchors, deposits, inbox, lane, outbox, requests, retention, starts, types};
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::store::rounds::rounds;
use crate::store::{Advance, Dispatch, Fence, Forget, INBOX_ROWS_MAX, NewExecution, OutboxKey, Outcome, Refuse, Retire, Write};

/// Other nodes' deposits are not seen between two counts of the inbox: the next one comes when this node has stored this
/// part of what was then free.
const PART_OF_INBOX_BETWEEN_COUNTS: usize = 16;

/// What the writer remembers of the database from transaction to transaction. Whoever rolls back forgets it.
#[derive(Default)]
pub(super) struct Memory {
    types: HashMap<String, i16>,
    inbox: Option<InboxCount>,
    /// The epoch of the lane that names the present session as its own.
    pub(super) recorded_epoch: Option<i64>,
}

/// A count of the inbox, and what this node stored since.
#[derive(Clone, Copy)]
struct InboxCount {
    rows: usize,
    stored_since: usize,
}

/// The transaction under way in the session that writes.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a mut PgConnection,
    pub(super) memory: &'a mut Memory,
    /// The store's number of shards.
    pub(super) shards: u16,
    pub(super) layout: Layout,
    /// The store as messages name it.
    pub(super) url: &'a str,
}

impl Transaction<'_> {
    /// The number of a workflow type.
    pub(super) async fn type_code(&mut self, name: &str) -> Result<i16, Fault> {
        if let Some(code) = self.memory.types.get(name) {
            return Ok(*code);
        }
        let code = types::code(self.connection, name).await?;
        self.memory.types.insert(name.to_owned(), code);
        Ok(code)
    }

    /// The name of an execution's row, in a shard that is known.
    pub(super) async fn key_in<'k>(&mut self, shard: u16, key: &'k WorkflowKey) -> Result<CodedKey<'k>, Fault> {
        coded(shard, self.type_code(key.workflow_type()).await?, key.id())
    }

    /// The name of an execution's row.
    pub(super) async fn key<'k>(&mut self, key: &'k WorkflowKey) -> Result<CodedKey<'k>, Fault> {
        self.key_in(key.shard(self.shards), key).await
    }

    /// How many more rows the inbox may take. Exact when it is nearly full and this node alone fills it.
    pub(super) async fn inbox_room(&mut self) -> Result<usize, sqlx::Error> {
        let room = |count: InboxCount| INBOX_ROWS_MAX.saturating_sub(count.rows + count.stored_since);
        if let Some(count) = self.memory.inbox {
            let free_then = INBOX_ROWS_MAX.saturating_sub(count.rows);
            if count.stored_since < free_then / PART_OF_INBOX_BETWEEN_COUNTS {
                return Ok(room(count));
            }
        }
        let count = InboxCount { rows: inbox::count(self.connection, &self.layout, INBOX_ROWS_MAX).await?, stored_since: 0 };
        self.memory.inbox = Some(count);
        Ok(room(count))
    }

    /// Takes note of rows that this node stored in the inbox.
    pub(super) fn inbox_grew(&mut self, rows: usize) {
        if let Some(count) = &mut self.memory.inbox {
            count.stored_since += rows;
        }
    }
}

/// A batch, applied as if its writes came one after another.
pub(super) struct Batch {
    pub(super) fence: Fence,
    pub(super) writes: Vec<Write>,
}

impl Work for Batch {
    type Value = Vec<Outcome>;

    const IS_BATCH: bool = true;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<Vec<Outcome>, Fault> {
        point(Point::FenceUnchecked);
        let owned = lane::check(within, &self.fence).await?;
        point(Point::FenceChecked);
        let layout = within.layout.clone();
        let place = |write: &Write| layout.place(write.shard());
        if self.writes.is_sorted_by_key(place) || !self.writes.iter().all(|write| stays_at_its_place(write, &layout)) {
            // One place, but for a batch that nobody gathered.
            let mut outcomes = Vec::with_capacity(self.writes.len());
            for at_one_place in self.writes.chunk_by(|one, next| place(one) == place(next)) {
                outcomes.extend(apply_at_one_place(within, &owned, at_one_place).await?);
            }
            return Ok(outcomes);
        }
        // Writes whose order matters are of one place, and keep it there.
        let mut outcomes = Vec::with_capacity(self.writes.len());
        for part in layout.parts((0..self.writes.len()).collect(), |index: &usize| self.writes[*index].shard()) {
            let writes: Vec<Write> = part.iter().map(|index| self.writes[*index].clone()).collect();
            outcomes.extend(part.into_iter().zip(apply_at_one_place(within, &owned, &writes).await?));
        }
        outcomes.sort_unstable_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }
}

/// Whether all that a write touches is where its shard is. In life it is even in the same shard.
fn stays_at_its_place(write: &Write, layout: &Layout) -> bool {
    let place = layout.place(write.shard());
    let new: &[NewExecution] = match write {
        Write::Start(new) => std::slice::from_ref(new),
        Write::Advance(advance) => &advance.spawn,
        _ => return true,
    };
    let shards = layout.shards().unwrap_or(1);
    new.iter().all(|new| {
        layout.place(new.shard) == place && new.consume.iter().all(|(key, _)| layout.place(key.shard(shards)) == place)
    })
}

async fn apply_at_one_place(within: &mut Transaction<'_>, owned: &HashSet<u16>, writes: &[Write]) -> Result<Vec<Outcome>, Fault> {
    anchors::hold(within.connection, &within.layout, &advanced(owned, writes)).await?;
    let mut outcomes: Vec<Option<Outcome>> = writes.iter().map(|_| None).collect();
    for round in rounds(writes) {
        let (mut new, mut transitions, mut signals) = (Vec::new(), Vec::new(), Vec::new());
        let (mut refused, mut ends, mut dispatches) = (Vec::new(), Vec::new(), Vec::new());
        for (index, write) in round.clone().zip(&writes[round]) {
            match write {
                Write::Advance(Advance { shard, .. })
                | Write::Refuse(Refuse { shard, .. })
                | Write::Retire(Retire { shard, .. })
                | Write::Forget(Forget { shard, .. })
                | Write::Dispatch(Dispatch { place: OutboxKey { shard, .. }, .. })
                    if !owned.contains(shard) =>
                {
                    outcomes[index] = Some(Outcome::NotOwned);
                }
                Write::Start(start) => new.push((index, start)),
                Write::Advance(advance) => transitions.push((index, advance)),
                Write::Deposit(deposit) => signals.push((index, deposit)),
                Write::Refuse(refuse) => refused.push((index, refuse)),
                Write::Retire(retire) => ends.push((index, End::Retire(retire))),
                Write::Forget(forget) => ends.push((index, End::Forget(forget))),
                Write::Dispatch(dispatch) => dispatches.push((index, dispatch)),
            }
        }
        starts::apply(within, &new, &mut outcomes).await?;
        requests::settle(within, &new, &outcomes).await?;
        advances::apply(within, &transitions, &mut outcomes).await?;
        deposits::apply(within, &signals, &mut outcomes).await?;
        requests::refuse(within, &refused, &mut outcomes).await?;
        retention::apply(within, &ends, &mut outcomes).await?;
        outbox::apply(within, &dispatches, &mut outcomes).await?;
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.expect("each write is in a round, and each round answers")).collect())
}

/// The shards in which executions are advanced, rather than only added to.
fn advanced(owned: &HashSet<u16>, writes: &[Write]) -> Vec<i16> {
    let fenced = writes.iter().filter(|write| !matches!(write, Write::Start(_) | Write::Deposit(_)));
    let shards: BTreeSet<u16> = fenced.map(Write::shard).filter(|shard| owned.contains(shard)).collect();
    stored_shards(&shards.into_iter().collect::<Vec<_>>())
}
