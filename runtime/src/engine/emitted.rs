//! What a transition tells those outside: a row for each event and each sink that takes it.
//!
//! Two kinds of events are told of. What the workflow emits is an event of its own in the history. That a step needs a person
//! is asked for by the engine, and the workflow type says what is told of it: the history's own event
//! (`AttentionRequested`, or the step that is left to a person) is then the one that is delivered, and nothing more is
//! recorded. So histories that were recorded before stay as they are.

use super::active::{Active, Registries};
use crate::history::EventKind;
use crate::payload::Payload;
use crate::store::{OutboxKey, OutboxRow};
use crate::workflow::{Emitted, StepInTrouble};

impl Active {
    /// The rows of the events of the transition that is being built.
    pub(crate) fn emitted(&self, code: &Registries) -> Vec<OutboxRow> {
        if code.sinks.is_empty() {
            return Vec::new();
        }
        let first = self.folded.last_event + 1 - self.pending.len() as u64;
        let mut rows = Vec::new();
        for (kind, number) in self.pending.iter().zip(first..) {
            let emitted = match kind {
                EventKind::EventEmitted { name, data } => Some(Emitted { name: name.clone(), data: data.clone() }),
                EventKind::AttentionRequested { activity, failure, .. } => {
                    self.attention(code, *activity, self.step_name(*activity), &failure.to_string())
                }
                EventKind::ActivityScheduled { name, by_hand: Some(why), .. } => self.attention(code, number, name, why),
                _ => None,
            };
            let Some(emitted) = emitted else { continue };
            for sink in code.sinks.takers(&emitted.name) {
                rows.push(self.row_for(sink, number, &emitted));
            }
        }
        rows
    }

    fn row_for(&self, sink: &str, number: u64, emitted: &Emitted) -> OutboxRow {
        let place = OutboxKey { shard: self.row.shard, sink: sink.to_owned(), run_id: self.row.run_id, event: number };
        OutboxRow {
            place,
            key: self.row.key.clone(),
            name: emitted.name.clone(),
            data: emitted.data.clone(),
            emitted_at: self.pending_at(),
            next_at: None,
            attempts: 0,
            failing_since: None,
            parked: false,
            failure: None,
        }
    }

    fn step_name(&self, number: u64) -> &str {
        self.folded.activities.get(&number).map(|activity| activity.name.as_str()).unwrap_or_default()
    }

    /// What the workflow type wants to be told of a step that needs a person.
    fn attention(&self, code: &Registries, number: u64, name: &str, why: &str) -> Option<Emitted> {
        let workflow = code.workflows.get(self.row.key.workflow_type())?;
        let null = Payload::null();
        let input = self.input.as_ref().unwrap_or(&null);
        workflow.attention_event(&self.row.key, input, &StepInTrouble { number, name, why })
    }
}
