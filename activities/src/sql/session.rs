//! The seam between the statements and the three drivers.
//!
//! Transactions are begun and ended by plain statements, so that a session's state is what we told it and nothing that a
//! dropped guard may or may not have done.

use async_trait::async_trait;

use super::statement::Value;

/// A row, every column as text.
pub(crate) type Row = Vec<Option<String>>;

/// An index, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Whether it holds only some of the rows.
    pub(crate) is_partial: bool,
    /// Its columns in order; empty in the place of an expression.
    pub(crate) columns: Vec<String>,
}

/// One session of a database.
#[async_trait]
pub(crate) trait Session: Send {
    /// Runs a statement without values.
    async fn run(&mut self, sql: &'static str) -> Result<(), sqlx::Error>;

    /// Runs a statement; how many rows it changed.
    async fn change(&mut self, sql: String, values: Vec<Value>) -> Result<u64, sqlx::Error>;

    /// Runs a query or a statement that returns rows.
    async fn rows(&mut self, sql: String, values: Vec<Value>) -> Result<Vec<Row>, sqlx::Error>;

    /// Has the database read a statement, and gives the names of its columns.
    async fn prepare(&mut self, sql: String, values: &[Value]) -> Result<Vec<String>, sqlx::Error>;

    /// The indexes of a table; `None` when there is no such table.
    async fn indexes(&mut self, table: &str) -> Result<Option<Vec<Index>>, sqlx::Error>;
}

/// Opens sessions.
#[async_trait]
pub(crate) trait Driver: Send + Sync + 'static {
    /// A new session.
    async fn open(&self) -> Result<Box<dyn Session>, sqlx::Error>;
}

impl Index {
    /// Indexes from the rows of a catalogue: name, whether partial, column; in order.
    pub(crate) fn gathered(columns: Vec<(String, bool, String)>) -> Vec<Self> {
        let mut indexes: Vec<(String, Self)> = Vec::new();
        for (name, is_partial, column) in columns {
            match indexes.last_mut() {
                Some((last, index)) if *last == name => index.columns.push(column),
                _ => indexes.push((name, Self { is_partial, columns: vec![column] })),
            }
        }
        indexes.into_iter().map(|(_, index)| index).collect()
    }
}
