//! The whole runtime in one thread, on virtual time, from a seed.
//!
//! Nodes, their tasks, their clocks, the network between them and the database behind them are simulated; the engine, the
//! client and the workflows are the real ones. What goes wrong, and when, follows from the seed, so that a run that
//! failed once fails again. A program adds its own world around it: callers, and the services that its activities call.

mod cluster;
mod database;
mod dice;
mod executor;
pub mod explorer;
mod findings;
mod judge;
mod network;
mod node_clock;
mod poison;
mod process;
mod session;
#[cfg(test)]
mod tests;

pub use cluster::{Asked, Cluster, NodePlan};
pub use database::{Backing, CommitFate, Database, StoreFaults};
pub use dice::Dice;
pub use executor::{BEGINNING, Simulation, Sleep};
pub use explorer::{Ended, EndedExecution, Explored, Explorer, Fault};
pub use findings::{Broken, Findings};
pub use judge::Judge;
pub use network::LinkFaults;
pub use node_clock::NodeClock;
pub use poison::POISON;
pub use process::{Process, Strike};
pub use session::TRANSACTION_TIME;
