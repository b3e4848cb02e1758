//! What is looked at in the database before a program serves: that it answers, that it can read every statement, and that the
//! deadlines have an index.

use std::time::Duration;

use super::dialect::Dialect;
use super::orders_table::{LOOK_COLUMNS, OrdersTable};
use super::page::PAGE_COLUMNS;
use super::session::{Index, Session};
use super::settings::Table;
use super::statement::{Statement, Value, Values};
use crate::error::ConfigError;
use crate::excerpt::excerpt;
use crate::settings::Keys;

/// How long the database may take for all of it.
const CHECK_MAX: Duration = Duration::from_secs(15);
const KEY: &str = "downstreams.orders.sql";

impl OrdersTable {
    /// Looks at the database.
    ///
    /// # Errors
    /// [`ConfigError`], which names the key and says what to do.
    pub async fn check(&self) -> Result<(), ConfigError> {
        let keys = Keys(KEY.to_owned());
        tokio::select! {
            biased;
            checked = self.table.look_over(&keys) => checked,
            () = self.environment.clock.sleep(CHECK_MAX) => {
                keys.refuse("url", format!("the database does not answer within {} s: is it up, and is this its address?", CHECK_MAX.as_secs()))
            }
        }
    }
}

impl Table {
    async fn look_over(&self, keys: &Keys) -> Result<(), ConfigError> {
        let mut session = match self.driver.open().await {
            Ok(session) => session,
            Err(error) => {
                let why = self.told(&error);
                return keys.refuse(
                    "url",
                    format!("no connection to the order database ({why}): check the URL, `auth` and that it is up"),
                );
            }
        };
        let session = session.as_mut();
        let statements = [
            ("cancel", Some(&self.cancel)),
            ("confirm_paid", Some(&self.confirm_paid)),
            ("cancel_many", self.cancel_many.as_ref()),
            ("lock_many", self.lock_many.as_ref()),
        ];
        for (key, statement) in statements {
            if let Some(statement) = statement {
                let (sql, bound) = statement.render(&examples());
                self.prepared(session, keys, key, sql, &bound).await?;
            }
        }
        self.check_query(session, keys, "look", &self.look, &LOOK_COLUMNS).await?;
        if let Some(page) = &self.page {
            self.check_query(session, keys, "page", page, &PAGE_COLUMNS).await?;
        }
        self.check_index(session, keys).await
    }

    async fn check_query(
        &self,
        session: &mut dyn Session,
        keys: &Keys,
        key: &str,
        statement: &Statement,
        columns: &[&str],
    ) -> Result<(), ConfigError> {
        let (sql, bound) = statement.render(&examples());
        let given = self.prepared(session, keys, key, sql, &bound).await?;
        if let Some(missing) = columns.iter().find(|column| !given.iter().any(|given| given.eq_ignore_ascii_case(column))) {
            let message = format!(
                "does not give the column {missing}: write SELECT … AS {missing}, or NULL AS {missing} where there is none"
            );
            return keys.refuse(key, message);
        }
        let (sql, bound) = statement.render_as_text(&examples(), columns);
        self.prepared(session, keys, key, sql, &bound).await.map(drop)
    }

    async fn prepared(
        &self,
        session: &mut dyn Session,
        keys: &Keys,
        key: &str,
        sql: String,
        bound: &[Value],
    ) -> Result<Vec<String>, ConfigError> {
        session.prepare(sql, bound).await.or_else(|error| {
            let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
            let hint = match (self.dialect, code.as_ref()) {
                // No such operator, no such function, the wrong type.
                (Dialect::Postgres, "42883" | "42804") => {
                    ". Every value is bound as text: cast it where the column is something else, such as :orderId::bigint, \
                     :amount::numeric, :paidAt::timestamptz"
                }
                _ => "",
            };
            keys.refuse(key, format!("{} does not accept it: {}{hint}", self.dialect.name(), self.told(&error)))
        })
    }

    async fn check_index(&self, session: &mut dyn Session, keys: &Keys) -> Result<(), ConfigError> {
        let indexes = match session.indexes(&self.name).await {
            Ok(Some(indexes)) => indexes,
            Ok(None) => return keys.refuse("table", format!("there is no table {:?} in the order database", self.name)),
            Err(error) => return keys.refuse("table", format!("its indexes cannot be read: {}", self.told(&error))),
        };
        if self.page.is_none() || indexes.iter().any(|index| self.serves_pages(index)) {
            return Ok(());
        }
        let (table, status, deadline) = (&self.name, &self.status_column, &self.deadline_column);
        let concurrently = if self.dialect == Dialect::Postgres { " CONCURRENTLY" } else { "" };
        let name = format!("{}_{deadline}", table.replace('.', "_"));
        let create = format!("CREATE INDEX{concurrently} {name} ON {table} ({status}, {deadline})");
        if self.require_index {
            return keys.refuse("page", format!("has no index on ({status}, {deadline}), and require_index is set: {create}"));
        }
        tracing::warn!(
            table,
            create,
            "the order table has no index by which overdue orders are found: every page reads all of it"
        );
        Ok(())
    }

    /// Status and deadline first, or deadline first among some of the rows.
    fn serves_pages(&self, index: &Index) -> bool {
        let is = |at: usize, column: &str| index.columns.get(at).is_some_and(|name| name.eq_ignore_ascii_case(column));
        (is(0, &self.status_column) && is(1, &self.deadline_column)) || (index.is_partial && is(0, &self.deadline_column))
    }

    fn told(&self, error: &sqlx::Error) -> String {
        let words = match error.as_database_error() {
            Some(error) => format!("{}: {}", error.code().unwrap_or_default(), error.message()),
            None => error.to_string(),
        };
        excerpt(words.as_bytes(), self.secret.as_deref())
    }
}

/// Values of the right shape for every parameter.
fn examples() -> Values {
    let single = [
        "orderId",
        "reason",
        "payDeadline",
        "now",
        "idempotencyKey",
        "transactionId",
        "amount",
        "currency",
        "paidAt",
        "before",
        "cursorDeadline",
        "cursorId",
    ];
    let lists = ["orderIds", "statuses"].map(|name| (name, Value::List(vec!["example".to_owned()])));
    single.map(|name| (name, Value::Null)).into_iter().chain(lists).collect()
}
