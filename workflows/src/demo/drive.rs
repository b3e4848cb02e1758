//! Plays the orders: places them at the shop and the engine, and performs each act at its moment.
//!
//! The shop's side is an honest one: money is captured at the channel first, then the engine is told, again and again
//! under the same signal id until it acknowledges.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::Client;
use super::plan::{Plan, PlannedOrder};
use super::story::{Act, Amount, Deed, Moment};
use super::{POLL, sleep_until};
use crate::sandbox::{Capture, NewOrder, NewPayment, PaymentTerms, Shop};

/// Orders being placed side by side.
const PLACING_MAX: usize = 64;
/// How long an operator looks for a payment to review.
const REVIEW_LIMIT: Duration = Duration::from_millis(800);

/// A signal that the engine acknowledged, or refused.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SentSignal {
    pub(super) order_id: String,
    pub(super) name: String,
    pub(super) signal_id: String,
    pub(super) payload: Value,
    /// A needless repeat of a notification, sent on purpose.
    pub(super) repeat: bool,
    pub(super) status: u16,
    /// What the engine said: applied, buffered, late, duplicate.
    pub(super) outcome: Option<String>,
    #[serde(serialize_with = "crate::sandbox::time::serialize")]
    pub(super) at: Timestamp,
}

/// What the drivers did and what was answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Acts {
    pub(super) signals: Vec<SentSignal>,
    /// Starts that the engine refused, by order.
    pub(super) refused_starts: Vec<(String, String)>,
    /// Payments that an operator decided on.
    pub(super) reviewed: u64,
}

/// The run being played.
pub(super) struct Driver {
    begin: Instant,
    tasks: JoinSet<anyhow::Result<()>>,
    acts: Arc<Mutex<Acts>>,
}

impl Driver {
    /// Begins to place the orders.
    pub(super) fn start(plan: Plan, shop: Arc<Shop>, client: Client) -> Driver {
        let acts = Arc::new(Mutex::new(Acts::default()));
        let placing = Arc::new(Semaphore::new(PLACING_MAX));
        let (begin, begin_at) = (Instant::now(), Timestamp::now());
        let mut tasks = JoinSet::new();
        for planned in plan.orders {
            let order = planned.placed(begin_at);
            let deadline = begin + planned.deadline_after;
            let (shop, client, acts) = (shop.clone(), client.clone(), acts.clone());
            let actor = Actor { planned, order, deadline, shop, client, acts };
            tasks.spawn(actor.play(placing.clone()));
        }
        Driver { begin, tasks, acts }
    }

    /// When placing began.
    pub(super) fn begin(&self) -> Instant {
        self.begin
    }

    /// Waits until every act was performed and acknowledged.
    pub(super) async fn finish(mut self) -> anyhow::Result<Acts> {
        while let Some(played) = self.tasks.join_next().await {
            played.context("an order's driver panicked")??;
        }
        Ok(std::mem::take(&mut *self.acts.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Plays one order.
struct Actor {
    planned: PlannedOrder,
    order: NewOrder,
    deadline: Instant,
    shop: Arc<Shop>,
    client: Client,
    acts: Arc<Mutex<Acts>>,
}

impl Actor {
    async fn play(self, placing: Arc<Semaphore>) -> anyhow::Result<()> {
        {
            let _turn = placing.acquire().await.context("placing has ended")?;
            self.shop.place_order(&self.order).await?;
            if let Some(payment) = self.order.payment.as_ref().filter(|_| self.planned.held) {
                self.shop.hold(&payment.payment_id).await?;
            }
            for (number, act) in self.acts_at(|moment| moment == Moment::BeforeStart) {
                self.perform(number, act).await?;
            }
            self.start().await?;
        }
        let later = self.acts_at(|moment| moment != Moment::BeforeStart);
        let performing = later.map(|(number, act)| self.perform_in_time(number, act));
        // Side by side: a notification that waits for the engine to come back must not hold up the next act.
        futures::future::try_join_all(performing).await?;
        Ok(())
    }

    async fn perform_in_time(&self, number: usize, act: &Act) -> anyhow::Result<()> {
        if let Moment::Deadline(offset_ms) = act.at {
            sleep_until(moved(self.deadline, offset_ms)).await;
        }
        self.perform(number, act).await
    }

    fn acts_at(&self, wanted: impl Fn(Moment) -> bool) -> impl Iterator<Item = (usize, &Act)> {
        self.planned.acts.iter().enumerate().filter(move |(_, act)| wanted(act.at))
    }

    async fn start(&self) -> anyhow::Result<()> {
        let order = &self.order;
        let mut input = json!({
            "orderId": order.order_id,
            "payDeadline": format!("{:.3}", order.pay_deadline),
            "amount": order.amount,
            "currency": order.currency,
            "latePaymentWindow": format!("PT{:.3}S", self.planned.watch.as_secs_f64()),
            "userId": format!("user-{}", order.order_id),
        });
        if let Some(reservation) = &order.reservation {
            input["stockToken"] = json!(reservation.token);
            input["skuId"] = json!(reservation.sku);
        }
        if let Some(coupon_id) = &order.coupon_id {
            input["couponId"] = json!(coupon_id);
        }
        if let Some(payment) = &order.payment {
            input["paymentId"] = json!(payment.payment_id);
            input["paymentChannel"] = json!("sandbox");
        }
        if self.planned.before_cancel {
            input["closePayment"] = json!("beforeCancel");
        }
        let answer = self.client.start(&order.order_id, &input).await?;
        if !answer.is_success() {
            let refusal = format!("the start was answered {}: {}", answer.status, answer.body);
            self.note(|acts| acts.refused_starts.push((order.order_id.clone(), refusal)));
        }
        Ok(())
    }

    async fn perform(&self, number: usize, act: &Act) -> anyhow::Result<()> {
        let order_id = &self.order.order_id;
        let signal_id = format!("{order_id}-{number}");
        match &act.deed {
            Deed::Pay { amount, notified_after } => self.pay(number, *amount, *notified_after).await,
            Deed::CancelByUser => self.signal("cancel-order", &signal_id, json!({ "reason": "changed my mind" })).await,
            Deed::FailPayment => {
                self.signal("payment-failed", &signal_id, json!({ "reason": "card refused", "final": true })).await
            }
            // An order that was decided in the meantime stays as it is: the book refuses the change.
            Deed::CancelByShop => {
                let _ = self.shop.cancel_order(order_id, "USER").await;
                Ok(())
            }
            Deed::MoveDeadline { by, told } => {
                let later = self.order.pay_deadline + *by;
                if self.shop.move_deadline(order_id, later).await.is_ok() && *told {
                    let payload = json!({ "payDeadline": format!("{later:.3}") });
                    self.signal("extend-deadline", &signal_id, payload).await?;
                }
                Ok(())
            }
            Deed::Review => self.review().await,
        }
    }

    async fn pay(&self, number: usize, amount: Amount, notified_after: Duration) -> anyhow::Result<()> {
        let order = &self.order;
        let payment_id = self.open_payment().await?;
        let (amount, currency) = match amount {
            Amount::Right => (order.amount.clone(), order.currency.clone()),
            Amount::Wrong => (format!("9{}", order.amount), order.currency.clone()),
            Amount::WrongCurrency => ("7".to_owned(), if order.currency == "JPY" { "USD" } else { "JPY" }.to_owned()),
        };
        let capture = Capture::now(&format!("{}-tx{number}", order.order_id), &amount, &currency);
        self.shop.capture(&payment_id, &capture).await?;
        tokio::time::sleep(notified_after).await;

        let payload = json!({
            "transactionId": capture.transaction_id,
            "amount": amount,
            "currency": currency,
            "paidAt": format!("{:.3}", capture.paid_at),
            "paymentId": payment_id,
        });
        let notify = |repeat| self.send("payment-succeeded", &capture.transaction_id, payload.clone(), repeat);
        let (first, repeated) = tokio::join!(notify(false), async {
            for repeat in 0..self.planned.repeats {
                tokio::time::sleep(Duration::from_millis(u64::from(repeat) * 700)).await;
                notify(true).await?;
            }
            anyhow::Ok(())
        });
        first.and(repeated)
    }

    /// The order's payment, opened now if the order was placed without one.
    async fn open_payment(&self) -> anyhow::Result<String> {
        if let Some(payment) = &self.order.payment {
            return Ok(payment.payment_id.clone());
        }
        let payment_id = self.planned.late_payment_id.clone().context("this order was not planned to be paid")?;
        if self.shop.payment(&payment_id).is_none() {
            let payment = NewPayment { payment_id: payment_id.clone(), terms: PaymentTerms::default() };
            self.shop.open_payment(&self.order.order_id, &payment).await?;
        }
        Ok(payment_id)
    }

    async fn signal(&self, name: &str, id: &str, payload: Value) -> anyhow::Result<()> {
        self.send(name, id, payload, false).await
    }

    async fn send(&self, name: &str, id: &str, payload: Value, repeat: bool) -> anyhow::Result<()> {
        let answer = self.client.signal(&self.order.order_id, name, id, &payload).await?;
        let outcome = answer.body["outcome"].as_str().map(str::to_owned);
        let sent = SentSignal {
            order_id: self.order.order_id.clone(),
            name: name.to_owned(),
            signal_id: id.to_owned(),
            payload,
            repeat,
            status: answer.status,
            outcome,
            at: Timestamp::now(),
        };
        self.note(|acts| acts.signals.push(sent));
        Ok(())
    }

    /// An operator takes the payment as it is, if it is still held for review.
    async fn review(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let order_id = &self.order.order_id;
        while begun.elapsed() < REVIEW_LIMIT {
            let described = self.client.describe("order-timeout", order_id).await?;
            if let Some(number) = held_review(&described) {
                let body = json!({ "reason": "the difference is paid at the counter", "result": { "decision": "accept" } });
                let answer = self.client.resolve(order_id, number, &body).await?;
                self.note(|acts| acts.reviewed += u64::from(answer.is_success()));
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    fn note(&self, change: impl FnOnce(&mut Acts)) {
        change(&mut self.acts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The number of a review that waits for a person.
fn held_review(described: &Value) -> Option<u64> {
    let pending = described["pendingActivities"].as_array()?;
    let held = pending.iter().find(|it| it["name"] == "review-payment" && it["state"] == "needs-attention")?;
    held["number"].as_u64()
}

fn moved(instant: Instant, offset_ms: i64) -> Instant {
    let offset = Duration::from_millis(offset_ms.unsigned_abs());
    if offset_ms < 0 { instant.checked_sub(offset).unwrap_or(instant) } else { instant + offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_review_that_waits_for_a_person_is_decided() {
        let described = json!({ "pendingActivities": [
            { "number": 4, "name": "release-stock", "state": "needs-attention" },
            { "number": 7, "name": "review-payment", "state": "needs-attention" },
        ]});
        assert_eq!(held_review(&described), Some(7));
        assert_eq!(held_review(&json!({ "pendingActivities": [] })), None);
    }
}
