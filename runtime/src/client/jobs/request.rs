//! What a job is asked for, and what is wrong with it if something is.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::{JOB_PER_SECOND_DEFAULT, JOB_PER_SECOND_MAX, JOB_TYPE};
use crate::client::attention::AttentionFilter;
use crate::payload::{InvalidField, Payload};
use crate::time::Timestamp;
use crate::workflow::WorkflowRegistry;

/// The longest reason of a job, in bytes: the history of each item has it together with the job's id.
const REASON_BYTES_MAX: usize = 700;
/// The largest result that a job gives its items, in bytes; each item's history gets a copy.
const RESULT_BYTES_MAX: usize = 64 * 1024;

/// What a job does with each of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobAction {
    /// A step that waits for a person is tried again.
    Retry,
    /// A step that waits for a person gets this result.
    Resolve,
    /// A step that waits for a person is not done.
    Skip,
    /// A deadline is set to one instant.
    SetDeadline,
    /// A deadline is moved by a duration.
    MoveDeadline,
}

impl JobAction {
    /// Whether its items are deadlines; otherwise they are steps that wait for a person.
    pub fn is_about_deadlines(self) -> bool {
        matches!(self, Self::SetDeadline | Self::MoveDeadline)
    }

    /// The word that the API and the command line use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Resolve => "resolve",
            Self::Skip => "skip",
            Self::SetDeadline => "set-deadline",
            Self::MoveDeadline => "move-deadline",
        }
    }
}

/// By how much a deadline is moved: an ISO 8601 duration of days and smaller units, with a sign if it is to come earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// By so much.
    pub by: Duration,
    /// Whether it is to come earlier.
    pub earlier: bool,
}

impl Shift {
    /// The instant that is so much later, or earlier.
    pub fn apply(self, instant: Timestamp) -> Timestamp {
        if self.earlier { instant.saturating_sub(self.by) } else { instant.saturating_add(self.by) }
    }

    /// Days have 24 hours: no time zone is involved.
    fn parse(text: &str) -> Option<Self> {
        let span: jiff::Span = text.parse().ok()?;
        if !text.trim_start_matches(['-', '+']).starts_with('P') || span.get_years() != 0 || span.get_months() != 0 {
            return None;
        }
        let signed = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
        Some(Self { by: signed.unsigned_abs(), earlier: signed.is_negative() })
    }
}

impl fmt::Display for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.by.as_millis();
        write!(f, "{}PT{}.{:03}S", if self.earlier { "-" } else { "" }, millis / 1000, millis % 1000)
    }
}

impl Serialize for Shift {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Shift {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom("not an ISO 8601 duration in days or less: write PT30M for later, -PT30M for earlier")
        })
    }
}

/// Which items a job selects; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobFilter {
    /// Of this workflow type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub workflow_type: Option<String>,
    /// Of workflows with these search attributes; a text matches a text, a number or a truth value that is spelled so.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Steps of this name, such as `release-stock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Steps with a last failure of this kind, such as `http-422`; `by-hand` for those left to a person from the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Deadlines at this instant or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_after: Option<Timestamp>,
    /// Deadlines before this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_before: Option<Timestamp>,
}

impl JobFilter {
    /// The part of it that is about steps.
    pub(super) fn of_steps(&self) -> AttentionFilter {
        AttentionFilter {
            workflow_type: self.workflow_type.clone(),
            attributes: self.attributes.clone(),
            activity: self.activity.clone(),
            failure: self.failure.clone(),
        }
    }
}

/// A job as it is asked for; the input of its workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRequest {
    /// What is done with each item.
    pub action: JobAction,
    /// Which items.
    pub filter: JobFilter,
    /// Why; recorded with each item.
    pub reason: String,
    /// Who; recorded with each item.
    pub actor: String,
    /// Whether it only selects, and changes nothing.
    pub dry_run: bool,
    /// How many items a second at most.
    pub per_second: u32,
    /// The result that steps get, for `resolve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// When workflows are to be due, for `set-deadline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// By how much deadlines move, for `move-deadline`: `PT30M` for later, `-PT30M` for earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub by: Option<Shift>,
}

impl JobRequest {
    /// A request with the usual rate, for nothing yet.
    pub fn new(action: JobAction, filter: JobFilter, reason: impl Into<String>, actor: impl Into<String>) -> Self {
        let (reason, actor) = (reason.into(), actor.into());
        let per_second = JOB_PER_SECOND_DEFAULT;
        Self { action, filter, reason, actor, dry_run: false, per_second, result: None, deadline: None, by: None }
    }

    /// Where an item's deadline is moved to.
    pub(super) fn moved(&self, from: Timestamp) -> Option<Timestamp> {
        self.deadline.or_else(|| self.by.map(|by| by.apply(from)))
    }

    /// Everything that is wrong with it.
    pub(super) fn faults(&self, workflows: &WorkflowRegistry) -> Vec<InvalidField> {
        let mut faults = Vec::new();
        let mut fault = |field: &str, message: String| faults.push(InvalidField::new(field, message));
        if self.reason.trim().is_empty() || self.reason.len() > REASON_BYTES_MAX || self.reason.contains('\0') {
            fault("reason", format!("say why, in 1 to {REASON_BYTES_MAX} bytes: it is recorded with each item"));
        }
        if self.per_second == 0 || self.per_second > JOB_PER_SECOND_MAX {
            fault("perSecond", format!("1 to {JOB_PER_SECOND_MAX}"));
        }
        if self.result.as_ref().is_some_and(|result| result.len() > RESULT_BYTES_MAX) {
            fault("result", format!("at most {RESULT_BYTES_MAX} bytes"));
        }
        let (action, filter) = (self.action, &self.filter);
        for (field, wanted_by, is_there) in [
            ("result", JobAction::Resolve, self.result.is_some()),
            ("deadline", JobAction::SetDeadline, self.deadline.is_some()),
            ("by", JobAction::MoveDeadline, self.by.is_some()),
        ] {
            match (action == wanted_by, is_there) {
                (true, false) => fault(field, format!("missing: {} needs it", action.as_str())),
                (false, true) => fault(field, format!("{} has no use for it; leave it out", action.as_str())),
                _ => {}
            }
        }
        let deadlines = action.is_about_deadlines();
        for (field, of_deadlines, is_there) in [
            ("filter.activity", false, filter.activity.is_some()),
            ("filter.failure", false, filter.failure.is_some()),
            ("filter.dueAfter", true, filter.due_after.is_some()),
            ("filter.dueBefore", true, filter.due_before.is_some()),
        ] {
            if is_there && deadlines != of_deadlines {
                let items = if deadlines { "deadlines" } else { "steps that wait for a person" };
                fault(field, format!("the items of {} are {items}; leave it out", action.as_str()));
            }
        }
        if let Some(name) = &filter.workflow_type {
            match workflows.get(name).filter(|_| name != JOB_TYPE) {
                None => fault("filter.type", format!("there is no workflow type {name:?} that a job can act on")),
                Some(workflow) if deadlines && workflow.deadline().is_none() => {
                    fault("filter.type", format!("{name} declares no deadline that can be moved"));
                }
                Some(_) => {}
            }
        }
        faults
    }
}
