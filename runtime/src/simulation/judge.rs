//! Watches every commit of a simulation, and says when something is not as it must be.
//!
//! It keeps its own account of who may write and of what every history was, and believes neither the store nor the
//! engine. The names of the invariants (`I14`, …) are those of docs/reliability.md.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::rules::{changed, look_at_new_events};
use super::database::Backing;
use super::findings::Findings;
use crate::engine::Registries;
use crate::history::Record;
use crate::id::{RunId, WorkflowKey};
use crate::store::{Fence, Loaded, NewNode, Outcome, Sharing, Write};
use crate::time::Timestamp;
use crate::verify::{self, Look, Report};

/// One execution as it was last seen.
struct Seen {
    run_id: RunId,
    records: Vec<Record>,
    rev: u64,
    is_open: bool,
    is_retired: bool,
    /// How often its shard had changed its owner.
    turn: u64,
}

struct State {
    findings: Findings,
    /// The epoch of each node that is in.
    lanes: BTreeMap<String, i64>,
    ended: BTreeSet<String>,
    /// Who owns each shard, and how often that has changed.
    owners: Vec<(Option<String>, u64)>,
    seen: BTreeMap<WorkflowKey, Seen>,
    /// The idempotency keys of every activity that was ever scheduled.
    keys: BTreeSet<String>,
    /// When each call began that a node waits for, by its idempotency key.
    calls: BTreeMap<String, Timestamp>,
    /// How long a node that moves a shard waits for its calls, where nothing befalls nodes.
    patience: Option<Duration>,
    /// Signals that are stored and not yet taken up.
    unread: BTreeSet<(WorkflowKey, String)>,
    /// When a timer fired or the execution closed, and by which event.
    decisions: BTreeMap<WorkflowKey, Vec<(Timestamp, u64)>>,
    /// Until when each node's lease was last said to hold.
    leases: BTreeMap<String, Timestamp>,
    code: Option<Registries>,
}

/// See the module.
pub struct Judge {
    sharing: Sharing,
    state: Mutex<State>,
}

impl Judge {
    /// A judge of a store that has so many shards and is shared like this.
    pub fn new(sharing: Sharing, shards: u16) -> Self {
        let state = State {
            findings: Findings::default(),
            lanes: BTreeMap::new(),
            ended: BTreeSet::new(),
            owners: vec![(None, 0); shards.into()],
            seen: BTreeMap::new(),
            keys: BTreeSet::new(),
            calls: BTreeMap::new(),
            patience: None,
            unread: BTreeSet::new(),
            decisions: BTreeMap::new(),
            leases: BTreeMap::new(),
            code: None,
        };
        Self { sharing, state: Mutex::new(state) }
    }

    /// The program whose histories these are: from now on each is replayed after every commit.
    pub fn know(&self, code: Registries) {
        self.lock().code = Some(code);
    }

    /// Takes in what a walk over the whole store has found.
    pub fn walked(&self, report: &Report) {
        self.lock().findings.take(&report.checks, &report.violations);
    }

    /// Looks at an invariant: it must hold.
    pub fn expect(&self, invariant: &'static str, holds: bool, message: impl FnOnce() -> String) {
        self.lock().findings.expect(invariant, holds, message);
    }

    /// Something happened that has to happen now and then.
    pub fn reach(&self, goal: &'static str) {
        *self.lock().findings.reached.entry(goal).or_default() += 1;
    }

    /// Whether an activity with this idempotency key was committed.
    pub fn is_scheduled(&self, key: &str) -> bool {
        self.lock().keys.contains(key)
    }

    /// When transitions of an execution were committed that fired a timer or closed it, and the first event that did.
    pub fn decisions(&self, key: &WorkflowKey) -> Vec<(Timestamp, u64)> {
        self.lock().decisions.get(key).cloned().unwrap_or_default()
    }

    /// A node waits for the answer of a call.
    pub fn call_begins(&self, key: &str, now: Timestamp) {
        self.lock().calls.insert(key.to_owned(), now);
    }

    /// It waits no more, whatever the reason.
    pub fn call_ends(&self, key: &str) {
        self.lock().calls.remove(key);
    }

    /// Nothing befalls nodes: a shard is moved when its calls have ended, or this long has passed.
    pub fn expect_moves_at_rest(&self, patience: Duration) {
        self.lock().patience = Some(patience);
    }

    /// What was found so far.
    pub fn findings(&self) -> Findings {
        self.lock().findings.clone()
    }

    /// Whether anything was found that must not be.
    pub fn is_broken(&self) -> bool {
        !self.lock().findings.broken.is_empty()
    }

    /// Whether this fence may write, by the judge's own account.
    pub(super) fn holds(&self, fence: &Fence) -> bool {
        self.lock().lanes.get(&fence.node_id) == Some(&fence.epoch)
    }

    pub(super) fn joined(&self, node: &NewNode, fence: &Fence) {
        let mut state = self.lock();
        let is_new = !state.ended.contains(&node.node_id) && !state.lanes.contains_key(&node.node_id);
        state.findings.expect("I26", is_new, || format!("the id of node {} was used before", node.node_id));
        match self.sharing {
            Sharing::Embedded => {
                let gone: Vec<String> = std::mem::take(&mut state.lanes).into_keys().collect();
                state.ended.extend(gone);
                state.owners.iter_mut().for_each(|owner| *owner = (Some(node.node_id.clone()), owner.1 + 1));
            }
            Sharing::Shared => {
                if let Some(replaced) = &node.replaces
                    && state.lanes.contains_key(replaced)
                {
                    state.move_shards(replaced, Some(&node.node_id));
                    state.end(replaced);
                }
            }
        }
        state.lanes.insert(node.node_id.clone(), fence.epoch);
    }

    pub(super) fn raised(&self, fence: &Fence, raised: Option<&Fence>) {
        let mut state = self.lock();
        let held = state.lanes.get(&fence.node_id) == Some(&fence.epoch);
        state.findings.expect("I26", held == raised.is_some(), || {
            format!("node {} raised an epoch that was {}its own", fence.node_id, if held { "" } else { "not " })
        });
        if let Some(raised) = raised {
            state
                .findings
                .expect("I26", raised.epoch > fence.epoch, || format!("epoch {} was raised to {}", fence.epoch, raised.epoch));
            state.lanes.insert(raised.node_id.clone(), raised.epoch);
        }
    }

    pub(super) fn claimed(&self, fence: &Fence, shards: &[u16]) {
        let mut state = self.lock();
        let held = state.lanes.get(&fence.node_id) == Some(&fence.epoch);
        state.findings.expect("I26", held || shards.is_empty(), || format!("node {} claimed without its lane", fence.node_id));
        for shard in shards {
            let owner = &mut state.owners[usize::from(*shard)];
            let was_free = owner.0.is_none();
            *owner = (Some(fence.node_id.clone()), owner.1 + 1);
            state
                .findings
                .expect("I26", was_free, || format!("node {} claimed shard {shard}, which had an owner", fence.node_id));
        }
    }

    pub(super) fn handed_over(&self, fence: &Fence, shards: &[u16], to: Option<&str>, now: Timestamp) {
        let mut state = self.lock();
        state.look_at_move(shards, now);
        let heir = to.filter(|heir| state.lanes.contains_key(*heir)).map(str::to_owned);
        for shard in shards {
            let owner = &mut state.owners[usize::from(*shard)];
            if owner.0.as_ref() == Some(&fence.node_id) {
                *owner = (heir.clone(), owner.1 + 1);
            }
        }
        drop(state);
        self.reach("shards handed over");
    }

    pub(super) fn renewed(&self, node_id: &str, until: Timestamp) {
        self.lock().leases.insert(node_id.to_owned(), until);
    }

    pub(super) fn taken_over(&self, node_id: &str, now: Timestamp) {
        let calls = {
            let mut state = self.lock();
            let until = state.leases.remove(node_id);
            state.findings.expect("I33", until.is_none_or(|until| until <= now), || {
                format!("node {node_id} was ended at {now}, and its lease held until {until:?}")
            });
            state.end(node_id);
            state.calls.len()
        };
        self.reach("node taken over");
        if calls > 0 {
            self.reach("node taken over with a call under way");
        }
    }

    pub(super) fn left(&self, fence: &Fence) {
        let mut state = self.lock();
        if state.lanes.get(&fence.node_id) == Some(&fence.epoch) {
            state.end(&fence.node_id);
        }
    }

    /// Looks at everything that a commit changed.
    pub(super) fn committed(&self, backing: &Backing, now: Timestamp, fence: &Fence, writes: &[Write], outcomes: &[Outcome]) {
        let mut state = self.lock();
        let holds = state.lanes.get(&fence.node_id) == Some(&fence.epoch);
        let written: Vec<&WorkflowKey> =
            writes.iter().zip(outcomes).flat_map(|(write, outcome)| changed(write, outcome)).collect();
        state.findings.expect("I27", holds || written.is_empty(), || {
            format!("epoch {} of node {} was over, and {} executions changed", fence.epoch, fence.node_id, written.len())
        });
        if outcomes.contains(&Outcome::NotOwned) {
            *state.findings.reached.entry("shard lost in a batch").or_default() += 1;
        }
        if outcomes.contains(&Outcome::UnreadInbox) {
            *state.findings.reached.entry("deadline refused for an unread signal").or_default() += 1;
        }
        let keys: Vec<WorkflowKey> = written.into_iter().cloned().collect();
        // As if one came after another: what the same batch stores behind a transition was not there for it to see.
        let mut unread = BTreeMap::new();
        for (write, outcome) in writes.iter().zip(outcomes) {
            state.follow_inbox(write, outcome);
            for key in changed(write, outcome) {
                unread.insert(key.clone(), state.first_unread(key));
            }
        }
        let loaded = match backing.inline(backing.store().load(&keys)) {
            Ok(loaded) => loaded,
            Err(error) => {
                state.findings.expect("I12", false, || format!("a commit could not be read back: {error}"));
                return;
            }
        };
        for (write, outcome) in writes.iter().zip(outcomes) {
            if let (Write::Advance(advance), Outcome::Advanced) = (write, outcome) {
                let owner = state.owners[usize::from(advance.shard)].0.clone();
                state.findings.expect("I26", owner.as_ref() == Some(&fence.node_id), || {
                    format!("{}: node {} wrote, and {owner:?} owns shard {}", advance.key, fence.node_id, advance.shard)
                });
            }
        }
        let code = state.code.clone();
        for (key, loaded) in keys.iter().zip(loaded) {
            if let (Some(code), Some(loaded)) = (&code, &loaded) {
                let look = Look { code, shards: backing.store().facts().shards, now };
                let verdict = verify::execution(look, loaded);
                state.findings.take(&verdict.checks, &verdict.violations);
            }
            state.look(key, loaded, now, unread.get(key).cloned().flatten());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end(&mut self, node_id: &str) {
        self.move_shards(node_id, None);
        self.lanes.remove(node_id);
        self.ended.insert(node_id.to_owned());
    }

    fn move_shards(&mut self, from: &str, to: Option<&str>) {
        for owner in self.owners.iter_mut().filter(|owner| owner.0.as_deref() == Some(from)) {
            *owner = (to.map(str::to_owned), owner.1 + 1);
        }
    }

    fn look(&mut self, key: &WorkflowKey, loaded: Option<Loaded>, now: Timestamp, unread: Option<String>) {
        let before = self.seen.remove(key);
        let findings = &mut self.findings;
        let Some(loaded) = loaded else {
            let may_go = before.is_none_or(|before| before.is_retired);
            findings.expect("I42", may_go, || format!("{key} was removed, and its history had not been"));
            return;
        };
        let row = &loaded.execution;
        let turn = self.owners[usize::from(row.shard)].1;
        let mut from = 0;
        if let Some(before) = &before {
            findings.expect("I9", before.run_id == row.run_id, || format!("{key} has another run than before"));
            findings.expect("I20", turn >= before.turn, || {
                format!("{key}: written in turn {turn} of its shard, after {}", before.turn)
            });
            findings.expect("I28", row.rev <= before.rev + 1, || format!("{key}: rev went from {} to {}", before.rev, row.rev));
            let is_prefix = row.retired || loaded.records.starts_with(&before.records);
            findings.expect("I14", is_prefix, || format!("{key}: what was written before is not as it was"));
            let is_longer = loaded.records.len() > before.records.len();
            findings.expect("I18", before.is_open || !is_longer, || format!("{key}: its history grew after its end"));
            findings.expect("I1", before.is_open || !row.status.is_open(), || format!("{key} was closed and is open again"));
            from = if is_prefix { before.records.len() } else { 0 };
        }
        if !row.retired {
            let new = look_at_new_events(key, &loaded, from, now, findings);
            self.keys.extend(new.keys);
            if let Some(event) = new.decision {
                findings.expect("I19", unread.is_none(), || format!("{key}: event {event} was committed over {unread:?}"));
                self.decisions.entry(key.clone()).or_default().push((now, event));
            }
        }
        let seen = Seen {
            run_id: row.run_id,
            rev: row.rev,
            is_open: row.status.is_open(),
            is_retired: row.retired,
            records: loaded.records,
            turn,
        };
        self.seen.insert(key.clone(), seen);
    }
}
