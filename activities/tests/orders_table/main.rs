//! Specifications of the order table in place of the order service, on SQLite, PostgreSQL and MariaDB. A chapter a file.
//!
//! The statements are those of the README, so that what is written there to be copied is what is shown to work.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a test waits in real time, and no longer than its deadline")]

mod configuration;
mod connection;
mod many;
mod mariadb;
mod outcomes;
mod pages;
mod races;
mod shop;
