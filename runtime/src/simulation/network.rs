//! The way from node to node: it takes its time, and loses what it is told to lose.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, Either, select};
use tokio::sync::oneshot;

use super::cluster::{Cluster, Slot};
use crate::client::{Client, OutboxDecision, Peers};
use crate::engine::{Answer, Ask};
use crate::id::WorkflowKey;
use crate::store::Member;

/// How long an owner may take to answer: what a real node waits.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// How well nodes reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkFaults {
    /// How long one way takes at most.
    pub latency: Duration,
    /// How often a request, or its answer, is lost.
    pub lost: f64,
}

/// One node's way to the others.
pub(super) struct Link {
    pub(super) cluster: Weak<Cluster>,
}

impl Link {
    /// Has a task of the peer handle something; `None` when it or its answer does not arrive in time.
    async fn deliver<T: Send + 'static>(
        &self,
        peer: &Member,
        handle: impl FnOnce(Client) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Option<T> {
        let cluster = self.cluster.upgrade()?;
        let (simulation, faults) = (cluster.simulation().clone(), cluster.link_faults());
        let dice = cluster.dice();
        let (there, back) = (dice.up_to(faults.latency), dice.up_to(faults.latency));
        let (request_lost, answer_lost) = (dice.chance(faults.lost), dice.chance(faults.lost));
        let Slot { process, client, .. } = cluster.reached_by(peer)?;
        drop(cluster);
        let (answer, answered) = oneshot::channel();
        if !request_lost {
            let clock = simulation.clone();
            simulation.spawn(process, async move {
                clock.sleep(there).await;
                let handled = handle(client).await;
                clock.sleep(back).await;
                if !answer_lost {
                    let _ = answer.send(handled);
                }
            });
        }
        match select(answered, simulation.sleep(ANSWER_MAX)).await {
            Either::Left((Ok(answer), _)) => Some(answer),
            Either::Left((Err(_), timeout)) => {
                // Nothing will come: the caller waits for its timeout all the same.
                timeout.await;
                None
            }
            Either::Right(_) => None,
        }
    }
}

#[async_trait]
impl Peers for Link {
    async fn ask(&self, peer: &Member, key: &WorkflowKey, ask: Ask) -> Option<Answer> {
        let key = key.clone();
        self.deliver(peer, |client| Box::pin(async move { client.ask_here(&key, ask).await })).await.flatten()
    }

    async fn decide(&self, peer: &Member, decision: &OutboxDecision) -> Option<Answer> {
        let decision = decision.clone();
        self.deliver(peer, |client| Box::pin(async move { client.decide_here(&decision).await })).await.flatten()
    }

    async fn nudge(&self, peer: &Member, key: &WorkflowKey) {
        let key = key.clone();
        self.deliver(peer, |client| Box::pin(async move { client.nudged(key) })).await;
    }

    async fn poke(&self, peer: &Member) {
        self.deliver(peer, |client| Box::pin(async move { client.engine().poke() })).await;
    }
}

/// The address under which a slot is known to the others.
pub(super) fn url_of(slot: usize) -> String {
    format!("simulated://{slot}")
}

pub(super) fn slot_of(url: &str) -> Option<usize> {
    url.strip_prefix("simulated://")?.parse().ok()
}

pub(super) fn link(cluster: &Arc<Cluster>) -> Arc<dyn Peers> {
    Arc::new(Link { cluster: Arc::downgrade(cluster) })
}
