//! What is there when a schedule has been played.

use crate::history::Event;
use crate::payload::Payload;
use crate::store::Status;

/// Everything that became of the execution, and of what was started for it.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// By type and id.
    pub executions: Vec<EndedExecution>,
}

/// One execution.
#[derive(Clone, Debug)]
pub struct EndedExecution {
    /// Its type.
    pub workflow_type: String,
    /// Its id.
    pub id: String,
    /// How it ended.
    pub status: Status,
    /// What it returned, if it did.
    pub result: Option<Payload>,
    /// Its history.
    pub events: Vec<Event>,
}

impl Ended {
    /// The execution of this type, the first if there are several.
    pub fn of_type(&self, workflow_type: &str) -> Option<&EndedExecution> {
        self.executions.iter().find(|execution| execution.workflow_type == workflow_type)
    }
}
