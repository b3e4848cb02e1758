//! I22: an execution is looked at no later than something of it is due.

use super::Subject;
use crate::engine::wake_at;
use crate::store::Status;

/// A `wake_at` that is another one than the engine computes from history and notes. While a call may be under way any
/// instant that is not in the future is right; the recorded time counts where it is ahead of the clock.
pub(super) fn overslept(subject: &Subject<'_>) -> Option<Vec<String>> {
    let (row, folded) = (&subject.loaded.execution, &subject.folded);
    let notes = subject.notes.as_ref()?;
    let expected = wake_at(folded, notes, subject.look.now.max(folded.last_at), row.wake_at);
    if expected == row.wake_at {
        return Some(Vec::new());
    }
    let stored = row.wake_at.map_or_else(|| "nobody looks at it again".to_owned(), |at| format!("it is looked at next at {at}"));
    let call = folded.activities.iter().find(|(number, activity)| {
        let idle = activity.by_hand.is_some() || activity.attention.is_some();
        !idle && notes.activities.get(number).is_none_or(|note| note.is_under_way())
    });
    let should = match (row.status, call, expected) {
        (Status::Running, Some((number, activity)), _) => {
            format!("a call of {} ({number}) may be under way, so its time must have come", activity.name)
        }
        (_, _, Some(at)) => format!("its time is {at}"),
        (_, _, None) => "nothing of it is due".to_owned(),
    };
    Some(vec![format!("{stored}, but {should}")])
}
