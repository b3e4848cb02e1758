//! What single writes and events have to keep to.

use super::{Findings, State};
use crate::history::{EventKind, decode};
use crate::id::WorkflowKey;
use crate::store::{Loaded, Outcome, Write};
use crate::time::Timestamp;

impl State {
    /// I43: what a living node gives away has come to rest.
    pub(super) fn look_at_move(&mut self, shards: &[u16], now: Timestamp) {
        let Some(patience) = self.patience else { return };
        let number = u16::try_from(self.owners.len()).unwrap_or(u16::MAX);
        let moved = |key: &str| {
            let mut parts = key.splitn(3, '/');
            let (kind, id) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            shards.contains(&WorkflowKey::new(kind, id).shard(number))
        };
        let early = self.calls.iter().find(|(key, began)| moved(key) && now.since(**began) < patience);
        self.findings
            .expect("I43", early.is_none(), || format!("shards {shards:?} were moved while a call was under way: {early:?}"));
    }

    /// A signal that waits for this execution now.
    pub(super) fn first_unread(&self, key: &WorkflowKey) -> Option<String> {
        let first = self.unread.range((key.clone(), String::new())..).next().filter(|(of, _)| of == key);
        first.map(|(_, signal_id)| signal_id.clone())
    }

    pub(super) fn follow_inbox(&mut self, write: &Write, outcome: &Outcome) {
        match (write, outcome) {
            (Write::Deposit(deposit), Outcome::Deposited) => {
                self.unread.insert((deposit.row.key.clone(), deposit.row.signal_id.clone()));
            }
            (Write::Advance(advance), Outcome::Advanced) => {
                for signal_id in advance.consume.iter().chain(&advance.hold) {
                    self.unread.remove(&(advance.key.clone(), signal_id.clone()));
                }
            }
            (Write::Start(new), _) => self.unread.retain(|waiting| !new.consume.contains(waiting)),
            (Write::Refuse(refuse), Outcome::Refused) => {
                let signal_id = refuse.signal_id.clone().unwrap_or_default();
                self.unread.remove(&(refuse.key.clone(), signal_id));
            }
            _ => {}
        }
    }
}

/// What new events say.
#[derive(Default)]
pub(super) struct New {
    /// Idempotency keys of what they schedule.
    pub(super) keys: Vec<String>,
    /// The first of them that fires a timer or closes.
    pub(super) decision: Option<u64>,
}

/// Looks at the events behind row `from`. Timers (I21) are judged by the
/// database's own time and not by what the history says.
pub(super) fn look_at_new_events(
    key: &WorkflowKey,
    loaded: &Loaded,
    from: usize,
    now: Timestamp,
    findings: &mut Findings,
) -> New {
    let (events, _) = match decode(loaded.execution.run_id, &loaded.records) {
        Ok(decoded) => decoded,
        Err(error) => {
            findings.expect("I14", false, || format!("{key}: {error}"));
            return New::default();
        }
    };
    let first_new = loaded.records.get(from).map_or(u64::MAX, |record| record.first_event);
    let mut new = New::default();
    for event in events.iter().filter(|event| event.number >= first_new) {
        if matches!(event.kind, EventKind::TimerFired { .. }) || event.kind.is_closing() {
            new.decision.get_or_insert(event.number);
        }
        match &event.kind {
            EventKind::ActivityScheduled { idempotency_key, .. } => new.keys.push(idempotency_key.clone()),
            EventKind::TimerFired { timer } => {
                let started = events.iter().find(|started| started.number == *timer);
                let fire_at = started.and_then(|started| match &started.kind {
                    EventKind::TimerStarted { fire_at, .. } => Some(*fire_at),
                    _ => None,
                });
                findings.expect("I21", fire_at.is_some_and(|fire_at| fire_at <= now), || {
                    format!("{key}: timer {timer} was to fire at {fire_at:?} and fired at {now}")
                });
            }
            _ => {}
        }
    }
    new
}

/// The executions that a write changed.
pub(super) fn changed<'a>(write: &'a Write, outcome: &Outcome) -> Vec<&'a WorkflowKey> {
    match (write, outcome) {
        (Write::Start(new), Outcome::Started { .. }) => vec![&new.key],
        (Write::Advance(advance), Outcome::Advanced) => {
            std::iter::once(&advance.key).chain(advance.spawn.iter().map(|new| &new.key)).collect()
        }
        (Write::Retire(retire), Outcome::Retired) => vec![&retire.key],
        (Write::Forget(forget), Outcome::Forgotten) => vec![&forget.key],
        _ => Vec::new(),
    }
}
