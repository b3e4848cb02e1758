//! What callers can ask of a node: what the HTTP API, the command line and embedding programs use.
//!
//! Every answer that says yes is given after the commit that holds what was asked.

mod attention;
mod deadlines;
mod describe;
mod error;
mod explain;
mod jobs;
mod list;
mod operate;
mod outbox;
mod owner;
mod peers;
mod read;
mod signal;
mod start;
mod tokens;
mod within;

use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;

pub use attention::{AttentionFilter, AttentionPage, AttentionQuery, BY_HAND, StepInNeed};
pub use deadlines::{DeadlineForecast, DeadlineRequest, DueMinute, FORECAST_MINUTES_MAX, FORECAST_ROWS_MAX, ForecastQuery};
pub use describe::{ActivityState, Description, Link, PendingActivityView, PendingTimerView};
pub use error::ClientError;
pub use explain::Explanation;
pub use jobs::{
    ItemOutcome, JOB_ITEMS_MAX, JOB_PER_SECOND_DEFAULT, JOB_PER_SECOND_MAX, JOB_TYPE, JobAction, JobFilter, JobItem, JobItems,
    JobPhase, JobProgress, JobRequest, JobView, Jobs, OutcomeOfItem, SelectedItem, Shift,
};
pub(crate) use list::END_OF_TIME;
pub use list::{ListQuery, ListedWorkflow, WorkflowPage};
pub use operate::ActionOutcome;
pub(crate) use operate::check_reason;
pub(crate) use outbox::OutboxDecision;
pub use outbox::{OutboxAction, OutboxEntry, OutboxPage, OutboxQuery};
pub(crate) use peers::{Forwarded, Nudge, Peers, SCHEME as NODE_SCHEME};
pub use read::HistoryPage;
pub use signal::{SignalOutcome, SignalRequest, SignalResponse};
pub use start::{StartRequest, StartResponse};
pub use tokens::{NewToken, create_token};
pub use within::{signal_in, start_in};

use crate::engine::Engine;
use crate::id::{WorkflowKey, check_id};

/// The most events of one page of a history, and rows of one page of a list.
pub const PAGE_MAX: usize = 1_000;
/// The longest reason that an operator may give, in bytes.
pub const REASON_BYTES_MAX: usize = 1_000;

/// A client of the node in this process. Cloning it is cheap.
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
    /// Made when another node is first asked.
    peers: Arc<OnceLock<Option<Arc<dyn Peers>>>>,
    nudges: Arc<Semaphore>,
}

impl Client {
    /// A client of `engine`.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, peers: Arc::default(), nudges: owner::nudges() }
    }

    /// A client that reaches the other nodes in this way.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn beside(engine: Arc<Engine>, peers: Arc<dyn Peers>) -> Self {
        Self { engine, peers: Arc::new(OnceLock::from(Some(peers))), nudges: owner::nudges() }
    }

    /// The node.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The key of an existing or future execution, as a caller names it. Ids that the engine derived are accepted.
    fn key(&self, workflow_type: &str, id: &str) -> Result<WorkflowKey, ClientError> {
        if self.engine.code().workflows.get(workflow_type).is_none() {
            return Err(ClientError::unknown_type(workflow_type, &self.engine.code().workflows));
        }
        let (root, derived) = id.split_once('~').map_or((id, None), |(root, rest)| (root, Some(rest)));
        check_id(root).map_err(|error| ClientError::invalid_id(&error))?;
        if derived.is_some_and(|hash| hash.len() != 16 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return Err(ClientError::invalid_id(&crate::id::InvalidId::Character('~')));
        }
        Ok(WorkflowKey::new(workflow_type, id))
    }
}
