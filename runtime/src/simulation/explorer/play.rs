//! One schedule, from the start to the end of everything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ended::{Ended, EndedExecution};
use super::gate::Gates;
use super::schedule::{Fault, Plan, Taken};
use super::{Explorer, Sent};
use crate::client::{SignalRequest, StartRequest};
use crate::engine::EngineConfig;
use crate::history::{EventKind, Folded, decode};
use crate::simulation::cluster::{Cluster, NodePlan};
use crate::simulation::database::{Backing, CommitFate, Database};
use crate::simulation::executor::Simulation;
use crate::simulation::judge::Judge;
use crate::simulation::node_clock::NodeClock;
use crate::simulation::process::Process;
use crate::store::{Loaded, ModelStore, Sharing};
use crate::time::Timestamp;

/// The node's only place.
const PLACE: usize = 0;
const SHARDS: u16 = 1;
/// No schedule has more steps; one that has spins.
const STEPS_MAX: u64 = 5_000_000;
/// No schedule lets time pass more often.
const PASSES_MAX: usize = 200;
/// How much time passes where no timer says when.
const A_WHILE: Duration = Duration::from_secs(2);
/// A caller's patience: longer than any order of steps takes.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// A schedule that was played.
pub(super) struct Played<S> {
    pub(super) state: Arc<S>,
    pub(super) ended: Ended,
    pub(super) taken: Taken,
    pub(super) steps: Vec<String>,
    pub(super) injected: BTreeMap<Fault, u64>,
    /// Why it did not come to its end.
    pub(super) stuck: Option<String>,
}

/// What the schedule has decided so far.
struct Script {
    plan: Plan,
    steps: Vec<String>,
    injected: BTreeMap<Fault, u64>,
}

impl Script {
    fn inject(&mut self, fault: Fault, what: &str) {
        *self.injected.entry(fault).or_default() += 1;
        self.steps.push(format!("fault: {what}"));
    }
}

/// Something that may happen next.
enum Next {
    Start,
    Answer(u64, String),
    Signal(usize),
    Time(Option<Timestamp>),
    Faulty(u64, String, Fault),
    Again(usize),
    Crash,
}

struct Stage<S> {
    simulation: Simulation,
    cluster: Arc<Cluster>,
    gates: Gates,
    script: Arc<Mutex<Script>>,
    state: Arc<S>,
    signals: Arc<Vec<Sent<S>>>,
    start: StartRequest,
    started: bool,
    /// How often each signal was sent.
    sent: Vec<u64>,
    passes: usize,
    /// Requests that are not answered.
    unanswered: Arc<Mutex<usize>>,
}

impl<S: Send + Sync + 'static> Explorer<S> {
    pub(super) fn play(&self, plan: Plan) -> Played<S> {
        let simulation = Simulation::new(0);
        let judge = Arc::new(Judge::new(Sharing::Embedded, SHARDS));
        let model = Backing::Model(Arc::new(ModelStore::new(SHARDS)));
        let database = Database::new(&simulation, model, judge);
        let gates = Gates::default();
        let environment = crate::engine::Environment {
            clock: Arc::new(NodeClock::new(simulation.clone(), 0, 0)),
            ..crate::testing::manual_environment(simulation.time(), 0).0
        };
        let state = Arc::new((self.state)(&environment));
        let (code, of_code, behind) = (Arc::clone(&self.code), Arc::clone(&state), gates.clone());
        let plans = vec![NodePlan { config: EngineConfig::default(), drift_ppm: 0, ahead: 0 }];
        let cluster = Cluster::new(&database, plans, move |environment| behind.around(code(&of_code, environment)));
        let script = Arc::new(Mutex::new(Script { plan, steps: Vec::new(), injected: BTreeMap::new() }));
        database.decide_commits(fates(&script));
        let stage = Stage {
            simulation: simulation.clone(),
            cluster: Arc::clone(&cluster),
            gates,
            script: Arc::clone(&script),
            state: Arc::clone(&state),
            signals: Arc::clone(&self.signals),
            start: StartRequest {
                workflow_type: self.workflow_type.clone(),
                id: self.id.clone(),
                input: self.input.clone(),
                start_at: None,
                attributes: BTreeMap::new(),
                traceparent: None,
            },
            started: false,
            sent: vec![0; self.signals.len()],
            passes: 0,
            unanswered: Arc::default(),
        };
        let stuck = simulation.run(STEPS_MAX, stage.play());
        let stuck = stuck.unwrap_or_else(|| Some(format!("not over after {STEPS_MAX} steps")));
        let ended = ended(&database);
        database.decide_commits(Arc::new(|_| CommitFate::Goes));
        simulation.end();
        let script = lock(&script);
        Played { state, ended, taken: script.plan.taken(), steps: script.steps.clone(), injected: script.injected.clone(), stuck }
    }
}

/// At each commit of the execution's node, the schedule chooses.
fn fates(script: &Arc<Mutex<Script>>) -> Arc<dyn Fn(&str) -> CommitFate + Send + Sync> {
    let script = Arc::clone(script);
    Arc::new(move |what: &str| {
        let mut script = lock(&script);
        match script.plan.choose(1, 2) {
            1 => {
                script.inject(Fault::CrashBeforeCommit, &format!("the node ends before it has committed {what}"));
                CommitFate::CrashBefore
            }
            2 => {
                script.inject(Fault::CrashAfterCommit, &format!("the node ends when it has committed {what}"));
                CommitFate::CrashAfter
            }
            _ => CommitFate::Goes,
        }
    })
}

impl<S: Send + Sync + 'static> Stage<S> {
    /// Plays to the end; why it does not come to one, if so.
    async fn play(mut self) -> Option<String> {
        self.cluster.start(PLACE);
        loop {
            self.simulation.quiet().await;
            if self.cluster.is_dead(PLACE) {
                self.cluster.start(PLACE);
                continue;
            }
            if !self.cluster.is_up(PLACE) {
                self.simulation.sleep(A_WHILE).await;
                continue;
            }
            let (mut next, plain) = self.next();
            if plain == 0 {
                return None;
            }
            if self.passes > PASSES_MAX {
                return Some(format!("it does not come to an end, although time has passed {PASSES_MAX} times"));
            }
            let chosen = lock(&self.script).plan.choose(plain, next.len() - plain);
            let chosen = next.swap_remove(chosen);
            self.happen(chosen).await;
        }
    }

    /// What may happen now: plain things first, faults behind them, and how many are plain.
    fn next(&self) -> (Vec<Next>, usize) {
        let executions = loaded(self.cluster.database());
        let is_open = executions.iter().any(|loaded| loaded.execution.status.is_open());
        let waiting = self.gates.waiting();
        let mut next = Vec::new();
        if !self.started {
            next.push(Next::Start);
        }
        next.extend(waiting.iter().map(|(number, name)| Next::Answer(*number, name.clone())));
        next.extend((0..self.signals.len()).filter(|signal| self.sent[*signal] == 0).map(Next::Signal));
        let timer = next_timer(&executions, self.simulation.time());
        let has_unread = self.has_unread();
        let waits = *lock(&self.unanswered) > 0 || has_unread || (is_open && waiting.is_empty());
        if self.started && (timer.is_some() || waits) {
            next.push(Next::Time(timer));
        }
        let plain = next.len();
        for (number, name) in waiting {
            for fault in [Fault::FailsBeforeEffect, Fault::UnknownAfterEffect, Fault::Twice] {
                next.push(Next::Faulty(number, name.clone(), fault));
            }
        }
        next.extend((0..self.signals.len()).filter(|signal| self.sent[*signal] > 0).map(Next::Again));
        if self.started {
            next.push(Next::Crash);
        }
        (next, plain)
    }

    async fn happen(&mut self, next: Next) {
        let (step, fault) = match &next {
            Next::Start => ("start".to_owned(), None),
            Next::Answer(_, name) => (format!("{name} answers"), None),
            Next::Signal(signal) => (format!("signal {}", self.signals[*signal].signal_id), None),
            Next::Time(Some(until)) => (format!("time passes until {until}"), None),
            Next::Time(None) => ("time passes".to_owned(), None),
            Next::Faulty(_, name, fault) => (format!("{name}: {fault:?}"), Some(*fault)),
            Next::Again(signal) => (format!("signal {} again", self.signals[*signal].signal_id), Some(Fault::DeliveredAgain)),
            Next::Crash => ("the node ends".to_owned(), Some(Fault::Crash)),
        };
        match fault {
            Some(fault) => lock(&self.script).inject(fault, &step),
            None => lock(&self.script).steps.push(step),
        }
        match next {
            Next::Start => {
                self.started = true;
                self.begin_start();
            }
            Next::Answer(number, _) => self.gates.open(number, None),
            Next::Faulty(number, _, fault) => self.gates.open(number, Some(fault)),
            Next::Signal(signal) | Next::Again(signal) => {
                if self.sent[signal] == 0
                    && let Some(deed) = &self.signals[signal].deed
                {
                    deed(&self.state);
                }
                self.sent[signal] += 1;
                self.begin_signal(signal);
            }
            Next::Time(until) => {
                self.passes += 1;
                let now = self.simulation.time();
                // A little more: a node's own clock may be behind by what a step takes.
                let pass = until.map_or(A_WHILE, |until| until.since(now) + Duration::from_millis(5));
                self.simulation.sleep(pass).await;
            }
            Next::Crash => {
                self.cluster.kill(PLACE);
                self.cluster.start(PLACE);
            }
        }
    }

    /// Asks for the start until it is granted, as a caller does.
    fn begin_start(&self) {
        let start = self.start.clone();
        self.ask_until(move |client| {
            let start = start.clone();
            Box::pin(async move { client.start(start).await.is_ok() })
        });
    }

    fn begin_signal(&self, signal: usize) {
        let Sent { name, signal_id, payload, .. } = &self.signals[signal];
        let request = SignalRequest {
            workflow_type: self.start.workflow_type.clone(),
            id: self.start.id.clone(),
            name: name.clone(),
            signal_id: Some(signal_id.clone()),
            payload: payload.clone(),
        };
        self.ask_until(move |client| {
            let request = request.clone();
            Box::pin(async move { client.signal(request).await.is_ok() })
        });
    }

    /// Repeats a request until it is granted: whoever hears nothing asks again.
    fn ask_until(
        &self,
        request: impl Fn(crate::client::Client) -> futures::future::BoxFuture<'static, bool> + Send + Sync + 'static,
    ) {
        let (cluster, simulation) = (Arc::clone(&self.cluster), self.simulation.clone());
        let unanswered = Arc::clone(&self.unanswered);
        *lock(&unanswered) += 1;
        let request = Arc::new(request);
        self.simulation.spawn(Process::WORLD, async move {
            loop {
                let once = Arc::clone(&request);
                let asked = cluster.ask(PLACE, PATIENCE, move |client| once(client)).await;
                if asked == crate::simulation::Asked::Answered(true) {
                    break;
                }
                simulation.sleep(A_WHILE).await;
            }
            *lock(&unanswered) -= 1;
        });
    }

    fn has_unread(&self) -> bool {
        let backing = self.cluster.database().backing();
        let unread = backing.inline(backing.store().unread(&[0], 1));
        unread.is_ok_and(|unread| !unread.is_empty())
    }
}

fn loaded(database: &Database) -> Vec<Loaded> {
    let backing = database.backing();
    let listed = backing.inline(backing.store().list(&Default::default(), None, 1_000));
    let keys: Vec<_> = listed.map(|page| page.rows).unwrap_or_default().into_iter().map(|row| row.execution.key).collect();
    backing.inline(backing.store().load(&keys)).unwrap_or_default().into_iter().flatten().collect()
}

/// When the next timer, or the next attempt, is due, if that is to come.
fn next_timer(executions: &[Loaded], now: Timestamp) -> Option<Timestamp> {
    let of = |loaded: &Loaded| -> Vec<Timestamp> {
        if !loaded.execution.status.is_open() {
            return Vec::new();
        }
        let events = decode(loaded.execution.run_id, &loaded.records).map(|(events, _)| events).unwrap_or_default();
        let timers = Folded::of(&events).timers;
        timers.values().map(|timer| timer.fire_at).chain(loaded.execution.wake_at).collect()
    };
    executions.iter().flat_map(of).filter(|at| *at > now).min()
}

fn ended(database: &Database) -> Ended {
    let execution = |loaded: Loaded| {
        let events = decode(loaded.execution.run_id, &loaded.records).map(|(events, _)| events).unwrap_or_default();
        let result = events.iter().find_map(|event| match &event.kind {
            EventKind::WorkflowCompleted { result } => Some(result.clone()),
            _ => None,
        });
        EndedExecution {
            workflow_type: loaded.execution.key.workflow_type().to_owned(),
            id: loaded.execution.key.id().to_owned(),
            status: loaded.execution.status,
            result,
            events,
        }
    };
    Ended { executions: loaded(database).into_iter().map(execution).collect() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
