//! A page of orders, for those who compare the table with the workflows.

use overdue_runtime::Timestamp;
use overdue_runtime::activity::ActivityFailure;

use super::failure::Teller;
use super::judge::Meaning;
use super::orders_table::{OrdersTable, instant, time_value};
use super::session::{Row, Session};
use super::settings::Table;
use super::statement::{Value, Values};

/// What a page must give; further columns are passed on.
pub(crate) const PAGE_COLUMNS: [&str; 2] = ["order_id", "pay_deadline"];
/// Before every order.
const FIRST_DEADLINE: &str = "1000-01-01 00:00:00";
/// Between the two halves of a cursor; no deadline has it.
const CURSOR_SEPARATOR: char = '|';

/// Which orders are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOf {
    /// Unpaid ones.
    Waiting,
    /// Those given up.
    Cancelled,
    /// Paid ones.
    Paid,
}

/// An order of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedOrder {
    /// The order.
    pub order_id: String,
    /// Its deadline.
    pub pay_deadline: Timestamp,
    /// The further columns that are not null, each as text.
    pub others: Vec<(String, String)>,
}

/// A page of orders by deadline and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderPage {
    /// The orders.
    pub orders: Vec<ListedOrder>,
    /// Where the next page begins; `None` when there is nothing more.
    pub next: Option<String>,
}

impl OrdersTable {
    /// Whether there are pages: `page` is configured.
    pub fn can_list(&self) -> bool {
        self.table.page.is_some()
    }

    /// Orders whose deadline is before a time, from the cursor of the page before on.
    ///
    /// # Errors
    /// As of every call; `config` when no `page` is configured, `input` when the cursor is none of ours.
    pub async fn page(&self, of: PageOf, before: Timestamp, cursor: Option<&str>) -> Result<OrderPage, ActivityFailure> {
        let teller = self.teller("list-orders");
        let dialect = self.table.dialect;
        let (deadline, id) = match cursor.map(|cursor| cursor.split_once(CURSOR_SEPARATOR)) {
            None => (FIRST_DEADLINE.to_owned(), Value::Null),
            Some(Some((deadline, id))) => (deadline.to_owned(), Value::text(id)),
            Some(None) => return Err(teller.permanent("input", "the cursor is none that a page gave")),
        };
        let meaning = match of {
            PageOf::Waiting => Meaning::Waiting,
            PageOf::Cancelled => Meaning::Cancelled,
            PageOf::Paid => Meaning::Paid,
        };
        let statuses = self.table.meanings.iter().filter(|(_, other)| **other == meaning).map(|(status, _)| status.clone());
        let values = Values::from([
            ("statuses", Value::List(statuses.collect())),
            ("before", time_value(dialect, before)),
            ("cursorDeadline", Value::Text(deadline)),
            ("cursorId", id),
        ]);
        let table = self.table.clone();
        let within = teller.clone();
        let work = self.sessions.transaction(None, &teller, "BEGIN", move |session| {
            Box::pin(async move { table.page(session, &values, &within).await })
        });
        work.await
    }
}

impl Table {
    async fn page(&self, session: &mut dyn Session, values: &Values, teller: &Teller) -> Result<OrderPage, ActivityFailure> {
        let Some(page) = &self.page else { return Err(teller.permanent("config", "`page` is not configured")) };
        let (sql, bound) = page.render(values);
        let columns = session.prepare(sql, &bound).await.map_err(|error| teller.failed(&error))?;
        let (sql, bound) = page.render_as_text(values, &columns);
        let rows = session.rows(sql, bound).await.map_err(|error| teller.failed(&error))?;
        let place = |name: &str| columns.iter().position(|column| column.eq_ignore_ascii_case(name));
        let (Some(id), Some(deadline)) = (place(PAGE_COLUMNS[0]), place(PAGE_COLUMNS[1])) else {
            return Err(teller.permanent("sql", "`page` must give the columns order_id and pay_deadline"));
        };
        let next = rows.last().and_then(|row| {
            let (deadline, id) = (row.get(deadline)?.as_ref()?, row.get(id)?.as_ref()?);
            Some(format!("{deadline}{CURSOR_SEPARATOR}{id}"))
        });
        let listed = |row: &Row| {
            let (order_id, pay_deadline) = (row.get(id)?.clone()?, instant(row.get(deadline)?.as_ref()?)?);
            let named = columns.iter().zip(row).enumerate().filter(|(at, _)| *at != id && *at != deadline);
            let others = named.filter_map(|(_, (name, value))| Some((name.clone(), value.clone()?))).collect();
            Some(ListedOrder { order_id, pay_deadline, others })
        };
        let orders: Option<Vec<ListedOrder>> = rows.iter().map(listed).collect();
        let orders = orders
            .ok_or_else(|| teller.permanent("sql", "`page` gives an order without an id or with a deadline that is no time"))?;
        Ok(OrderPage { orders, next })
    }
}
