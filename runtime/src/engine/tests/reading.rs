//! What was read of an execution, and is older than what the node has written since.

use std::sync::Arc;
use std::time::Duration;

use super::harness::*;
use crate::engine::core::{Core, Effect, Message, Scan};
use crate::engine::{Active, Answer, CommitRequest, IncomingSignal, Input, Registries, ReplyId, ReplyTo, Start, new_run_id};
use crate::id::WorkflowKey;
use crate::payload::Payload;
use crate::store::{Advance, Deposit, Due, Fence, Forget, InboxRow, ModelStore, NewNode, Outcome, Retire, Store, Write};

/// A core whose effects are carried out when the test says so.
struct ByHand {
    core: Core,
    code: Arc<Registries>,
    store: ModelStore,
    fence: Fence,
    answers: Vec<Answer>,
}

impl ByHand {
    async fn new() -> Self {
        let mut code = Registries::default();
        code.workflows.register(Waits);
        code.workflows.register(CallsAtOnce);
        let code = Arc::new(code);
        let store = ModelStore::new(4);
        let fence = store.join(&NewNode::new("node", Duration::MAX)).await.unwrap();
        let mut core = Core::new(code.clone(), 4, Duration::ZERO, Box::new(|| 7));
        core.step(Message::Gain((0..4).collect()), START);
        Self { core, code, store, fence, answers: Vec::new() }
    }

    /// Starts an execution beside the core, as a request does.
    async fn start(&self, key: &WorkflowKey, input: Payload) -> Active {
        let start = Start {
            key: key.clone(),
            shard: key.shard(4),
            run_id: new_run_id(START, &mut || 7),
            request_hash: [0; 16],
            input,
            start_at: None,
            attributes: Default::default(),
            traceparent: None,
        };
        let (new, active) = Active::start(&self.code, start).unwrap();
        self.store.commit(&self.fence, &[Write::Start(new)]).await.unwrap();
        active
    }

    /// Tells the core something; what it wants read and what it wants written.
    fn tell(&mut self, message: Message) -> (Vec<Effect>, Vec<CommitRequest>) {
        self.core.step(message, START);
        let (mut loads, mut commits) = (Vec::new(), Vec::new());
        for effect in self.core.flush(START) {
            match effect {
                Effect::Load { .. } => loads.push(effect),
                Effect::Commit(request) => commits.push(*request),
                Effect::Reply(_, answer) => self.answers.push(answer),
                Effect::Fatal(reason) => panic!("the node stops: {reason}"),
                Effect::Call(_) | Effect::Changed(_) | Effect::Owned(_) | Effect::HandOver { .. } | Effect::Given(_) => {}
            }
        }
        (loads, commits)
    }

    fn pay(&mut self, key: &WorkflowKey, by: &str) -> Vec<Effect> {
        let payload = Payload::of(&Paid { by: by.into() }).unwrap();
        let signal = IncomingSignal {
            name: "paid".into(),
            signal_id: by.into(),
            identity: payload.canonical_hash(),
            payload,
            subject: Some(by.into()),
        };
        self.tell(Message::Input { key: key.clone(), input: Input::Signal { signal, reply: ReplyId(1) } }).0
    }

    async fn read(&self, mut loads: Vec<Effect>) -> Message {
        let Some(Effect::Load { number, keys }) = loads.pop() else { panic!("nothing is to be read") };
        let loaded = self.store.load(&keys).await.unwrap();
        Message::Loaded { number, results: keys.into_iter().zip(loaded).collect() }
    }

    async fn write(&self, mut commits: Vec<CommitRequest>) -> Message {
        let CommitRequest { write, reply_to } = commits.pop().expect("something is to be written");
        let ReplyTo::Core(ticket) = reply_to else { panic!("the core waits for it") };
        let outcome = self.store.commit(&self.fence, &[write]).await.unwrap().remove(0);
        Message::Committed { ticket, outcome: Ok(outcome) }
    }
}

#[tokio::test]
async fn what_was_read_before_a_commit_of_the_same_execution_is_not_taken_for_its_present_state() {
    let key = WorkflowKey::new("waits", "1");
    let mut node = ByHand::new().await;
    let order = Order { deadline: START.saturating_add(Duration::from_secs(100)) };
    node.start(&key, Payload::of(&order).unwrap()).await;
    let loads = node.pay(&key, "a");
    let read = node.read(loads).await;
    let (_, commits) = node.tell(read);
    // While that is being committed a scan has the inbox read, and this takes its time.
    let (loads, _) = node.tell(Message::Nudge(key.clone()));
    let slow = node.read(loads).await;
    let written = node.write(commits).await;
    node.tell(written);
    assert_eq!(node.answers, [Answer::Applied]);

    let loads = node.pay(&key, "b");
    let (_, commits) = node.tell(slow);
    assert!(commits.is_empty(), "it would write over what it does not know of, and the node would stop");
    let read = node.read(loads).await;
    let (_, commits) = node.tell(read);
    let written = node.write(commits).await;
    node.tell(written);
    assert_eq!(node.answers, [Answer::Applied, Answer::Late]);
}

#[tokio::test]
async fn an_execution_that_moved_on_before_its_start_could_hand_it_over_is_not_taken_over_as_it_was_at_its_start() {
    let key = WorkflowKey::new("calls-at-once", "1");
    let mut node = ByHand::new().await;
    node.tell(Message::Expect(key.clone()));
    let started = node.start(&key, Payload::null()).await;
    // The same request came twice, and the one that finds the execution there is answered sooner.
    let (loads, _) = node.tell(Message::Unexpect(key.clone()));
    let read = node.read(loads).await;
    let (_, commits) = node.tell(read);
    let written = node.write(commits).await;
    node.tell(written);

    let (mut loads, _) = node.tell(Message::Adopt(Box::new(started)));
    let outcome = Ok(Payload::from_json("\"done\"").unwrap());
    let ended = Message::CallEnded { key: key.clone(), number: 2, limit: None, outcome, sends: 1 };
    let (more, mut commits) = node.tell(ended);
    loads.extend(more);
    if commits.is_empty() {
        let read = node.read(loads).await;
        commits = node.tell(read).1;
    }
    let written = node.write(commits).await;
    node.tell(written);
}

#[tokio::test]
async fn what_was_asked_for_before_a_start_does_not_give_the_place_away_that_is_held_for_it() {
    let key = WorkflowKey::new("calls-at-once", "1");
    let mut node = ByHand::new().await;
    let cancel = Input::Cancel { reason: "test".into(), actor: "bob".into(), reply: ReplyId(1) };
    let (loads, _) = node.tell(Message::Input { key: key.clone(), input: cancel });
    node.tell(Message::Expect(key.clone()));
    let read = node.read(loads).await;
    node.tell(read);
    let started = node.start(&key, Payload::null()).await;
    let overdue = vec![Due { key: key.clone(), wake_at: START }];
    let (loads, _) = node.tell(Message::Scanned(Scan { overdue, ..Scan::default() }));
    assert!(loads.is_empty(), "the scan leaves it to whoever starts it");
    let (_, commits) = node.tell(Message::Adopt(Box::new(started)));
    let written = node.write(commits).await;
    node.tell(written);
    assert_eq!(node.answers, [Answer::Applied]);
}

#[tokio::test]
async fn a_late_signal_that_was_dealt_with_beside_the_core_while_the_tombstone_went_stops_nobody() {
    let key = WorkflowKey::new("waits", "1");
    let mut node = ByHand::new().await;
    let order = Order { deadline: START.saturating_add(Duration::from_secs(100)) };
    let started = node.start(&key, Payload::of(&order).unwrap()).await;
    let loads = node.pay(&key, "a");
    let read = node.read(loads).await;
    let (_, commits) = node.tell(read);
    let written = node.write(commits).await;
    node.tell(written);
    let payload = Payload::of(&Paid { by: "b".into() }).unwrap();
    let row = InboxRow {
        key: key.clone(),
        shard: key.shard(4),
        signal_id: "b".into(),
        name: "paid".into(),
        identity: payload.canonical_hash(),
        payload,
        received_at: START,
        unchecked: false,
    };
    node.store.commit(&node.fence, &[Write::Deposit(Deposit { row })]).await.unwrap();
    let (loads, _) = node.tell(Message::Nudge(key.clone()));
    let read = node.read(loads).await;
    let (_, commits) = node.tell(read);

    let run_id = started.row.run_id;
    let take = Advance {
        key: key.clone(),
        shard: key.shard(4),
        run_id,
        rev: 1,
        record: None,
        row: None,
        consume: vec!["b".into()],
        hold: Vec::new(),
        spawn: Vec::new(),
        emit: Vec::new(),
        guard_inbox: false,
    };
    let retire = Retire { key: key.clone(), shard: key.shard(4), run_id, rev: 1, tombstone: "left".into() };
    let forget = Forget { key: key.clone(), shard: key.shard(4), run_id, rev: 2 };
    let writes = [Write::Advance(take), Write::Retire(retire), Write::Forget(forget)];
    assert_eq!(node.store.commit(&node.fence, &writes).await.unwrap(), [Outcome::Advanced, Outcome::Retired, Outcome::Forgotten]);
    let written = node.write(commits).await;
    let (loads, _) = node.tell(written);
    let read = node.read(loads).await;
    assert_eq!(node.tell(read).1.len(), 0, "there is nothing to be done any more");
}
