//! The specification of Overdue as a whole: what the domain asks for, what the public surface promises, and what holds
//! when a process is killed. A chapter a file; `harness` has the domain's words.
//!
//! `CASES.md` names the test of every known fault of systems of this sort.
#![allow(clippy::disallowed_methods, reason = "a test waits in real time, and no longer than its deadline")]
#![allow(clippy::unwrap_used, reason = "everything here is a test")]

mod harness;

mod architecture;
mod cases;
mod cli;
mod closing;
mod crash;
mod crash_matrix;
mod deadlines;
mod failures;
mod http;
mod http_tokens;
mod jobs;
mod moving;
mod nodes;
mod orders_table;
mod power_loss;
mod race;
mod race_thousand;
mod refunds;
mod replay;
mod retention;
mod saga;
mod scale;
mod signals;
mod sql;
mod sql_from_rust;
mod sql_refusals;
mod sql_signals;
mod steps;
mod told;
mod verify;
mod wrong_clocks;
