//! Applying a batch: the fence first, then the writes in rounds in which their order makes no difference.

use std::collections::HashMap;

use sqlx::sqlite::SqliteConnection;

use super::error::Fault;
use super::{advances, deposits, inbox, lane, outbox, retention, starts, types};
use crate::fault::{Point, point};
use crate::store::rounds::rounds;
use crate::store::{Fence, Outcome, Write};

/// What the writer remembers of the database from batch to batch. Whoever rolls back forgets it.
#[derive(Default)]
pub(super) struct Memory {
    types: HashMap<String, i64>,
    inbox_rows: Option<u64>,
}

/// The transaction that a batch is applied in.
pub(super) struct Batch<'a> {
    pub(super) connection: &'a mut SqliteConnection,
    pub(super) memory: &'a mut Memory,
}

impl Batch<'_> {
    /// The number of a workflow type.
    pub(super) async fn type_code(&mut self, name: &str) -> Result<i64, sqlx::Error> {
        if let Some(code) = self.memory.types.get(name) {
            return Ok(*code);
        }
        let code = types::code(self.connection, name).await?;
        self.memory.types.insert(name.to_owned(), code);
        Ok(code)
    }

    /// Rows in the inbox. Most of the time there are none, and then nothing of it needs to be read.
    pub(super) async fn inbox_rows(&mut self) -> Result<u64, sqlx::Error> {
        if let Some(rows) = self.memory.inbox_rows {
            return Ok(rows);
        }
        let rows = inbox::count(self.connection).await?;
        self.memory.inbox_rows = Some(rows);
        Ok(rows)
    }

    /// Takes note of rows that came into the inbox or left it.
    pub(super) fn inbox_changed(&mut self, came: u64, left: u64) {
        self.memory.inbox_rows = self.memory.inbox_rows.map(|rows| (rows + came).saturating_sub(left));
    }
}

/// Applies a batch as if its writes came one after another. Needs a transaction; after a fault it must be rolled back.
pub(super) async fn apply(batch: &mut Batch<'_>, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, Fault> {
    point(Point::FenceUnchecked);
    lane::check(batch.connection, fence).await?;
    point(Point::FenceChecked);
    let mut outcomes: Vec<Option<Outcome>> = writes.iter().map(|_| None).collect();
    for round in rounds(writes) {
        let (mut new, mut transitions, mut signals) = (Vec::new(), Vec::new(), Vec::new());
        let (mut refused, mut ends, mut dispatches) = (Vec::new(), Vec::new(), Vec::new());
        for (index, write) in round.clone().zip(&writes[round]) {
            match write {
                Write::Start(start) => new.push((index, start)),
                Write::Advance(advance) => transitions.push((index, advance)),
                Write::Deposit(deposit) => signals.push((index, deposit)),
                Write::Refuse(refuse) => refused.push((index, refuse)),
                Write::Retire(retire) => ends.push((index, retention::End::Retire(retire))),
                Write::Forget(forget) => ends.push((index, retention::End::Forget(forget))),
                Write::Dispatch(dispatch) => dispatches.push((index, dispatch)),
            }
        }
        starts::apply(batch, &new, &mut outcomes).await?;
        advances::apply(batch, &transitions, &mut outcomes).await?;
        deposits::apply(batch, &signals, &mut outcomes).await?;
        deposits::refuse(batch, &refused, &mut outcomes).await?;
        retention::apply(batch, &ends, &mut outcomes).await?;
        outbox::apply(batch, &dispatches, &mut outcomes).await?;
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.expect("each write is in a round, and each round answers")).collect())
}
