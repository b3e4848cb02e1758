//! Listing what the model holds.

use super::state::State;
use crate::store::{Filter, Listed, Page, Position};
use crate::time::Timestamp;

impl State {
    pub(super) fn page(&self, filter: &Filter, after: Option<&Position>, limit: usize) -> Page {
        let mut rows: Vec<Listed> = self
            .executions
            .values()
            .map(|execution| Listed { execution: execution.clone(), attributes: self.attributes_of(&execution.key) })
            .filter(|listed| matches(filter, listed))
            .collect();
        rows.sort_by_key(|listed| order(filter, &position(filter, listed)));
        if let Some(after) = after {
            rows.retain(|listed| order(filter, &position(filter, listed)) > order(filter, after));
        }
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|listed| position(filter, listed));
        Page { rows, next }
    }
}

fn matches(filter: &Filter, listed: &Listed) -> bool {
    let execution = &listed.execution;
    let workflow_type = execution.key.workflow_type();
    let has = |name: &String, forms: &Vec<String>| {
        listed.attributes.iter().any(|(found, value)| found == name && forms.contains(&value.stored()))
    };
    filter.workflow_type.as_ref().is_none_or(|one| one == workflow_type)
        && filter.visible_types.as_ref().is_none_or(|visible| visible.iter().any(|one| one == workflow_type))
        && filter.status.is_none_or(|status| status == execution.status)
        && filter.needs_attention.is_none_or(|needs| needs == execution.needs_attention)
        && filter.due_before.is_none_or(|before| execution.wake_at.is_some_and(|wake_at| wake_at < before))
        && filter.attributes.iter().all(|(name, forms)| has(name, forms))
}

fn position(filter: &Filter, listed: &Listed) -> Position {
    let execution = &listed.execution;
    Position {
        wake_at: filter.due_before.and(execution.wake_at),
        workflow_type: execution.key.workflow_type().to_owned(),
        id: execution.key.id().to_owned(),
    }
}

fn order(filter: &Filter, position: &Position) -> (Option<Timestamp>, String, String) {
    (filter.due_before.and(position.wake_at), position.workflow_type.clone(), position.id.clone())
}
