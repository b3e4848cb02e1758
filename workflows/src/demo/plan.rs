//! Everything that a run does, decided beforehand from the seed.

use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::config::WITHHOLD;
use super::story::{Act, Moment, STORIES, Story};
use crate::sandbox::{Fault, FaultPlan, FaultRates, NewOrder, NewPayment, NewReservation, PaymentTerms, Service};

/// How long placing takes at most before the first deadline: a base, and a share per order.
const LEAD: Duration = Duration::from_millis(2500);
const LEAD_PER_ORDER: Duration = Duration::from_millis(1);
/// Deadlines are spread so that about this many come due a second, within these bounds.
const DUE_PER_SECOND: u32 = 100;
const SPREAD_MIN: Duration = Duration::from_secs(2);
const SPREAD_MAX: Duration = Duration::from_secs(10);
/// After the last act everything must have settled within this: retries, breakers and recoveries included.
const PATIENCE: Duration = Duration::from_secs(25);

/// How often the shop misbehaves.
const RATES: FaultRates =
    FaultRates { timeout_after_effect: 0.02, unavailable: 0.03, throttled: 0.02, server_error: 0.01, connection_closed: 0.01 };

/// One order of the run.
#[derive(Clone, Debug)]
pub(super) struct PlannedOrder {
    /// What is placed at the shop; its deadline is set when placing begins.
    pub(super) order: NewOrder,
    /// The deadline, from the beginning of placing.
    pub(super) deadline_after: Duration,
    /// What happens to it.
    pub(super) story: Story,
    /// When what happens.
    pub(super) acts: Vec<Act>,
    /// How long late payments are watched for.
    pub(super) watch: Duration,
    /// The payment is closed before the cancel.
    pub(super) before_cancel: bool,
    /// The money of the payment is held at the channel from the beginning.
    pub(super) held: bool,
    /// A payment that the start does not name, because it is opened only when the buyer pays.
    pub(super) late_payment_id: Option<String>,
    /// So many needless repeats of each payment notification.
    pub(super) repeats: u32,
}

/// A whole run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) orders: Vec<PlannedOrder>,
    seed: u64,
    lead: Duration,
    spread: Duration,
}

impl Plan {
    /// The run of this seed; ids begin with the prefix.
    pub(super) fn new(orders: u32, seed: u64, prefix: &str) -> Plan {
        let mut dice = StdRng::seed_from_u64(seed);
        let lead = LEAD + LEAD_PER_ORDER * orders;
        let spread = (Duration::from_secs(1) * orders / DUE_PER_SECOND).clamp(SPREAD_MIN, SPREAD_MAX);
        let orders = (0..orders)
            .map(|number| {
                let story = STORIES.get(number as usize).map_or_else(|| Story::draw(&mut dice), |(story, _)| *story);
                let after = lead + spread.mul_f64(dice.random_range(0.0..1.0));
                plan_order(&format!("{prefix}-{number:05}"), number == 0, story, after, &mut dice)
            })
            .collect();
        Plan { orders, seed, lead, spread }
    }

    /// How the shop misbehaves: by chance, and for certain at the first order, so that the smallest run has all faults.
    pub(super) fn faults(&self) -> FaultPlan {
        let first = &self.orders[0].order;
        let stock = first.reservation.as_ref().map_or("", |reservation| &reservation.token);
        let coupon = first.coupon_id.as_deref().unwrap_or("");
        let payment = first.payment.as_ref().map_or("", |payment| &payment.payment_id);
        let plan = FaultPlan::drawn(self.seed, RATES)
            .withholding(WITHHOLD)
            .plant(Service::Orders, &first.order_id, 1..=1, Fault::TimeoutAfterEffect)
            .plant(Service::Stock, stock, 1..=2, Fault::Unavailable)
            .plant(Service::Coupons, coupon, 1..=1, Fault::Throttled { retry_after: 1 })
            .plant(Service::Payments, payment, 1..=1, Fault::ConnectionClosed)
            .plant(Service::Payments, payment, 2..=2, Fault::ServerError);
        // In a larger run the stock service is down for a moment: long enough to open its breaker.
        if self.orders.len() >= 200 { plan.outage(Service::Stock, 60..=67) } else { plan }
    }

    /// When the engine is killed, from the beginning of placing: evenly over the deadlines.
    pub(super) fn kill_times(&self, kills: u32) -> Vec<Duration> {
        (1..=kills).map(|kill| self.lead + self.spread * kill / (kills + 1)).collect()
    }

    /// How long to wait from now until everything should have settled, when so much time has passed since placing.
    pub(super) fn settle_after(&self, passed: Duration) -> Settling {
        let ends = self.orders.iter().map(PlannedOrder::last_moment).max().unwrap_or_default();
        let quiet = ends.saturating_sub(passed);
        Settling { quiet, limit: quiet + PATIENCE }
    }
}

/// How long settling may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    /// Before this, an execution that waits for a person may still be moved by its deadline or its watch.
    pub(super) quiet: Duration,
    /// After this, what is still open counts as stuck.
    pub(super) limit: Duration,
}

impl PlannedOrder {
    fn last_moment(&self) -> Duration {
        let last_act_ms = self.acts.iter().map(|act| match act.at {
            Moment::BeforeStart => 0,
            Moment::Deadline(ms) => ms.max(0).unsigned_abs(),
        });
        self.deadline_after + self.watch.max(Duration::from_millis(last_act_ms.max().unwrap_or(0)))
    }

    /// The order as it is placed when placing begins at `begin`.
    pub(super) fn placed(&self, begin: Timestamp) -> NewOrder {
        let deadline_ms = i64::try_from(self.deadline_after.as_millis()).unwrap_or(i64::MAX);
        let deadline = Timestamp::from_millisecond(begin.as_millisecond().saturating_add(deadline_ms));
        NewOrder { pay_deadline: deadline.unwrap_or(Timestamp::MAX), ..self.order.clone() }
    }
}

fn plan_order(id: &str, first: bool, story: Story, deadline_after: Duration, dice: &mut StdRng) -> PlannedOrder {
    let watch_ms = match story {
        Story::PaidAfterTheClose => dice.random_range(500..1500),
        _ => dice.random_range(1500..3500),
    };
    let acts = story.acts(watch_ms, dice);
    let pays = acts.iter().any(|act| matches!(act.deed, super::story::Deed::Pay { .. }));
    let (currency, amount) = price(dice);
    let mut lacks = |share: f64| !first && dice.random_bool(share);

    let no_payment = lacks(0.04);
    let no_stock = lacks(0.04);
    let no_coupon = lacks(0.3);
    let not_ready = lacks(0.01);
    let refuses_late_payment = lacks(0.05);
    let held = lacks(0.03) && !pays;
    let before_cancel = lacks(0.06);
    let terms = payment_terms(first, dice);

    let mut order = NewOrder::new(id, Timestamp::UNIX_EPOCH).with_everything();
    order.amount = amount;
    order.currency = currency.to_owned();
    order.reservation = (!no_stock).then(|| NewReservation {
        token: format!("{id}-stock"),
        sku: format!("sku-{}", dice.random_range(1..=20)),
        quantity: dice.random_range(1..=3),
    });
    order.coupon_id = order.coupon_id.filter(|_| !no_coupon);
    order.payment = (!no_payment).then(|| NewPayment { payment_id: format!("{id}-pay"), terms });
    order.refuses_late_payment = refuses_late_payment;
    order.not_ready_asks = u32::from(not_ready);
    PlannedOrder {
        order,
        deadline_after,
        story,
        acts,
        watch: Duration::from_millis(watch_ms.unsigned_abs()),
        before_cancel: before_cancel && !no_payment,
        held: held && !no_payment,
        late_payment_id: (no_payment && pays).then(|| format!("{id}-pay")),
        repeats: if first { 1 } else { dice.random_range(0..10u32).saturating_sub(7) },
    }
}

fn price(dice: &mut StdRng) -> (&'static str, String) {
    let units = dice.random_range(1..200);
    match dice.random_range(0..10) {
        0..6 => ("USD", format!("{units}.{:02}", dice.random_range(0..100))),
        6..8 => ("JPY", format!("{units}00")),
        _ => ("KWD", format!("{units}.{:03}", dice.random_range(0..1000))),
    }
}

fn payment_terms(first: bool, dice: &mut StdRng) -> PaymentTerms {
    let mut sometimes = |share: f64| !first && dice.random_bool(share);
    PaymentTerms {
        in_progress_asks: u32::from(sometimes(0.02)),
        too_early_ms: if sometimes(0.01) { 8000 } else { 0 },
        refund_queries: if sometimes(0.2) { 2 } else { 0 },
        ..PaymentTerms::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_orders_and_another_seed_others() {
        let text = |seed| format!("{:?}", Plan::new(100, seed, "d").orders);
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn a_run_of_fourteen_orders_has_every_story() {
        let stories: HashSet<_> = Plan::new(14, 1, "d").orders.iter().map(|order| order.story).collect();
        assert_eq!(stories.len(), STORIES.len());
    }

    #[test]
    fn the_first_order_meets_every_kind_of_fault_and_has_repeated_callbacks() {
        let plan = Plan::new(1, 1, "d");
        let first = &plan.orders[0];
        assert!(first.repeats > 0 && !first.before_cancel && !first.held);
        assert_eq!(first.story, Story::PaidLate);
        let faults = plan.faults();
        assert_eq!(faults.decide(Service::Orders, "d-00000", 1, 1), Some(Fault::TimeoutAfterEffect));
        assert_eq!(faults.decide(Service::Stock, "d-00000-stock", 1, 1), Some(Fault::Unavailable));
        let throttled = faults.decide(Service::Coupons, "d-00000-coupon", 1, 1);
        assert_eq!(throttled, Some(Fault::Throttled { retry_after: 1 }));
    }

    #[test]
    fn the_default_run_fits_into_well_under_a_minute() {
        let plan = Plan::new(1000, 7, "d");
        let ends = plan.settle_after(Duration::ZERO).quiet;
        assert!(ends < Duration::from_secs(20), "{ends:?}");
        let kills = plan.kill_times(2);
        assert!(kills.iter().all(|kill| *kill > plan.lead && *kill < plan.lead + plan.spread));
    }

    #[test]
    fn amounts_have_the_digits_of_their_currency() {
        for planned in Plan::new(300, 7, "d").orders {
            let digits = planned.order.amount.split_once('.').map_or(0, |(_, digits)| digits.len());
            let expected = match planned.order.currency.as_str() {
                "JPY" => 0,
                "KWD" => 3,
                _ => 2,
            };
            assert_eq!(digits, expected, "{:?}", planned.order);
        }
    }
}
