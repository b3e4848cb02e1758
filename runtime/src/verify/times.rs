//! I21: times never fall along a history, and no timer fired early.

use std::collections::HashMap;

use super::Subject;
use crate::history::EventKind;
use crate::time::Timestamp;

/// Events that are recorded before those that they follow, and timers that fired before their time.
pub(super) fn out_of_time(subject: &Subject<'_>) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut timers: HashMap<u64, Timestamp> = HashMap::new();
    let mut last = Timestamp::from_micros(i64::MIN);
    for event in &subject.events {
        if event.at < last {
            found.push(format!("event {} is of {}, before the one that it follows ({last})", event.number, event.at));
        }
        last = event.at;
        match &event.kind {
            EventKind::TimerStarted { fire_at, .. } => {
                timers.insert(event.number, *fire_at);
            }
            EventKind::TimerFired { timer } => {
                if let Some(fire_at) = timers.get(timer).filter(|fire_at| event.at < **fire_at) {
                    found.push(format!("event {}: timer {timer} fired at {}, due at {fire_at}", event.number, event.at));
                }
            }
            _ => {}
        }
    }
    Some(found)
}
