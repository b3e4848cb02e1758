//! Events on their way to sinks: order, retries, crashes, takeovers, and what a dead sink costs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::harness::{START, settle};
use crate::activity::RetryPolicy;
use crate::client::{Client, ClientError, OutboxAction, OutboxEntry, OutboxQuery, StartRequest};
use crate::engine::{Clock, Engine, EngineConfig, Environment, Registries};
use crate::outbox::{DeliveryFailure, Envelope, EventPattern, Sink, SinkOptions};
use crate::payload::Payload;
use crate::store::{CommitFailure, ModelStore, Outbox, OutboxState, Store};
use crate::testing::{FreezingSpawner, ManualClock, SeededRandom};
use crate::time::Timestamp;
use crate::workflow::*;

const SECOND: Duration = Duration::from_secs(1);

/// Tells so many times, a second apart, and at its end asks a person.
struct Tells;

#[async_trait]
impl Workflow for Tells {
    const TYPE: &'static str = "tells";
    type Input = u32;
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, times: u32) -> Result<String, WorkflowError> {
        for n in 0..times {
            ctx.emit("it.went-on", &n).unwrap();
            if n + 1 < times {
                ctx.sleep(SECOND).await?;
            }
        }
        if times == 0 {
            ctx.by_hand::<u32>("look", &(), "somebody has to look").await?;
        }
        Ok("done".into())
    }

    fn by_hand_steps(&self) -> Vec<ByHandStep> {
        vec![ByHandStep::of::<u32>("look")]
    }

    fn attention_event(&self, key: &crate::id::WorkflowKey, _: &Payload, step: &StepInTrouble<'_>) -> Option<Emitted> {
        Emitted::new("it.needs-attention", &(key.id(), step.number, step.name, step.why)).ok()
    }
}

/// What a receiver does with the next event.
#[derive(Clone)]
enum Reply {
    Fails(DeliveryFailure),
    /// It takes it, and says so when the gate is opened.
    Late(Arc<Notify>),
    Panics,
}

/// What was sent: id of the event, workflow, data, attempt, when.
type Sent = (String, String, String, u32, Timestamp);

/// A receiver that keeps a ledger.
#[derive(Clone)]
struct Receiver {
    name: &'static str,
    takes: &'static str,
    options: SinkOptions,
    clock: ManualClock,
    replies: Arc<Mutex<Vec<Reply>>>,
    /// Whether it is down, and how.
    down: Arc<Mutex<Option<DeliveryFailure>>>,
    ledger: Arc<Mutex<Vec<Sent>>>,
    most_at_once: Arc<AtomicUsize>,
    at_once: Arc<AtomicUsize>,
}

impl Receiver {
    fn new(name: &'static str, clock: &ManualClock) -> Self {
        let retry = RetryPolicy { jitter: false, ..SinkOptions::default().retry };
        Self {
            name,
            takes: "it.*",
            options: SinkOptions { retry, ..SinkOptions::default() },
            clock: clock.clone(),
            replies: Arc::default(),
            down: Arc::default(),
            ledger: Arc::default(),
            most_at_once: Arc::default(),
            at_once: Arc::default(),
        }
    }

    fn replies(&self, replies: impl IntoIterator<Item = Reply>) {
        self.replies.lock().unwrap().extend(replies);
    }

    fn goes(&self, down: Option<DeliveryFailure>) {
        *self.down.lock().unwrap() = down;
    }

    fn ledger(&self) -> Vec<Sent> {
        self.ledger.lock().unwrap().clone()
    }

    /// What it was sent of one workflow, in order.
    fn of(&self, id: &str) -> Vec<String> {
        self.ledger().into_iter().filter(|sent| sent.1 == id).map(|sent| sent.2).collect()
    }
}

#[async_trait]
impl Sink for Receiver {
    fn name(&self) -> &str {
        self.name
    }

    fn takes(&self, event: &str) -> bool {
        EventPattern::parse(self.takes).unwrap().takes(event)
    }

    fn options(&self) -> SinkOptions {
        self.options.clone()
    }

    async fn deliver(&self, envelope: &Envelope) -> Result<(), DeliveryFailure> {
        let now = self.clock.now();
        let data = envelope.data.as_str().to_owned();
        self.ledger.lock().unwrap().push((envelope.id.clone(), envelope.key.id().to_owned(), data, envelope.attempt, now));
        let at_once = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(at_once, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.at_once.fetch_sub(1, Ordering::Relaxed);
        if let Some(failure) = self.down.lock().unwrap().clone() {
            return Err(failure);
        }
        let reply = {
            let mut replies = self.replies.lock().unwrap();
            (!replies.is_empty()).then(|| replies.remove(0))
        };
        match reply {
            None => Ok(()),
            Some(Reply::Fails(failure)) => Err(failure),
            Some(Reply::Late(gate)) => {
                gate.notified().await;
                Ok(())
            }
            Some(Reply::Panics) => panic!("the sink panics"),
        }
    }
}

/// A post office: a store, a clock, receivers, and the nodes that deliver to them.
struct Post {
    store: Arc<ModelStore>,
    clock: ManualClock,
    receivers: Vec<Receiver>,
    nodes: Vec<(Client, FreezingSpawner)>,
    lease: Duration,
}

impl Post {
    async fn with(store: impl FnOnce(ManualClock) -> ModelStore, receivers: impl FnOnce(&ManualClock) -> Vec<Receiver>) -> Self {
        let clock = ManualClock::at(START);
        let (store, receivers) = (Arc::new(store(clock.clone())), receivers(&clock));
        let mut post = Self { store, clock, receivers, nodes: Vec::new(), lease: Duration::from_secs(4) };
        post.join().await;
        post
    }

    async fn open(receivers: impl FnOnce(&ManualClock) -> Vec<Receiver>) -> Self {
        Self::with(|_| ModelStore::new(4), receivers).await
    }

    /// A node more; on an embedded store it takes the place of the one before it.
    async fn join(&mut self) {
        let tasks = FreezingSpawner::default();
        let environment = Environment {
            clock: Arc::new(self.clock.clone()),
            random: Arc::new(SeededRandom::new(7 + self.nodes.len() as u64)),
            spawner: Arc::new(tasks.clone()),
        };
        let mut code = Registries::default();
        code.workflows.register(Tells);
        for receiver in &self.receivers {
            code.sinks.register(receiver.clone()).unwrap();
        }
        let store: Arc<dyn Store> = self.store.clone();
        let config = EngineConfig { lease: self.lease, ..EngineConfig::default() };
        let engine = Engine::start(store, code, environment, config).await.unwrap();
        self.nodes.push((Client::new(engine), tasks));
        settle().await;
    }

    fn client(&self) -> &Client {
        &self.nodes.last().unwrap().0
    }

    async fn tell(&self, id: &str, times: u32) {
        let request = StartRequest {
            workflow_type: "tells".into(),
            id: id.into(),
            input: Payload::of(&times).unwrap(),
            start_at: None,
            attributes: BTreeMap::new(),
            traceparent: None,
        };
        self.client().start(request).await.unwrap();
        settle().await;
    }

    async fn pass(&self, duration: Duration) {
        self.pass_by(Duration::from_millis(500), duration).await;
    }

    /// The same in larger steps.
    async fn pass_by(&self, step: Duration, duration: Duration) {
        let mut left = duration;
        while !left.is_zero() {
            self.clock.advance(left.min(step));
            left = left.saturating_sub(step);
            settle().await;
        }
    }

    async fn waiting(&self, state: Option<OutboxState>) -> Vec<OutboxEntry> {
        let query = OutboxQuery { state, limit: 1_000, ..OutboxQuery::default() };
        self.client().outbox(&query).await.unwrap().events
    }
}

fn down() -> DeliveryFailure {
    DeliveryFailure::transient("http-503", "down")
}

#[tokio::test]
async fn an_event_is_sent_at_once_and_once_to_every_sink_that_takes_it_and_nothing_is_left() {
    let post = Post::open(|clock| {
        let other = Receiver { takes: "other.*", ..Receiver::new("other", clock) };
        vec![Receiver::new("crm", clock), Receiver::new("mail", clock), other]
    })
    .await;
    post.tell("1", 1).await;
    let [crm, mail, other] = &post.receivers[..] else { panic!() };
    assert_eq!((crm.of("1"), mail.of("1"), other.of("1")), (vec!["0".into()], vec!["0".into()], vec![]));
    let history = post.client().history("tells", "1", 0, 100).await.unwrap().events;
    assert_eq!(history[1].kind.name(), "EventEmitted");
    let run = post.client().describe("tells", "1").await.unwrap().run_id;
    assert_eq!(crm.ledger()[0].0, format!("evt_{}_2", run.0.simple()));
    assert_eq!(post.store.outbox(), []);
    post.pass(10 * SECOND).await;
    assert_eq!(crm.ledger().len(), 1);
}

#[tokio::test]
async fn without_a_sink_for_it_nothing_is_written_and_the_history_has_it_all_the_same() {
    let post = Post::open(|clock| vec![Receiver { takes: "other.*", ..Receiver::new("other", clock) }]).await;
    post.tell("1", 3).await;
    assert_eq!(post.store.outbox(), []);
    post.pass(4 * SECOND).await;
    let history = post.client().history("tells", "1", 0, 100).await.unwrap().events;
    assert_eq!(history.iter().filter(|event| event.kind.name() == "EventEmitted").count(), 3);
}

#[tokio::test]
async fn the_events_of_one_workflow_come_in_order_whatever_fails_and_others_do_not_wait_for_them() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    let crm = &post.receivers[0];
    crm.replies([Reply::Fails(down()), Reply::Fails(down()), Reply::Panics]);
    post.tell("1", 3).await;
    post.pass(3 * SECOND).await;
    post.tell("2", 1).await;
    assert_eq!(crm.of("1"), ["0"], "the others wait for it");
    assert_eq!(crm.of("2"), ["0"]);
    let states: Vec<_> = post.waiting(None).await.iter().map(|event| (event.number, event.state)).collect();
    let failing = OutboxState::Failing;
    assert_eq!(states.iter().filter(|(_, state)| *state == failing).count(), 2, "{states:?}");
    post.pass(60 * SECOND).await;
    let first: Vec<_> = crm.of("1");
    assert_eq!(first.last().map(String::as_str), Some("2"));
    assert!(first.is_sorted(), "{first:?}");
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(post.store.outbox(), []);
}

#[tokio::test]
async fn a_sink_that_is_dead_for_an_hour_is_asked_at_doubling_gaps_and_no_other_sink_nor_workflow_notices() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock), Receiver::new("mail", clock)]).await;
    let [crm, mail] = &post.receivers[..] else { panic!() };
    crm.goes(Some(down()));
    for n in 0..5 {
        post.tell(&n.to_string(), 2).await;
    }
    post.pass(3 * SECOND).await;
    assert_eq!(mail.ledger().len(), 10);
    for n in 0..5 {
        assert!(post.client().describe("tells", &n.to_string()).await.unwrap().closed_at.is_some());
    }
    post.pass_by(5 * SECOND, Duration::from_secs(3600)).await;
    // At 0, 5, 15, 35, 75, 155, 315, 635, 1275 and 2555 s, and 5115 s is to come.
    assert_eq!(crm.ledger().len(), 5 * 10);
    let at: Vec<u64> = crm.ledger().iter().filter(|sent| sent.1 == "0").map(|sent| sent.4.since(START).as_secs()).collect();
    // Each gap counts from the failure before it, and time passes here in steps of five seconds.
    let expected = [0, 5, 15, 35, 75, 155, 315, 635, 1275, 2555];
    assert!(at.iter().zip(expected).all(|(at, due)| (due..=due + 50).contains(at)), "{at:?}");
    assert_eq!(mail.ledger().len(), 10);
    crm.goes(None);
    post.pass_by(5 * SECOND, Duration::from_secs(3600)).await;
    assert_eq!(crm.ledger().len(), 5 * 10 + 5 * 2);
    assert_eq!(post.store.outbox(), []);
}

#[tokio::test]
async fn a_crash_between_send_and_record_sends_again_under_the_same_id() {
    let mut post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    let gate = Arc::new(Notify::new());
    post.receivers[0].replies([Reply::Late(gate.clone())]);
    post.tell("1", 1).await;
    assert_eq!(post.receivers[0].ledger().len(), 1);
    post.nodes[0].1.freeze();
    post.join().await;
    let sent = post.receivers[0].ledger();
    assert_eq!(sent.len(), 2);
    assert_eq!((&sent[0].0, sent[0].3), (&sent[1].0, sent[1].3), "the first one counts as none");
    assert_eq!(post.store.outbox(), []);
    // The old process wakes up: what it has to say is said by nobody any more.
    post.nodes[0].1.thaw();
    gate.notify_one();
    post.pass(5 * SECOND).await;
    assert_eq!(post.receivers[0].ledger().len(), 2);
}

#[tokio::test]
async fn a_restart_keeps_attempts_and_the_next_time() {
    let mut post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    post.receivers[0].goes(Some(down()));
    post.tell("1", 1).await;
    post.pass(40 * SECOND).await;
    let before = post.waiting(None).await;
    assert_eq!((before[0].attempts, before[0].last_failure.as_deref()), (4, Some("http-503: down")));
    post.nodes[0].1.freeze();
    post.join().await;
    assert_eq!(post.waiting(None).await, before);
    assert_eq!(post.receivers[0].ledger().len(), 4, "its time has not come");
    post.pass(40 * SECOND).await;
    let sent = post.receivers[0].ledger();
    assert_eq!((sent.len(), sent[4].3), (5, 5));
    assert!(Some(sent[4].4) >= before[0].next_attempt_at);
}

#[tokio::test]
async fn what_the_receiver_will_never_take_waits_for_a_person_and_what_follows_it_waits_behind_it() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    let crm = &post.receivers[0];
    crm.replies([Reply::Fails(DeliveryFailure::permanent("http-410", "gone"))]);
    post.tell("1", 2).await;
    post.pass(Duration::from_secs(100)).await;
    assert_eq!(crm.ledger().len(), 1);
    let parked = post.waiting(Some(OutboxState::NeedsAttention)).await.remove(0);
    assert_eq!((parked.sink.as_str(), parked.event.as_str(), parked.data.as_str()), ("crm", "it.went-on", "0"));
    assert_eq!(parked.last_failure.as_deref(), Some("http-410: gone"));
    let behind = post.waiting(Some(OutboxState::Waiting)).await.remove(0);
    let refused = post.client().outbox_decide(&behind.id, OutboxAction::Retry, "now", "on-call").await.unwrap_err();
    assert!(matches!(refused, ClientError::Conflict { .. }), "{refused}");
    post.client().outbox_decide(&parked.id, OutboxAction::Retry, "mended", "on-call").await.unwrap();
    settle().await;
    assert_eq!(crm.of("1"), ["0", "0", "1"]);
    assert_eq!(crm.ledger()[1].3, 1, "it counts from the beginning");
    let gone = post.client().outbox_decide(&parked.id, OutboxAction::Skip, "late", "on-call").await.unwrap_err();
    assert!(matches!(gone, ClientError::NotFound(_)), "{gone}");
}

#[tokio::test]
async fn a_skipped_event_is_given_up_and_the_next_one_follows_at_once() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    let crm = &post.receivers[0];
    crm.replies([Reply::Fails(DeliveryFailure::permanent("http-422", "poison"))]);
    post.tell("1", 2).await;
    post.pass(2 * SECOND).await;
    let parked = post.waiting(Some(OutboxState::NeedsAttention)).await.remove(0);
    assert!(post.client().outbox_decide(&parked.id, OutboxAction::Skip, " ", "on-call").await.is_err(), "a reason is needed");
    post.client().outbox_decide(&parked.id, OutboxAction::Skip, "known", "on-call").await.unwrap();
    settle().await;
    assert_eq!(crm.of("1"), ["0", "1"]);
    assert_eq!(post.store.outbox(), []);
}

#[tokio::test]
async fn a_receiver_that_asks_to_wait_is_left_alone_so_long_and_it_costs_no_attempt() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    let wait = DeliveryFailure::neutral("http-429", "slow").after(Some(Duration::from_secs(120)));
    post.receivers[0].replies([Reply::Fails(wait)]);
    post.tell("1", 1).await;
    post.pass(Duration::from_secs(118)).await;
    assert_eq!(post.receivers[0].ledger().len(), 1);
    assert_eq!(post.waiting(None).await[0].attempts, 0);
    post.pass(Duration::from_secs(4)).await;
    assert_eq!(post.receivers[0].ledger().len(), 2);
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_given_up_after_its_time() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    post.receivers[0].replies([Reply::Late(Arc::new(Notify::new()))]);
    post.tell("1", 1).await;
    post.pass(Duration::from_secs(16)).await;
    assert_eq!(post.waiting(None).await[0].last_failure.as_deref(), Some("timeout: no answer within 15000 ms"));
    post.pass(Duration::from_secs(6)).await;
    assert_eq!((post.receivers[0].ledger().len(), post.store.outbox()), (2, vec![]));
}

#[tokio::test]
async fn a_store_that_cannot_take_that_an_event_is_delivered_has_it_not_sent_again() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    let gate = Arc::new(Notify::new());
    post.receivers[0].replies([Reply::Late(gate.clone())]);
    post.tell("1", 1).await;
    for _ in 0..3 {
        post.store.fail_next_commit(CommitFailure::DiskFull);
    }
    gate.notify_one();
    post.pass(10 * SECOND).await;
    assert_eq!((post.receivers[0].ledger().len(), post.store.outbox()), (1, vec![]));
}

#[tokio::test]
async fn an_unknown_outcome_of_that_commit_is_settled_and_nothing_is_sent_again() {
    for failure in [CommitFailure::UnknownApplied, CommitFailure::UnknownNotApplied] {
        let shared = |clock: ManualClock| ModelStore::shared(4, Some(Arc::new(move || clock.now())));
        let post = Post::with(shared, |clock| vec![Receiver::new("crm", clock)]).await;
        post.pass(3 * SECOND).await;
        let gate = Arc::new(Notify::new());
        post.receivers[0].replies([Reply::Late(gate.clone())]);
        post.tell("1", 1).await;
        post.store.fail_next_commit(failure);
        gate.notify_one();
        post.pass(10 * SECOND).await;
        assert_eq!((post.receivers[0].ledger().len(), post.store.outbox()), (1, vec![]), "{failure:?}");
    }
}

#[tokio::test]
async fn the_heir_of_a_dead_node_delivers_what_it_left_and_the_dead_one_marks_nothing_when_it_wakes() {
    let shared = |clock: ManualClock| ModelStore::shared(4, Some(Arc::new(move || clock.now())));
    let mut post = Post::with(shared, |clock| vec![Receiver::new("crm", clock)]).await;
    post.pass(3 * SECOND).await;
    let gate = Arc::new(Notify::new());
    post.receivers[0].replies([Reply::Late(gate.clone())]);
    post.tell("1", 2).await;
    post.nodes[0].1.freeze();
    post.join().await;
    post.pass(10 * SECOND).await;
    let sent = post.receivers[0].ledger();
    assert_eq!(post.receivers[0].of("1"), ["0", "0", "1"]);
    assert_eq!(sent[0].0, sent[1].0);
    assert_eq!(post.store.outbox(), []);
    post.nodes[0].1.thaw();
    gate.notify_one();
    post.pass(10 * SECOND).await;
    assert_eq!(post.receivers[0].ledger().len(), 3);
}

#[tokio::test]
async fn a_node_that_drains_waits_for_what_is_under_way_and_begins_nothing_more() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    let gate = Arc::new(Notify::new());
    post.receivers[0].replies([Reply::Late(gate.clone())]);
    post.tell("1", 1).await;
    let opened = async {
        settle().await;
        gate.notify_one();
    };
    futures::future::join(post.client().engine().drain(), opened).await;
    assert_eq!((post.receivers[0].ledger().len(), post.store.outbox()), (1, vec![]));
}

#[tokio::test]
async fn a_step_that_needs_a_person_is_told_without_an_event_more_in_the_history() {
    let post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    post.tell("1", 0).await;
    assert_eq!(post.receivers[0].of("1"), [r#"["1",2,"look","somebody has to look"]"#]);
    let kinds: Vec<_> = post.client().history("tells", "1", 0, 100).await.unwrap().events;
    assert_eq!(kinds.iter().map(|event| event.kind.name()).collect::<Vec<_>>(), ["WorkflowStarted", "ActivityScheduled"]);
}

#[tokio::test]
async fn no_more_are_under_way_than_the_sink_takes_at_once_however_much_waits() {
    let post = Post::open(|clock| {
        let receiver = Receiver::new("crm", clock);
        vec![Receiver { options: SinkOptions { concurrency: 3, ..receiver.options.clone() }, ..receiver }]
    })
    .await;
    let crm = &post.receivers[0];
    crm.goes(Some(down()));
    for n in 0..40 {
        post.tell(&n.to_string(), 1).await;
    }
    crm.goes(None);
    post.pass(Duration::from_secs(30)).await;
    assert_eq!(post.store.outbox(), []);
    assert_eq!(crm.ledger().iter().map(|sent| sent.1.clone()).collect::<BTreeSet<_>>().len(), 40);
    assert!(crm.most_at_once.load(Ordering::Relaxed) <= 3);
}

#[tokio::test]
async fn rows_of_a_sink_that_the_program_no_longer_has_wait_visibly_until_a_person_skips_them() {
    let mut post = Post::open(|clock| vec![Receiver::new("crm", clock)]).await;
    post.receivers[0].goes(Some(down()));
    post.tell("1", 1).await;
    post.nodes[0].1.freeze();
    post.receivers.clear();
    post.join().await;
    post.pass(20 * SECOND).await;
    let left = post.waiting(None).await.remove(0);
    assert_eq!(left.sink, "crm");
    post.client().outbox_decide(&left.id, OutboxAction::Skip, "no such receiver any more", "on-call").await.unwrap();
    assert_eq!(post.store.outbox_page(&Default::default(), None, 10).await.unwrap(), []);
}
