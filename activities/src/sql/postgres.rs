//! Order tables in PostgreSQL.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgTypeInfo};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Executor, Postgres, Row as _, SqlSafeStr, Statement, Type};

use super::session::{Driver, Index, Row, Session};
use super::statement::Value;

/// A server.
pub(crate) struct PostgresDriver(PgConnectOptions);

impl PostgresDriver {
    /// `timeout` is how long a statement waits for a row, and a transaction may stand still. Statements have no limit on the
    /// server: it would also cut short a COMMIT that waits for its standby, and call it done.
    pub(crate) fn new(options: PgConnectOptions, timeout: Duration) -> Self {
        let limit = timeout.as_millis().max(1).to_string();
        let session = [
            ("TimeZone", "UTC"),
            ("DateStyle", "ISO"),
            ("lock_timeout", &limit),
            ("idle_in_transaction_session_timeout", &limit),
        ];
        Self(options.application_name("overdue orders").options(session).disable_statement_logging())
    }
}

#[async_trait]
impl Driver for PostgresDriver {
    async fn open(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        Ok(Box::new(PostgresSession(self.0.connect().await?)))
    }
}

struct PostgresSession(PgConnection);

fn bind(sql: String, values: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, value| match value {
        Value::Text(text) => query.bind(text),
        Value::Null => query.bind(None::<String>),
        Value::List(texts) => query.bind(texts),
    })
}

#[async_trait]
impl Session for PostgresSession {
    async fn run(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        self.0.execute(sqlx::raw_sql(sql)).await.map(drop)
    }

    async fn change(&mut self, sql: String, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        Ok(bind(sql, values).execute(&mut self.0).await?.rows_affected())
    }

    async fn rows(&mut self, sql: String, values: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let rows = bind(sql, values).fetch_all(&mut self.0).await?;
        rows.iter().map(|row| (0..row.len()).map(|at| row.try_get_unchecked(at)).collect()).collect()
    }

    async fn prepare(&mut self, sql: String, values: &[Value]) -> Result<Vec<String>, sqlx::Error> {
        // With the types that the values will have: without them the server would guess, and the guess would pass.
        let types: Vec<PgTypeInfo> = values
            .iter()
            .map(|value| match value {
                Value::List(_) => <Vec<String> as Type<Postgres>>::type_info(),
                Value::Text(_) | Value::Null => <String as Type<Postgres>>::type_info(),
            })
            .collect();
        let statement = self.0.prepare_with(AssertSqlSafe(sql).into_sql_str(), &types).await?;
        Ok(statement.columns().iter().map(|column| column.name().to_owned()).collect())
    }

    async fn indexes(&mut self, table: &str) -> Result<Option<Vec<Index>>, sqlx::Error> {
        let there = "SELECT to_regclass($1) IS NOT NULL";
        if !sqlx::query_scalar::<_, bool>(there).bind(table.to_owned()).fetch_one(&mut self.0).await? {
            return Ok(None);
        }
        let list = "SELECT i.indexrelid::text, i.indpred IS NOT NULL, coalesce(a.attname::text, '') \
                    FROM pg_catalog.pg_index i \
                    CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) \
                    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
                    WHERE i.indrelid = to_regclass($1) AND i.indisvalid AND k.place <= i.indnkeyatts \
                    ORDER BY i.indexrelid, k.place";
        let columns: Vec<(String, bool, String)> = sqlx::query_as(list).bind(table.to_owned()).fetch_all(&mut self.0).await?;
        Ok(Some(Index::gathered(columns)))
    }
}
