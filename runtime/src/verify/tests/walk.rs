//! Walks over whole stores, of every kind, at rest and beside a node at work.

use std::time::Duration;

use super::stores::{Database, model_of};
use super::world::{Patient, SHARDS, Step, World, code, inbox_row};
use crate::engine::Clock;
use crate::store::{AttributeValue, Deposit, Parcel, Status, Store, Write};
use crate::verify::{Invariant, Look, Options, Report, everything, execution};

async fn walked(world: &World, store: &dyn Store) -> Report {
    let options = Options { workflow_type: None, patience: Duration::from_secs(2) };
    everything(store, &code(), &Patient(world.clock.clone()), &options).await.unwrap()
}

/// The invariants that do not hold, each once, in order.
fn broken(report: &Report) -> Vec<&'static str> {
    let mut found: Vec<Invariant> = report.violations.iter().map(|violation| violation.invariant).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(Invariant::id).collect()
}

#[tokio::test]
async fn nothing_is_found_in_a_store_with_executions_in_every_state() {
    let world = World::full().await;
    let report = walked(&world, world.store.as_ref()).await;
    assert_eq!(report.violations, []);
    assert_eq!((report.workflows, report.retired, report.not_replayed, report.nodes_alive), (17, 1, 2, 1));
    assert_eq!(report.unknown_types, [("vanishes".to_owned(), 1)].into());
    for (invariant, count) in report.checks.iter() {
        assert!(count > 0, "{}", invariant.id());
    }
    assert_eq!(report.checks.iter().count(), 14, "each was evaluated: {:?}", report.checks);
}

#[tokio::test]
async fn nothing_is_found_in_the_same_store_of_any_kind_off_line() {
    let world = World::full().await;
    for database in Database::each(&world).await {
        let store = database.open().await;
        let report = walked(&world, store.as_ref()).await;
        assert_eq!(report.violations, []);
        assert_eq!((report.workflows, report.retired, report.nodes_alive), (17, 1, 0));
        assert_eq!(report.checks.of(Invariant::InboxTakenUp), 0, "nobody is there to take anything up");
        store.close().await;
    }
}

#[tokio::test]
async fn a_walk_for_one_type_looks_at_nothing_else() {
    let world = World::full().await;
    let options = Options { workflow_type: Some("changes".into()), patience: Duration::from_secs(2) };
    let report = everything(world.store.as_ref(), &code(), &Patient(world.clock.clone()), &options).await.unwrap();
    assert_eq!((report.workflows, report.violations.len(), report.checks.of(Invariant::NothingLeft)), (2, 0, 2));
}

#[tokio::test]
async fn attributes_that_differ_from_the_history_break_i15() {
    let world = World::full().await;
    for damage in [
        |all: &mut Vec<(String, AttributeValue)>| drop(all.pop()),
        |all: &mut Vec<(String, AttributeValue)>| all[0].1 = AttributeValue::Bool(true),
    ] {
        let store = model_of(&world, |parcel| {
            if let Parcel::Executions(all) = parcel {
                let sleeping = all.iter_mut().find(|one| one.execution.key.id() == "sleeping");
                sleeping.into_iter().for_each(|one| damage(&mut one.attributes));
            }
        })
        .await;
        let report = walked(&world, &store).await;
        assert_eq!((broken(&report), report.violations.len()), (vec!["I15"], 1), "{:?}", report.violations);
    }
}

/// What damages a database, the invariants that do not hold then, and words of what is said.
const DAMAGES: [(&str, &[&str], &str); 11] = [
    ("DELETE FROM @executions WHERE id = 'sleeping'", &["I42"], "it has history rows, and no execution is there"),
    ("DELETE FROM @executions WHERE id = 'retired'", &[], ""),
    ("DELETE FROM @history", &["I14"], "it has no history"),
    (
        "DELETE FROM @history WHERE run_id IN (SELECT run_id FROM @executions WHERE id = 'sleeping');
         DELETE FROM @executions WHERE id = 'sleeping'",
        &["I42"],
        "is of no execution",
    ),
    ("UPDATE @attributes SET id = 'retired' WHERE id = 'sleeping'", &["I15", "I42"], "attribute \"n\" is of"),
    ("UPDATE @executions SET type = 99 WHERE id = 'sleeping'", &["I42"], "of type number 99, which has no name"),
    ("UPDATE @inbox SET type = 99", &["I42"], "is for a type that has no name"),
    ("UPDATE @inbox SET shard = (shard + 1) % 8", &["I42"], "signal \"s-5\" is in shard"),
    ("UPDATE @executions SET wake_at = wake_at + 1 WHERE id = 'sleeping'", &["I22"], "it is looked at next at"),
    ("UPDATE @executions SET rev = 0 WHERE id = 'completed'", &["I15"], "its rev is 0"),
    (
        "UPDATE @executions SET run_id = (SELECT run_id FROM @executions WHERE id = 'waiting') WHERE id = 'failed'",
        &["I9"],
        "another execution has the same run",
    ),
];

#[tokio::test]
async fn what_is_damaged_in_a_database_is_found_and_named() {
    let world = World::full().await;
    for (sql, expected, words) in DAMAGES {
        for database in Database::each(&world).await {
            assert!(database.run(sql).await > 0, "{sql}");
            let store = database.open().await;
            let report = walked(&world, store.as_ref()).await;
            store.close().await;
            let found = broken(&report);
            assert!(expected.iter().all(|one| found.contains(one)), "{sql}: {:#?}", report.violations);
            // A run that is another's is wrong in every way.
            assert!(found == expected || expected == ["I9"], "{sql}: {:#?}", report.violations);
            let said = report.violations.iter().any(|violation| violation.message.contains(words));
            assert!(said || words.is_empty(), "{sql}: {:#?}", report.violations);
        }
    }
}

/// The same where nodes share the store.
const MEMBERSHIP: [(&str, &[&str], &str); 8] = [
    ("UPDATE @shards SET node_id = 'nobody' WHERE shard = 3", &["I26"], "shard 3 is of nobody"),
    ("DELETE FROM @shards WHERE shard = 3", &["I26"], "there are 8 shards"),
    ("INSERT INTO @shards (shard) VALUES (8)", &["I26"], "there are 8 shards"),
    ("INSERT INTO @lanes (node_id, lane, epoch) VALUES ('x', 0, 999)", &["I20", "I26"], "999"),
    ("INSERT INTO @nodes (node_id, secret, joined_at, expires_at) VALUES ('x', '', now(), now())", &["I26"], "has 0 lanes"),
    ("UPDATE @executions SET shard = (shard + 1) % 8 WHERE id = 'sleeping'", &["I15", "I42"], "nobody finds it"),
    ("INSERT INTO @starts VALUES (1, NULL, 0, 99, 'x', '1', NULL, NULL)", &["I42"], "is for a type that has no name"),
    (
        "INSERT INTO @executions SELECT wake_at, closed_at, rev, (shard + 1) % 8, type, status, needs_attention, run_id,
             request_hash, id, attempts, tombstone FROM @executions WHERE id = 'sleeping'",
        &["I9", "I15"],
        "there is another run of it",
    ),
];

#[tokio::test]
async fn what_is_wrong_with_nodes_and_shards_is_found() {
    let world = World::full().await;
    for (sql, expected, words) in MEMBERSHIP {
        let [_, database] = Database::each(&world).await;
        assert!(database.run(sql).await > 0, "{sql}");
        let store = database.open().await;
        let report = walked(&world, store.as_ref()).await;
        store.close().await;
        assert_eq!(broken(&report), expected, "{sql}: {:#?}", report.violations);
        assert!(report.violations.iter().any(|violation| violation.message.contains(words)), "{sql}: {:#?}", report.violations);
    }
    let [embedded, _] = Database::each(&world).await;
    embedded.run("INSERT INTO lanes (node_id, lane, epoch) VALUES ('x', 0, 999)").await;
    let store = embedded.open().await;
    assert_eq!(broken(&walked(&world, store.as_ref()).await), ["I20"]);
}

#[tokio::test]
async fn a_stored_signal_that_a_node_is_about_to_take_up_is_no_violation_and_one_that_it_does_not_is() {
    let world = World::full().await;
    world.store.deposit_before_next_commit(Deposit { row: inbox_row("completed", "s-9", "dora") });
    world.start("another", vec![Step::Sleep(5)]).await;
    assert_eq!(world.load("completed").await.inbox.len(), 1, "it is there when the walk begins");
    assert_eq!(walked(&world, world.store.as_ref()).await.violations, []);
    assert_eq!(world.load("completed").await.inbox.len(), 0, "and was taken up");

    let store = model_of(&world, |parcel| {
        if let Parcel::Signals(all) = parcel
            && let Some(mut stray) = all.first().cloned()
        {
            (stray.row, stray.held) = (inbox_row("completed", "s-10", "emil"), false);
            all.push(stray);
        }
    })
    .await;
    assert_eq!(walked(&world, &store).await.violations, [], "nobody is there to take it up");
    // A node that is in and does not look.
    store.join(&crate::store::NewNode::new("deaf", Duration::from_secs(10))).await.unwrap();
    let report = walked(&world, &store).await;
    assert_eq!((broken(&report), report.violations.len()), (vec!["I19"], 1));
    assert!(report.violations[0].message.contains("\"s-10\""), "{:?}", report.violations);
}

#[tokio::test]
async fn a_clock_that_is_behind_makes_no_violation_of_a_call_under_way() {
    let world = World::full().await;
    let begun = world.clock.now();
    world.start("begun", vec![Step::Call("hang".into())]).await;
    world.pass(Duration::from_secs(1)).await;
    world.clock.set(begun);
    assert_eq!(walked(&world, world.store.as_ref()).await.violations, []);
}

#[tokio::test]
async fn a_transition_that_the_store_rejects_leaves_nothing_of_itself_in_the_row_that_is_blocked_for_it() {
    let world = World::full().await;
    world.store.reject(|write| matches!(write, Write::Advance(advance) if advance.row.as_ref().is_some_and(|row| row.needs_attention) && advance.record.is_some()));
    world.start("rejected", vec![Step::Call("refuse".into())]).await;
    world.pass(Duration::from_millis(500)).await;
    let loaded = world.load("rejected").await;
    assert_eq!(loaded.execution.status, Status::Blocked);
    let code = code();
    let look = Look { code: &code, shards: SHARDS, now: world.clock.now() };
    assert_eq!(execution(look, &loaded).violations, []);
}
