//! Circuit breakers: what keeps calls from a service that fails, and lets one of them through now and then.
//!
//! A program has one for each downstream, and one for each part of it that somebody or something ever shut (a payment
//! channel, say). Nodes that share a store share where their breakers stand, so that a fleet sends one probe and not one a
//! node: while a breaker is open, at most one call of all nodes is under way as its probe, and its place always comes back.
//! What a person decides outlives restarts.

mod keeping;
mod machine;
mod passing;
mod releasing;
mod shared;
#[cfg(test)]
mod tests;
mod view;
mod window;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

pub(crate) use keeping::Keeper;
pub use machine::{BreakerPolicy, BreakerState, Verdict};
pub use passing::{Breaker, Permit};
pub(crate) use releasing::Releaser;
pub use view::{BreakerPosition, BreakerView};
pub use window::RatioPolicy;

use machine::{Letting, Machine, Moved};

use crate::engine::Clock;
use crate::store::StoreError;
use crate::time::Timestamp;

/// Parts of one downstream that may have a breaker of their own; more are one fault of all, and the downstream's own moves.
const KEYS_MAX: usize = 1000;
/// So late a call that waits in the store asks again, if nothing has let it go before: then something is wrong.
const PARKED_MAX: Duration = Duration::from_secs(15 * 60);

/// The name of a breaker: `payments`, or `payments/alipay` for a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BreakerName {
    /// What it protects.
    pub downstream: String,
    /// The part of it.
    pub key: Option<String>,
}

impl BreakerName {
    /// The breaker of a downstream, or of a part of it.
    pub fn new(downstream: impl Into<String>, key: Option<&str>) -> Self {
        Self { downstream: downstream.into(), key: key.map(str::to_owned) }
    }
}

impl fmt::Display for BreakerName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.downstream)?;
        self.key.as_ref().map_or(Ok(()), |key| write!(to, "/{key}"))
    }
}

impl From<&str> for BreakerName {
    fn from(name: &str) -> Self {
        let (downstream, key) = name.split_once('/').map_or((name, None), |(downstream, key)| (downstream, Some(key)));
        Self::new(downstream, key)
    }
}

/// What a person, or a refusal that only a person can mend, makes of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Open until a person says otherwise.
    ForceOpen,
    /// Closed until a person says otherwise, whatever comes of the calls.
    ForceClosed,
    /// Closed, and left to itself.
    Close,
}

/// Why a breaker was not set.
#[derive(Debug, thiserror::Error)]
pub enum BreakerError {
    /// There is none of this name.
    #[error("there is no downstream {name:?}: they are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// It is set on this node, and the store did not take it in.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The breakers of a program, in this process; clones share them.
#[derive(Clone)]
pub struct Breakers(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// A breaker changed: perhaps somebody may come back. Or the first is parked behind it.
    news: Arc<Notify>,
}

struct State {
    downstreams: BTreeMap<String, BreakerPolicy>,
    machines: BTreeMap<BreakerName, Standing>,
    news: Arc<Notify>,
    /// The part of the fleet's calls that this node makes.
    share: f64,
    /// Where the keeper of the present node listens.
    keeper: Option<mpsc::UnboundedSender<Told>>,
}

struct Standing {
    machine: Machine,
    reason: Option<String>,
    actor: Option<String>,
    /// When a call was last parked behind it, as long as some may be waiting in the store.
    parked_at: Option<Duration>,
}

/// What the keeper is told.
enum Told {
    /// A call's end moved a breaker.
    Moved(BreakerName, Moved),
    /// A call would be the probe.
    Claim(BreakerName, oneshot::Sender<bool>),
    /// A breaker is set by hand; on this node it is already.
    Set { name: BreakerName, setting: Setting, reason: String, actor: String, done: oneshot::Sender<Result<(), StoreError>> },
}

impl Breakers {
    /// No breakers yet; times are `clock`'s.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let news = Arc::new(Notify::new());
        let state =
            State { downstreams: BTreeMap::new(), machines: BTreeMap::new(), news: Arc::clone(&news), share: 1.0, keeper: None };
        Self(Arc::new(Inner { clock, state: Mutex::new(state), news }))
    }

    /// Adds the breaker of a downstream.
    #[must_use]
    pub fn add(&self, downstream: &str, policy: BreakerPolicy) -> Breaker {
        let mut state = self.lock();
        state.downstreams.insert(downstream.to_owned(), policy);
        state.standing(&BreakerName::new(downstream, None));
        drop(state);
        Breaker { all: self.clone(), downstream: downstream.to_owned() }
    }

    /// Every breaker, by name; those of parts only when they do not simply let everything through.
    pub fn views(&self) -> Vec<BreakerView> {
        let now = self.0.clock.monotonic();
        let state = self.lock();
        let views = state.machines.iter().map(|(name, standing)| {
            BreakerView::new(name, &standing.machine.state(now), standing.reason.clone(), standing.actor.clone())
        });
        views.filter(|view| view.key.is_none() || view.position != BreakerPosition::Closed).collect()
    }

    /// Sets a breaker by hand, here at once and for all nodes when this returns.
    ///
    /// # Errors
    /// [`BreakerError`].
    pub async fn set(&self, name: &BreakerName, setting: Setting, reason: &str, actor: &str) -> Result<(), BreakerError> {
        let (done, answered) = oneshot::channel();
        {
            let mut state = self.lock();
            if !state.downstreams.contains_key(&name.downstream) {
                let known = state.downstreams.keys().cloned().collect::<Vec<_>>().join(", ");
                return Err(BreakerError::Unknown { name: name.downstream.clone(), known });
            }
            let name = state.set(name, setting, reason, actor);
            self.0.news.notify_one();
            let told = Told::Set { name, setting, reason: reason.into(), actor: actor.into(), done };
            if !state.tell(told) {
                return Ok(());
            }
        }
        answered.await.unwrap_or(Err(StoreError::Closed)).map_err(BreakerError::Store)
    }

    /// Tells which part of the fleet's calls this node makes, above 0 and at most 1: that of its shards. A node alone makes all.
    pub fn set_share(&self, share: f64) {
        self.lock().share = share;
    }

    /// When the breaker of this name lets somebody go, seen from `now`; `None` where nobody knows.
    pub(crate) fn lets_go_at(&self, gate: &str, now: Timestamp) -> Option<Timestamp> {
        let monotonic = self.0.clock.monotonic();
        let state = self.lock();
        match state.machines.get(&gate.into())?.machine.letting(monotonic) {
            Letting::Nobody(wait) => wait.map(|wait| now.saturating_add(wait)),
            Letting::One | Letting::Everybody => Some(now),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn standing(&mut self, name: &BreakerName) -> &mut Standing {
        let policy = self.downstreams.get(&name.downstream).copied().unwrap_or(NEVER_BY_ITSELF);
        // Unless parts count for themselves, one opens by force only.
        let policy = if name.key.is_some() && !policy.by_part {
            BreakerPolicy { failures: u32::MAX, ratio: None, ..policy }
        } else {
            policy
        };
        let standing = || Standing { machine: Machine::new(policy), reason: None, actor: None, parked_at: None };
        self.machines.entry(name.clone()).or_insert_with(standing)
    }

    /// Sets a breaker of this node; the name of the one that was set.
    fn set(&mut self, name: &BreakerName, setting: Setting, reason: &str, actor: &str) -> BreakerName {
        let keys = self.machines.keys().filter(|known| known.downstream == name.downstream).count();
        let is_known = self.machines.contains_key(name);
        let name = if is_known || keys <= KEYS_MAX { name.clone() } else { BreakerName::new(name.downstream.as_str(), None) };
        let standing = self.standing(&name);
        (standing.reason, standing.actor) = match setting {
            Setting::ForceOpen | Setting::ForceClosed => (Some(reason.to_owned()), Some(actor.to_owned())),
            Setting::Close => (None, None),
        };
        match setting {
            Setting::ForceOpen => standing.machine.force_open(),
            Setting::ForceClosed => standing.machine.force_closed(),
            Setting::Close => standing.machine.close(),
        }
        name
    }

    /// Whether there is a keeper to tell, or was one: what is told to one that has ended is dropped, and with it what waits for
    /// an answer.
    fn tell(&self, told: Told) -> bool {
        self.keeper.as_ref().map(|keeper| drop(keeper.send(told))).is_some()
    }
}

const NEVER_BY_ITSELF: BreakerPolicy = BreakerPolicy {
    failures: u32::MAX,
    open: Duration::from_secs(2),
    ratio: None,
    spacing: Duration::ZERO,
    probe_max: Duration::ZERO,
    by_part: false,
};
