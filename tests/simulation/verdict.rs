//! What must be true of a world when everything has come to rest, and what at any time: the shop's ledgers, the callers'
//! log and the histories, held against each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use overdue_runtime::WorkflowKey;
use overdue_runtime::client::{ActivityState, SignalOutcome};
use overdue_runtime::engine::OperatorAction;
use overdue_runtime::fault::Whim;
use overdue_runtime::history::{Event, EventKind};
use overdue_runtime::simulation::BEGINNING;
use overdue_runtime::store::{Execution, Status};
use overdue_workflows::ORDER_TIMEOUT;
use overdue_workflows::sandbox::{Call, Effect, EffectRecord, Record, Service};

use crate::callers::{Planned, Story};
use crate::receiver;
use crate::world::{self, World};

/// How long an operator's request may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// What the way from a deadline to the cancel call costs besides the ways to the database, where nothing goes wrong.
const LATENESS_MAX: Duration = Duration::from_millis(300);
/// What placing and starting an order may add to that, and being asked again by the order service.
const SECOND_WAVE_SLACK: Duration = Duration::from_secs(6);
/// How many ways to the database lie on it at most.
const WAYS: u32 = 16;

/// One execution as it is stored.
pub(crate) struct History {
    pub(crate) row: Execution,
    pub(crate) events: Vec<Event>,
    pub(crate) is_open: bool,
}

impl History {
    fn id(&self) -> &str {
        self.row.key.id()
    }
}

/// The name under which a whim counts as reached.
pub(crate) fn goal_of(whim: Whim) -> &'static str {
    match whim {
        Whim::TinyBatch => "batch of one write",
        Whim::WheelOff => "timer fired by the scan, not by the wheel",
        Whim::LostWord => "word to the core lost",
        Whim::RaiseEpoch => "epoch raised without need",
        Whim::ScanOfOne => "scan of one row",
        Whim::RetentionStops => "retention interrupted",
        Whim::CoreHangs => "core of a node hangs",
        Whim::RetentionDawdles => "retention dawdles",
    }
}

/// Whether nothing is left to be done: every execution has ended, and every signal and start was taken up.
pub(crate) fn is_settled(world: &World) -> bool {
    let backing = world.cluster.database().backing();
    let store = backing.store();
    let shards: Vec<u16> = (0..store.facts().shards).collect();
    let later = world.time().saturating_add(Duration::from_secs(1));
    let types = vec![ORDER_TIMEOUT.to_owned()];
    let open = world::histories(world).iter().any(|history| history.is_open);
    !open
        && receiver::is_done(world)
        && backing.inline(store.unread(&shards, 1)).unwrap().is_empty()
        && backing.inline(store.unclaimed(&shards, later, 1)).unwrap().is_empty()
        && backing.inline(store.requested_starts(&shards, &types, 1)).unwrap().is_empty()
}

/// Says what has not come to its end.
pub(crate) fn not_settled(world: &World) {
    if world.judge.is_broken() {
        return;
    }
    for history in world::histories(world).iter().filter(|history| history.is_open) {
        let last = history.events.last().map(|event| event.kind.name());
        world.judge.expect("I6", false, || {
            let row = &history.row;
            let state = if world::is_running(history) { "running" } else { "blocked" };
            format!(
                "{} is still {state}: wake_at {:?}, attention {}, last event {last:?}",
                row.key, row.wake_at, row.needs_attention
            )
        });
    }
    let busy = world.log.lock().unwrap().busy;
    world.judge.expect("I6", busy == 0, || format!("{busy} callers were not answered"));
    world.judge.expect("I19", is_settled(world) || busy > 0, || "a signal or a start was not taken up".to_owned());
}

/// Has every step that waits for a person tried again, as one would after an outage.
pub(crate) async fn help(world: &Arc<World>) {
    let waiting = world::histories(world).into_iter().filter(|history| history.row.needs_attention);
    for history in waiting.collect::<Vec<_>>() {
        let place = (0..world.cluster.places()).find(|place| world.cluster.is_up(*place));
        let Some(place) = place else { return };
        world.judge.reach("step tried again by a person");
        let key = history.row.key.clone();
        world
            .cluster
            .ask(place, PATIENCE, |client| {
                Box::pin(async move {
                    let (kind, id) = (key.workflow_type(), key.id());
                    let Ok(described) = client.describe(kind, id).await else { return };
                    for step in described.pending_activities {
                        if step.state == ActivityState::NeedsAttention {
                            let _ = client.operate(kind, id, step.number, OperatorAction::Retry, "again", "operator").await;
                        }
                    }
                })
            })
            .await;
    }
}

/// Effects by their subject.
type Effects = BTreeMap<String, Vec<Effect>>;

fn effects(world: &World) -> Effects {
    let mut all = Effects::new();
    for service in Service::ALL {
        for EffectRecord { subject, effect, .. } in world.street.shop.effects(service).unwrap() {
            all.entry(subject).or_default().push(effect);
        }
    }
    all
}

fn times(effects: &Effects, subject: &str, wanted: impl Fn(&Effect) -> bool) -> usize {
    effects.get(subject).map_or(0, |of| of.iter().filter(|effect| wanted(effect)).count())
}

/// What holds whenever one looks.
pub(crate) fn always(world: &World) {
    let effects = effects(world);
    let judge = &world.judge;
    for planned in &world.orders {
        let id = &planned.id;
        let decided = times(&effects, id, |effect| matches!(effect, Effect::OrderPaid { .. } | Effect::OrderCancelled { .. }));
        judge.expect("I1", decided <= 1, || format!("{id} was decided {decided} times"));
        let released = times(&effects, &format!("{id}-stock"), |effect| *effect == Effect::StockReleased);
        judge.expect("I2", released <= 1, || format!("{id}: its stock was released {released} times"));
        let returned = times(&effects, &format!("{id}-coupon"), |effect| *effect == Effect::CouponReturned);
        judge.expect("I3", returned <= 1, || format!("{id}: its coupon was returned {returned} times"));
        refunds_are_of_captures(world, &effects, planned);
    }
    for (sku, level) in world.street.shop.stock_levels() {
        let kept = level.available + level.reserved + level.sold == level.initial;
        judge.expect("I2", kept, || format!("the units of {sku} do not add up: {level:?}"));
    }
    for service in Service::ALL {
        for request in world.street.shop.requests(service).unwrap() {
            // An expired payment and the deadline may both ask for the cancel; the order service decides once.
            let is_again = request.duplicate_effect && request.call != Call::CancelOrder;
            judge.expect("I36", !is_again && !request.key_reused, || {
                format!("{:?} of {} came under a second key, {:?}", request.call, request.subject, request.key)
            });
        }
    }
    for history in world::histories(world) {
        signals_are_known_and_single(world, &history);
    }
}

fn refunds_are_of_captures(world: &World, effects: &Effects, planned: &Planned) {
    let payment = planned.payment_id();
    let of = effects.get(&payment).map(Vec::as_slice).unwrap_or_default();
    let is_captured = |wanted: &str, sum: &str| {
        of.iter().any(|effect| match effect {
            Effect::PaymentCaptured { transaction_id, amount, .. } => transaction_id == wanted && amount == sum,
            _ => false,
        })
    };
    for effect in of {
        if let Effect::RefundAccepted { transaction_id, amount, .. } = effect {
            let again = times(
                effects,
                &payment,
                |other| matches!(other, Effect::RefundAccepted { transaction_id: same, .. } if same == transaction_id),
            );
            world.judge.expect("I5", again == 1 && is_captured(transaction_id, amount), || {
                format!("{amount} of {transaction_id} was refunded {again} times, or never captured")
            });
        }
    }
}

fn signals_are_known_and_single(world: &World, history: &History) {
    let root = history.row.key.root_id();
    let mut seen = BTreeMap::<&str, u64>::new();
    let log = world.log.lock().unwrap();
    for event in &history.events {
        if let EventKind::SignalReceived { signal_id, .. } = &event.kind {
            *seen.entry(signal_id).or_default() += 1;
            let is_sent = log.sent.iter().any(|sent| sent.order_id == root && sent.signal_id == *signal_id);
            world.judge.expect("I13", is_sent, || format!("{root} has a signal {signal_id} that nobody sent"));
        }
    }
    for (signal_id, times) in seen {
        world.judge.expect("I10", times == 1, || format!("{} has the signal {signal_id} {times} times", history.id()));
    }
}

/// What holds when everything has come to rest.
pub(crate) fn at_rest(world: &World) {
    let effects = effects(world);
    let histories = world::histories(world);
    let starts = world.log.lock().unwrap().starts.clone();
    for planned in &world.orders {
        let id = &planned.id;
        let own = histories.iter().find(|history| history.id() == id && history.row.key.workflow_type() == ORDER_TIMEOUT);
        let is_acked = starts.get(id).is_some_and(Option::is_some);
        world.judge.expect("I7", !is_acked || own.is_some() || world.swarm.retain.is_some(), || {
            format!("the start of {id} was acknowledged and is nowhere")
        });
        if is_acked {
            it_is_decided(world, &effects, planned, own);
        }
        money_is_settled(world, &effects, planned);
    }
    acknowledged_signals_are_there(world, &histories);
    attempts_were_sent(world, &histories);
    receiver::at_rest(world, &histories);
    if world.swarm.is_calm() && world.swarm.heals {
        deadlines_were_met(world, &effects);
    }
    let owned: usize = (0..world.cluster.places())
        .filter_map(|place| world.cluster.client(place))
        .map(|client| client.engine().shards_owned())
        .sum();
    world.judge.expect("I33", owned >= usize::from(world.swarm.shards), || {
        format!("{owned} of {} shards have an owner", world.swarm.shards)
    });
}

fn it_is_decided(world: &World, effects: &Effects, planned: &Planned, own: Option<&History>) {
    let id = &planned.id;
    let judge = &world.judge;
    let cancelled = times(effects, id, |effect| matches!(effect, Effect::OrderCancelled { .. }));
    let paid = times(effects, id, |effect| matches!(effect, Effect::OrderPaid { .. }));
    judge.expect("I1b", cancelled + paid == 1, || format!("{id} was cancelled {cancelled} times and paid {paid} times"));
    let released = times(effects, &format!("{id}-stock"), |effect| *effect == Effect::StockReleased);
    judge.expect("I2", released == if planned.has.0 { cancelled } else { 0 }, || {
        format!("{id}: cancelled {cancelled}, stock released {released}")
    });
    let returned = times(effects, &format!("{id}-coupon"), |effect| *effect == Effect::CouponReturned);
    judge.expect("I3", returned == if planned.has.1 { cancelled } else { 0 }, || {
        format!("{id}: cancelled {cancelled}, coupon returned {returned}")
    });
    let payment = planned.payment_id();
    let opened = times(effects, &payment, |effect| matches!(effect, Effect::PaymentOpened { .. }));
    let ended = times(effects, &payment, |effect| {
        matches!(effect, Effect::PaymentClosed | Effect::PaymentVoided | Effect::PaymentCaptured { .. })
    });
    judge
        .expect("I40", cancelled == 0 || opened == 0 || ended > 0, || format!("{id} is cancelled and its payment is still open"));
    let Some(own) = own.filter(|own| !own.row.retired) else { return };
    judge.expect("I37", own.row.status == Status::Completed, || format!("{id} ended as {:?}", own.row.status));
    let result = own.events.iter().find_map(|event| match &event.kind {
        EventKind::WorkflowCompleted { result } => Some(result.as_str().to_owned()),
        _ => None,
    });
    let says = result.unwrap_or_default();
    let word = if cancelled == 1 { "\"decision\":\"cancelled\"" } else { "\"decision\":\"paid\"" };
    judge.expect("I1b", says.contains(word), || format!("{id}: the order service says {word}, and its workflow {says}"));
    if planned.story == Story::PaidAtTheDeadline {
        judge.reach(if cancelled == 1 { "payment at the deadline lost" } else { "payment at the deadline won" });
    }
    if planned.story == Story::PaidTwice {
        judge.reach("order paid twice");
    }
}

fn money_is_settled(world: &World, effects: &Effects, planned: &Planned) {
    let payment = planned.payment_id();
    let captured = world.log.lock().unwrap().captured.clone();
    for (_, transaction) in captured.iter().filter(|(order, _)| *order == planned.id) {
        let kept = times(
            effects,
            &planned.id,
            |effect| matches!(effect, Effect::OrderPaid { transaction_id } if transaction_id == transaction),
        );
        let refunded = times(
            effects,
            &payment,
            |effect| matches!(effect, Effect::RefundAccepted { transaction_id, .. } if transaction_id == transaction),
        );
        world
            .judge
            .expect("I4", kept + refunded == 1, || format!("{transaction} pays {kept} orders and was refunded {refunded} times"));
        if refunded == 1 {
            world.judge.reach("late payment refunded");
        }
    }
}

fn acknowledged_signals_are_there(world: &World, histories: &[History]) {
    let log = world.log.lock().unwrap();
    for sent in log.sent.iter().filter(|sent| sent.told.is_some()) {
        let of_order: Vec<&History> = histories.iter().filter(|history| history.row.key.root_id() == sent.order_id).collect();
        if of_order.iter().any(|history| history.row.retired) || world.swarm.retain.is_some() {
            continue;
        }
        let wanted = format!("\"{}\"", sent.signal_id);
        let is_there = of_order.iter().any(|history| serde_json::to_string(&history.events).unwrap().contains(&wanted));
        world.judge.expect("I7", is_there, || {
            format!("the signal {} of {} was acknowledged and is nowhere", sent.signal_id, sent.order_id)
        });
    }
    // Of two that were applied, the one that was told first stands first.
    let number_of = |order_id: &str, wanted: &str| {
        let key = WorkflowKey::new(ORDER_TIMEOUT, order_id);
        let own = histories.iter().find(|history| history.row.key == key)?;
        own.events.iter().find_map(|event| match &event.kind {
            EventKind::SignalReceived { signal_id, .. } if signal_id == wanted => Some(event.number),
            _ => None,
        })
    };
    // What was acknowledged before a deadline was committed stands before it.
    for sent in log.sent.iter().filter(|_| world.swarm.retain.is_none()) {
        let Some((told, SignalOutcome::Applied | SignalOutcome::Buffered)) = sent.told else { continue };
        let key = WorkflowKey::new(ORDER_TIMEOUT, sent.order_id.as_str());
        let told = BEGINNING.saturating_add(told);
        let number = number_of(&sent.order_id, &sent.signal_id);
        for (committed, event) in world.judge.decisions(&key).into_iter().filter(|(committed, _)| *committed > told) {
            world.judge.expect("I11", number.is_some_and(|number| number < event), || {
                format!("{key}: {} was told at {told}, and event {event}, of {committed}, decides before it", sent.signal_id)
            });
        }
    }
    let applied: Vec<_> = log
        .sent
        .iter()
        .filter_map(|sent| sent.told.filter(|(_, outcome)| *outcome == SignalOutcome::Applied).map(|(at, _)| (sent, at)))
        .filter_map(|(sent, at)| number_of(&sent.order_id, &sent.signal_id).map(|number| (sent, at, number)))
        .collect();
    for (first, told, number) in &applied {
        for (second, _, later) in
            applied.iter().filter(|(second, ..)| second.order_id == first.order_id && second.invoked > *told)
        {
            world.judge.expect("I11", number <= later, || {
                format!(
                    "{}: {} was told before {} was sent and stands behind it",
                    first.order_id, first.signal_id, second.signal_id
                )
            });
        }
    }
}

/// An attempt that sent nothing was cut off by something that befell its node; nothing else may cost one.
fn attempts_were_sent(world: &World, histories: &[History]) {
    let befell: u64 = world.judge.findings().reached.get("node taken over").copied().unwrap_or(0)
        + world.strikes()
        + world.judge.findings().reached.get("shards handed over").copied().unwrap_or(0);
    for history in histories {
        for event in &history.events {
            let (EventKind::ActivityCompleted { attempts, sends, .. } | EventKind::ActivityFailed { attempts, sends, .. }) =
                &event.kind
            else {
                continue;
            };
            let unsent = u64::from(attempts.saturating_sub(*sends));
            world.judge.expect("I38", unsent <= befell, || {
                format!("{}: {attempts} attempts, {sends} sends, and {befell} strikes in all", history.row.key)
            });
        }
    }
}

/// Of the orders that came when trouble had ended, each was cancelled within a scan or two of its deadline, although a service
/// of theirs answers nobody.
pub(crate) fn second_wave(world: &World, wave: &[Planned], began: Duration) {
    let allowed = world.swarm.scan * 3 + world.swarm.store.latency * WAYS + world.swarm.shop.latency * 6 + SECOND_WAVE_SLACK;
    let histories = world::histories(world);
    for planned in wave {
        // A node that hangs may have taken the start and told nobody: it is then made elsewhere, when its caller asks again.
        let own = histories.iter().find(|history| history.id() == planned.id);
        let started = own.and_then(|own| own.events.first()).map_or(Duration::ZERO, |first| first.at.since(BEGINNING));
        let due = (began + planned.placed + planned.time_to_pay).max(started);
        let cancelled = world
            .street
            .shop
            .effects(Service::Orders)
            .unwrap()
            .into_iter()
            .find(|effect| effect.subject == planned.id && matches!(effect.effect, Effect::OrderCancelled { .. }));
        let came = cancelled.map(|effect| since_beginning(effect.at));
        world.judge.expect("I25", came.is_some_and(|came| came.saturating_sub(due) <= allowed), || {
            format!(
                "{} was due {due:?} after the beginning and cancelled at {came:?}; {allowed:?} allowed; {}\n{}",
                planned.id,
                world.cluster.described(),
                story_of(world, &planned.id)
            )
        });
    }
}

/// What the history of an order says happened when, for a person.
fn story_of(world: &World, id: &str) -> String {
    let histories = world::histories(world);
    let of_order = histories.iter().filter(|history| history.row.key.root_id() == id);
    let line = |event: &Event| format!("    {} {}", event.at, serde_json::to_string(&event.kind).unwrap());
    let started = world.log.lock().unwrap().starts.get(id).copied().flatten();
    let lines: Vec<String> = of_order.flat_map(|history| history.events.iter().map(line)).collect();
    format!("    started {started:?} after the beginning\n{}", lines.join("\n"))
}

fn since_beginning(at: jiff::Timestamp) -> Duration {
    let began = BEGINNING.as_micros();
    Duration::from_micros(u64::try_from(at.as_microsecond() - began).unwrap())
}

/// Where nothing goes wrong, a deadline that passes unpaid is followed by the cancel call at once, or by the next scan where
/// timers are off.
fn deadlines_were_met(world: &World, effects: &Effects) {
    let allowed = world.swarm.store.latency * WAYS + world.swarm.shop.latency + LATENESS_MAX;
    for record in world.street.shop.ledger(Service::Orders).unwrap() {
        let Record::Request(request) = record else { continue };
        let is_first = request.call == Call::CancelOrder && !request.repeated && request.body["reason"] == "TIMEOUT";
        let planned = world.orders.iter().find(|planned| planned.id == request.subject);
        let (true, Some(planned)) = (is_first && request.answer["outcome"] == "CANCELLED", planned) else { continue };
        // Only those whose deadline alone decides, and whose start was answered before it.
        let due = planned.placed + planned.time_to_pay;
        let started = world.log.lock().unwrap().starts.get(&planned.id).copied().flatten();
        let has_reasons = planned.by_sql || planned.before_cancel || planned.story != Story::Unpaid;
        let asks_before = has_reasons || started.is_none_or(|at| at > due);
        let moved =
            times(effects, &planned.id, |effect| matches!(effect, Effect::OrderAskedEarly | Effect::DeadlineMoved { .. }));
        if asks_before || moved > 0 {
            continue;
        }
        let came = since_beginning(request.at);
        let (invariant, most) = if world.swarm.timers { ("I25", allowed) } else { ("I24", allowed + world.swarm.scan) };
        // Placing the order and starting it take their time before the deadline is set.
        let late = came.saturating_sub(due);
        world.judge.expect(invariant, late <= most + allowed, || {
            format!("{} was cancelled {late:?} late, {most:?} allowed: {planned:?}", planned.id)
        });
    }
}
