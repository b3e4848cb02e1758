//! Bulk jobs: one action on many workflows.
//!
//! A job is an execution of a workflow of the runtime's own, so that it survives restarts, is seen, cancelled and kept like
//! any other. It first selects its items, and what it selected is in its history before anything is done; then it acts on
//! them, no faster than its rate. Invariant: an item is acted on at most once by one job, also after a crash in the middle.
//! There is deliberately no table of jobs and no loop beside the engine.

mod act;
mod request;
mod results;
mod select;
#[cfg(test)]
mod tests;
mod workflow;

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use tokio::sync::Semaphore;

pub use act::{ItemOutcome, OutcomeOfItem};
pub use request::{JobAction, JobFilter, JobRequest, Shift};
pub use results::{JobItem, JobItems, JobView};
pub use select::SelectedItem;
pub use workflow::{JobPhase, JobProgress};

use super::{Client, Peers};
use crate::activity::ActivityFailure;
use crate::engine::{Engine, Registries};

/// The workflow type of bulk jobs.
pub const JOB_TYPE: &str = "bulk-operation";
/// The most items of one job, so that its history stays within its limit; what is left takes another one.
pub const JOB_ITEMS_MAX: usize = 10_000;
/// How many items a second a job acts on unless its request says otherwise.
pub const JOB_PER_SECOND_DEFAULT: u32 = 10;
/// The most items a second that a job may act on: a node has other things to do.
pub const JOB_PER_SECOND_MAX: u32 = 500;

/// What carries out the bulk jobs of a node.
///
/// ```no_run
/// # async fn node(mut code: overdue_runtime::engine::Registries) -> Result<(), Box<dyn std::error::Error>> {
/// # use overdue_runtime::{client::{Client, Jobs}, engine::{Engine, EngineConfig, Environment}, store::SqliteStore};
/// let jobs = Jobs::register(&mut code);
/// let store = std::sync::Arc::new(SqliteStore::open("overdue.db", 64).await?);
/// let client = Client::new(Engine::start(store, code, Environment::system(), EngineConfig::default()).await?);
/// jobs.attach(&client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Jobs {
    door: Arc<RwLock<Option<Door>>>,
}

/// The way to the node; it does not keep the node alive.
struct Door {
    engine: Weak<Engine>,
    peers: Arc<OnceLock<Option<Arc<dyn Peers>>>>,
    nudges: Arc<Semaphore>,
}

impl Jobs {
    /// Adds the workflow of bulk jobs and its activities. They wait until a client is attached.
    pub fn register(code: &mut Registries) -> Self {
        let jobs = Self::default();
        code.workflows.register(workflow::BulkOperation);
        code.activities.register(select::SelectItems(jobs.clone()));
        code.activities.register(act::ActOnItems(jobs.clone()));
        jobs
    }

    /// Has jobs act through this client from now on.
    pub fn attach(&self, client: &Client) {
        let Client { engine, peers, nudges } = client.clone();
        let door = Door { engine: Arc::downgrade(&engine), peers, nudges };
        *self.door.write().unwrap_or_else(PoisonError::into_inner) = Some(door);
    }

    /// The client; without one the node begins or ends, and the call is made again.
    fn client(&self) -> Result<Client, ActivityFailure> {
        let door = self.door.read().unwrap_or_else(PoisonError::into_inner);
        let client = door.as_ref().and_then(|door| {
            let engine = door.engine.upgrade()?;
            Some(Client { engine, peers: Arc::clone(&door.peers), nudges: Arc::clone(&door.nudges) })
        });
        client.ok_or_else(|| ActivityFailure::neutral("not-attached", "the node is not ready to act", None))
    }
}
