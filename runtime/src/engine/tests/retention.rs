//! What is left of executions after their time: first a tombstone, then nothing.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use super::harness::*;
use crate::activity::ActivityOptions;
use crate::client::{ActionOutcome, ClientError, ListQuery, SignalOutcome, SignalRequest};
use crate::engine::{EngineConfig, Retain};
use crate::id::{RunId, WorkflowKey};
use crate::payload::Payload;
use crate::store::{
    Advance, CommitFailure, Deposit, Execution, InboxRow, NewExecution, NewNode, Outcome, RowChange, Status, Store, Write,
};
use crate::testing::eventually;
use crate::workflow::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn config() -> EngineConfig {
    let retain = Some(Retain { history: 30 * DAY, tombstone: 400 * DAY });
    EngineConfig { retain, ..EngineConfig::default() }
}

fn key(id: &str) -> WorkflowKey {
    WorkflowKey::new("waits", id)
}

impl Node {
    /// An order that was paid at once, by a buyer of this name.
    async fn paid(&self, id: &str) {
        self.order(id, 3600).await;
        assert_eq!(self.pay(id, "anna").await.unwrap(), SignalOutcome::Applied);
        assert_eq!(self.closed(id).await, "paid by anna");
    }

    async fn row(&self, id: &str) -> Option<Execution> {
        self.store.find(&key(id)).await.unwrap()
    }

    /// Lets the time in full pass, and a little more for the work to be done.
    async fn let_the_history_go(&self, id: &str) {
        self.clock.advance(30 * DAY + Duration::from_secs(1));
        self.work_until(&format!("{id} is retired"), async || self.row(id).await.is_some_and(|row| row.retired)).await;
    }

    async fn let_the_tombstone_go(&self, id: &str) {
        self.clock.advance(370 * DAY);
        self.work_until(&format!("{id} is forgotten"), async || self.row(id).await.is_none()).await;
    }

    /// Lets time pass in the steps in which retention works.
    async fn work_until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let step = async || {
            self.clock.advance(Duration::from_millis(200));
            settle().await;
            condition().await.then_some(())
        };
        eventually(what, step).await;
    }

    /// Lets retention walk over everything a few times.
    async fn walks(&self) {
        for _ in 0..4 {
            self.pass(Duration::from_secs(61)).await;
        }
    }
}

#[tokio::test]
async fn a_closed_execution_loses_its_history_after_its_time_and_still_says_how_it_ended() {
    let node = Node::with(config()).await;
    node.paid("1").await;
    node.order("open", 1_000 * 24 * 3600).await;
    let before = node.describe("1").await;
    node.clock.advance(30 * DAY - Duration::from_secs(600));
    node.walks().await;
    assert_eq!(node.describe("1").await, before, "not before its time");

    node.let_the_history_go("1").await;

    let after = node.describe("1").await;
    assert!(after.retired_at.is_some_and(|at| at.since(before.closed_at.unwrap()) >= 30 * DAY));
    assert_eq!((&after.result, after.status, after.run_id), (&before.result, Status::Completed, before.run_id));
    assert_eq!((after.started_at, after.closed_at, after.last_event), (before.started_at, before.closed_at, before.last_event));
    assert_eq!((after.input, after.progress), (None, None));
    assert_eq!(node.events("1").await, []);
    let text = node.client.explain("waits", "1").await.unwrap().text;
    assert!(text.contains("paid by anna") && text.contains("history was removed by retention at "), "{text}");
    let page = node.client.list(&ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap();
    let listed: Vec<_> = page.workflows.iter().map(|one| (one.id.as_str(), one.retired)).collect();
    assert_eq!(listed, [("1", true), ("open", false)]);
    assert_eq!(node.events("open").await.len(), 2, "an open one keeps everything, however old");
    assert_eq!(node.store.orphans(), Vec::<String>::new());
}

#[tokio::test]
async fn without_a_time_nothing_is_ever_removed() {
    let node = Node::start().await;
    node.paid("1").await;
    node.clock.advance(4_000 * DAY);
    node.walks().await;
    assert_eq!(node.events("1").await.len(), 5);
}

#[tokio::test]
async fn a_repeated_start_is_answered_as_before_and_another_one_is_a_conflict() {
    let node = Node::with(config()).await;
    node.paid("1").await;
    let before = node.describe("1").await;
    node.let_the_history_go("1").await;

    let request = |seconds: u64| {
        let input = Payload::of(&Order { deadline: START.saturating_add(Duration::from_secs(seconds)) }).unwrap();
        node.client.start(start_request("1", input))
    };
    let again = request(3600).await.unwrap();
    assert_eq!((again.run_id, again.started_at), (before.run_id, before.started_at));
    assert_eq!((again.status, again.wake_at, again.replayed), (Status::Completed, None, true));
    let refused = request(7200).await.unwrap_err();
    assert!(matches!(refused, ClientError::Conflict { run_id, .. } if run_id == Some(before.run_id)), "{refused:?}");
}

#[tokio::test]
async fn signals_are_told_apart_as_before_and_a_new_one_goes_to_the_late_handler() {
    let node = Node::with(config()).await;
    node.paid("1").await;
    node.let_the_history_go("1").await;
    let send = |signal_id: &str, by: &str| {
        node.client.signal(SignalRequest {
            workflow_type: "waits".into(),
            id: "1".into(),
            name: "paid".into(),
            signal_id: Some(signal_id.into()),
            payload: Payload::of(&Paid { by: by.into() }).unwrap(),
        })
    };

    assert_eq!(node.pay("1", "anna").await.unwrap(), SignalOutcome::Duplicate);
    assert_eq!(send("another delivery", "anna").await.unwrap().outcome, SignalOutcome::Duplicate, "the same subject");
    let refused = send("anna", "bert").await.unwrap_err();
    assert!(matches!(refused, ClientError::Conflict { .. }), "{refused:?}");
    assert_eq!(node.describe("1").await.linked, []);
    assert_eq!(node.pay("1", "bert").await.unwrap(), SignalOutcome::Late);
    let linked = node.describe("1").await.linked;
    assert_eq!(linked.iter().map(|link| link.workflow_type.as_str()).collect::<Vec<_>>(), ["late-signal"]);
    assert_eq!(node.pay("1", "bert").await.unwrap(), SignalOutcome::Duplicate);
    for outcome in [
        node.client.cancel("waits", "1", "test", "ops").await.unwrap(),
        node.client.terminate("waits", "1", "test", "ops").await.unwrap(),
    ] {
        assert_eq!(outcome, ActionOutcome::Late);
    }
    assert_eq!(node.row("1").await.unwrap().rev, 2, "closed, then retired");
}

#[tokio::test]
async fn after_the_tombstone_the_id_is_unknown_and_free() {
    let node = Node::with(config()).await;
    node.paid("1").await;
    let before = node.describe("1").await;
    node.let_the_history_go("1").await;
    node.let_the_tombstone_go("1").await;

    let gone = node.client.describe("waits", "1").await.unwrap_err();
    assert!(matches!(gone, ClientError::NotFound(_)), "{gone:?}");
    node.order("1", 1_000 * 24 * 3600).await;
    assert_ne!(node.describe("1").await.run_id, before.run_id);
    assert_eq!(node.kinds("1").await, ["WorkflowStarted", "TimerStarted"], "nothing of the old one comes back");
    assert_eq!(node.store.orphans(), Vec::<String>::new());
}

/// Runs the whole life of six orders; the commit of this number, counted from the first of retention, fails so.
async fn interrupted(at: usize, failure: CommitFailure) -> bool {
    let mut node = Node::with(config()).await;
    for id in 0..6 {
        node.paid(&id.to_string()).await;
    }
    let begun = node.store.commits();
    node.clock.advance(30 * DAY + Duration::from_secs(1));
    let all_retired = async |node: &Node| {
        for id in 0..6 {
            if !node.row(&id.to_string()).await.is_some_and(|row| row.retired) {
                return false;
            }
        }
        true
    };
    let mut was_interrupted = false;
    for _ in 0..400 {
        if !was_interrupted && node.store.commits() - begun == at as u64 {
            node.store.fail_next_commit(failure);
            was_interrupted = true;
        }
        node.clock.advance(Duration::from_millis(200));
        settle().await;
        assert_eq!(node.store.orphans(), Vec::<String>::new());
        if matches!(node.client.engine().unready_reason(), Some(reason) if reason.contains("had to stop")) {
            node.restart().await;
        }
        if all_retired(&node).await {
            break;
        }
    }
    assert!(all_retired(&node).await, "stopped at {at} by {failure:?}");
    for id in 0..6 {
        assert_eq!(node.pay(&id.to_string(), "anna").await.unwrap(), SignalOutcome::Duplicate);
    }
    was_interrupted
}

#[tokio::test]
async fn a_node_that_is_stopped_at_any_commit_leaves_no_orphan_and_its_successor_finishes() {
    use CommitFailure::{FenceLost, Unavailable, UnknownApplied, UnknownLandsLater, UnknownNotApplied};
    for failure in [FenceLost, Unavailable, UnknownApplied, UnknownLandsLater, UnknownNotApplied] {
        let mut interruptions = 0;
        while interrupted(interruptions, failure).await {
            interruptions += 1;
            assert!(interruptions < 20);
        }
        // One commit at least for each of the four shards that has orders.
        assert!(interruptions >= 3, "{failure:?}: {interruptions}");
    }
}

#[tokio::test]
async fn more_than_one_batch_of_a_shard_is_retired_and_what_is_not_due_stays() {
    let node = Node::with(config()).await;
    for id in 0..260 {
        node.paid(&id.to_string()).await;
    }
    node.clock.advance(DAY);
    node.paid("later").await;
    node.clock.advance(29 * DAY + Duration::from_secs(60));
    let retired = async || {
        let page = node.client.list(&ListQuery { limit: 1_000, ..ListQuery::default() }).await.unwrap();
        page.workflows.iter().filter(|one| one.retired).count() == 260
    };
    node.work_until("all but one are retired", retired).await;
    assert_eq!(node.events("later").await.len(), 5);
}

#[tokio::test]
async fn nodes_that_share_a_store_retire_their_own_and_the_heir_of_a_dead_node_does_its_part() {
    const MINUTE: Duration = Duration::from_secs(60);
    let retain = Some(Retain { history: MINUTE, tombstone: 10 * MINUTE });
    let cluster = Cluster::with(2, EngineConfig { retain, ..EngineConfig::default() }).await;
    let ids: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    for id in &ids {
        cluster.order(0, id, 10_000).await;
        assert_eq!(cluster.pay(cluster.owner_of(id), id, "anna").await, SignalOutcome::Applied);
    }
    cluster.nodes[1].tasks.freeze();
    cluster.pass(2 * MINUTE).await;
    for id in &ids {
        let row = cluster.store.find(&key(id)).await.unwrap().unwrap();
        assert!(row.retired, "{id} was {:?}", cluster.owner_of(id));
        assert_eq!(cluster.pay(0, id, "anna").await, SignalOutcome::Duplicate);
    }
    cluster.nodes[1].tasks.thaw();
    cluster.pass(10 * MINUTE).await;
    for id in &ids {
        assert_eq!(cluster.store.find(&key(id)).await.unwrap(), None, "{id}");
    }
    assert_eq!(cluster.store.orphans(), Vec::<String>::new());
}

/// A closed execution as somebody else left it.
async fn planted(store: &dyn Store, key: &WorkflowKey, bytes: &'static [u8]) {
    let fence = store.join(&NewNode::new("planter", Duration::from_secs(1))).await.unwrap();
    let row = RowChange {
        status: Status::Completed,
        wake_at: None,
        closed_at: Some(START),
        needs_attention: false,
        attempts: Default::default(),
        parked: None,
    };
    let new = NewExecution {
        key: key.clone(),
        shard: key.shard(4),
        run_id: RunId::new(1, [9; 10]),
        request_hash: [0; 16],
        record: crate::history::Record { first_event: 1, bytes: bytes.into() },
        row,
        attributes: Vec::new(),
        consume: Vec::new(),
        emit: Vec::new(),
        requested: false,
    };
    let outcomes = store.commit(&fence, &[Write::Start(new)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Started { inbox: false }]);
}

#[tokio::test]
async fn what_cannot_be_read_or_has_no_code_is_kept_whole_and_holds_nobody_up() {
    let mut node = Node::with(config()).await;
    for id in 0..20 {
        node.paid(&id.to_string()).await;
    }
    planted(node.store.as_ref(), &key("damaged"), b"rubbish").await;
    planted(node.store.as_ref(), &WorkflowKey::new("of-yesterday", "1"), b"rubbish").await;
    node.restart().await;
    node.let_the_history_go("19").await;
    let all = async || {
        let page = node.client.list(&ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap();
        page.workflows.iter().filter(|one| one.retired).count() == 20
    };
    node.work_until("the sound ones are retired", all).await;
    node.walks().await;
    for key in [key("damaged"), WorkflowKey::new("of-yesterday", "1")] {
        let loaded = node.store.load(&[key]).await.unwrap().remove(0).unwrap();
        assert_eq!((loaded.records.len(), loaded.execution.retired), (1, false));
    }
}

fn row(id: &str, by: &str) -> InboxRow {
    let payload = Payload::of(&Paid { by: by.into() }).unwrap();
    InboxRow {
        key: key(id),
        shard: key(id).shard(4),
        signal_id: by.into(),
        name: "paid".into(),
        identity: payload.canonical_hash(),
        payload,
        received_at: START,
        unchecked: false,
    }
}

#[tokio::test]
async fn a_signal_that_was_held_back_keeps_its_execution_whole() {
    let node = Node::with(config()).await;
    node.paid("1").await;
    // Its late handler's execution cannot be stored.
    node.store.reject(|write| matches!(write, Write::Advance(Advance { spawn, .. }) if !spawn.is_empty()));
    node.store.deposit_before_next_commit(Deposit { row: row("1", "bert") });
    node.paid("2").await;
    node.pass(Duration::from_secs(3)).await;
    let held = node.store.load(&[key("1")]).await.unwrap().remove(0).unwrap();
    assert_eq!((held.inbox.len(), held.execution.status), (0, Status::Completed));
    assert_eq!(held.execution.rev, 1, "it is held, and reopened nothing");
    node.let_the_history_go("2").await;
    node.walks().await;
    assert_eq!(node.events("1").await.len(), 5);
}

#[tokio::test]
async fn a_stored_signal_of_a_retired_execution_goes_to_the_late_handler_or_is_dropped_if_it_was_received() {
    let node = Node::with(config()).await;
    node.paid("1").await;
    node.let_the_history_go("1").await;
    for by in ["anna", "bert"] {
        node.store.deposit_before_next_commit(Deposit { row: row("1", by) });
    }
    node.order("2", 10_000 * 24 * 3600).await;
    node.pass(Duration::from_secs(3)).await;
    let linked = node.describe("1").await.linked;
    assert_eq!(linked.len(), 1, "{linked:?}");
    assert_eq!(node.store.unread(&[0, 1, 2, 3], 10).await.unwrap(), []);
    node.let_the_tombstone_go("1").await;
}

/// Takes its signals under another name.
struct Renamed;

#[async_trait::async_trait]
impl Workflow for Renamed {
    const TYPE: &'static str = "renamed";
    type Input = Order;
    type Output = String;

    async fn run(&self, _ctx: WorkflowContext, _order: Order) -> Result<String, WorkflowError> {
        Ok("done".into())
    }
}

#[tokio::test]
async fn a_program_without_the_type_retires_none_of_it() {
    let mut node = Node::with(config()).await;
    node.paid("1").await;
    node.restart_with(Renamed).await;
    node.clock.advance(31 * DAY);
    node.walks().await;
    assert!(!node.row("1").await.unwrap().retired);
    node.restart().await;
    node.let_the_history_go("1").await;
    let tombstone = node.store.load(&[key("1")]).await.unwrap().remove(0).unwrap().tombstone;
    assert!(tombstone.len() < 200, "{} bytes", tombstone.len());
}

#[tokio::test]
async fn a_node_that_has_much_to_do_leaves_retention_for_later() {
    let options = ActivityOptions { start_to_close: 100 * DAY, ..script_options() };
    let node = Node::with_options(config(), Some(options)).await;
    node.paid("1").await;
    let gate = Arc::new(tokio::sync::Notify::new());
    node.plan((0..600).map(|_| Act::Gate(gate.clone(), "done")));
    for id in 0..600 {
        node.client.start(of_type("calls-at-once", &format!("busy-{id}"))).await.unwrap();
    }
    node.clock.advance(31 * DAY);
    settle().await;
    node.walks().await;
    assert!(!node.row("1").await.unwrap().retired);
    gate.notify_waiters();
    node.work_until("then it is retired", async || node.row("1").await.unwrap().retired).await;
}

fn of_type(workflow_type: &str, id: &str) -> crate::client::StartRequest {
    crate::client::StartRequest { workflow_type: workflow_type.into(), ..start_request(id, Payload::null()) }
}
