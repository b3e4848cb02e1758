//! One execution, damaged in one way at a time, and what the look at it says.

use bytes::Bytes;

use super::histories::{Rows, closed_as, rewritten};
use super::world::{SHARDS, START, World, code, inbox_row};
use crate::engine::{AttemptNote, Notes};
use crate::history::{EventKind, Failure, FailureClass};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Loaded, Status, Store};
use crate::time::Timestamp;
use crate::verify::{Look, execution_at_rest};

fn seconds(count: i64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + count * 1_000_000)
}

/// The numbers of the invariants that do not hold, as they are found.
fn broken(world: &World, loaded: &Loaded) -> Vec<&'static str> {
    use crate::engine::Clock;
    let code = code();
    let look = Look { code: &code, shards: SHARDS, now: world.clock.now() };
    execution_at_rest(look, loaded).violations.iter().map(|violation| violation.invariant.id()).collect()
}

async fn load(world: &World, workflow_type: &str, id: &str) -> Loaded {
    world.store.load(&[WorkflowKey::new(workflow_type, id)]).await.unwrap().remove(0).unwrap()
}

/// Damages an execution, and expects exactly these to be broken then.
async fn breaks(world: &World, (workflow_type, id): (&str, &str), expected: &[&str], damage: impl FnOnce(&mut Loaded)) {
    let mut loaded = load(world, workflow_type, id).await;
    assert_eq!(broken(world, &loaded), [""; 0], "{id} is whole before");
    let before = loaded.clone();
    damage(&mut loaded);
    assert_ne!(loaded, before, "{id} is damaged");
    assert_eq!(broken(world, &loaded), expected, "{id}");
}

const SLEEPING: (&str, &str) = ("does", "sleeping");
/// Its code is not known, so that nothing is held against it but the history itself: it sleeps, by its event 2.
const UNKNOWN: (&str, &str) = ("vanishes", "unknown");

fn signal(signal_id: &str, by: &str) -> EventKind {
    let payload = Payload::of(&super::world::Paid { by: by.into(), amount: 1 }).unwrap();
    EventKind::SignalReceived { name: "paid".into(), signal_id: signal_id.into(), payload }
}

fn with_note(loaded: &mut Loaded, number: u64, note: AttemptNote) {
    let mut notes = Notes::decode(&loaded.execution.attempts).unwrap();
    notes.activities.insert(number, note);
    loaded.execution.attempts = notes.encode();
}

#[tokio::test]
async fn a_history_that_is_not_whole_or_not_as_it_was_written_breaks_i14() {
    let world = World::full().await;
    breaks(&world, SLEEPING, &["I14"], |loaded| loaded.records.clear()).await;
    breaks(&world, ("does", "completed"), &["I14"], |loaded| drop(loaded.records.remove(0))).await;
    breaks(&world, ("does", "completed"), &["I14"], |loaded| drop(loaded.records.remove(1))).await;
    breaks(&world, ("does", "completed"), &["I14"], |loaded| loaded.records.swap(1, 2)).await;
    breaks(&world, SLEEPING, &["I14"], |loaded| {
        let mut bytes = loaded.records[0].bytes.to_vec();
        bytes[20] ^= 1;
        loaded.records[0].bytes = bytes.into();
    })
    .await;
    breaks(&world, UNKNOWN, &["I14"], |loaded| {
        rewritten(loaded, |rows| {
            let started = rows[0].1[0].clone();
            rows.push((rows[0].0, vec![started]));
        });
    })
    .await;
}

#[tokio::test]
async fn a_signal_or_its_subject_that_is_there_twice_breaks_i10() {
    let world = World::full().await;
    let twice = |first: EventKind, second: EventKind| move |rows: &mut Rows| rows.push((rows[0].0, vec![first, second]));
    breaks(&world, SLEEPING, &["I10"], |loaded| rewritten(loaded, twice(signal("a", "x"), signal("a", "y")))).await;
    breaks(&world, SLEEPING, &["I10"], |loaded| rewritten(loaded, twice(signal("a", "x"), signal("b", "x")))).await;
    breaks(&world, SLEEPING, &[], |loaded| rewritten(loaded, twice(signal("a", "x"), signal("b", "y")))).await;
}

#[tokio::test]
async fn a_row_that_says_something_else_than_its_history_breaks_i15() {
    let world = World::full().await;
    breaks(&world, ("does", "completed"), &["I15"], |loaded| loaded.execution.status = Status::Failed).await;
    breaks(&world, SLEEPING, &["I15"], |loaded| (loaded.execution.status, loaded.execution.rev) = (Status::Blocked, 1)).await;
    breaks(&world, ("does", "completed"), &["I15"], |loaded| loaded.execution.closed_at = Some(seconds(0))).await;
    breaks(&world, SLEEPING, &["I15"], |loaded| loaded.execution.needs_attention = true).await;
    breaks(&world, ("does", "attention"), &["I15"], |loaded| loaded.execution.needs_attention = false).await;
    breaks(&world, SLEEPING, &["I15"], |loaded| loaded.execution.shard = (loaded.execution.shard + 1) % SHARDS).await;
    breaks(&world, SLEEPING, &["I15"], |loaded| loaded.execution.request_hash[3] ^= 1).await;
    breaks(&world, ("does", "completed"), &["I15"], |loaded| loaded.execution.rev = 0).await;
    breaks(&world, ("changes", "blocked"), &["I15"], |loaded| loaded.execution.rev = 0).await;
    breaks(&world, UNKNOWN, &["I15"], |loaded| rewritten(loaded, |rows| rows[0].0 = seconds(0))).await;
    breaks(&world, ("does", "failed"), &["I15", "I35"], |loaded| with_note(loaded, 9, AttemptNote::default())).await;
    // A row that still runs although it has ended is looked at again and again, too.
    breaks(&world, ("does", "completed"), &["I15"], |loaded| loaded.execution.status = Status::Running).await;
}

#[tokio::test]
async fn a_history_that_the_code_would_not_have_made_breaks_i16() {
    let world = World::full().await;
    breaks(&world, SLEEPING, &["I16"], |loaded| {
        rewritten(loaded, |rows| {
            for kind in &mut rows[0].1 {
                if let EventKind::TimerStarted { name, .. } = kind {
                    *name = Some("another".into());
                }
            }
        });
    })
    .await;
    // Its row says that it is stopped by that already; without that it would be found.
    let mut blocked = load(&world, "changes", "blocked").await;
    (blocked.execution.status, blocked.execution.attempts) = (Status::Running, Bytes::new());
    blocked.execution.wake_at = Some(crate::history::Folded::of(&decoded(&blocked)).timers[&2].fire_at);
    assert_eq!(broken(&world, &blocked), ["I16"]);
}

fn decoded(loaded: &Loaded) -> Vec<crate::history::Event> {
    crate::history::decode(loaded.execution.run_id, &loaded.records).unwrap().0
}

#[tokio::test]
async fn ends_without_a_beginning_and_beginnings_without_an_end_break_i17() {
    let world = World::full().await;
    let behind = |kinds: Vec<EventKind>| move |rows: &mut Rows| rows.push((seconds(5_000_000), kinds));
    let failure = || Failure::new(FailureClass::Permanent, "x", "y");
    for kind in [
        EventKind::TimerFired { timer: 99 },
        EventKind::TimerCancelled { timer: 1 },
        EventKind::ActivityCompleted { activity: 2, result: Payload::null(), attempts: 1, sends: 1 },
        EventKind::AttentionRequested { activity: 7, failure: failure(), attempts: 1, sends: 1 },
        EventKind::ActivityRetried { activity: 7, reason: "r".into(), actor: "a".into() },
    ] {
        breaks(&world, UNKNOWN, &["I17"], |loaded| rewritten(loaded, behind(vec![kind]))).await;
    }
    let fired = || EventKind::TimerFired { timer: 2 };
    breaks(&world, UNKNOWN, &["I17"], |loaded| {
        rewritten(loaded, behind(vec![fired(), fired()]));
        loaded.execution.wake_at = None;
    })
    .await;
    let completed = || EventKind::WorkflowCompleted { result: Payload::null() };
    breaks(&world, UNKNOWN, &["I17"], |loaded| {
        rewritten(loaded, behind(vec![completed()]));
        closed_as(loaded, Status::Completed, seconds(5_000_000));
    })
    .await;
    breaks(&world, UNKNOWN, &[], |loaded| {
        rewritten(loaded, behind(vec![fired(), completed()]));
        closed_as(loaded, Status::Completed, seconds(5_000_000));
    })
    .await;
}

#[tokio::test]
async fn an_event_behind_the_end_breaks_i18() {
    let world = World::full().await;
    breaks(&world, UNKNOWN, &["I18"], |loaded| {
        let end = EventKind::WorkflowTerminated { reason: "r".into(), actor: "a".into() };
        rewritten(loaded, |rows| rows.push((seconds(5_000), vec![end, signal("a", "x")])));
        closed_as(loaded, Status::Terminated, seconds(5_000));
    })
    .await;
}

#[tokio::test]
async fn a_stored_signal_that_nobody_takes_up_after_the_end_breaks_i19() {
    let world = World::full().await;
    breaks(&world, ("does", "completed"), &["I19"], |loaded| loaded.inbox.push(inbox_row("completed", "s-9", "dora"))).await;
    breaks(&world, ("does", "retired"), &["I19"], |loaded| loaded.inbox.push(inbox_row("retired", "s-9", "dora"))).await;
    breaks(&world, SLEEPING, &[], |loaded| loaded.inbox.push(inbox_row("sleeping", "s-9", "dora"))).await;
}

#[tokio::test]
async fn a_time_that_falls_and_a_timer_that_fired_early_break_i21() {
    let world = World::full().await;
    breaks(&world, UNKNOWN, &["I21"], |loaded| rewritten(loaded, |rows| rows.push((seconds(1), vec![signal("a", "x")])))).await;
    breaks(&world, UNKNOWN, &["I21"], |loaded| {
        rewritten(loaded, |rows| rows.push((seconds(900_000), vec![EventKind::TimerFired { timer: 2 }])));
        loaded.execution.wake_at = None;
    })
    .await;
}

#[tokio::test]
async fn an_instant_at_which_nobody_looks_breaks_i22() {
    let world = World::full().await;
    let far = Some(seconds(10_000_000));
    for open in [SLEEPING, ("does", "calling"), ("does", "backing-off"), ("changes", "blocked"), UNKNOWN] {
        breaks(&world, open, &["I22"], |loaded| loaded.execution.wake_at = far).await;
        breaks(&world, open, &["I22"], |loaded| loaded.execution.wake_at = None).await;
    }
    for idle in [("does", "attention"), ("does", "by-hand"), ("does", "completed")] {
        breaks(&world, idle, &["I22"], |loaded| loaded.execution.wake_at = far).await;
    }
    breaks(&world, SLEEPING, &["I22"], |loaded| loaded.execution.wake_at = Some(seconds(0))).await;
    breaks(&world, ("does", "calling"), &[], |loaded| loaded.execution.wake_at = Some(seconds(0))).await;
    // The call that a person had made again is under way: nobody may wait for the one that the note planned before.
    breaks(&world, ("does", "backing-off"), &["I22"], |loaded| {
        let mut notes = Notes::decode(&loaded.execution.attempts).unwrap();
        notes.activities.values_mut().for_each(|note| note.next_at = None);
        loaded.execution.attempts = notes.encode();
    })
    .await;
}

#[tokio::test]
async fn a_note_on_what_is_not_called_breaks_i35() {
    let world = World::full().await;
    let note = || AttemptNote { attempts: 1, next_at: Some(seconds(9)), ..AttemptNote::default() };
    breaks(&world, SLEEPING, &["I35"], |loaded| with_note(loaded, 99, note())).await;
    let number = |loaded: &Loaded| *crate::history::Folded::of(&decoded(loaded)).activities.keys().next().unwrap();
    for waiting in [("does", "attention"), ("does", "by-hand")] {
        breaks(&world, waiting, &["I35"], |loaded| with_note(loaded, number(loaded), note())).await;
    }
    breaks(&world, SLEEPING, &["I35"], |loaded| loaded.execution.attempts = Bytes::from_static(b"\xff")).await;
}

#[tokio::test]
async fn what_should_be_gone_and_what_should_be_left_of_a_retired_execution_break_i42() {
    let world = World::full().await;
    let retired = ("does", "retired");
    let other = load(&world, "does", "completed").await;
    breaks(&world, retired, &["I42"], |loaded| loaded.records = other.records.clone()).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.tombstone = Bytes::from_static(b"\x01\xff")).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.tombstone = Bytes::from_static(b"\x09")).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.execution.status = Status::Failed).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.execution.needs_attention = true).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.execution.attempts = Bytes::from_static(b"\x01")).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.execution.closed_at = Some(seconds(1_000_000))).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.execution.rev = 0).await;
    breaks(&world, retired, &["I42"], |loaded| loaded.execution.shard = (loaded.execution.shard + 1) % SHARDS).await;
    let tombstone = load(&world, "does", "retired").await.tombstone;
    breaks(&world, ("does", "completed"), &["I42"], |loaded| loaded.tombstone = tombstone).await;
}
