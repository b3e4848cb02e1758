//! Keeps a node's breakers and those of all other nodes in step, through the documents in the store.
//!
//! Whoever changes a document knows its last revision, so that of two changes at once one is refused and looks again. A
//! document that is not new to this node changes nothing here: what calls have found out since counts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::shared::{Probe, SharedBreaker, SharedPosition};
use super::{BreakerName, Breakers, Moved, Setting, Told};
use crate::engine::Clock;
use crate::store::{Control, Sharing, Store, StoreError};
use crate::time::Timestamp;

/// So often a change is tried on a document that others change, too.
const TRIES_MAX: u32 = 5;
/// Changes that wait for the store to answer; more of them say nothing new.
const WAITING_MAX: usize = 1_000;

/// How long a keeper waits that has nothing to look for.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The task of one incarnation of a node.
pub(crate) struct Keeper {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    node_id: String,
    breakers: Breakers,
    /// How often the documents of others are read.
    period: Duration,
    told: mpsc::UnboundedReceiver<Told>,
    /// The last revision of each that this node has seen.
    known: BTreeMap<BreakerName, (u64, SharedBreaker)>,
    has_read: bool,
    waiting: VecDeque<(BreakerName, Moved)>,
    stop: watch::Receiver<bool>,
}

impl Keeper {
    /// From now on these breakers tell the keeper what moves them.
    pub(crate) fn of(
        breakers: &Breakers,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        node_id: String,
        period: Duration,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let (keeper, told) = mpsc::unbounded_channel();
        breakers.lock().keeper = Some(keeper);
        Self {
            store,
            clock,
            node_id,
            breakers: breakers.clone(),
            period,
            told,
            known: BTreeMap::new(),
            has_read: false,
            waiting: VecDeque::new(),
            stop,
        }
    }

    /// Goes on until told to stop.
    pub(crate) async fn run(mut self) {
        loop {
            if (!self.has_read || self.is_shared())
                && let Err(error) = self.read().await
            {
                if matches!(error, StoreError::Closed) {
                    return;
                }
                tracing::warn!(%error, "where breakers stand is not read; it is tried again");
            }
            for _ in 0..self.waiting.len() {
                if let Some((name, moved)) = self.waiting.pop_front() {
                    self.moved(name, moved).await;
                }
            }
            if !self.listen(self.clock.monotonic()).await {
                return;
            }
        }
    }

    /// Nobody else writes into a store that is not shared.
    fn is_shared(&self) -> bool {
        self.store.facts().sharing == Sharing::Shared
    }

    /// How long after it looked it looks again.
    fn pause(&self) -> Duration {
        if self.has_read && self.waiting.is_empty() && !self.is_shared() { IDLE_MAX } else { self.period }
    }

    /// Does what it is told until it is to look again. False when it is to stop.
    async fn listen(&mut self, looked_at: Duration) -> bool {
        loop {
            let left = looked_at.saturating_add(self.pause()).saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return true;
            }
            let told = tokio::select! {
                biased;
                _ = self.stop.changed() => return false,
                told = self.told.recv() => told,
                () = self.clock.sleep(left) => return true,
            };
            match told {
                // Another incarnation keeps them now.
                None => return false,
                Some(Told::Moved(name, moved)) => self.moved(name, moved).await,
                Some(Told::Claim(name, claimed)) => {
                    let is_mine = self.claim(&name).await;
                    let _ = claimed.send(is_mine);
                }
                Some(Told::Set { name, setting, reason, actor, done }) => {
                    let set = self.set(&name, setting, reason, actor).await;
                    let _ = done.send(set);
                }
            }
        }
    }

    /// Reads what all nodes agree on, and takes over what is new.
    async fn read(&mut self) -> Result<(), StoreError> {
        for control in self.store.controls().await? {
            self.take_in(&control);
        }
        self.has_read = true;
        Ok(())
    }

    fn take_in(&mut self, control: &Control) {
        let Some((name, shared)) = SharedBreaker::read(control) else { return };
        if self.known.get(&name).is_some_and(|(rev, _)| *rev >= control.rev) {
            return;
        }
        self.adopt(&name, &shared);
        self.known.insert(name, (control.rev, shared));
    }

    /// Sets this node's breaker as the document says.
    fn adopt(&self, name: &BreakerName, shared: &SharedBreaker) {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        let mut state = self.breakers.lock();
        if !state.downstreams.contains_key(&name.downstream) {
            return;
        }
        let (reason, actor) = (shared.reason.clone().unwrap_or_default(), shared.actor.clone().unwrap_or_default());
        match &shared.position {
            SharedPosition::Closed => drop(state.set(name, Setting::Close, "", "")),
            SharedPosition::ForcedOpen => drop(state.set(name, Setting::ForceOpen, &reason, &actor)),
            SharedPosition::ForcedClosed => drop(state.set(name, Setting::ForceClosed, &reason, &actor)),
            SharedPosition::Open { probe: Some(probe), .. } if probe.node == self.node_id => {}
            SharedPosition::Open { until, probe } => {
                let until = probe.as_ref().map_or(*until, |probe| probe.until.max(*until));
                let left = Timestamp::from_micros(until).since(now);
                state.standing(name).machine.open_until(monotonic.saturating_add(left));
            }
        }
        state.standing(name).parked_at.get_or_insert(Duration::ZERO);
        drop(state);
        self.breakers.0.news.notify_one();
    }

    async fn moved(&mut self, name: BreakerName, moved: Moved) {
        let (node_id, now) = (self.node_id.clone(), self.clock.now());
        let probes = |position: &SharedPosition| match position {
            SharedPosition::Open { probe: Some(probe), .. } => probe.node == node_id,
            _ => false,
        };
        let next = |standing: &SharedPosition| match moved {
            Moved::Opened(open) if *standing == SharedPosition::Closed || probes(standing) => {
                Some(SharedPosition::Open { until: now.saturating_add(open).as_micros(), probe: None })
            }
            Moved::Closed if probes(standing) => Some(SharedPosition::Closed),
            Moved::ProbeReturned if probes(standing) => Some(SharedPosition::Open { until: now.as_micros(), probe: None }),
            _ => None,
        };
        let changed = self.change(&name, |standing| next(&standing.position).map(|position| SharedBreaker::new(position, now)));
        if let Err(error) = changed.await {
            tracing::warn!(breaker = %name, %error, "other nodes are told later where the breaker stands");
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push_back((name, moved));
            }
        }
    }

    /// Whether this node may send the probe.
    async fn claim(&mut self, name: &BreakerName) -> bool {
        let (node, now) = (self.node_id.clone(), self.clock.now());
        let probe_max = self.breakers.lock().standing(name).machine.probe_max();
        let is_free = |probe: &Option<Probe>| probe.as_ref().is_none_or(|probe| probe.until <= now.as_micros());
        let claimed = self.change(name, |standing| match &standing.position {
            SharedPosition::Open { until, probe } if *until <= now.as_micros() && is_free(probe) => {
                let probe = Some(Probe { node: node.clone(), until: now.saturating_add(probe_max).as_micros() });
                Some(SharedBreaker { position: SharedPosition::Open { until: *until, probe }, ..standing.clone() })
            }
            _ => None,
        });
        match claimed.await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(breaker = %name, %error, "the probe is not sent: other nodes could send one too");
                false
            }
        }
    }

    async fn set(&mut self, name: &BreakerName, setting: Setting, reason: String, actor: String) -> Result<(), StoreError> {
        let now = self.clock.now();
        let position = match setting {
            Setting::ForceOpen => SharedPosition::ForcedOpen,
            Setting::ForceClosed => SharedPosition::ForcedClosed,
            Setting::Close => SharedPosition::Closed,
        };
        let set = SharedBreaker { reason: Some(reason), actor: Some(actor), ..SharedBreaker::new(position, now) };
        self.change(name, |_| Some(set.clone())).await.map(drop)
    }

    /// Replaces a document by what `next` makes of it, looking again when another node was faster. False when `next` leaves
    /// it as it is, and this node then stands as it says.
    async fn change(
        &mut self,
        name: &BreakerName,
        next: impl Fn(&SharedBreaker) -> Option<SharedBreaker>,
    ) -> Result<bool, StoreError> {
        for _ in 0..TRIES_MAX {
            if !self.has_read {
                self.read().await?;
            }
            let unknown = || (0, SharedBreaker::new(SharedPosition::Closed, Timestamp::default()));
            let (rev, standing) = self.known.get(name).cloned().unwrap_or_else(unknown);
            let Some(next) = next(&standing) else {
                self.adopt(name, &standing);
                return Ok(false);
            };
            let control = next.control(name, rev);
            if self.store.replace_control(&control).await? {
                self.known.insert(name.clone(), (control.rev, next));
                return Ok(true);
            }
            self.read().await?;
        }
        Err(StoreError::Unavailable(format!("the breaker of {name} is being changed by others all the time")))
    }
}
