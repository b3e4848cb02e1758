//! One life of a node under one fence: what is started when it joins, and how it ends.
//!
//! A node that lost its lane lives on as another incarnation, under a new id and with an empty memory; whatever the old
//! one still has under way reaches nobody.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, oneshot, watch};

use super::breaker::{Keeper, Releaser};
use super::committer::{Committer, LaneRequest};
use super::core::{Core, Message};
use super::courier::Courier;
use super::lease::Lease;
use super::node::{EngineConfig, Incoming, Phase, Watched};
use super::ownership::Ownership;
use super::retention::Retention;
use super::scanner::{Scanner, blocked_executions};
use super::shell::{Shell, ShellEnd};
use super::steward::Steward;
use super::store_clock::StoreClock;
use super::{Environment, Input, Registries};
use crate::fault::{Bug, planted};
use crate::id::WorkflowKey;
use crate::outbox::Sink;
use crate::store::{Fence, NewNode, Sharing, Store, StoreError};

/// The most reads of executions under way at once.
const LOADS_MAX: usize = 2;

/// How a life ends.
#[derive(Debug)]
pub(super) enum End {
    /// In good order; the fence to be given back.
    Drained(Fence),
    /// Another node has the lane.
    Lost(String),
    /// What the node believes is not what the store holds.
    Fatal(String),
}

/// How requests reach an incarnation.
pub(super) struct Door {
    pub(super) core: mpsc::UnboundedSender<Incoming>,
    pub(super) lane: mpsc::UnboundedSender<LaneRequest>,
}

/// What all incarnations of a node share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) code: Arc<Registries>,
    /// With the store's clock, where it has one.
    pub(super) environment: Environment,
    pub(super) store_clock: Arc<StoreClock>,
    pub(super) config: EngineConfig,
    pub(super) changes: broadcast::Sender<WorkflowKey>,
    pub(super) phase: Arc<watch::Sender<Phase>>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) poke: Arc<Notify>,
    pub(super) watched: Watched,
    pub(super) at_work: Arc<AtomicUsize>,
    /// Something may be to be delivered.
    pub(super) news: watch::Sender<()>,
    /// Of the present incarnation; none between two of them, and after the end.
    pub(super) door: watch::Sender<Option<Door>>,
}

impl Shared {
    /// Joins the store in the place of an earlier incarnation, if there was one.
    pub(super) async fn join(&self, secret: &str, replaces: Option<String>) -> Result<Fence, StoreError> {
        let random = &self.environment.random;
        let node = NewNode {
            node_id: match &self.config.url {
                Some(url) if planted(Bug::ReusedNodeId) => url.clone(),
                _ => format!("{:016x}{:016x}", random.next_u64(), random.next_u64()),
            },
            url: self.config.url.clone(),
            secret: secret.to_owned(),
            lease: self.config.lease,
            replaces,
        };
        let fence = self.store.join(&node).await?;
        tracing::info!(node.id = fence.node_id, node.epoch = fence.epoch, "node joined");
        Ok(fence)
    }

    /// Lives under this fence until the end.
    pub(super) async fn live(&self, fence: &Fence, draining: &watch::Receiver<bool>) -> End {
        let clock = &self.environment.clock;
        self.ownership.begin(&fence.node_id);
        let (core, from_outside) = mpsc::unbounded_channel();
        let (lane, lane_requests) = mpsc::unbounded_channel();
        let (stop_sender, stop) = watch::channel(false);
        let lease = Arc::new(Lease::new(self.config.lease, clock.monotonic()));
        let limit = Arc::new(AtomicUsize::new(0));

        let committer = Committer {
            store: Arc::clone(&self.store),
            fence: fence.clone(),
            clock: Arc::clone(clock),
            lease: Arc::clone(&lease),
            requests: lane_requests,
            core: core.clone(),
            news: self.news.clone(),
        };
        let steward = Steward {
            store: Arc::clone(&self.store),
            environment: self.environment.clone(),
            store_clock: Arc::clone(&self.store_clock),
            fence: fence.clone(),
            lease: Arc::clone(&lease),
            period: self.config.scan,
            ownership: Arc::clone(&self.ownership),
            lane: lane.clone(),
            claiming: Arc::new(Semaphore::new(1)),
            core: core.clone(),
            poke: Arc::clone(&self.poke),
            stop: stop.clone(),
            ending: Arc::default(),
        };
        let scanner = Scanner {
            store: Arc::clone(&self.store),
            clock: Arc::clone(clock),
            owned: self.ownership.watch(),
            period: self.config.scan,
            timers: self.config.timers,
            types: self.code.workflows.types().map(str::to_owned).collect(),
            buffer: self.config.buffer,
            unknown: 0,
            limit: Arc::clone(&limit),
            core: core.clone(),
            stop: stop.clone(),
        };
        let couriers = self.couriers(&lease, &lane, draining, &stop);
        let shell = self.shell(lease, limit, from_outside, core.clone(), lane.clone());
        // Tells what is owned, and the time, before the first request comes in.
        steward.begin(draining).await;
        let (last_fence, ended) = oneshot::channel();
        let spawner = &self.environment.spawner;
        spawner.spawn(committer.run().map(move |fence| drop(last_fence.send(fence))).boxed());
        spawner.spawn(scanner.run().boxed());
        spawner.spawn(steward.run(self.store.facts().sharing).boxed());
        if let Some(retain) = self.config.retain {
            let retention = Retention {
                store: Arc::clone(&self.store),
                clock: Arc::clone(clock),
                code: Arc::clone(&self.code),
                retain,
                owned: self.ownership.watch(),
                at_work: Arc::clone(&self.at_work),
                lane: lane.clone(),
                stop: stop.clone(),
            };
            spawner.spawn(retention.run().boxed());
        }
        if let Some(breakers) = &self.code.breakers {
            let (store, clock, node_id) = (Arc::clone(&self.store), Arc::clone(clock), fence.node_id.clone());
            let keeper = Keeper::of(breakers, store, clock, node_id, self.config.scan, stop.clone());
            spawner.spawn(keeper.run().boxed());
            let releaser = Releaser {
                breakers: breakers.clone(),
                store: Arc::clone(&self.store),
                clock: Arc::clone(&self.environment.clock),
                owned: self.ownership.watch(),
                at_work: Arc::clone(&self.at_work),
                core: core.clone(),
                stop: stop.clone(),
            };
            spawner.spawn(releaser.run().boxed());
        }
        let delivering: Vec<_> = couriers.into_iter().map(|courier| self.spawn_courier(courier)).collect();
        spawner.spawn(try_blocked(Arc::clone(&self.store), self.ownership.watch(), core.clone(), stop).boxed());
        self.door.send_replace(Some(Door { core: core.clone(), lane: lane.clone() }));
        if *draining.borrow() {
            let _ = core.send(Incoming::Message(Message::Drain));
        }
        let end = shell.run().await;
        self.door.send_replace(None);
        let _ = stop_sender.send(true);
        match end {
            ShellEnd::Lost(reason) => End::Lost(reason),
            ShellEnd::Fatal(reason) => End::Fatal(reason),
            ShellEnd::Drained => {
                // What receivers have is noted before nobody can.
                for at_rest in delivering {
                    let _ = at_rest.await;
                }
                // What was asked for before is committed first.
                let _ = lane.send(LaneRequest::Finish);
                End::Drained(ended.await.unwrap_or_else(|_| fence.clone()))
            }
        }
    }

    /// One for each sink.
    fn couriers(
        &self,
        lease: &Arc<Lease>,
        lane: &mpsc::UnboundedSender<LaneRequest>,
        draining: &watch::Receiver<bool>,
        stop: &watch::Receiver<bool>,
    ) -> Vec<Courier> {
        let courier = |sink: &Arc<dyn Sink>| Courier {
            sink: Arc::clone(sink),
            store: Arc::clone(&self.store),
            environment: self.environment.clone(),
            lease: Arc::clone(lease),
            owned: self.ownership.watch(),
            period: self.config.scan,
            drain: self.config.drain,
            lane: lane.clone(),
            news: self.news.subscribe(),
            draining: draining.clone(),
            stop: stop.clone(),
        };
        self.code.sinks.all().map(courier).collect()
    }

    /// Runs a courier; what comes back tells that it is at rest.
    fn spawn_courier(&self, courier: Courier) -> oneshot::Receiver<()> {
        let (ended, at_rest) = oneshot::channel();
        let run = async move {
            courier.run().await;
            let _ = ended.send(());
        };
        self.environment.spawner.spawn(run.boxed());
        at_rest
    }

    fn shell(
        &self,
        lease: Arc<Lease>,
        limit: Arc<AtomicUsize>,
        from_outside: mpsc::UnboundedReceiver<Incoming>,
        incoming: mpsc::UnboundedSender<Incoming>,
        lane: mpsc::UnboundedSender<LaneRequest>,
    ) -> Shell {
        let random = Arc::clone(&self.environment.random);
        let shards = self.store.facts().shards;
        let core = Core::new(Arc::clone(&self.code), shards, self.config.drain, Box::new(move || random.next_u64()));
        limit.store(core.scan_limit(), Ordering::Relaxed);
        Shell {
            core,
            store: Arc::clone(&self.store),
            code: Arc::clone(&self.code),
            environment: self.environment.clone(),
            drain: self.config.drain,
            from_outside,
            incoming,
            lane,
            lease,
            ownership: Arc::clone(&self.ownership),
            loads: Arc::new(Semaphore::new(LOADS_MAX)),
            changes: self.changes.clone(),
            phase: Arc::clone(&self.phase),
            limit,
            at_work: Arc::clone(&self.at_work),
            watched: Arc::clone(&self.watched),
            replies: HashMap::new(),
            next_reply: 0,
            drain_until: None,
        }
    }
}

/// Has blocked executions tried at once where shards come to this node: another build may heal them.
async fn try_blocked(
    store: Arc<dyn Store>,
    mut owned: watch::Receiver<Arc<[u16]>>,
    core: mpsc::UnboundedSender<Incoming>,
    mut stop: watch::Receiver<bool>,
) {
    let mut before: Arc<[u16]> = Arc::from([]);
    loop {
        let now = Arc::clone(&owned.borrow_and_update());
        let gained: Vec<u16> = now.iter().copied().filter(|shard| !before.contains(shard)).collect();
        before = now;
        if !gained.is_empty() {
            match blocked_executions(store.as_ref(), &gained).await {
                Ok(keys) => {
                    for key in keys {
                        let _ = core.send(Incoming::Message(Message::Input { key, input: Input::Due }));
                    }
                }
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(error = %error, "blocked executions not read; each is tried at its own time"),
            }
        }
        tokio::select! {
            biased;
            _ = stop.changed() => return,
            changed = owned.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Whether nodes can share the store of these.
pub(super) fn is_shared(store: &dyn Store) -> bool {
    store.facts().sharing == Sharing::Shared
}
