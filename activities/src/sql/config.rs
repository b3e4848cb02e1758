//! `[downstreams.orders.sql]` as it is written.

use serde::Deserialize;

use crate::config::Hidden;

/// The order table, where it is within reach: the calls of the order service are statements of this database.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlConfig {
    /// `postgres://user@host/database`, `mysql://user@host/database` or `sqlite:PATH`; no password.
    pub url: Hidden,
    /// The password, by reference.
    #[serde(default)]
    pub auth: Option<PasswordConfig>,
    /// Sessions at once.
    #[serde(default = "default_connections")]
    pub connections: i64,
    /// The table, with its schema if need be.
    #[serde(default = "default_table")]
    pub table: String,
    /// The column that says where an order stands.
    #[serde(default = "default_status_column")]
    pub status_column: String,
    /// The column of its payment deadline.
    #[serde(default = "default_deadline_column")]
    pub deadline_column: String,
    /// Whether a missing index of the deadlines keeps the program from starting.
    #[serde(default)]
    pub require_index: bool,
    /// What the table's statuses mean.
    pub statuses: StatusesConfig,
    /// The conditional UPDATE that gives an order up.
    pub cancel: String,
    /// The conditional UPDATE by which an order is paid.
    pub confirm_paid: String,
    /// The SELECT that tells where an order stands: the columns `status`, `transaction_id` and `pay_deadline`.
    pub look: String,
    /// The SELECT of a page of orders in some statuses whose deadline is before a time.
    #[serde(default)]
    pub page: Option<String>,
    /// The conditional UPDATE that gives many orders up.
    #[serde(default)]
    pub cancel_many: Option<String>,
    /// On MySQL: the SELECT … FOR UPDATE that finds and locks those of many orders that can be given up.
    #[serde(default)]
    pub lock_many: Option<String>,
}

/// `statuses`: the table's values, by meaning.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusesConfig {
    /// Nobody paid yet.
    pub waiting: Vec<String>,
    /// Paid, shipped, finished.
    pub paid: Vec<String>,
    /// Given up.
    pub cancelled: Vec<String>,
    /// Not yet ready to be given up or paid.
    #[serde(default)]
    pub creating: Vec<String>,
}

/// `auth` of a database: its password by reference.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordConfig {
    /// The environment variable that holds it.
    #[serde(default)]
    pub env: Option<String>,
    /// Or the file.
    #[serde(default)]
    pub file: Option<String>,
}

fn default_connections() -> i64 {
    8
}

fn default_table() -> String {
    "orders".to_owned()
}

fn default_status_column() -> String {
    "status".to_owned()
}

fn default_deadline_column() -> String {
    "pay_deadline".to_owned()
}
