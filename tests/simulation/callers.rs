//! Those who use the nodes: each order has its own, who does what people and payment channels do, and writes down what it
//! was told. Whoever is not told tries again, with the same ids.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use overdue_runtime::client::{ClientError, SignalOutcome, SignalRequest, StartRequest};
use overdue_runtime::simulation::{Asked, Dice, POISON};
use overdue_runtime::{Payload, Timestamp, WorkflowKey};
use overdue_workflows::ORDER_TIMEOUT;
use overdue_workflows::sandbox::{Capture, NewOrder, NewPayment, PaymentTerms};
use serde_json::{Value, json};

use crate::swarm::Kept;
use crate::world::World;

/// How long a caller waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long one waits at most who hangs up soon.
const IMPATIENCE: Duration = Duration::from_millis(200);
/// How long it waits before it asks again, at most.
const PAUSE: Duration = Duration::from_secs(4);
/// How much later than the end of its watch a payment may come.
const LONG_AFTER: Duration = Duration::from_secs(150);

/// How much later than the money its notification may come.
const TOLD_LATE: Duration = Duration::from_secs(300);

/// What happens to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Story {
    /// Nobody pays.
    Unpaid,
    /// It is paid before its deadline.
    PaidInTime,
    /// It is paid within a millisecond of its deadline.
    PaidAtTheDeadline,
    /// It is paid while it is watched.
    PaidLate,
    /// It is paid when its workflow has ended.
    PaidAfterTheEnd,
    /// It is paid twice, by two transactions.
    PaidTwice,
    /// The user cancels, and may pay all the same.
    CancelledByUser,
    /// Its payment fails for good.
    PaymentFails,
    /// Its deadline is moved.
    Extended,
    /// It is paid, and nobody ever started it.
    NeverStarted,
    /// Its start holds what no database takes.
    Poisoned,
}

const STORIES: [(Story, u64); 11] = [
    (Story::Unpaid, 30),
    (Story::PaidInTime, 10),
    (Story::PaidAtTheDeadline, 18),
    (Story::PaidLate, 8),
    (Story::PaidAfterTheEnd, 8),
    (Story::PaidTwice, 6),
    (Story::CancelledByUser, 8),
    (Story::PaymentFails, 3),
    (Story::Extended, 5),
    (Story::NeverStarted, 2),
    (Story::Poisoned, 4),
];

/// One order, and what will happen to it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) id: String,
    pub(crate) story: Story,
    /// When it is placed, after the beginning.
    pub(crate) placed: Duration,
    /// How long after that it is due.
    pub(crate) time_to_pay: Duration,
    pub(crate) watch: Duration,
    pub(crate) before_cancel: bool,
    /// It is asked for inside the store, not over the network.
    pub(crate) by_sql: bool,
    /// It holds stock, a coupon, an open payment.
    pub(crate) has: (bool, bool, bool),
}

impl Planned {
    pub(crate) fn new(number: u64, span: Duration, kept: Kept, dice: &Dice) -> Self {
        let total = STORIES.iter().map(|(_, weight)| weight).sum();
        let mut left = dice.below(total);
        let mut story = Story::Unpaid;
        for (candidate, weight) in STORIES {
            if left < weight {
                story = candidate;
                break;
            }
            left -= weight;
        }
        // A few fall together, so that batches have several of them.
        let together = story == Story::Poisoned || dice.chance(0.3);
        let placed = if together { span / 2 } else { dice.up_to(span) };
        Self {
            id: format!("o-{number}"),
            story,
            placed,
            time_to_pay: Duration::from_millis(dice.between(1, 150) * 1_000),
            watch: Duration::from_millis(dice.between(0, 120) * 1_000),
            before_cancel: dice.chance(0.3),
            by_sql: kept == Kept::Shared && story != Story::Poisoned && dice.chance(0.15),
            has: (dice.chance(0.9), dice.chance(0.7), dice.chance(0.85)),
        }
    }

    /// One that is placed when trouble has ended: nobody pays, and it is due soon.
    pub(crate) fn when_all_is_well(number: u64, dice: &Dice) -> Self {
        Self {
            id: format!("w-{number}"),
            story: Story::Unpaid,
            placed: dice.up_to(Duration::from_secs(20)),
            time_to_pay: Duration::from_millis(dice.between(2_000, 20_000)),
            watch: Duration::ZERO,
            before_cancel: false,
            by_sql: false,
            has: (true, true, true),
        }
    }

    /// The payment that was opened for it.
    pub(crate) fn payment_id(&self) -> String {
        format!("{}-pay", self.id)
    }
}

/// What a signal was told.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) order_id: String,
    pub(crate) signal_id: String,
    pub(crate) invoked: Duration,
    /// When it was told what.
    pub(crate) told: Option<(Duration, SignalOutcome)>,
}

/// What callers know.
#[derive(Default)]
pub(crate) struct Log {
    /// The starts that were asked for, and when each was told that it is started.
    pub(crate) starts: BTreeMap<String, Option<Duration>>,
    pub(crate) sent: Vec<Sent>,
    /// Money that was taken: order, transaction.
    pub(crate) captured: Vec<(String, String)>,
    /// Callers that are not done.
    pub(crate) busy: usize,
}

/// One order's caller.
pub(crate) struct Caller {
    pub(crate) world: Arc<World>,
    pub(crate) dice: Dice,
    pub(crate) planned: Planned,
}

impl Caller {
    /// Plays the order's story to its end.
    pub(crate) async fn play(self) {
        self.world.log.lock().unwrap().busy += 1;
        let simulation = &self.world.simulation;
        simulation.sleep(self.planned.placed).await;
        let deadline = self.world.time().saturating_add(self.planned.time_to_pay);
        self.place(deadline).await;
        let (start, acts) = (self.start(deadline), self.acts(deadline));
        futures::future::join(start, acts).await;
        self.world.log.lock().unwrap().busy -= 1;
    }

    /// Some hang up soon.
    fn patience(&self) -> Duration {
        if self.dice.chance(0.2) { self.dice.up_to(IMPATIENCE) } else { PATIENCE }
    }

    async fn place(&self, deadline: Timestamp) {
        let planned = &self.planned;
        let mut order = NewOrder::new(&planned.id, at(deadline)).with_everything();
        if planned.story == Story::Extended && self.dice.chance(0.5) {
            // The order service knows a later deadline than the workflow.
            order.pay_deadline = at(deadline.saturating_add(Duration::from_secs(20)));
        }
        let (stock, coupon, payment) = planned.has;
        order.refuses_late_payment = self.dice.chance(0.2);
        if !stock {
            order.reservation = None;
        }
        if !coupon {
            order.coupon_id = None;
        }
        let asks = |dice: &Dice| u32::try_from(dice.below(3)).unwrap();
        let again = self.world.swarm.shop.asks_again;
        order.not_ready_asks = if again { asks(&self.dice) } else { 0 };
        let terms = PaymentTerms {
            in_progress_asks: if again { asks(&self.dice) } else { 0 },
            refund_queries: if again { asks(&self.dice) } else { 0 },
            ..PaymentTerms::default()
        };
        order.payment = Some(NewPayment { payment_id: planned.payment_id(), terms }).filter(|_| payment || self.pays());
        self.world.street.shop.place_order(&order).await.unwrap();
    }

    fn pays(&self) -> bool {
        !matches!(self.planned.story, Story::Unpaid | Story::PaymentFails | Story::Poisoned | Story::Extended)
    }

    fn input(&self, deadline: Timestamp) -> Value {
        let planned = &self.planned;
        let id = &planned.id;
        let mut input = json!({
            "orderId": id, "payDeadline": deadline.to_string(), "amount": "10.00", "currency": "USD",
            "latePaymentWindow": format!("PT{}S", planned.watch.as_secs()),
            "closePayment": if planned.before_cancel { "beforeCancel" } else { "afterCancel" },
        });
        let (stock, coupon, payment) = planned.has;
        for (has, field, value) in [
            (stock, "stockToken", format!("{id}-stock")),
            (coupon, "couponId", format!("{id}-coupon")),
            (payment || self.pays(), "paymentId", planned.payment_id()),
        ] {
            if has {
                input[field] = json!(value);
            }
        }
        if planned.story == Story::Poisoned {
            input["metadata"] = json!(POISON);
        }
        input
    }

    async fn start(&self, deadline: Timestamp) {
        if self.planned.story == Story::NeverStarted {
            return;
        }
        let (world, id) = (&self.world, self.planned.id.clone());
        let request = StartRequest {
            workflow_type: ORDER_TIMEOUT.into(),
            id: id.clone(),
            input: Payload::of(&self.input(deadline)).unwrap(),
            start_at: None,
            attributes: BTreeMap::new(),
            traceparent: None,
        };
        world.log.lock().unwrap().starts.insert(id.clone(), None);
        if self.planned.by_sql {
            world.request_start(&id, request.input.as_str());
            world.log.lock().unwrap().starts.insert(id, Some(world.simulation.now()));
            return;
        }
        let mut repeats = self.dice.below(3);
        loop {
            let (sent, place) = (request.clone(), world.any_place(&self.dice));
            let asked =
                world.cluster.ask(place, self.patience(), |client| Box::pin(async move { client.start(sent).await })).await;
            match asked {
                Asked::Answered(Ok(started)) => {
                    if started.replayed {
                        world.judge.reach("start repeated");
                    }
                    let is_there = world.is_stored(&WorkflowKey::new(ORDER_TIMEOUT, id.as_str()));
                    world.judge.expect("I31", is_there, || format!("the start of {id} was answered and is not stored"));
                    world.log.lock().unwrap().starts.insert(id.clone(), Some(world.simulation.now()));
                    self.read_back(None).await;
                    if repeats == 0 {
                        return;
                    }
                    repeats -= 1;
                }
                Asked::Answered(Err(ClientError::Rejected)) => {
                    let is_poison = self.planned.story == Story::Poisoned;
                    world
                        .judge
                        .expect("I30", is_poison, || format!("the start of {id} was rejected, and nothing is wrong with it"));
                    return;
                }
                Asked::Answered(Err(error)) => {
                    let is_honest = matches!(error, ClientError::Unavailable | ClientError::TooMany(_) | ClientError::Store(_));
                    world.judge.expect("I9", is_honest, || format!("the start of {id} was refused: {error}"));
                }
                Asked::NoAnswer => {}
            }
            world.simulation.sleep(self.dice.up_to(PAUSE)).await;
            if world.is_over() {
                return;
            }
        }
    }

    /// What happens besides.
    async fn acts(&self, deadline: Timestamp) {
        let millis = |least: u64, most: u64| Duration::from_millis(self.dice.between(least, most));
        let time_to_pay = self.planned.time_to_pay;
        let early = self.dice.up_to(time_to_pay);
        let end = time_to_pay + self.planned.watch;
        match self.planned.story {
            Story::Unpaid | Story::Poisoned => {}
            Story::PaidInTime | Story::NeverStarted => self.pay_after(early, "t-1").await,
            Story::PaidAtTheDeadline => self.pay_after(time_to_pay.saturating_sub(millis(0, 40)) + millis(0, 20), "t-1").await,
            Story::PaidLate => self.pay_after(time_to_pay + self.dice.up_to(self.planned.watch), "t-1").await,
            Story::PaidAfterTheEnd => self.pay_after(end + self.dice.up_to(LONG_AFTER), "t-1").await,
            Story::PaidTwice => {
                let second = self.dice.up_to(end + LONG_AFTER);
                futures::future::join(self.pay_after(early, "t-1"), self.pay_after(second, "t-2")).await;
            }
            Story::CancelledByUser => {
                let cancel = async {
                    self.world.simulation.sleep(early).await;
                    self.signal("cancel-order", "cancel", json!({ "reason": "changed my mind" })).await;
                };
                let pays = self.dice.chance(0.4);
                let pay = async {
                    if pays {
                        self.pay_after(self.dice.up_to(end), "t-1").await;
                    }
                };
                futures::future::join(cancel, pay).await;
            }
            Story::PaymentFails => {
                self.world.simulation.sleep(early).await;
                // A reason that no database takes comes first; the channel then says it otherwise.
                let reason = if self.dice.chance(0.3) { POISON } else { "declined" };
                self.signal_once("payment-failed", "failed-0", json!({ "reason": reason })).await;
                self.signal("payment-failed", "failed", json!({ "reason": "declined", "final": true })).await;
            }
            Story::Extended => {
                self.world.simulation.sleep(early).await;
                let later = deadline.saturating_add(Duration::from_secs(self.dice.between(1, 60)));
                let _ = self.world.street.shop.move_deadline(&self.planned.id, at(later)).await;
                self.signal("extend-deadline", "extend", json!({ "payDeadline": later.to_string() })).await;
            }
        }
    }

    async fn pay_after(&self, pause: Duration, transaction: &str) {
        let (world, planned) = (&self.world, &self.planned);
        world.simulation.sleep(pause).await;
        let transaction = format!("{}-{transaction}", planned.id);
        let paid_at = world.time();
        let capture =
            Capture { transaction_id: transaction.clone(), amount: "10.00".into(), currency: "USD".into(), paid_at: at(paid_at) };
        world.street.shop.capture(&planned.payment_id(), &capture).await.unwrap();
        world.log.lock().unwrap().captured.push((planned.id.clone(), transaction.clone()));
        // The channel's word may come long after the money.
        if self.dice.chance(0.25) {
            world.simulation.sleep(self.dice.up_to(TOLD_LATE)).await;
        }
        let payload = json!({
            "transactionId": transaction, "amount": "10.00", "currency": "USD", "paidAt": paid_at.to_string(),
            "paymentId": planned.payment_id(),
        });
        self.signal("payment-succeeded", &transaction, payload).await;
    }

    /// Sends a signal until it is told what became of it, and now and then once more.
    async fn signal(&self, name: &str, signal_id: &str, payload: Value) {
        let mut repeats = self.dice.below(3);
        while !self.world.is_over() {
            if self.signal_once(name, signal_id, payload.clone()).await {
                if repeats == 0 {
                    return;
                }
                repeats -= 1;
            }
            self.world.simulation.sleep(self.dice.up_to(PAUSE)).await;
        }
    }

    /// Sends a signal once; whether anything was told.
    async fn signal_once(&self, name: &str, signal_id: &str, payload: Value) -> bool {
        let (world, id) = (&self.world, &self.planned.id);
        let poisoned = payload.to_string().contains(POISON);
        let request = SignalRequest {
            workflow_type: ORDER_TIMEOUT.into(),
            id: id.clone(),
            name: name.into(),
            signal_id: Some(signal_id.into()),
            payload: Payload::of(&payload).unwrap(),
        };
        let place = world.any_place(&self.dice);
        let number = {
            let mut log = world.log.lock().unwrap();
            let invoked = world.simulation.now();
            log.sent.push(Sent { order_id: id.clone(), signal_id: signal_id.into(), invoked, told: None });
            log.sent.len() - 1
        };
        let asked =
            world.cluster.ask(place, self.patience(), |client| Box::pin(async move { client.signal(request).await })).await;
        match asked {
            Asked::Answered(Ok(response)) => {
                world.log.lock().unwrap().sent[number].told = Some((world.simulation.now(), response.outcome));
                match response.outcome {
                    SignalOutcome::Duplicate => world.judge.reach("signal repeated"),
                    SignalOutcome::Late => world.judge.reach("signal after the end or the decision"),
                    SignalOutcome::Buffered => world.judge.reach("signal stored for later"),
                    SignalOutcome::Applied => self.read_back(Some(signal_id)).await,
                }
                let is_there = world.knows_signal(id, signal_id);
                world.judge.expect("I31", is_there, || format!("the signal {signal_id} of {id} was answered and is not stored"));
                true
            }
            Asked::Answered(Err(error)) => {
                let is_honest = matches!(error, ClientError::Unavailable | ClientError::TooMany(_) | ClientError::Store(_))
                    || (poisoned && matches!(error, ClientError::Rejected));
                world.judge.expect("I8", is_honest, || format!("the signal {signal_id} of {id} was refused: {error}"));
                false
            }
            Asked::NoAnswer => false,
        }
    }

    /// Reads what was just acknowledged, from any node.
    async fn read_back(&self, signal_id: Option<&str>) {
        let (world, id) = (&self.world, self.planned.id.clone());
        if !self.dice.chance(0.3) || world.swarm.retain.is_some() {
            return;
        }
        let place = world.any_place(&self.dice);
        let read = world
            .cluster
            .ask(place, PATIENCE, |client| Box::pin(async move { client.history(ORDER_TIMEOUT, &id, 0, 1_000).await }))
            .await;
        let id = &self.planned.id;
        match read {
            Asked::Answered(Ok(page)) => {
                let text = serde_json::to_string(&page.events).unwrap();
                let holds = signal_id.is_none_or(|signal_id| text.contains(&format!("\"{signal_id}\"")));
                world.judge.expect("I12", holds, || format!("{id} was read and lacks the acknowledged signal {signal_id:?}"));
            }
            Asked::Answered(Err(ClientError::NotFound(_))) => {
                world.judge.expect("I12", false, || format!("{id} was started and is not found"));
            }
            Asked::Answered(Err(_)) | Asked::NoAnswer => {}
        }
    }
}

/// The same instant for the shop.
fn at(time: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::UNIX_EPOCH + SignedDuration::from_micros(time.as_micros())
}
