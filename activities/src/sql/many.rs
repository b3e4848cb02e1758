//! Many orders given up by one conditional update, each with its own outcome.

use std::collections::{BTreeMap, BTreeSet};

use overdue_runtime::Timestamp;
use overdue_runtime::activity::ActivityFailure;

use super::dialect::Dialect;
use super::failure::Teller;
use super::judge::{self, Outcome, Question, UNKNOWN_OUTCOME};
use super::orders_table::{OrdersTable, time_value};
use super::session::Session;
use super::settings::Table;
use super::statement::{Statement, Value, Values};
use crate::orders::{CancelOrderInput, CancelOrderOutcome, CancelReason};

/// The most orders of one update: their rows are locked until the last of them is answered.
pub const CANCEL_MANY_MAX: usize = 500;

/// The outcome of one order of many.
pub type CancelManyOutcome = Result<CancelOrderOutcome, ActivityFailure>;

impl OrdersTable {
    /// Whether many orders can be given up at once: `cancel_many` is configured.
    pub fn can_cancel_many(&self) -> bool {
        self.table.cancel_many.is_some()
    }

    /// Gives up those of these orders that are still unpaid, in one transaction. The outcomes are in the order of the
    /// inputs; of an order that is named twice, the second is `AlreadyCancelled`.
    ///
    /// # Errors
    /// When nothing is known of any of them: nothing was done, or the outcome of all is unknown. To be asked again.
    pub async fn cancel_many(&self, orders: Vec<CancelOrderInput>) -> Result<Vec<CancelManyOutcome>, ActivityFailure> {
        let teller = self.teller("cancel-order");
        if self.table.cancel_many.is_none() {
            return Err(teller.permanent("config", "`cancel_many` is not configured"));
        }
        if orders.len() > CANCEL_MANY_MAX {
            return Err(teller.permanent("input", &format!("more than {CANCEL_MANY_MAX} orders at once")));
        }
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        let (table, now) = (self.table.clone(), self.environment.clock.now());
        let begin = table.dialect.begin();
        let within = teller.clone();
        let work = self.sessions.transaction(None, &teller, begin, move |session| {
            Box::pin(async move { table.decide_many(session, &orders, now, &within).await })
        });
        let outcomes = work.await?;
        let typed = |outcome: Outcome| {
            serde_json::from_value(outcome.into()).map_err(|error| teller.permanent("unknown-outcome", &error.to_string()))
        };
        Ok(outcomes.into_iter().map(|outcome| outcome.and_then(typed)).collect())
    }
}

impl Table {
    async fn decide_many(
        &self,
        session: &mut dyn Session,
        orders: &[CancelOrderInput],
        now: Timestamp,
        teller: &Teller,
    ) -> Result<Vec<Result<Outcome, ActivityFailure>>, ActivityFailure> {
        let mut cancelled = BTreeSet::new();
        for (reason, ids) in by_reason(orders) {
            cancelled.extend(self.cancel_group(session, reason, ids, now, teller).await?);
        }
        let mut outcomes = Vec::with_capacity(orders.len());
        for order in orders {
            let question = Question::Cancel { pay_deadline: order.pay_deadline };
            // The first to name an order has its update.
            if cancelled.remove(&order.order_id) {
                outcomes.push(Ok(judge::won(&question)));
                continue;
            }
            let values = Values::from([("orderId", Value::text(&order.order_id))]);
            let found = match self.look(session, &values, teller).await {
                Ok(found) => found,
                // What this row says is no matter of the others. What the database refuses is: it may have ended the
                // transaction, and then a COMMIT would say yes to nothing.
                Err(failure) if failure.failure.error_type == UNKNOWN_OUTCOME => {
                    outcomes.push(Err(failure));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            outcomes.push(judge::lost(&question, found.as_ref(), now, teller));
        }
        Ok(outcomes)
    }

    /// The ids of those that the update changed.
    async fn cancel_group(
        &self,
        session: &mut dyn Session,
        reason: &'static str,
        ids: Vec<String>,
        now: Timestamp,
        teller: &Teller,
    ) -> Result<Vec<String>, ActivityFailure> {
        let Some(update) = &self.cancel_many else { return Ok(Vec::new()) };
        let values = |ids: &[String]| {
            let ids = Value::List(padded(ids, self.dialect));
            Values::from([("orderIds", ids), ("reason", Value::text(reason)), ("now", time_value(self.dialect, now))])
        };
        let asked: BTreeSet<&String> = ids.iter().collect();
        let Some(lock) = &self.lock_many else {
            return told(session, update, &values(&ids), &asked, "cancel_many", teller).await;
        };
        let locked = told(session, lock, &values(&ids), &asked, "lock_many", teller).await?;
        if locked.is_empty() {
            return Ok(locked);
        }
        let (sql, bound) = update.render(&values(&locked));
        let changed = session.change(sql, bound).await.map_err(|error| teller.failed(&error))?;
        if changed != locked.len() as u64 {
            let what = format!(
                "`cancel_many` would change {changed} of the {} orders that `lock_many` found: their WHEREs must ask the same",
                locked.len()
            );
            return Err(teller.permanent("sql", &what));
        }
        Ok(locked)
    }
}

/// Runs a statement whose first column is the ids of orders.
async fn told(
    session: &mut dyn Session,
    statement: &Statement,
    values: &Values,
    asked: &BTreeSet<&String>,
    key: &str,
    teller: &Teller,
) -> Result<Vec<String>, ActivityFailure> {
    let (sql, bound) = statement.render(values);
    let rows = session.rows(sql, bound).await.map_err(|error| teller.failed(&error))?;
    let ids: Option<Vec<String>> = rows.into_iter().map(|row| row.into_iter().next().flatten()).collect();
    let ids = ids.filter(|ids| ids.iter().all(|id| asked.contains(id)));
    ids.ok_or_else(|| {
        let what = format!("`{key}` tells of orders that were not asked for: its first column must be the order's id as text");
        teller.permanent("sql", &what)
    })
}

/// The orders' ids by reason, sorted and each once.
fn by_reason(orders: &[CancelOrderInput]) -> BTreeMap<&'static str, Vec<String>> {
    let mut groups: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for order in orders {
        let reason = match order.reason {
            CancelReason::Timeout => "TIMEOUT",
            CancelReason::User => "USER",
            CancelReason::PaymentFailed => "PAYMENT_FAILED",
        };
        if seen.insert(&order.order_id) {
            groups.entry(reason).or_default().insert(order.order_id.clone());
        }
    }
    groups.into_iter().map(|(reason, ids)| (reason, ids.into_iter().collect())).collect()
}

/// Where a list is written out, its last item is repeated up to the next power of two: few texts, each prepared once.
fn padded(ids: &[String], dialect: Dialect) -> Vec<String> {
    let length = if dialect == Dialect::Postgres { ids.len() } else { ids.len().next_power_of_two() };
    let last = ids.last().cloned();
    ids.iter().cloned().chain(std::iter::repeat_n(last, length - ids.len()).flatten()).collect()
}
