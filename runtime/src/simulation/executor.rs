//! One thread that runs every task of every process, in an order drawn from a seed, on a time of its own.
//!
//! A step polls one of the tasks that are ready, whichever the seed says; which of them were woken first makes no
//! difference. Time passes a little with every step, and jumps to the next timer when nobody is ready. A process can be
//! killed or frozen between any two steps of it, that is at any await.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;

use super::dice::Dice;
use super::process::{Process, Strike};
use crate::time::Timestamp;

/// What a step takes at least.
const STEP: Duration = Duration::from_micros(1);
/// One step in so many takes longer.
const SLOW_STEP_IN: u64 = 64;
/// How long it takes at most.
const SLOW_STEP_MAX: Duration = Duration::from_millis(2);
/// When a simulation begins: 2026-11-30T18:00:00Z.
pub const BEGINNING: Timestamp = Timestamp::from_micros(1_796_061_600_000_000);

type TaskId = u64;

struct Task {
    process: Process,
    /// Taken out while it is polled.
    future: Option<BoxFuture<'static, ()>>,
}

#[derive(Default)]
struct ProcessState {
    frozen: bool,
    dead: bool,
    /// So many steps from now, this happens.
    strike: Option<(u32, Strike)>,
}

struct State {
    now: Duration,
    dice: Dice,
    tasks: BTreeMap<TaskId, Task>,
    next_task: TaskId,
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    /// Who waits until nobody else has anything to do.
    quiet: Vec<Waker>,
    processes: Vec<ProcessState>,
    steps: u64,
    /// A hash over which task was polled when: two runs that agree in it were the same.
    trace: u64,
}

#[derive(Default)]
struct Ready(Mutex<BTreeSet<TaskId>>);

struct TaskWaker {
    id: TaskId,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.lock().insert(self.id);
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<TaskId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulation; clones are the same one.
#[derive(Clone)]
pub struct Simulation {
    state: Arc<Mutex<State>>,
    ready: Arc<Ready>,
}

impl Simulation {
    /// A world in which nothing has happened yet.
    pub fn new(seed: u64) -> Self {
        let state = State {
            now: Duration::ZERO,
            dice: Dice::new(seed),
            tasks: BTreeMap::new(),
            next_task: 0,
            timers: BTreeMap::new(),
            next_timer: 0,
            quiet: Vec::new(),
            processes: vec![ProcessState::default()],
            steps: 0,
            trace: 0xcbf2_9ce4_8422_2325,
        };
        Self { state: Arc::new(Mutex::new(state)), ready: Arc::default() }
    }

    /// True time since the beginning.
    pub fn now(&self) -> Duration {
        self.lock().now
    }

    /// The true time of day.
    pub fn time(&self) -> Timestamp {
        BEGINNING.saturating_add(self.now())
    }

    /// How many steps were taken.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// A hash over everything that was done so far, in order.
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// Dice of their own, which follow from the seed and from how often this was asked.
    pub fn dice(&self) -> Dice {
        Dice::new(self.lock().dice.next_u64())
    }

    /// A new process without tasks.
    pub fn process(&self) -> Process {
        let mut state = self.lock();
        state.processes.push(ProcessState::default());
        Process(state.processes.len() - 1)
    }

    /// Begins a task of a process. One of a dead process never runs.
    pub fn spawn(&self, process: Process, future: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.lock();
        if state.processes[process.0].dead {
            return;
        }
        let id = state.next_task;
        state.next_task += 1;
        state.tasks.insert(id, Task { process, future: Some(Box::pin(future)) });
        self.ready.lock().insert(id);
    }

    /// Runs a task of the world and everything beside it until that task ends; `None` when it never will, because
    /// everybody waits for somebody, or `steps_max` have passed.
    pub fn run<T: Send + 'static>(&self, steps_max: u64, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let result = Arc::new(Mutex::new(None));
        let done = Arc::new(AtomicBool::new(false));
        let (to, ended) = (Arc::clone(&result), Arc::clone(&done));
        self.spawn(Process::WORLD, async move {
            let value = future.await;
            *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            ended.store(true, Ordering::Relaxed);
        });
        for _ in 0..steps_max {
            if done.load(Ordering::Relaxed) || !self.step() {
                break;
            }
        }
        result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Drops every task that there is, so that none keeps another alive.
    pub fn end(&self) {
        let tasks = std::mem::take(&mut self.lock().tasks);
        drop(tasks);
        let timers = std::mem::take(&mut self.lock().timers);
        drop(timers);
    }

    /// Has this happen to a process now.
    pub fn strike(&self, process: Process, strike: Strike) {
        let dropped = {
            let mut state = self.lock();
            let of = &mut state.processes[process.0];
            match strike {
                Strike::Freeze => {
                    of.frozen = true;
                    Vec::new()
                }
                Strike::Kill => {
                    of.dead = true;
                    of.frozen = false;
                    let ids: Vec<TaskId> =
                        state.tasks.iter().filter(|(_, task)| task.process == process).map(|(id, _)| *id).collect();
                    ids.iter().filter_map(|id| state.tasks.remove(id)).collect()
                }
            }
        };
        // Outside the lock: what a task held may look at the time, or wake others, when it is dropped.
        drop(dropped);
    }

    /// Has this happen to a process after so many more steps of it.
    pub fn strike_after(&self, process: Process, steps: u32, strike: Strike) {
        self.lock().processes[process.0].strike = Some((steps, strike));
    }

    /// Takes back what was to happen to a process after some steps.
    pub fn spare(&self, process: Process) {
        self.lock().processes[process.0].strike = None;
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self, process: Process) {
        self.lock().processes[process.0].frozen = false;
    }

    /// Whether a process stands still.
    pub fn is_frozen(&self, process: Process) -> bool {
        self.lock().processes[process.0].frozen
    }

    /// Whether a process was killed.
    pub fn is_dead(&self, process: Process) -> bool {
        self.lock().processes[process.0].dead
    }

    /// Waits, by the true time.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let until = self.now().saturating_add(duration);
        Sleep { simulation: self.clone(), until, id: None }
    }

    /// Waits until no task has anything to do before time passes.
    pub async fn quiet(&self) {
        let mut waited = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            self.lock().quiet.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Polls one task, or lets time pass when none is ready. False when nothing will ever happen again.
    fn step(&self) -> bool {
        let Some((id, process, mut future)) = self.next() else { return self.jump() };
        let waker = Waker::from(Arc::new(TaskWaker { id, ready: Arc::clone(&self.ready) }));
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut state = self.lock();
        match state.tasks.get_mut(&id) {
            Some(task) if !ended => {
                task.future = Some(future);
                drop(state);
            }
            // It has ended, or its process was killed in this very step.
            _ => {
                state.tasks.remove(&id);
                drop(state);
                drop(future);
            }
        }
        self.count_down(process);
        self.pass_a_step();
        true
    }

    fn next(&self) -> Option<(TaskId, Process, BoxFuture<'static, ()>)> {
        let mut state = self.lock();
        let mut ready = self.ready.lock();
        ready.retain(|id| state.tasks.contains_key(id));
        let may_run = |id: &&TaskId| {
            let task = &state.tasks[*id];
            !state.processes[task.process.0].frozen
        };
        let runnable: Vec<TaskId> = ready.iter().filter(may_run).copied().collect();
        if runnable.is_empty() {
            return None;
        }
        let at = state.dice.below(runnable.len() as u64);
        let id = runnable[usize::try_from(at).unwrap_or_default()];
        ready.remove(&id);
        drop(ready);
        let now = state.now.as_micros() as u64;
        state.trace = (state.trace ^ id ^ now.rotate_left(32)).wrapping_mul(0x0000_0100_0000_01b3);
        state.steps += 1;
        let task = state.tasks.get_mut(&id)?;
        let process = task.process;
        task.future.take().map(|future| (id, process, future))
    }

    fn count_down(&self, process: Process) {
        let strike = {
            let mut state = self.lock();
            let of = &mut state.processes[process.0];
            match of.strike {
                Some((0, strike)) => {
                    of.strike = None;
                    Some(strike)
                }
                Some((left, strike)) => {
                    of.strike = Some((left - 1, strike));
                    None
                }
                None => None,
            }
        };
        if let Some(strike) = strike {
            self.strike(process, strike);
        }
    }

    fn pass_a_step(&self) {
        let state = self.lock();
        let slow = state.dice.below(SLOW_STEP_IN) == 0;
        let took = if slow { state.dice.up_to(SLOW_STEP_MAX) } else { STEP };
        let until = state.now + took;
        self.pass_to(state, until);
    }

    /// To the next timer.
    fn jump(&self) -> bool {
        let mut state = self.lock();
        let quiet = std::mem::take(&mut state.quiet);
        if !quiet.is_empty() {
            drop(state);
            quiet.into_iter().for_each(Waker::wake);
            return true;
        }
        let Some((next, _)) = state.timers.first_key_value().map(|(key, _)| *key) else { return false };
        let until = next.max(state.now);
        self.pass_to(state, until);
        true
    }

    fn pass_to(&self, mut state: MutexGuard<'_, State>, until: Duration) {
        state.now = until;
        let mut woken = Vec::new();
        while let Some(entry) = state.timers.first_entry()
            && entry.key().0 <= until
        {
            woken.push(entry.remove());
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Simulation::sleep`].
pub struct Sleep {
    simulation: Simulation,
    until: Duration,
    id: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let simulation = self.simulation.clone();
        let mut state = simulation.lock();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let until = self.until;
        let id = *self.id.get_or_insert_with(|| {
            state.next_timer += 1;
            (until, state.next_timer)
        });
        state.timers.insert(id, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let waker = self.simulation.lock().timers.remove(&id);
            drop(waker);
        }
    }
}
