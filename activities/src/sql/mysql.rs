//! Order tables in MySQL and MariaDB.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Executor, MySql, Row as _, SqlSafeStr, Statement};

use super::session::{Driver, Index, Row, Session};
use super::statement::Value;

/// A server.
pub(crate) struct MySqlDriver {
    options: MySqlConnectOptions,
    /// How long a statement waits for a row; whole seconds are the server's unit.
    lock_wait: Duration,
}

impl MySqlDriver {
    pub(crate) fn new(options: MySqlConnectOptions, timeout: Duration) -> Self {
        Self { options: options.disable_statement_logging(), lock_wait: timeout }
    }
}

#[async_trait]
impl Driver for MySqlDriver {
    async fn open(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        let seconds = self.lock_wait.as_secs().max(1);
        sqlx::query("SET SESSION innodb_lock_wait_timeout = ?").bind(seconds).execute(&mut connection).await?;
        Ok(Box::new(MySqlSession(connection)))
    }
}

struct MySqlSession(MySqlConnection);

fn bind(sql: String, values: Vec<Value>) -> Query<'static, MySql, MySqlArguments> {
    values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, value| match value {
        Value::Text(text) => query.bind(text),
        // Lists are written out before they get here.
        Value::Null | Value::List(_) => query.bind(None::<String>),
    })
}

#[async_trait]
impl Session for MySqlSession {
    async fn run(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        self.0.execute(sqlx::raw_sql(sql)).await.map(drop)
    }

    /// Rows that the WHERE found: the driver asks the server to count so.
    async fn change(&mut self, sql: String, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        Ok(bind(sql, values).execute(&mut self.0).await?.rows_affected())
    }

    async fn rows(&mut self, sql: String, values: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let rows = bind(sql, values).fetch_all(&mut self.0).await?;
        rows.iter().map(|row| (0..row.len()).map(|at| row.try_get_unchecked(at)).collect()).collect()
    }

    async fn prepare(&mut self, sql: String, _: &[Value]) -> Result<Vec<String>, sqlx::Error> {
        let statement = self.0.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
        Ok(statement.columns().iter().map(|column| column.name().to_owned()).collect())
    }

    async fn indexes(&mut self, table: &str) -> Result<Option<Vec<Index>>, sqlx::Error> {
        let (schema, table) = match table.split_once('.') {
            Some((schema, table)) => (Some(schema.to_owned()), table.to_owned()),
            None => (None, table.to_owned()),
        };
        let there =
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = coalesce(?, DATABASE()) AND table_name = ?";
        let found: i64 = sqlx::query_scalar(there).bind(schema.clone()).bind(table.clone()).fetch_one(&mut self.0).await?;
        if found == 0 {
            return Ok(None);
        }
        let list = "SELECT CAST(index_name AS CHAR), 1 = 0, CAST(coalesce(column_name, '') AS CHAR) FROM information_schema.statistics \
                    WHERE table_schema = coalesce(?, DATABASE()) AND table_name = ? ORDER BY index_name, seq_in_index";
        let columns: Vec<(String, bool, String)> = sqlx::query_as(list).bind(schema).bind(table).fetch_all(&mut self.0).await?;
        Ok(Some(Index::gathered(columns)))
    }
}
