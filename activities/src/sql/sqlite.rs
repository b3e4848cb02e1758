//! Order tables in SQLite.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Executor, Row as _, SqlSafeStr, Sqlite, Statement};

use super::session::{Driver, Index, Row, Session};
use super::statement::Value;

/// A file; it is never created.
pub(crate) struct SqliteDriver(SqliteConnectOptions);

impl SqliteDriver {
    /// `timeout` is how long a statement waits for another writer.
    pub(crate) fn new(options: SqliteConnectOptions, timeout: Duration) -> Self {
        Self(options.create_if_missing(false).busy_timeout(timeout).disable_statement_logging())
    }
}

#[async_trait]
impl Driver for SqliteDriver {
    async fn open(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        Ok(Box::new(SqliteSession(self.0.connect().await?)))
    }
}

struct SqliteSession(SqliteConnection);

fn bind(sql: String, values: Vec<Value>) -> Query<'static, Sqlite, SqliteArguments> {
    values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, value| match value {
        Value::Text(text) => query.bind(text),
        // Lists are written out before they get here.
        Value::Null | Value::List(_) => query.bind(None::<String>),
    })
}

#[async_trait]
impl Session for SqliteSession {
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

    async fn prepare(&mut self, sql: String, _: &[Value]) -> Result<Vec<String>, sqlx::Error> {
        let statement = self.0.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
        Ok(statement.columns().iter().map(|column| column.name().to_owned()).collect())
    }

    async fn indexes(&mut self, table: &str) -> Result<Option<Vec<Index>>, sqlx::Error> {
        let there = "SELECT count(*) FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE";
        if sqlx::query_scalar::<_, i64>(there).bind(table.to_owned()).fetch_one(&mut self.0).await? == 0 {
            return Ok(None);
        }
        let list = "SELECT l.name, l.partial, coalesce(i.name, '') FROM pragma_index_list(?1) AS l \
                    JOIN pragma_index_info(l.name) AS i ORDER BY l.name, i.seqno";
        let columns: Vec<(String, bool, String)> = sqlx::query_as(list).bind(table.to_owned()).fetch_all(&mut self.0).await?;
        Ok(Some(Index::gathered(columns)))
    }
}
