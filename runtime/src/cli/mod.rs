//! The command line around a program's workflows.
//!
//! A program says which workflows and activities it has; everything else (serving, starting, looking, operating) comes
//! with it. Commands talk to a server by URL; those that can also open a store do so with `--store`.

mod actions;
mod args;
mod attention;
mod breakers;
mod config;
mod copy;
mod deadlines;
mod follow;
mod jobs;
mod outbox;
mod program;
mod remote;
mod replay;
mod serve;
mod show;
mod start;
mod store;
mod tokens;
mod verify;

pub use config::{Config, ConfigError, EngineSection};
pub use program::{CommandFuture, Program};
