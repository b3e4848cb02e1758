//! A process's connections to the simulated database: what it asks for, and what it hears of it.

mod gates;
mod reads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::database::Database;
use super::process::Process;
use crate::fault::{Bug, planted, remember};
use crate::id::{RunId, WorkflowKey};
use crate::store::{
    AttributeValue, Closed, CommitError, DeclaredType, Due, Execution, Fence, Filter, InboxRow, Loaded, Membership, NewNode,
    Outcome, Page, Position, RequestedStart, Roster, RunPlace, Store, StoreError, StoreFacts, Stray, StrayPlace, Token, Write,
};
use crate::time::Timestamp;

/// How long a client waits for an answer that never comes.
const GIVES_UP: Duration = Duration::from_secs(2);

/// Under which name the time of a transaction is remembered that goes by its beginning.
pub const TRANSACTION_TIME: &str = "time of the transaction";

/// One process's way to the database.
pub(super) struct Session {
    database: Arc<Database>,
    process: Process,
    closed: AtomicBool,
}

impl Session {
    /// Connections of `process`.
    pub(super) fn new(database: &Arc<Database>, process: Process) -> Self {
        Self { database: Arc::clone(database), process, closed: AtomicBool::new(false) }
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Relaxed) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// A read: one statement, whose loss is no more than an error.
    async fn read<T>(&self, operation: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.check_open()?;
        let database = &self.database;
        database.travel().await;
        let faults = database.faults();
        if database.is_out() || database.dice().chance(faults.busy) {
            return database.unavailable();
        }
        if database.dice().chance(faults.request_lost + faults.answer_lost) {
            database.simulation().sleep(GIVES_UP).await;
            return database.unavailable();
        }
        let read = database.backing().inline(operation);
        database.travel().await;
        read
    }

    /// A change on the database's side, which goes on whatever becomes of this process. `None` when the client never
    /// hears of it, whether it happened or not.
    async fn change<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Arc<Database>) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Option<T> {
        let faults = self.database.faults();
        let dice = self.database.dice();
        if dice.chance(faults.request_lost) {
            self.database.simulation().sleep(GIVES_UP).await;
            self.database.judge().reach("unknown outcome, had not committed");
            return None;
        }
        let is_lost = dice.chance(faults.answer_lost);
        let (answer, answered) = oneshot::channel();
        let database = Arc::clone(&self.database);
        self.database.simulation().spawn(Process::WORLD, async move {
            database.travel().await;
            let done = operation(Arc::clone(&database)).await;
            if is_lost {
                database.judge().reach("unknown outcome, had committed");
            }
            database.travel().await;
            let _ = answer.send(done);
        });
        if is_lost {
            self.database.simulation().sleep(GIVES_UP).await;
            return None;
        }
        answered.await.ok()
    }

    /// A change that a store answers with a [`StoreError`].
    async fn change_or_unavailable<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Arc<Database>) -> BoxFuture<'static, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.check_open()?;
        if self.database.is_out() || self.database.dice().chance(self.database.faults().busy) {
            self.database.travel().await;
            return self.database.unavailable();
        }
        match self.change(operation).await {
            Some(result) => result,
            None => self.database.unavailable(),
        }
    }

    /// A transaction in the lane.
    async fn in_own_lane<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Arc<Database>) -> BoxFuture<'static, Result<T, CommitError>> + Send + 'static,
    ) -> Result<T, CommitError> {
        self.check_open().map_err(|closed| CommitError::Unavailable(closed.to_string()))?;
        let faults = self.database.faults();
        if self.database.is_out() || self.database.dice().chance(faults.busy) {
            self.database.travel().await;
            return Err(CommitError::Unavailable("the simulated database is busy".into()));
        }
        match self.change(operation).await {
            Some(result) => result,
            None => Err(CommitError::Unknown("the connection broke".into())),
        }
    }
}

#[async_trait]
impl Store for Session {
    fn facts(&self) -> &StoreFacts {
        self.database.backing().store().facts()
    }

    async fn join(&self, node: &NewNode) -> Result<Fence, StoreError> {
        let node = node.clone();
        self.change_or_unavailable(move |database| {
            Box::pin(async move {
                let backing = database.backing();
                let fence = backing.inline(backing.store().join(&node))?;
                database.judge().joined(&node, &fence);
                Ok(fence)
            })
        })
        .await
    }

    async fn renew(&self, fence: &Fence, lease: Duration) -> Result<Option<Membership>, StoreError> {
        let fence = fence.clone();
        self.change_or_unavailable(move |database| {
            Box::pin(async move {
                if planted(Bug::TransactionTimeInLease) {
                    // It begins, and waits for a lock; whatever asks for the time is told when it began.
                    let began = database.simulation().time();
                    database.simulation().sleep(database.dice().up_to(lease)).await;
                    remember(TRANSACTION_TIME, began.as_micros().to_string());
                }
                let backing = database.backing();
                let renewed = backing.inline(backing.store().renew(&fence, lease));
                remember(TRANSACTION_TIME, String::new());
                let mut membership = renewed?;
                if let Some(membership) = &mut membership {
                    membership.up = database.up();
                    database.judge().renewed(&fence.node_id, database.simulation().time().saturating_add(lease));
                }
                Ok(membership)
            })
        })
        .await
    }

    async fn claim(&self, fence: &Fence, most: usize) -> Result<Vec<u16>, CommitError> {
        let fence = fence.clone();
        self.in_own_lane(move |database| {
            Box::pin(async move {
                let backing = database.backing();
                let claimed = backing.inline(backing.store().claim(&fence, most))?;
                database.judge().claimed(&fence, &claimed);
                Ok(claimed)
            })
        })
        .await
    }

    async fn hand_over(&self, fence: &Fence, shards: &[u16], to: Option<&str>) -> Result<(), CommitError> {
        let (fence, shards, to) = (fence.clone(), shards.to_vec(), to.map(str::to_owned));
        self.in_own_lane(move |database| {
            Box::pin(async move {
                let backing = database.backing();
                backing.inline(backing.store().hand_over(&fence, &shards, to.as_deref()))?;
                database.judge().handed_over(&fence, &shards, to.as_deref(), database.simulation().time());
                Ok(())
            })
        })
        .await
    }

    async fn take_over(&self, node_id: &str, lease: Duration) -> Result<bool, StoreError> {
        let node_id = node_id.to_owned();
        self.change_or_unavailable(move |database| {
            Box::pin(async move {
                if database.up() < lease {
                    return Ok(false);
                }
                let backing = database.backing();
                let take = || backing.inline(backing.store().take_over(&node_id, lease));
                let taken = database.in_lane(&node_id, take).await?;
                if taken {
                    database.judge().taken_over(&node_id, database.simulation().time());
                }
                Ok(taken)
            })
        })
        .await
    }

    async fn raise(&self, fence: &Fence) -> Result<Option<Fence>, StoreError> {
        let fence = fence.clone();
        self.change_or_unavailable(move |database| {
            Box::pin(async move {
                let backing = database.backing();
                let raise = || backing.inline(backing.store().raise(&fence));
                let mut raised = database.in_lane(&fence.node_id, raise).await?;
                if raised.is_none() && planted(Bug::RaiseWithoutCheck) {
                    let again = NewNode::new(fence.node_id.clone(), Duration::from_secs(10));
                    raised = Some(backing.inline(backing.store().join(&again))?);
                }
                database.judge().raised(&fence, raised.as_ref());
                Ok(raised)
            })
        })
        .await
    }

    async fn leave(&self, fence: &Fence) -> Result<(), StoreError> {
        let fence = fence.clone();
        self.change_or_unavailable(move |database| {
            Box::pin(async move {
                let backing = database.backing();
                let leave = || backing.inline(backing.store().leave(&fence));
                database.in_lane(&fence.node_id, leave).await?;
                database.judge().left(&fence);
                Ok(())
            })
        })
        .await
    }

    async fn commit(&self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        let faults = self.database.faults();
        let limbo = self.database.dice().chance(faults.limbo).then(|| self.database.dice().up_to(faults.limbo_length));
        let (fence, writes, process) = (fence.clone(), writes.to_vec(), self.process);
        let heard = Arc::clone(&self.database);
        let Some(later) = limbo else {
            return self
                .in_own_lane(move |database| {
                    Box::pin(async move { database.transaction(process, &fence, &writes, Duration::ZERO).await })
                })
                .await;
        };
        // Its client hears of a broken connection, and some day it ends: begun now and held open, or begun only then.
        let database = Arc::clone(&heard);
        let (before, inside) = if heard.dice().chance(0.5) { (later, Duration::ZERO) } else { (Duration::ZERO, later) };
        heard.simulation().spawn(Process::WORLD, async move {
            database.simulation().sleep(before).await;
            if database.transaction(process, &fence, &writes, inside).await.is_ok() {
                database.judge().reach("commit landed after its client gave it up");
            }
        });
        heard.travel().await;
        Err(CommitError::Unknown("the connection broke".into()))
    }

    async fn load(&self, keys: &[WorkflowKey]) -> Result<Vec<Option<Loaded>>, StoreError> {
        let loaded = self.read(self.database.backing().store().load(keys)).await?;
        if loaded.iter().flatten().any(|loaded| loaded.records.len() > 1) {
            self.database.judge().reach("evicted workflow replayed");
        }
        Ok(loaded)
    }

    async fn find(&self, key: &WorkflowKey) -> Result<Option<Execution>, StoreError> {
        self.read(self.database.backing().store().find(key)).await
    }

    async fn due(&self, shards: &[u16], until: Timestamp, limit_per_shard: usize) -> Result<Vec<Due>, StoreError> {
        self.read(self.database.backing().store().due(shards, until, limit_per_shard)).await
    }

    async fn upcoming(
        &self,
        shards: &[u16],
        after: Timestamp,
        until: Timestamp,
        limit_per_shard: usize,
    ) -> Result<Vec<Due>, StoreError> {
        self.read(self.database.backing().store().upcoming(shards, after, until, limit_per_shard)).await
    }

    async fn unread(&self, shards: &[u16], limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        self.read(self.database.backing().store().unread(shards, limit)).await
    }

    async fn unclaimed(&self, shards: &[u16], before: Timestamp, limit: usize) -> Result<Vec<InboxRow>, StoreError> {
        self.read(self.database.backing().store().unclaimed(shards, before, limit)).await
    }

    async fn retirable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        self.read(self.database.backing().store().retirable(shard, before, after, limit)).await
    }

    async fn forgettable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        self.read(self.database.backing().store().forgettable(shard, before, after, limit)).await
    }

    async fn declare(&self, types: &[DeclaredType]) -> Result<(), StoreError> {
        self.read(self.database.backing().store().declare(types)).await
    }

    async fn requested_starts(&self, shards: &[u16], types: &[String], limit: usize) -> Result<Vec<RequestedStart>, StoreError> {
        self.read(self.database.backing().store().requested_starts(shards, types, limit)).await
    }

    async fn requested_start(&self, key: &WorkflowKey) -> Result<Option<RequestedStart>, StoreError> {
        self.read(self.database.backing().store().requested_start(key)).await
    }

    async fn list(&self, filter: &Filter, after: Option<&Position>, limit: usize) -> Result<Page, StoreError> {
        self.read(self.database.backing().store().list(filter, after, limit)).await
    }

    async fn attributes(&self, key: &WorkflowKey) -> Result<Vec<(String, AttributeValue)>, StoreError> {
        self.read(self.database.backing().store().attributes(key)).await
    }

    async fn derived(&self, root_id: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        self.read(self.database.backing().store().derived(root_id, limit)).await
    }

    async fn roster(&self) -> Result<Roster, StoreError> {
        self.read(self.database.backing().store().roster()).await
    }

    async fn recorded_runs(&self, place: RunPlace, limit: usize) -> Result<(Vec<RunId>, Option<RunPlace>), StoreError> {
        self.read(self.database.backing().store().recorded_runs(place, limit)).await
    }

    async fn strays(&self, place: &StrayPlace, limit: usize) -> Result<(Vec<Stray>, Option<StrayPlace>), StoreError> {
        self.read(self.database.backing().store().strays(place, limit)).await
    }

    async fn create_token(&self, token: &Token) -> Result<bool, StoreError> {
        self.read(self.database.backing().store().create_token(token)).await
    }

    async fn find_token(&self, secret_hash: &[u8; 32]) -> Result<Option<Token>, StoreError> {
        self.read(self.database.backing().store().find_token(secret_hash)).await
    }

    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        self.read(self.database.backing().store().tokens()).await
    }

    async fn revoke_token(&self, name: &str) -> Result<bool, StoreError> {
        self.read(self.database.backing().store().revoke_token(name)).await
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
