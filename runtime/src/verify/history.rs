//! I14: a history has every event from 1 on, and each row follows from the one before.

use crate::history::{Chain, CodecError, Event, EventKind};

/// What is wrong with a history as it was read. Its chain and its numbers are those of the codec.
pub(super) fn broken(decoded: Result<&(Vec<Event>, Chain), &CodecError>) -> Vec<String> {
    match decoded {
        Err(error) => vec![error.to_string()],
        Ok((events, _)) if events.is_empty() => vec!["it has no history".into()],
        Ok((events, _)) => {
            let starts = |event: &&Event| matches!(event.kind, EventKind::WorkflowStarted { .. });
            let begun = events.iter().find(|event| starts(event)).map(|event| event.number);
            let again = events.iter().skip(1).filter(starts).map(|event| format!("event {} starts it again", event.number));
            let first = (begun != Some(1)).then(|| format!("its first event is {}", events[0].kind.name()));
            first.into_iter().chain(again).collect()
        }
    }
}
