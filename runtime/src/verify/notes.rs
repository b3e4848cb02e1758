//! I35: the engine's notes are on activities that are pending.

use super::Subject;
use crate::engine::Notes;

/// Notes that cannot be read, and notes on what is not being called. Whatever is pending without one is in its first attempt.
pub(super) fn of_nothing(subject: &Subject<'_>) -> Option<Vec<String>> {
    let notes = match Notes::decode(&subject.loaded.execution.attempts) {
        Ok(notes) => notes,
        Err(error) => return Some(vec![format!("the notes on its activities cannot be read: {error}")]),
    };
    let why = |number: &u64| match subject.folded.activities.get(number) {
        None => Some("is not pending"),
        Some(activity) if activity.by_hand.is_some() => Some("is a step by hand"),
        Some(activity) if activity.attention.is_some() => Some("waits for a person"),
        Some(_) => None,
    };
    let found = notes.activities.keys().filter_map(|number| Some((number, why(number)?)));
    Some(found.map(|(number, why)| format!("there is a note on activity {number}, which {why}")).collect())
}
