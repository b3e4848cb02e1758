//! The order service: owner of the order row, and the only judge of who won.
//!
//! | status | cancel | confirm-paid |
//! |---|---|---|
//! | being created | NOT_READY | PAID |
//! | WAIT_PAY, before the deadline | TIMEOUT: NOT_DUE, else CANCELLED | PAID |
//! | WAIT_PAY, past the deadline | CANCELLED | PAID, or EXPIRED where the order says so |
//! | PAID | ALREADY_PAID | ALREADY_PAID |
//! | CANCELLED | ALREADY_CANCELLED | ALREADY_CANCELLED |
//! | unknown | NOT_FOUND, and the order can no longer be placed | NOT_FOUND |

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::book::{Ask, Book, Decision};
use super::{Call, Effect, Service};

/// Orders in one page of the listing.
const PAGE_ORDERS_MAX: usize = 500;

/// Where an order stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderStatus {
    /// Waiting for its payment.
    WaitPay,
    /// Kept.
    Paid {
        /// The channel transaction that paid it.
        transaction_id: String,
    },
    /// Given up.
    Cancelled {
        /// `TIMEOUT`, `USER` or `PAYMENT_FAILED`.
        reason: String,
    },
}

impl OrderStatus {
    fn name(&self) -> &'static str {
        match self {
            OrderStatus::WaitPay => "WAIT_PAY",
            OrderStatus::Paid { .. } => "PAID",
            OrderStatus::Cancelled { .. } => "CANCELLED",
        }
    }
}

/// One order row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Where it stands.
    pub status: OrderStatus,
    /// Until when it waits, as the order service knows it.
    pub pay_deadline: Timestamp,
    /// What it costs, a decimal string.
    pub amount: String,
    /// ISO 4217.
    pub currency: String,
    refuses_late_payment: bool,
    not_ready_asks: u32,
}

/// How many orders are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Kept.
    pub paid: u64,
    /// Given up.
    pub cancelled: u64,
}

#[derive(Default)]
pub(super) struct Orders {
    rows: BTreeMap<String, Order>,
    tombstones: HashSet<String>,
    decided: Decided,
}

impl Orders {
    pub(super) fn order(&self, order_id: &str) -> Option<&Order> {
        self.rows.get(order_id)
    }

    pub(super) fn refused(&self, order_id: &str) -> bool {
        self.tombstones.contains(order_id) || self.rows.contains_key(order_id)
    }

    pub(super) fn decided(&self) -> Decided {
        self.decided
    }

    fn cancel(&self, ask: &Ask<'_>) -> Result<Decision, Decision> {
        let reason = ask.text("reason")?;
        ask.text("payDeadline")?;
        let Some(order) = self.rows.get(ask.subject) else {
            return Ok(Decision::unknown("NOT_FOUND").with(Effect::Tombstone));
        };
        let cancelled = || Effect::OrderCancelled { reason: reason.to_owned() };
        Ok(match &order.status {
            OrderStatus::Paid { transaction_id } => {
                Decision::conflict(json!({ "outcome": "ALREADY_PAID", "transactionId": transaction_id }))
            }
            OrderStatus::Cancelled { .. } => {
                Decision::conflict(json!({ "outcome": "ALREADY_CANCELLED" })).again(cancelled(), ask.subject)
            }
            OrderStatus::WaitPay if order.not_ready_asks > 0 => {
                Decision::done(json!({ "outcome": "NOT_READY", "retryAfter": 1 })).with(Effect::OrderAskedEarly)
            }
            OrderStatus::WaitPay if reason == "TIMEOUT" && ask.now < order.pay_deadline => {
                Decision::done(json!({ "outcome": "NOT_DUE", "payDeadline": format!("{:.3}", order.pay_deadline) }))
            }
            OrderStatus::WaitPay => Decision::outcome("CANCELLED").with(cancelled()),
        })
    }

    fn confirm(&self, ask: &Ask<'_>) -> Result<Decision, Decision> {
        let transaction_id = ask.text("transactionId")?;
        for field in ["amount", "currency", "paidAt"] {
            ask.text(field)?;
        }
        let Some(order) = self.rows.get(ask.subject) else {
            return Ok(Decision::unknown("NOT_FOUND"));
        };
        Ok(match &order.status {
            OrderStatus::Paid { transaction_id } => {
                Decision::conflict(json!({ "outcome": "ALREADY_PAID", "transactionId": transaction_id }))
            }
            OrderStatus::Cancelled { .. } => Decision::conflict(json!({ "outcome": "ALREADY_CANCELLED" })),
            OrderStatus::WaitPay if order.refuses_late_payment && ask.now >= order.pay_deadline => {
                Decision::conflict(json!({ "outcome": "EXPIRED" }))
            }
            OrderStatus::WaitPay => {
                Decision::outcome("PAID").with(Effect::OrderPaid { transaction_id: transaction_id.to_owned() })
            }
        })
    }

    fn list(&self, query: &Value) -> Decision {
        let field = |name: &str| query.get(name).and_then(Value::as_str);
        let status = field("status").unwrap_or("WAIT_PAY");
        let before = match field("deadlineBefore").map(str::parse::<Timestamp>) {
            Some(Err(error)) => return Decision::invalid(format!("deadlineBefore: {error}")),
            Some(Ok(before)) => Some(before),
            None => None,
        };
        let after = field("cursor").unwrap_or("");
        let mut found: Vec<_> = self
            .rows
            .range::<str, _>((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded))
            .filter(|(_, order)| order.status.name() == status)
            .filter(|(_, order)| before.is_none_or(|before| order.pay_deadline < before))
            .take(PAGE_ORDERS_MAX + 1)
            .collect();
        let more = found.len() > PAGE_ORDERS_MAX;
        found.truncate(PAGE_ORDERS_MAX);
        let next = if more { found.last().map(|(order_id, _)| order_id.as_str()) } else { None };
        let orders: Vec<_> = found.iter().map(|(order_id, order)| listed(order_id, order)).collect();
        Decision::done(json!({ "orders": orders, "next": next }))
    }
}

fn listed(order_id: &str, order: &Order) -> Value {
    json!({
        "orderId": order_id,
        "payDeadline": format!("{:.3}", order.pay_deadline),
        "amount": order.amount,
        "currency": order.currency,
        "status": order.status.name(),
    })
}

impl Book for Orders {
    const SERVICE: Service = Service::Orders;

    fn decide(&self, ask: &Ask<'_>) -> Decision {
        match ask.call {
            Call::CancelOrder => self.cancel(ask),
            Call::ConfirmPaid => self.confirm(ask),
            Call::ListOrders => Ok(self.list(ask.body)),
            _ => Err(Decision::unknown("NOT_FOUND")),
        }
        .unwrap_or_else(|refusal| refusal)
    }

    fn apply(&mut self, subject: &str, effect: &Effect, _at: Timestamp) {
        if let Effect::OrderPlaced { pay_deadline, amount, currency, refuses_late_payment, not_ready_asks } = effect {
            let order = Order {
                status: OrderStatus::WaitPay,
                pay_deadline: *pay_deadline,
                amount: amount.clone(),
                currency: currency.clone(),
                refuses_late_payment: *refuses_late_payment,
                not_ready_asks: *not_ready_asks,
            };
            self.rows.insert(subject.to_owned(), order);
            return;
        }
        if *effect == Effect::Tombstone {
            self.tombstones.insert(subject.to_owned());
            return;
        }
        let Some(order) = self.rows.get_mut(subject) else { return };
        match effect {
            Effect::OrderAskedEarly => order.not_ready_asks = order.not_ready_asks.saturating_sub(1),
            Effect::DeadlineMoved { pay_deadline } => order.pay_deadline = *pay_deadline,
            Effect::OrderCancelled { reason } => {
                self.decided.cancelled += 1;
                order.status = OrderStatus::Cancelled { reason: reason.clone() };
            }
            Effect::OrderPaid { transaction_id } => {
                self.decided.paid += 1;
                order.status = OrderStatus::Paid { transaction_id: transaction_id.clone() };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::book::{ask, ask_at};

    const DEADLINE: &str = "2026-03-01T10:00:00.000Z";

    fn deadline() -> Timestamp {
        DEADLINE.parse().unwrap()
    }

    fn with_order(refuses_late_payment: bool, not_ready_asks: u32) -> Orders {
        let mut orders = Orders::default();
        let placed = Effect::OrderPlaced {
            pay_deadline: deadline(),
            amount: "10".into(),
            currency: "USD".into(),
            refuses_late_payment,
            not_ready_asks,
        };
        orders.apply("o-1", &placed, deadline());
        orders
    }

    fn cancel(orders: &mut Orders, reason: &str, now: Timestamp) -> Decision {
        ask_at(orders, Call::CancelOrder, "o-1", json!({ "reason": reason, "payDeadline": DEADLINE }), now)
    }

    fn confirm(orders: &mut Orders, transaction: &str, now: Timestamp) -> Decision {
        let body = json!({ "transactionId": transaction, "amount": "10", "currency": "USD", "paidAt": DEADLINE });
        ask_at(orders, Call::ConfirmPaid, "o-1", body, now)
    }

    #[test]
    fn a_waiting_order_past_its_deadline_is_cancelled_once() {
        let mut orders = with_order(false, 0);
        assert_eq!(cancel(&mut orders, "TIMEOUT", deadline()).answer["outcome"], "CANCELLED");
        let again = cancel(&mut orders, "TIMEOUT", deadline());
        assert_eq!(again.answer["outcome"], "ALREADY_CANCELLED");
        assert_eq!(again.asked_again.as_deref(), Some("cancel o-1"));
        assert!(again.effects.is_empty());
    }

    #[test]
    fn a_timeout_before_the_deadline_is_not_due_but_the_user_may_cancel() {
        let mut orders = with_order(false, 0);
        let early = deadline() - std::time::Duration::from_millis(1);
        let answer = cancel(&mut orders, "TIMEOUT", early).answer;
        assert_eq!((&answer["outcome"], &answer["payDeadline"]), (&json!("NOT_DUE"), &json!(DEADLINE)));
        assert_eq!(cancel(&mut orders, "USER", early).answer["outcome"], "CANCELLED");
    }

    #[test]
    fn a_paid_order_is_never_cancelled_and_names_its_transaction() {
        let mut orders = with_order(false, 0);
        assert_eq!(confirm(&mut orders, "t-1", deadline()).answer["outcome"], "PAID");
        let cancelled = cancel(&mut orders, "TIMEOUT", deadline());
        assert_eq!(cancelled.answer, json!({ "outcome": "ALREADY_PAID", "transactionId": "t-1" }));
        assert_eq!(confirm(&mut orders, "t-2", deadline()).answer["transactionId"], "t-1");
    }

    #[test]
    fn a_cancelled_order_is_never_revived() {
        let mut orders = with_order(false, 0);
        cancel(&mut orders, "TIMEOUT", deadline());
        assert_eq!(confirm(&mut orders, "t-1", deadline()).answer["outcome"], "ALREADY_CANCELLED");
    }

    #[test]
    fn an_order_that_refuses_late_payment_says_expired_past_its_deadline_only() {
        let mut orders = with_order(true, 0);
        assert_eq!(confirm(&mut orders, "t-1", deadline()).answer["outcome"], "EXPIRED");
        let early = deadline() - std::time::Duration::from_millis(1);
        assert_eq!(confirm(&mut orders, "t-1", early).answer["outcome"], "PAID");
    }

    #[test]
    fn an_order_still_being_created_is_not_ready() {
        let mut orders = with_order(false, 1);
        let answer = cancel(&mut orders, "TIMEOUT", deadline()).answer;
        assert_eq!(answer, json!({ "outcome": "NOT_READY", "retryAfter": 1 }));
        assert_eq!(cancel(&mut orders, "TIMEOUT", deadline()).answer["outcome"], "CANCELLED");
    }

    #[test]
    fn cancelling_an_unknown_order_leaves_a_tombstone() {
        let mut orders = Orders::default();
        let answered = cancel(&mut orders, "TIMEOUT", deadline());
        assert_eq!((answered.status, &answered.answer["outcome"]), (404, &json!("NOT_FOUND")));
        assert!(orders.refused("o-1"));
        assert_eq!(confirm(&mut orders, "t-1", deadline()).status, 404);
    }

    #[test]
    fn a_body_without_its_fields_is_refused_and_changes_nothing() {
        let mut orders = with_order(false, 0);
        let refused = ask(&mut orders, Call::CancelOrder, "o-1", json!({ "reason": "TIMEOUT" }));
        assert_eq!((refused.status, refused.effects.len()), (422, 0));
    }

    #[test]
    fn the_listing_filters_and_pages() {
        let mut orders = Orders::default();
        for number in 0..501 {
            let placed = Effect::OrderPlaced {
                pay_deadline: deadline(),
                amount: "1".into(),
                currency: "USD".into(),
                refuses_late_payment: false,
                not_ready_asks: 0,
            };
            orders.apply(&format!("o-{number:04}"), &placed, deadline());
        }
        let first = orders.list(&json!({ "status": "WAIT_PAY" })).answer;
        assert_eq!(first["orders"].as_array().unwrap().len(), 500);
        let second = orders.list(&json!({ "status": "WAIT_PAY", "cursor": first["next"] })).answer;
        assert_eq!((second["orders"].as_array().unwrap().len(), &second["next"]), (1, &Value::Null));
        let none = orders.list(&json!({ "status": "WAIT_PAY", "deadlineBefore": DEADLINE })).answer;
        assert_eq!(none["orders"].as_array().unwrap().len(), 0);
    }
}
