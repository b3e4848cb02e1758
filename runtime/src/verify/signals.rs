//! I10: a signal, and what it is about, is at most once in a history.

use std::collections::HashMap;

use super::Subject;

/// Signals that are in the history a second time, by their id or, where the program knows the type, by their subject.
pub(super) fn received_twice(subject: &Subject<'_>) -> Option<Vec<String>> {
    let workflow = subject.look.code.workflows.get(subject.loaded.execution.key.workflow_type());
    let (mut ids, mut subjects) = (HashMap::new(), HashMap::new());
    let mut found = Vec::new();
    for signal in &subject.folded.signals {
        if let Some(first) = ids.insert(signal.signal_id.as_str(), signal.number) {
            found.push(format!(
                "signal {:?} was received by event {first} and again by event {}",
                signal.signal_id, signal.number
            ));
            continue;
        }
        let declared = workflow.and_then(|workflow| workflow.signal(&signal.name));
        let about = declared.and_then(|declared| declared.check(&signal.payload).ok()).and_then(|checked| checked.subject);
        if let Some(about) = about
            && let Some(first) = subjects.insert((signal.name.as_str(), about), signal.number)
        {
            found.push(format!("events {first} and {} are both {} about the same", signal.number, signal.name));
        }
    }
    Some(found)
}
