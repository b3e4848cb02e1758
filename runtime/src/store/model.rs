//! A store in memory, as plain as it can be: what the other stores are compared with, and what tests and simulations
//! run the engine on.
//!
//! Every read walks over everything. Nothing survives the value itself.

mod audit;
mod forecast;
mod gates;
mod image;
mod list;
mod nodes;
mod outbox;
mod retention;
mod state;
mod transfer;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use self::nodes::Nodes;
use self::state::State;
use self::transfer::Marks;
use super::{
    AttributeValue, Closed, CommitError, Deposit, Due, Execution, Fence, Filter, InboxRow, Loaded, Membership, NewNode, Outcome,
    Page, Position, RequestedStart, Roster, RunPlace, Sharing, Store, StoreError, StoreFacts, Stray, StrayPlace, Token, Write,
};
use crate::id::{RunId, WorkflowKey};
use crate::time::Timestamp;

/// How a commit is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFailure {
    /// [`CommitError::DiskFull`]; nothing is applied.
    DiskFull,
    /// [`CommitError::Unavailable`]; nothing is applied.
    Unavailable,
    /// [`CommitError::Rejected`]; nothing is applied.
    Rejected,
    /// [`CommitError::FenceLost`]; nothing is applied.
    FenceLost,
    /// [`CommitError::Unknown`]: the batch is applied, and the answer lost. An error that the batch has by itself (a lost
    /// fence, a write that cannot be stored) is lost in the same way.
    UnknownApplied,
    /// [`CommitError::Unknown`]; nothing is applied.
    UnknownNotApplied,
    /// [`CommitError::Unknown`]; it is applied after the next read, unless its fence is void by then.
    UnknownLandsLater,
}

/// What a store's own clock shows.
type Time = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A store in memory.
pub struct ModelStore {
    facts: StoreFacts,
    time: Option<Time>,
    inner: Mutex<Inner>,
}

/// Places of shards, and the batches that were committed since there are some.
struct Places {
    of_shard: fn(u16) -> u32,
    batches: Vec<Vec<Write>>,
}

struct Inner {
    state: State,
    marks: Marks,
    failures: VecDeque<CommitFailure>,
    commits: u64,
    closed: bool,
    poison: Option<fn(&Write) -> bool>,
    places: Option<Places>,
    beside: Vec<Deposit>,
    /// Batches that may still land.
    late: Vec<(Fence, Vec<Write>)>,
}

impl ModelStore {
    /// An empty store for one node.
    pub fn new(shards: u16) -> Self {
        Self::with(shards, Sharing::Embedded, None)
    }

    /// An empty store that nodes share, and whose own clock shows `time`. Without one its time stands still.
    pub fn shared(shards: u16, time: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>) -> Self {
        Self::with(shards, Sharing::Shared, time)
    }

    fn with(shards: u16, sharing: Sharing, time: Option<Time>) -> Self {
        let inner = Inner {
            state: State::new(Nodes::new(sharing, shards)),
            marks: Marks::new(),
            failures: VecDeque::new(),
            commits: 0,
            closed: false,
            poison: None,
            places: None,
            beside: Vec::new(),
            late: Vec::new(),
        };
        Self { facts: StoreFacts { shards, database: "memory".into(), sharing }, time, inner: Mutex::new(inner) }
    }

    fn now(&self) -> Timestamp {
        self.time.as_ref().map_or(Timestamp::default(), |time| time())
    }

    /// The open store, if this fence may write to it.
    fn fenced(&self, fence: &Fence) -> Result<MutexGuard<'_, Inner>, CommitError> {
        let inner = self.open().map_err(|closed| CommitError::Unavailable(closed.to_string()))?;
        if inner.state.nodes.holds(fence) { Ok(inner) } else { Err(CommitError::FenceLost { expected: fence.epoch }) }
    }

    /// Lets the next commit that is not yet spoken for fail in this way. Calls add up: two of them fail two commits.
    pub fn fail_next_commit(&self, failure: CommitFailure) {
        self.lock().failures.push_back(failure);
    }

    /// From now on, batches with a write of this kind are rejected.
    pub fn reject(&self, poison: fn(&Write) -> bool) {
        self.lock().poison = Some(poison);
    }

    /// From now on, shards are at the places that `of_shard` tells, and batches are kept for
    /// [`batches`](Self::batches).
    pub fn place(&self, of_shard: fn(u16) -> u32) {
        self.lock().places = Some(Places { of_shard, batches: Vec::new() });
    }

    /// The batches that were committed since [`place`](Self::place).
    pub fn batches(&self) -> Vec<Vec<Write>> {
        self.lock().places.as_ref().map(|places| places.batches.clone()).unwrap_or_default()
    }

    /// Stores a signal at the beginning of the next commit, before its writes, as somebody beside the owner would.
    pub fn deposit_before_next_commit(&self, deposit: Deposit) {
        self.lock().beside.push(deposit);
    }

    /// Asks for a start inside the store, as a caller's own transaction does. One that is there already is kept.
    pub fn request_start(&self, request: RequestedStart) {
        self.lock().state.requests.entry(request.key.clone()).or_insert(request);
    }

    /// Opens the store again after it was closed.
    pub fn reopen(&self) {
        self.lock().closed = false;
    }

    /// How many commits were asked for, failed ones included.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// What is left of executions that are not there, or not there in full. Nothing ever should.
    pub fn orphans(&self) -> Vec<String> {
        self.lock().state.orphans()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another test task says nothing about the state: no method leaves it half changed on its own.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let inner = self.lock();
        if inner.closed { Err(StoreError::Closed) } else { Ok(inner) }
    }
}

#[async_trait]
impl Store for ModelStore {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn placement(&self, shard: u16) -> u32 {
        self.lock().places.as_ref().map_or(0, |places| (places.of_shard)(shard))
    }

    async fn join(&self, node: &NewNode) -> Result<Fence, StoreError> {
        let now = self.now();
        let mut inner = self.open()?;
        inner.marks.standing(None).check_servable()?;
        Ok(inner.state.nodes.join(node, now))
    }

    async fn renew(&self, fence: &Fence, lease: Duration) -> Result<Option<Membership>, StoreError> {
        let now = self.now();
        Ok(self.open()?.state.nodes.renew(fence, lease, now))
    }

    async fn claim(&self, fence: &Fence, most: usize) -> Result<Vec<u16>, CommitError> {
        Ok(self.fenced(fence)?.state.nodes.claim(fence, most))
    }

    async fn hand_over(&self, fence: &Fence, shards: &[u16], to: Option<&str>) -> Result<(), CommitError> {
        let now = self.now();
        self.fenced(fence)?.state.nodes.hand_over(fence, shards, to, now);
        Ok(())
    }

    async fn take_over(&self, node_id: &str, _: Duration) -> Result<bool, StoreError> {
        let now = self.now();
        Ok(self.open()?.state.nodes.take_over(node_id, now))
    }

    async fn raise(&self, fence: &Fence) -> Result<Option<Fence>, StoreError> {
        Ok(self.open()?.state.nodes.raise(fence))
    }

    async fn leave(&self, fence: &Fence) -> Result<(), StoreError> {
        let now = self.now();
        self.open()?.state.nodes.leave(fence, now);
        Ok(())
    }

    async fn commit(&self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        let mut inner = self.open().map_err(|closed| CommitError::Unavailable(closed.to_string()))?;
        inner.commits += 1;
        if let Some(places) = &mut inner.places {
            places.batches.push(writes.to_vec());
        }
        for deposit in std::mem::take(&mut inner.beside) {
            let _ = inner.state.deposit(&deposit);
        }
        let why = || "as the test asked for".to_owned();
        if inner.poison.is_some_and(|poison| writes.iter().any(poison)) {
            return Err(CommitError::Rejected(why()));
        }
        match inner.failures.pop_front() {
            None => inner.state.commit(fence, writes),
            Some(CommitFailure::DiskFull) => Err(CommitError::DiskFull(why())),
            Some(CommitFailure::Unavailable) => Err(CommitError::Unavailable(why())),
            Some(CommitFailure::Rejected) => Err(CommitError::Rejected(why())),
            Some(CommitFailure::FenceLost) => Err(CommitError::FenceLost { expected: fence.epoch }),
            Some(CommitFailure::UnknownNotApplied) => Err(CommitError::Unknown(why())),
            Some(CommitFailure::UnknownLandsLater) => {
                inner.late.push((fence.clone(), writes.to_vec()));
                Err(CommitError::Unknown(why()))
            }
            Some(CommitFailure::UnknownApplied) => {
                let _ = inner.state.commit(fence, writes);
                Err(CommitError::Unknown(why()))
            }
        }
    }

    async fn load(&self, keys: &[WorkflowKey]) -> Result<Vec<Option<Loaded>>, StoreError> {
        let mut inner = self.open()?;
        let loaded = keys.iter().map(|key| inner.state.load(key)).collect();
        for (fence, writes) in std::mem::take(&mut inner.late) {
            let _ = inner.state.commit(&fence, &writes);
        }
        Ok(loaded)
    }

    async fn find(&self, key: &WorkflowKey) -> Result<Option<Execution>, StoreError> {
        Ok(self.open()?.state.executions.get(key).cloned())
    }

    async fn due(&self, shards: &[u16], until: Timestamp, limit_per_shard: usize) -> Result<Vec<Due>, StoreError> {
        self.upcoming(shards, Timestamp::from_micros(i64::MIN), until, limit_per_shard).await
    }

    async fn upcoming(
        &self,
        shards: &[u16],
        after: Timestamp,
        until: Timestamp,
        limit_per_shard: usize,
    ) -> Result<Vec<Due>, StoreError> {
        Ok(self.open()?.state.upcoming(shards, after, until, limit_per_shard))
    }

    async fn unread(&self, shards: &[u16], limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        Ok(self.open()?.state.unread(shards, limit))
    }

    async fn unclaimed(&self, shards: &[u16], before: Timestamp, limit: usize) -> Result<Vec<InboxRow>, StoreError> {
        Ok(self.open()?.state.unclaimed(shards, before, limit))
    }

    async fn retirable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        Ok(self.open()?.state.closed(shard, false, before, after, limit))
    }

    async fn forgettable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        Ok(self.open()?.state.closed(shard, true, before, after, limit))
    }

    async fn requested_starts(&self, shards: &[u16], types: &[String], limit: usize) -> Result<Vec<RequestedStart>, StoreError> {
        Ok(self.open()?.state.requested(shards, types, limit))
    }

    async fn requested_start(&self, key: &WorkflowKey) -> Result<Option<RequestedStart>, StoreError> {
        Ok(self.open()?.state.requests.get(key).cloned())
    }

    async fn list(&self, filter: &Filter, after: Option<&Position>, limit: usize) -> Result<Page, StoreError> {
        Ok(self.open()?.state.page(filter, after, limit))
    }

    async fn attributes(&self, key: &WorkflowKey) -> Result<Vec<(String, AttributeValue)>, StoreError> {
        Ok(self.open()?.state.attributes_of(key))
    }

    async fn derived(&self, root_id: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        let prefix = format!("{root_id}~");
        let inner = self.open()?;
        Ok(inner.state.executions.keys().filter(|key| key.id().starts_with(&prefix)).take(limit).cloned().collect())
    }

    async fn roster(&self) -> Result<Roster, StoreError> {
        let now = self.now();
        Ok(self.open()?.state.nodes.roster(now))
    }

    async fn recorded_runs(&self, place: RunPlace, limit: usize) -> Result<(Vec<RunId>, Option<RunPlace>), StoreError> {
        Ok(self.open()?.state.recorded_runs(place, limit))
    }

    async fn strays(&self, place: &StrayPlace, limit: usize) -> Result<(Vec<Stray>, Option<StrayPlace>), StoreError> {
        Ok(self.open()?.state.strays(place, limit, self.facts.shards))
    }

    async fn create_token(&self, token: &Token) -> Result<bool, StoreError> {
        let mut inner = self.open()?;
        let free = !inner.state.tokens.contains_key(&token.name);
        if free {
            inner.state.tokens.insert(token.name.clone(), token.clone());
        }
        Ok(free)
    }

    async fn find_token(&self, secret_hash: &[u8; 32]) -> Result<Option<Token>, StoreError> {
        Ok(self.open()?.state.tokens.values().find(|token| token.secret_hash == *secret_hash).cloned())
    }

    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        Ok(self.open()?.state.tokens.values().cloned().collect())
    }

    async fn revoke_token(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.open()?.state.tokens.remove(name).is_some())
    }

    async fn close(&self) {
        self.lock().closed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::conformance::fixtures::{Node, new, order};

    #[tokio::test]
    async fn a_commit_fails_as_asked_for_and_the_next_one_does_not() {
        for (failure, applied) in [
            (CommitFailure::DiskFull, false),
            (CommitFailure::Unavailable, false),
            (CommitFailure::Rejected, false),
            (CommitFailure::FenceLost, false),
            (CommitFailure::UnknownNotApplied, false),
            (CommitFailure::UnknownApplied, true),
        ] {
            let store = Arc::new(ModelStore::new(64));
            let node = Node::on(store.clone()).await;
            store.fail_next_commit(failure);
            let error = node.try_commit(&[Write::Start(new(&order("1")))]).await.unwrap_err();
            let unknown = matches!(error, CommitError::Unknown(_));
            let asked_for_unknown = matches!(failure, CommitFailure::UnknownApplied | CommitFailure::UnknownNotApplied);
            assert_eq!(unknown, asked_for_unknown, "{failure:?}: {error}");
            assert_eq!(node.find(&order("1")).await.is_some(), applied, "{failure:?}");
            node.start(new(&order("2"))).await;
            assert_eq!(store.commits(), 2);
        }
    }

    #[tokio::test]
    async fn failures_that_are_asked_for_together_come_one_after_another() {
        let store = Arc::new(ModelStore::new(64));
        let node = Node::on(store.clone()).await;
        store.fail_next_commit(CommitFailure::DiskFull);
        store.fail_next_commit(CommitFailure::Unavailable);
        assert!(matches!(node.try_commit(&[]).await, Err(CommitError::DiskFull(_))));
        assert!(matches!(node.try_commit(&[]).await, Err(CommitError::Unavailable(_))));
        assert_eq!(node.commit(&[]).await, vec![]);
    }

    #[tokio::test]
    async fn an_unknown_outcome_is_settled_by_joining_again_and_reading() {
        let store = Arc::new(ModelStore::new(64));
        let node = Node::on(store.clone()).await;
        store.fail_next_commit(CommitFailure::UnknownApplied);
        let start = Write::Start(new(&order("1")));
        assert!(node.try_commit(std::slice::from_ref(&start)).await.is_err());
        let again = Node::on(store.clone()).await;
        assert!(matches!(node.try_commit(&[]).await, Err(CommitError::FenceLost { .. })), "nothing can land late");
        let Outcome::Exists(row) = again.write(start).await else { panic!("it is there") };
        assert_eq!(row.run_id, new(&order("1")).run_id, "and it is ours");
    }
}
