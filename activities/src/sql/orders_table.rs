//! `cancel-order` and `confirm-paid` as statements of the order table: the innermost service of the stack, where HTTP's client
//! stands otherwise.
//!
//! The update's own count decides who won. When it is none, the order is looked at in the same transaction, so that the answer
//! is what the update saw.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::StatusCode;
use overdue_runtime::Timestamp;
use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Environment;
use tower::Service;

use super::dialect::Dialect;
use super::failure::Teller;
use super::judge::{self, Found, Outcome, Question, UNKNOWN_OUTCOME};
use super::session::Session;
use super::sessions::Sessions;
use super::settings::Table;
use super::statement::{Value, Values};
use crate::answer::Answer;
use crate::call::Request;
use crate::excerpt::excerpt;
use crate::layers::Reply;
use crate::orders::{CANCEL_ORDER, CONFIRM_PAID};
use crate::settings::Settings;

/// What `look` must give.
pub(crate) const LOOK_COLUMNS: [&str; 3] = ["status", "transaction_id", "pay_deadline"];

/// The shop's order table; clones share its sessions.
#[derive(Clone)]
pub struct OrdersTable {
    pub(super) table: Arc<Table>,
    pub(super) sessions: Sessions,
    pub(super) environment: Environment,
}

impl OrdersTable {
    pub(crate) fn new(table: Table, settings: &Settings, environment: &Environment) -> Self {
        let sessions = Sessions::new(table.driver.clone(), table.connections, settings.timeout, environment);
        Self { table: Arc::new(table), sessions, environment: environment.clone() }
    }

    pub(super) fn teller(&self, call: &'static str) -> Teller {
        Teller { call, dialect: self.table.dialect, secret: self.table.secret.clone() }
    }

    async fn answer(self, request: Request) -> Reply {
        let now = self.environment.clock.now();
        let name = request.call.definition.name;
        let (question, values) = asked(&request, self.table.dialect, now)?;
        let (table, teller) = (self.table.clone(), self.teller(name));
        let begin = self.table.dialect.begin();
        let within = teller.clone();
        let work = self.sessions.transaction(Some(&request.ctx), &teller, begin, move |session| {
            Box::pin(async move { table.decide(session, &question, &values, now, &within).await })
        });
        let outcome = work.await?;
        Ok(Answer { status: StatusCode::OK, outcome })
    }
}

impl Table {
    async fn decide(
        &self,
        session: &mut dyn Session,
        question: &Question,
        values: &Values,
        now: Timestamp,
        teller: &Teller,
    ) -> Result<Outcome, ActivityFailure> {
        let (key, update) = match question {
            Question::Cancel { .. } => ("cancel", &self.cancel),
            Question::ConfirmPaid { .. } => ("confirm_paid", &self.confirm_paid),
        };
        let (sql, bound) = update.render(values);
        match session.change(sql, bound).await.map_err(|error| teller.failed(&error))? {
            1 => Ok(judge::won(question)),
            0 => {
                let found = self.look(session, values, teller).await?;
                judge::lost(question, found.as_ref(), now, teller)
            }
            rows => Err(teller.permanent(
                "sql",
                &format!("`{key}` would change {rows} rows, and changed none: its WHERE must find the one order"),
            )),
        }
    }

    /// The order's row, by `:orderId`.
    pub(super) async fn look(
        &self,
        session: &mut dyn Session,
        values: &Values,
        teller: &Teller,
    ) -> Result<Option<Found>, ActivityFailure> {
        let (sql, bound) = self.look.render_as_text(values, &LOOK_COLUMNS);
        let rows = session.rows(sql, bound).await.map_err(|error| teller.failed(&error))?;
        let row = match rows.as_slice() {
            [] => return Ok(None),
            [row] => row,
            rows => return Err(teller.permanent("sql", &format!("`look` gives {} rows: it must find the one order", rows.len()))),
        };
        let column = |at: usize| row.get(at).and_then(Option::as_deref);
        let status = column(0).unwrap_or_default().trim_end();
        let Some(meaning) = self.meanings.get(status).copied() else {
            let shown = excerpt(status.as_bytes(), None);
            let what = format!("the order's status {shown:?} is none that `statuses` knows: say there what it means, then retry");
            return Err(teller.permanent(UNKNOWN_OUTCOME, &what));
        };
        let transaction_id = column(1).map(str::trim_end).filter(|id| !id.is_empty()).map(str::to_owned);
        let pay_deadline = match column(2).filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => Some(instant(text).ok_or_else(|| {
                let what =
                    "`look` gives a pay_deadline that is no time: it must be a time, or RFC 3339 or YYYY-MM-DD HH:MM:SS in UTC";
                teller.permanent("sql", what)
            })?),
        };
        Ok(Some(Found { meaning, transaction_id, pay_deadline }))
    }
}

/// What a request asks, and its values.
fn asked(request: &Request, dialect: Dialect, now: Timestamp) -> Result<(Question, Values), ActivityFailure> {
    let field = |name: &'static str| -> Result<String, ActivityFailure> {
        let raw = request.fields.get(name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        raw.ok_or_else(|| ActivityFailure::permanent("input", format!("{name} is needed")))
    };
    let time = |name: &'static str| -> Result<Timestamp, ActivityFailure> {
        field(name)?.parse().map_err(|error| ActivityFailure::permanent("input", format!("{name}: {error}")))
    };
    let mut values =
        Values::from([("now", time_value(dialect, now)), ("idempotencyKey", Value::text(request.ctx.idempotency_key()))]);
    let question = if request.call.definition.name == CANCEL_ORDER.name {
        let pay_deadline = time("payDeadline")?;
        values.extend([("reason", Value::text(field("reason")?)), ("payDeadline", time_value(dialect, pay_deadline))]);
        Question::Cancel { pay_deadline }
    } else {
        debug_assert_eq!(request.call.definition.name, CONFIRM_PAID.name, "the order service has two calls");
        let paid_at = time("paidAt")?;
        for name in ["transactionId", "amount", "currency"] {
            values.insert(name, Value::text(field(name)?));
        }
        values.insert("paidAt", time_value(dialect, paid_at));
        Question::ConfirmPaid { paid_at }
    };
    values.insert("orderId", Value::text(field("orderId")?));
    Ok((question, values))
}

/// A time as the database reads it: RFC 3339, but MySQL knows no `T` and no `Z`. Sessions are in UTC.
pub(super) fn time_value(dialect: Dialect, time: Timestamp) -> Value {
    let written = time.to_string();
    match dialect {
        Dialect::MySql => Value::Text(written.trim_end_matches('Z').replace('T', " ")),
        Dialect::Sqlite | Dialect::Postgres => Value::Text(written),
    }
}

/// A time as a database writes it. Without an offset it is UTC. What is finer than a millisecond is rounded up, so that the
/// order is due by it once it comes back.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let parsed = text.parse::<Timestamp>().or_else(|_| format!("{text}Z").parse()).ok()?;
    Some(Timestamp::from_micros(
        parsed.as_micros().div_euclid(1000).checked_add(i64::from(parsed.as_micros().rem_euclid(1000) > 0))? * 1000,
    ))
}

impl Service<Request> for OrdersTable {
    type Response = Answer;
    type Error = ActivityFailure;
    type Future = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ActivityFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_each_database_writes_it_and_rounded_up_to_what_is_passed_on() {
        for (written, expected) in [
            ("2026-11-30T18:00:00.000Z", "2026-11-30T18:00:00.000Z"),
            ("2026-11-30 18:00:00", "2026-11-30T18:00:00.000Z"),
            ("2026-11-30 18:00:00+00", "2026-11-30T18:00:00.000Z"),
            ("2026-11-30 18:00:00.123456+00", "2026-11-30T18:00:00.124Z"),
            ("2026-11-30 18:00:00.123000", "2026-11-30T18:00:00.123Z"),
            ("2026-11-30T13:00:00-05:00", "2026-11-30T18:00:00.000Z"),
        ] {
            assert_eq!(instant(written).map(|time| time.to_string()).as_deref(), Some(expected), "{written}");
        }
        for nonsense in ["", "1764525600", "tomorrow"] {
            assert_eq!(instant(nonsense), None, "{nonsense}");
        }
    }
}
