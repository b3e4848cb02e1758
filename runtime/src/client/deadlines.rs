//! Deadlines as operators see them: how many come when, and moving one.

use serde::Serialize;
use utoipa::ToSchema;

use super::{ActionOutcome, Client, ClientError, SignalOutcome, SignalRequest, check_reason};
use crate::id::WorkflowKey;
use crate::payload::InvalidField;
use crate::time::Timestamp;
use crate::workflow::{DeadlineDeclaration, NewDeadline};

/// The longest forecast, in minutes: a day. Each of them costs a look at every shard.
pub const FORECAST_MINUTES_MAX: usize = 1_440;
/// The most rows that one forecast reads, shared evenly among its minutes: what it costs does not grow with the sleepers.
pub const FORECAST_ROWS_MAX: usize = 600_000;
const MICROS_PER_MINUTE: i64 = 60_000_000;

/// What a forecast is to count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForecastQuery {
    /// Where its first minute begins; by default where the present one began.
    pub from: Option<Timestamp>,
    /// How many minutes, 1 to [`FORECAST_MINUTES_MAX`].
    pub minutes: usize,
    /// Only this workflow type.
    pub workflow_type: Option<String>,
    /// Only these types, when the caller may see no others.
    pub visible_types: Option<Vec<String>>,
}

/// How many workflows become due, minute by minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadlineForecast {
    /// Where the first minute begins.
    pub from: Timestamp,
    /// The minutes, in order, those without any included.
    pub minutes: Vec<DueMinute>,
    /// How many workflows are looked at in one minute at most; a minute with more than that says `isAtLeast`.
    pub looked_at_per_minute_max: usize,
}

/// How many workflows become due in one minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DueMinute {
    /// When it begins.
    pub at: Timestamp,
    /// So many.
    pub due: u64,
    /// Whether it was not counted to its end: there are `due` at least.
    pub is_at_least: bool,
}

/// A deadline that a person moves.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadlineRequest {
    /// Workflow type.
    pub workflow_type: String,
    /// Workflow id.
    pub id: String,
    /// When it is to be due: later than it is, or earlier; an instant in the past is due at once.
    pub deadline: Timestamp,
    /// Why; recorded.
    pub reason: String,
    /// Who; recorded.
    pub actor: String,
    /// Identifies the request: a second one with the same id is a duplicate. By default a new random id.
    pub signal_id: Option<String>,
}

impl Client {
    /// Counts what becomes due, minute by minute: open workflows by the instant at which they are looked at next.
    ///
    /// # Errors
    /// [`ClientError::Malformed`] for a number of minutes out of range.
    pub async fn forecast(&self, query: &ForecastQuery) -> Result<DeadlineForecast, ClientError> {
        if query.minutes == 0 || query.minutes > FORECAST_MINUTES_MAX {
            let message = format!("1 to {FORECAST_MINUTES_MAX}; begin a further one where it ends");
            return Err(ClientError::Malformed(vec![InvalidField::new("minutes", message)]));
        }
        let now = self.engine().environment().clock.now().as_micros();
        let from = query.from.unwrap_or(Timestamp::from_micros(now - now.rem_euclid(MICROS_PER_MINUTE)));
        let minute = |number: usize| {
            let micros = i64::try_from(number).unwrap_or(i64::MAX).saturating_mul(MICROS_PER_MINUTE);
            Timestamp::from_micros(from.as_micros().saturating_add(micros))
        };
        let edges: Vec<Timestamp> = (0..=query.minutes).map(minute).collect();
        let rows_max = FORECAST_ROWS_MAX / query.minutes;
        let counts = self.engine().store().due_counts(&edges, shown(query).as_deref(), rows_max).await?;
        let minutes = edges.iter().zip(counts);
        let minutes = minutes.map(|(at, count)| DueMinute { at: *at, due: count.due, is_at_least: count.is_cut }).collect();
        Ok(DeadlineForecast { from, minutes, looked_at_per_minute_max: rows_max })
    }

    /// Moves the deadline of an open workflow, by the signal that its type declares for it; recorded with who and why.
    /// Whether it can still be moved is the workflow's own decision: [`ActionOutcome::Late`] when it cannot.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Invalid`] for a type whose deadline nobody can move.
    pub async fn set_deadline(&self, request: DeadlineRequest) -> Result<ActionOutcome, ClientError> {
        let key = self.key(&request.workflow_type, &request.id)?;
        check_reason(&request.reason)?;
        let declared = self.declared_deadline(&key)?;
        // A signal would wait for an execution that does not exist yet; a deadline that is moved needs one.
        match self.engine().store().find(&key).await? {
            None => return Err(ClientError::not_found(&key)),
            Some(row) if !row.status.is_open() => return Ok(ActionOutcome::Late),
            Some(_) => {}
        }
        let DeadlineRequest { workflow_type, id, deadline, reason, actor, signal_id } = request;
        let payload = declared.payload(NewDeadline { deadline, reason, actor }).map_err(|_| ClientError::Rejected)?;
        let signal = SignalRequest { workflow_type, id, name: declared.signal.to_owned(), signal_id, payload };
        Ok(self.signal(signal).await?.outcome.into())
    }

    /// What the type of an execution declares of its deadline.
    pub(super) fn declared_deadline(&self, key: &WorkflowKey) -> Result<DeadlineDeclaration, ClientError> {
        let workflow = self.engine().code().workflows.get(key.workflow_type());
        workflow.and_then(|workflow| workflow.deadline()).ok_or_else(|| {
            let message = format!("{} declares no deadline that can be moved", key.workflow_type());
            ClientError::Invalid(vec![InvalidField::new("type", message)])
        })
    }
}

impl From<SignalOutcome> for ActionOutcome {
    fn from(outcome: SignalOutcome) -> Self {
        match outcome {
            SignalOutcome::Applied => Self::Applied,
            SignalOutcome::Buffered => Self::Buffered,
            SignalOutcome::Late => Self::Late,
            SignalOutcome::Duplicate => Self::Duplicate,
        }
    }
}

/// The types that a forecast counts; `None` for all.
fn shown(query: &ForecastQuery) -> Option<Vec<String>> {
    let (one, visible) = (query.workflow_type.as_ref(), query.visible_types.as_ref());
    match (one, visible) {
        (None, visible) => visible.cloned(),
        (Some(one), None) => Some(vec![one.clone()]),
        (Some(one), Some(visible)) => Some(visible.iter().filter(|shown| *shown == one).take(1).cloned().collect()),
    }
}
