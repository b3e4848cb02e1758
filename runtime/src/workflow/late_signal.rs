//! The execution that keeps a late signal for which its workflow has no handler: it records it and ends at once.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Workflow;
use super::context::WorkflowContext;
use super::declare::{LateStart, SignalView};
use super::error::WorkflowError;
use crate::payload::Payload;

/// The workflow type of kept late signals.
pub const LATE_SIGNAL_TYPE: &str = "late-signal";

pub(crate) struct LateSignal;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kept {
    name: String,
    signal_id: String,
    payload: Payload,
}

#[derive(Serialize)]
pub(crate) struct Noted {
    outcome: &'static str,
}

impl LateSignal {
    /// The start that keeps `signal`.
    pub(crate) fn keep(signal: &SignalView<'_>) -> LateStart {
        let kept = Kept { name: signal.name.to_owned(), signal_id: signal.signal_id.to_owned(), payload: signal.payload.clone() };
        let input = Payload::of(&kept).unwrap_or_else(|_| Payload::null());
        LateStart { workflow_type: LATE_SIGNAL_TYPE, subject: signal.signal_id.to_owned(), input }
    }
}

#[async_trait]
impl Workflow for LateSignal {
    const TYPE: &'static str = LATE_SIGNAL_TYPE;
    type Input = Kept;
    type Output = Noted;

    async fn run(&self, _ctx: WorkflowContext, _input: Kept) -> Result<Noted, WorkflowError> {
        Ok(Noted { outcome: "late" })
    }
}
