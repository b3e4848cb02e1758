//! Keeps the node among those that share the store: renews its lease, ends dead nodes, evens out who owns what.
//!
//! Renewals wait for no commit and for nothing else that may take long, and a node that makes no progress gets none.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use super::Environment;
use super::balance::plan;
use super::committer::LaneRequest;
use super::core::Message;
use super::lease::Lease;
use super::node::Incoming;
use super::ownership::Ownership;
use super::store_clock::StoreClock;
use crate::fault::{Bug, planted};
use crate::store::{Fence, Membership, Sharing, Store, StoreError};

/// A lease is renewed at least so many times in its length.
const RENEWALS_PER_LEASE: u32 = 4;
/// A node that cannot see its store yet looks again after this.
const PAUSE_BEFORE_LOOKING: Duration = Duration::from_millis(250);
/// A database counts as just restarted for so many lease lengths.
const RESTARTED_LEASES: u32 = 3;

pub(super) struct Steward {
    pub(super) store: Arc<dyn Store>,
    pub(super) environment: Environment,
    pub(super) store_clock: Arc<StoreClock>,
    pub(super) fence: Fence,
    pub(super) lease: Arc<Lease>,
    pub(super) period: Duration,
    pub(super) ownership: Arc<Ownership>,
    pub(super) lane: mpsc::UnboundedSender<LaneRequest>,
    /// One claim at a time: a second one would count the same shards again.
    pub(super) claiming: Arc<Semaphore>,
    pub(super) core: mpsc::UnboundedSender<Incoming>,
    /// Somebody says that membership has changed.
    pub(super) poke: Arc<Notify>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) ending: Arc<Mutex<BTreeSet<String>>>,
}

impl Steward {
    /// Goes on, after a first round, until told to stop, or until the node was ended by another. Where nobody shares the
    /// store, the first round was enough.
    pub(super) async fn run(mut self, sharing: Sharing) {
        if sharing == Sharing::Embedded {
            return;
        }
        let period = self.period.min(self.lease.length() / RENEWALS_PER_LEASE).max(Duration::from_millis(10));
        loop {
            let clock = Arc::clone(&self.environment.clock);
            tokio::select! {
                biased;
                _ = self.stop.changed() => return,
                () = self.poke.notified() => {}
                () = clock.sleep(period) => {}
            }
            if !self.round_or_log().await {
                return;
            }
        }
    }

    /// The first round, however long it takes: before it, a node knows neither what it owns nor the store's time.
    pub(super) async fn begin(&self, draining: &watch::Receiver<bool>) {
        loop {
            match self.look().await {
                Ok(true) => return self.lease.beat(self.environment.clock.monotonic()),
                Ok(false) => return self.ended(),
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(error = %error, "the node waits for its store"),
            }
            if *draining.borrow() {
                return;
            }
            self.environment.clock.sleep(PAUSE_BEFORE_LOOKING).await;
        }
    }

    fn ended(&self) {
        let _ = self.core.send(Incoming::Lost("another node took this one's shards over".into()));
    }

    /// A round. False when there is nothing to come after it.
    async fn round_or_log(&self) -> bool {
        match self.round().await {
            Ok(true) => true,
            Ok(false) => {
                self.ended();
                false
            }
            Err(StoreError::Closed) => false,
            Err(error) => {
                tracing::warn!(error = %error, "lease not renewed; it is tried again");
                true
            }
        }
    }

    async fn round(&self) -> Result<bool, StoreError> {
        if !self.lease.makes_progress(self.environment.clock.monotonic()) && !planted(Bug::HeartbeatAlone) {
            tracing::error!(node.id = self.fence.node_id, "the node makes no progress; its lease is not renewed");
            return Ok(true);
        }
        self.look().await
    }

    /// One renewal and what follows from it. False when the node was ended.
    async fn look(&self) -> Result<bool, StoreError> {
        let sent = self.environment.clock.monotonic();
        let Some(membership) = self.store.renew(&self.fence, self.lease.length()).await? else { return Ok(false) };
        self.take_in(&membership, sent);
        let restarted = membership.up < self.lease.length() * RESTARTED_LEASES;
        let plan = plan(&membership, &self.fence.node_id, restarted);
        for dead in plan.dead {
            self.end(dead);
        }
        if plan.claim > 0
            && let Ok(turn) = Arc::clone(&self.claiming).try_acquire_owned()
        {
            let _ = self.lane.send(LaneRequest::Claim { most: plan.claim, _turn: turn });
        }
        if !plan.give.is_empty() {
            let _ = self.core.send(Incoming::Message(Message::Leave(plan.give)));
        }
        Ok(true)
    }

    fn take_in(&self, membership: &Membership, sent: Duration) {
        let received = self.environment.clock.monotonic();
        // A store without a clock of its own is shared with nobody, and its lease does not end.
        if let Some(now) = membership.now {
            self.lease.renewed(sent);
            self.store_clock.read(now, sent, received);
        }
        let gained = self.ownership.seen(membership, sent);
        if !gained.is_empty() {
            let _ = self.core.send(Incoming::Message(Message::Gain(gained)));
        }
    }

    /// Ends a dead node beside the renewals: it may hold a lock that has to be broken first.
    fn end(&self, dead: String) {
        if !self.ending().insert(dead.clone()) {
            return;
        }
        let (store, length, poke, ending) =
            (Arc::clone(&self.store), self.lease.length(), Arc::clone(&self.poke), Arc::clone(&self.ending));
        let task = async move {
            match store.take_over(&dead, length).await {
                Ok(true) => {
                    tracing::warn!(node.id = dead, "a node whose lease expired was ended; its shards are free");
                    poke.notify_one();
                }
                Ok(false) => {}
                Err(error) => tracing::error!(node.id = dead, error = %error, "dead node not ended; it is tried again"),
            }
            ending.lock().unwrap_or_else(PoisonError::into_inner).remove(&dead);
        };
        self.environment.spawner.spawn(task.boxed());
    }

    fn ending(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
