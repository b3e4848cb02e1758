//! Reaching the owner of an execution from any node.
//!
//! The owner alone can say what becomes of a request. If it is another node, the request is forwarded once; if it does
//! not answer, a signal is stored for it, and everything else is refused for now. The same signal id makes it harmless
//! when both ways were taken.

use std::sync::Arc;

use futures::FutureExt;

use super::Client;
use super::peers::{HttpPeers, Peers};
use crate::engine::{Answer, Ask, CommitFailure, IncomingSignal, Message, RefusedInput, Route};
use crate::fault::{Point, point};
use crate::id::WorkflowKey;
use crate::store::{Deposit, InboxRow, Outcome, Write};
use crate::time::Timestamp;

/// The most nudges under way; what is beyond them is found by the owner's scan.
const NUDGES_MAX: usize = 32;

impl Client {
    /// Asks the owner; `None` when nobody can take the request now.
    pub(super) async fn ask_owner(&self, key: &WorkflowKey, ask: Ask) -> Option<Answer> {
        let stored = match &ask {
            Ask::Signal(signal) => Some(signal.clone()),
            _ => None,
        };
        let answer = match self.engine().route(key) {
            Route::Here => self.ask_here(key, ask).await,
            Route::Peer(peer) => match self.peers() {
                Some(peers) => peers.ask(&peer, key, ask).await,
                None => None,
            },
            Route::Nowhere => None,
        };
        match (answer, stored) {
            (Some(Answer::Refused(RefusedInput::NotOwner | RefusedInput::Unavailable)) | None, Some(signal))
                if self.is_beside() =>
            {
                self.deposit(key, signal).await
            }
            (answer, _) => answer,
        }
    }

    /// Asks this node, which may turn out not to be the owner.
    pub(crate) async fn ask_here(&self, key: &WorkflowKey, ask: Ask) -> Option<Answer> {
        self.engine().ask(key.clone(), move |reply| ask.input(reply)).await
    }

    /// Whether there may be other nodes. One that is alone has nobody to leave a signal to but itself.
    fn is_beside(&self) -> bool {
        self.engine().is_shared()
    }

    /// Stores a signal for the owner to find.
    async fn deposit(&self, key: &WorkflowKey, signal: IncomingSignal) -> Option<Answer> {
        let row = InboxRow {
            key: key.clone(),
            shard: key.shard(self.engine().store().facts().shards),
            signal_id: signal.signal_id,
            name: signal.name,
            payload: signal.payload,
            identity: signal.identity,
            received_at: self.engine().environment().clock.now(),
            unchecked: false,
        };
        match self.engine().commit(Write::Deposit(Deposit { row })).await? {
            Ok(Outcome::Deposited) => {
                point(Point::DepositUntold);
                Some(Answer::Buffered)
            }
            Ok(Outcome::Duplicate) => Some(Answer::Duplicate),
            Ok(Outcome::Conflict) => Some(Answer::Refused(RefusedInput::SignalConflict)),
            Ok(Outcome::InboxFull) => Some(Answer::Refused(RefusedInput::TooManySignals)),
            Err(CommitFailure::Rejected(_)) => Some(Answer::Refused(RefusedInput::Rejected)),
            Ok(_) | Err(_) => None,
        }
    }

    /// Shows an execution that was just started here to its owner, if that is another node and it is due soon.
    pub(super) fn nudge_owner(&self, key: &WorkflowKey, wake_at: Option<Timestamp>, inbox: bool) {
        let is_soon = inbox || wake_at.is_some_and(|wake_at| self.engine().is_soon(wake_at));
        let Route::Peer(peer) = self.engine().route(key) else { return };
        let (true, Some(peers), Ok(turn)) = (is_soon, self.peers(), Arc::clone(&self.nudges).try_acquire_owned()) else { return };
        let key = key.clone();
        let nudge = async move {
            peers.nudge(&peer, &key).await;
            drop(turn);
        };
        self.engine().environment().spawner.spawn(nudge.boxed());
    }

    /// Takes another node's word that an execution is to be looked at.
    pub(crate) fn nudged(&self, key: WorkflowKey) {
        self.engine().tell(Message::Nudge(key));
    }

    /// Tells the other nodes that this one is gone, so that they need not wait for their next look.
    pub(crate) async fn say_goodbye(&self) {
        let Some(peers) = self.peers() else { return };
        let others = self.engine().peers();
        futures::future::join_all(others.iter().map(|peer| peers.poke(peer))).await;
    }

    pub(super) fn peers(&self) -> Option<Arc<dyn Peers>> {
        let made = self.peers.get_or_init(|| {
            let http = HttpPeers::new().inspect_err(|error| tracing::error!(error = %error, "other nodes cannot be asked"));
            http.ok().map(|http| Arc::new(http) as Arc<dyn Peers>)
        });
        made.clone()
    }
}

pub(super) fn nudges() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(NUDGES_MAX))
}
