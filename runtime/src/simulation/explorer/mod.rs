//! The saga explorer: plays one execution in every order of what may happen to it, and asks the author's own question at the
//! end of each.
//!
//! What may happen is: its start, each signal, the passing of time to its next timer, the answer of each call that is under
//! way; and, so many times a schedule, a *fault*: a call that fails before it has done anything, one that is done and seems to
//! have failed, one that is made twice, a signal that is delivered again, a crash of the node now, before a commit, or behind
//! one. Every call waits until the schedule lets it go on, so that signals and timers come before, between and behind all of
//! them. Time is virtual: a deadline in a week costs nothing.
//!
//! ```
//! use overdue_runtime::simulation::{Ended, Explorer};
//! # use overdue_runtime::{Payload, activity::*, client::*, engine::Registries, workflow::*};
//! # use std::{sync::{Arc, Mutex}, time::Duration};
//! # struct Nap;
//! # #[async_trait::async_trait] impl Workflow for Nap {
//! #     const TYPE: &'static str = "nap"; type Input = (); type Output = ();
//! #     async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
//! #         ctx.sleep(Duration::from_secs(60)).await?; ctx.activity::<Ring>(&()).await?; Ok(())
//! #     }
//! # }
//! # #[derive(Clone)] struct Ring(Arc<Bell>);
//! # #[async_trait::async_trait] impl Activity for Ring {
//! #     const NAME: &'static str = "ring"; type Input = (); type Output = ();
//! #     async fn execute(&self, ctx: &ActivityContext, (): ()) -> Result<(), ActivityFailure> {
//! #         let mut rung = self.0.rung.lock().unwrap();
//! #         if !rung.contains(&ctx.idempotency_key().to_owned()) { rung.push(ctx.idempotency_key().to_owned()) }
//! #         Ok(())
//! #     }
//! # }
//! #[derive(Default)]
//! struct Bell { rung: Mutex<Vec<String>> }
//!
//! let explored = Explorer::new(Bell::default, |bell, _| {
//!     let mut code = Registries::default();
//!     code.workflows.register(Nap);
//!     code.activities.register(Ring(Arc::clone(bell)));
//!     code
//! })
//! .start("nap", "n-1", &())
//! .explore(|bell: &Bell, _: &Ended| match bell.rung.lock().unwrap().len() {
//!     1 => Ok(()),
//!     times => Err(format!("it rang {times} times")),
//! });
//! assert!(explored.is_exhaustive);
//! ```

mod ended;
mod gate;
mod play;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

pub use self::ended::{Ended, EndedExecution};
use self::play::Played;
pub use self::schedule::Fault;
use self::schedule::{Plan, Schedule};
use super::dice::Dice;
use crate::engine::{Environment, Registries};
use crate::payload::Payload;

/// So many schedules are played if nothing else is said.
const SCHEDULES: usize = 2_000;
/// Of the schedules, one part in so many at most goes to orders without faults.
const SHARE_WITHOUT_FAULTS: usize = 2;
/// Set to a number, so many schedules are played at most, whatever the test says.
const MORE: &str = "OVERDUE_SCHEDULES";
/// Set to a schedule, it is the only one that is played, and shown.
const REPLAY: &str = "OVERDUE_SCHEDULE";

/// What the outside does for an effect of its own, such as a buyer who pays.
type Deed<S> = Arc<dyn Fn(&S) + Send + Sync>;

/// A program over a world.
type Code<S> = Arc<dyn Fn(&Arc<S>, &Environment) -> Registries + Send + Sync>;

/// A signal, and what happens in the world just before it is sent.
pub(super) struct Sent<S> {
    pub(super) name: String,
    pub(super) signal_id: String,
    pub(super) payload: Payload,
    pub(super) deed: Option<Deed<S>>,
}

/// See the module.
pub struct Explorer<S> {
    state: Box<dyn Fn(&Environment) -> S + Send + Sync>,
    code: Code<S>,
    workflow_type: String,
    id: String,
    input: Payload,
    signals: Arc<Vec<Sent<S>>>,
    faults: usize,
    schedules: usize,
    replay: Option<String>,
}

/// What was played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// How many schedules.
    pub schedules: usize,
    /// Whether these were all orders without faults, and all with a single one.
    pub is_exhaustive: bool,
    /// How often each fault really happened.
    pub injected: BTreeMap<Fault, u64>,
}

impl<S: Send + Sync + 'static> Explorer<S> {
    /// An explorer of a program: `state` makes the world that its activities act upon, anew for each schedule, and `code` the
    /// program over it.
    pub fn new(
        state: impl Fn() -> S + Send + Sync + 'static,
        code: impl Fn(&Arc<S>, &Environment) -> Registries + Send + Sync + 'static,
    ) -> Self {
        Self::with_environment(move |_| state(), code)
    }

    /// The same for a world that goes by the virtual time.
    pub fn with_environment(
        state: impl Fn(&Environment) -> S + Send + Sync + 'static,
        code: impl Fn(&Arc<S>, &Environment) -> Registries + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: Box::new(state),
            code: Arc::new(code),
            workflow_type: String::new(),
            id: String::new(),
            input: Payload::null(),
            signals: Arc::default(),
            faults: 1,
            schedules: SCHEDULES,
            replay: std::env::var(REPLAY).ok(),
        }
    }

    /// The execution that is played.
    ///
    /// # Panics
    /// When the input cannot be written as JSON.
    #[must_use]
    pub fn start(mut self, workflow_type: &str, id: &str, input: &impl Serialize) -> Self {
        self.workflow_type = workflow_type.to_owned();
        self.id = id.to_owned();
        self.input = Payload::of(input).expect("an input is JSON");
        self
    }

    /// A signal that is sent to it once, at any moment: before its start and after its end too.
    #[must_use]
    pub fn signal(self, name: &str, signal_id: &str, payload: &impl Serialize) -> Self {
        self.add(name, signal_id, payload, None)
    }

    /// The same, and `deed` happens in the world just before it is sent.
    #[must_use]
    pub fn signal_after(
        self,
        name: &str,
        signal_id: &str,
        payload: &impl Serialize,
        deed: impl Fn(&S) + Send + Sync + 'static,
    ) -> Self {
        self.add(name, signal_id, payload, Some(Arc::new(deed)))
    }

    /// So many faults strike one schedule at most; one, if nothing is said.
    #[must_use]
    pub fn faults(mut self, faults: usize) -> Self {
        self.faults = faults;
        self
    }

    /// So many schedules are played at most.
    #[must_use]
    pub fn schedules(mut self, schedules: usize) -> Self {
        let more = std::env::var(MORE).ok().and_then(|text| text.parse().ok());
        self.schedules = more.unwrap_or(schedules);
        self
    }

    /// Plays this schedule alone.
    #[must_use]
    pub fn replay(mut self, schedule: &str) -> Self {
        self.replay = Some(schedule.to_owned());
        self
    }

    /// Plays schedules: every order without faults first, then each of these with each fault at each of its places, then, if
    /// there may be several, random ones. `holds` is asked at the end of each.
    ///
    /// # Panics
    /// When `holds` says no, or an execution does not come to its end: with the steps, and with the schedule that plays them
    /// again.
    pub fn explore(self, holds: impl Fn(&S, &Ended) -> Result<(), String>) -> Explored {
        if let Some(text) = &self.replay {
            let played = self.play(Plan::of(Schedule::parse(text), self.faults));
            played.steps.iter().for_each(|step| println!("  {step}"));
            self.ask(&played, &holds);
            return Explored { schedules: 1, is_exhaustive: false, injected: played.injected };
        }
        let mut explored = Explored::default();
        let mut count = |played: &Played<S>| {
            explored.schedules += 1;
            for (fault, times) in &played.injected {
                *explored.injected.entry(*fault).or_default() += times;
            }
        };
        let (sequences, mut is_exhaustive) = self.sequences(&holds, &mut count);
        let mut left = self.schedules.saturating_sub(sequences.len());
        let mut single = sequences.iter().flat_map(|order| order.with_one_fault()).collect::<BTreeSet<_>>().into_iter();
        while self.faults > 0
            && let Some(schedule) = single.next()
        {
            if left == 0 {
                is_exhaustive = false;
                break;
            }
            left -= 1;
            let played = self.play(Plan::of(schedule, 1));
            self.ask(&played, &holds);
            count(&played);
        }
        let dice = Dice::new(0);
        while self.faults > 1 && left > 0 {
            left -= 1;
            let played = self.play(Plan::drawn(dice.next_u64(), self.faults));
            self.ask(&played, &holds);
            count(&played);
        }
        explored.is_exhaustive = is_exhaustive;
        explored
    }

    /// Every order without faults, depth first; whether these are all.
    fn sequences(
        &self,
        holds: &impl Fn(&S, &Ended) -> Result<(), String>,
        count: &mut impl FnMut(&Played<S>),
    ) -> (Vec<schedule::Taken>, bool) {
        let most = if self.faults == 0 { self.schedules } else { self.schedules / SHARE_WITHOUT_FAULTS };
        let mut sequences = Vec::new();
        let mut next = Some(Schedule::default());
        while let Some(schedule) = next {
            if sequences.len() >= most {
                return (sequences, false);
            }
            let played = self.play(Plan::of(schedule, 0));
            self.ask(&played, holds);
            count(&played);
            next = played.taken.next_order();
            sequences.push(played.taken);
        }
        (sequences, true)
    }

    fn ask(&self, played: &Played<S>, holds: &impl Fn(&S, &Ended) -> Result<(), String>) {
        let answer = match &played.stuck {
            Some(why) => Err(why.clone()),
            None => holds(&played.state, &played.ended),
        };
        if let Err(why) = answer {
            let schedule = played.taken.schedule();
            let steps = played.steps.join("\n  ");
            panic!("{why}\n  {steps}\nplay it again: {REPLAY}={schedule}, or Explorer::replay(\"{schedule}\")");
        }
    }

    fn add(mut self, name: &str, signal_id: &str, payload: &impl Serialize, deed: Option<Deed<S>>) -> Self {
        let payload = Payload::of(payload).expect("a payload is JSON");
        let sent = Sent { name: name.to_owned(), signal_id: signal_id.to_owned(), payload, deed };
        let signals = Arc::get_mut(&mut self.signals);
        signals.expect("nobody else has them before it explores").push(sent);
        self
    }
}
