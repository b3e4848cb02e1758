//! Lets those go that wait in the store behind a breaker: one as the probe, all of them in stages once it is closed, those
//! first that have waited the longest.
//!
//! What it reads is a hint, like that of a scan: an execution that is let go asks its breaker, and is parked again if that
//! says no. An execution is parked as long as its row says so, so that nothing is forgotten when a node ends in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{BreakerName, Breakers, Letting, Standing};
use crate::engine::core::{HELD_MAX, Message};
use crate::engine::node::Incoming;
use crate::engine::{Clock, Input};
use crate::id::WorkflowKey;
use crate::store::{Sharing, Store, StoreError};

/// While there is a backlog to be let go, so often some of it is.
const STAGE: Duration = Duration::from_millis(100);
/// A recovered service meets so many calls a second first; then twice as many each second, up to its own rate.
const FIRST_PER_SECOND: f64 = 10.0;
/// Where no rate bounds it, it is so many a second in the end.
const PER_SECOND_MAX: f64 = 1_000.0;
/// Where nobody is found although somebody was parked just now, it is looked again so soon: that is being stored.
const LOOK_SOON: Duration = Duration::from_millis(500);
/// An execution that was let go is not let go again before so much time has passed: it is on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(3);
/// Where nodes share the store, breakers behind which nobody is known to wait are looked at so often: shards come from others.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// So long nothing is done that nothing asks for.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Nobody is let go while so many executions are in memory.
const AT_WORK_MAX: usize = HELD_MAX / 2;

/// The task of one incarnation of a node.
pub(crate) struct Releaser {
    pub(crate) breakers: Breakers,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The shards whose executions are let go.
    pub(crate) owned: watch::Receiver<Arc<[u16]>>,
    /// How many executions are in memory.
    pub(crate) at_work: Arc<AtomicUsize>,
    pub(crate) core: mpsc::UnboundedSender<Incoming>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// What was let go behind one breaker.
#[derive(Default)]
struct Stages {
    /// When the first was, since it closed; and what is left of the last stage's share.
    rising: Option<Rising>,
    /// Those on their way, and until when they count as such.
    on_their_way: BTreeMap<WorkflowKey, Duration>,
}

/// How the rate rises.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rising {
    began: Duration,
    last: Duration,
    left: f64,
}

impl Rising {
    fn new(now: Duration) -> Self {
        Self { began: now, last: now, left: 1.0 }
    }

    /// How many may go now, of a rate that is `most` a second in the end, of which this node has its share.
    fn due(&mut self, now: Duration, most: f64, share: f64) -> usize {
        let rate = (FIRST_PER_SECOND * now.saturating_sub(self.began).as_secs_f64().exp2()).min(most) * share;
        // A node that stood still makes up for nothing.
        let passed = now.saturating_sub(self.last).min(STAGE * 2).as_secs_f64();
        self.last = now;
        self.left = (self.left + rate * passed).min(rate.max(1.0));
        self.left as usize
    }
}

impl Releaser {
    /// Goes on until told to stop.
    pub(crate) async fn run(mut self) {
        let mut stages: BTreeMap<BreakerName, Stages> = BTreeMap::new();
        let idle = if self.store.facts().sharing == Sharing::Shared { LOOK_AGAIN } else { IDLE_MAX };
        let mut look_at = Duration::ZERO;
        loop {
            let shards = Arc::clone(&self.owned.borrow_and_update());
            let share = shards.len().max(1) as f64 / f64::from(self.store.facts().shards.max(1));
            self.breakers.set_share(share.min(1.0));
            let now = self.clock.monotonic();
            if now >= look_at {
                self.breakers.look_again();
                look_at = now.saturating_add(idle);
            }
            let mut pause = idle;
            for (name, letting, most) in self.breakers.backlogs() {
                match self.round(&name, letting, most, &shards, share, stages.entry(name.clone()).or_default()).await {
                    Ok(wait) => pause = pause.min(wait),
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(breaker = %name, %error, "those that wait for the breaker are not read; it is tried again");
                        pause = pause.min(LOOK_SOON);
                    }
                }
            }
            let (clock, breakers) = (Arc::clone(&self.clock), self.breakers.clone());
            tokio::select! {
                biased;
                _ = self.stop.changed() => return,
                _ = self.owned.changed() => look_at = Duration::ZERO,
                () = breakers.0.news.notified() => {}
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Lets go who may go behind one breaker. Tells how long there is nothing more to do.
    async fn round(
        &self,
        name: &BreakerName,
        letting: Letting,
        most: f64,
        shards: &[u16],
        share: f64,
        stages: &mut Stages,
    ) -> Result<Duration, StoreError> {
        let now = self.clock.monotonic();
        stages.on_their_way.retain(|_, until| *until > now);
        let under_way = stages.on_their_way.len();
        let room = AT_WORK_MAX.saturating_sub(self.at_work.load(Ordering::Relaxed));
        let wanted = match letting {
            Letting::Nobody(wait) => {
                *stages = Stages::default();
                return Ok(wait.unwrap_or(IDLE_MAX).max(STAGE));
            }
            Letting::One => usize::from(under_way == 0),
            Letting::Everybody => stages.rising.get_or_insert(Rising::new(now)).due(now, most, share).min(room),
        };
        if shards.is_empty() || wanted == 0 {
            return Ok(STAGE);
        }
        let found = self.store.parked(shards, &name.to_string(), under_way + wanted).await?;
        if found.is_empty() {
            *stages = Stages::default();
            self.breakers.is_empty_behind(name, now);
            return Ok(LOOK_SOON);
        }
        for key in found.into_iter().filter(|key| !stages.on_their_way.contains_key(key)).take(wanted).collect::<Vec<_>>() {
            if let Some(rising) = &mut stages.rising {
                rising.left -= 1.0;
            }
            stages.on_their_way.insert(key.clone(), now.saturating_add(ON_ITS_WAY));
            let _ = self.core.send(Incoming::Message(Message::Input { key, input: Input::LetGo }));
        }
        Ok(STAGE)
    }
}

impl Breakers {
    /// Each breaker behind which somebody may wait, whom it lets go, and how many a second in the end.
    fn backlogs(&self) -> Vec<(BreakerName, Letting, f64)> {
        let now = self.0.clock.monotonic();
        let state = self.lock();
        let waiting = state.machines.iter().filter(|(_, standing)| standing.parked_at.is_some());
        let told = waiting.map(|(name, Standing { machine, .. })| {
            let spacing = machine.spacing().as_secs_f64();
            let most = if spacing > 0.0 { (1.0 / spacing).min(PER_SECOND_MAX) } else { PER_SECOND_MAX };
            (name.clone(), machine.letting(now), most)
        });
        told.collect()
    }

    /// Somebody may wait behind each of them.
    fn look_again(&self) {
        for (name, standing) in &mut self.lock().machines {
            // Behind a part that was never anything but closed nobody waits.
            if name.key.is_some() && !standing.machine.has_moved() {
                continue;
            }
            standing.parked_at.get_or_insert(Duration::ZERO);
        }
    }

    /// Nobody waits there, unless somebody was parked just now and is not stored yet.
    fn is_empty_behind(&self, name: &BreakerName, now: Duration) {
        if let Some(standing) = self.lock().machines.get_mut(name) {
            standing.parked_at = standing.parked_at.filter(|at| now < at.saturating_add(ON_ITS_WAY));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_from_a_few_calls_to_that_of_the_service_and_no_second_has_more() {
        let mut rising = Rising::new(Duration::ZERO);
        let mut per_second = Vec::new();
        for second in 0..8u64 {
            let mut gone = 0;
            for stage in 1..=10u64 {
                let due = rising.due(Duration::from_millis(second * 1_000 + stage * 100), 200.0, 1.0);
                rising.left -= due as f64;
                gone += due;
            }
            per_second.push(gone);
        }
        assert!(per_second[0] <= 20, "{per_second:?}");
        assert!(per_second.is_sorted(), "{per_second:?}");
        assert_eq!(per_second[6..], [200, 200], "{per_second:?}");
    }

    #[test]
    fn each_node_lets_its_share_go_and_one_that_stood_still_makes_up_for_nothing() {
        let mut rising = Rising::new(Duration::ZERO);
        let later = Duration::from_secs(100);
        rising.due(later, 100.0, 0.25);
        rising.left = 0.0;
        assert_eq!(rising.due(later + STAGE * 2, 100.0, 0.25), 5, "a quarter of 100 a second, for 0.2 s");
        rising.left = 0.0;
        assert_eq!(rising.due(later + Duration::from_secs(60), 100.0, 0.25), 5);
    }
}
