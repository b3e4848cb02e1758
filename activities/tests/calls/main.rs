//! Specifications of the calls over real HTTP on loopback, a chapter per file. Time stands still unless a test moves it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod classes;
mod config;
mod connection;
mod harness;
mod hostile;
mod mapping;
mod outcomes;
mod secrets;
mod webhooks;
