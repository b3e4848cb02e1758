//! The order service as a table of a database that is within reach: `cancel-order` and `confirm-paid` are conditional updates.
//!
//! The statements are the shop's own, with named parameters. They pass the same tower stack as requests over HTTP; only the
//! innermost service is another one. Deliberately absent: anything that writes SQL for the shop.

mod check;
mod config;
mod dialect;
mod failure;
mod guard;
mod judge;
mod many;
#[cfg(feature = "mysql")]
mod mysql;
mod orders_table;
mod page;
mod postgres;
mod session;
mod sessions;
mod settings;
mod sqlite;
mod statement;
mod token;

pub use config::{PasswordConfig, SqlConfig, StatusesConfig};
pub use many::{CANCEL_MANY_MAX, CancelManyOutcome};
pub use orders_table::OrdersTable;
pub use page::{ListedOrder, OrderPage, PageOf};

pub(crate) use settings::Table;
