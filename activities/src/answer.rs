//! What an answer means: an outcome, or a failure of one of three classes.
//!
//! | answer | is |
//! |---|---|
//! | 2xx, 404, 409 or a configured status, with a known outcome | that outcome |
//! | 3xx | permanent, `redirect`: none is followed |
//! | 429, or anything else with a valid `Retry-After` | neutral, `throttled` |
//! | 2xx that cannot be read (no JSON, too deep, too large, cut off) | transient, `unreadable`, `too-large`, `broken`: it may have taken effect |
//! | 2xx with a clear body whose outcome is unknown | permanent, `unknown-outcome` |
//! | 408, 425, 5xx | transient, `http-…` |
//! | 404, 409 cut off | transient, `broken` |
//! | any other | permanent, `http-…` |

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use overdue_runtime::activity::ActivityFailure;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::excerpt::excerpt;
use crate::reading::NoOutcome;

/// The largest answer, in bytes: an outcome with its fields has a few hundred.
pub(crate) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A known outcome.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The outcome and its fields, in our words.
    pub(crate) outcome: Map<String, Value>,
}

/// What was received after the head of an answer.
pub(crate) enum Body {
    Whole(Bytes),
    /// Over [`ANSWER_BYTES_MAX`]; its beginning.
    TooLarge(Bytes),
    /// Cut off; its beginning, and why.
    Broken(Bytes, String),
}

impl Body {
    fn received(&self) -> &Bytes {
        match self {
            Body::Whole(bytes) | Body::TooLarge(bytes) | Body::Broken(bytes, _) => bytes,
        }
    }
}

/// What a call makes of an answer; `wait` is what its `Retry-After` says.
pub(crate) fn read(call: &Call, status: StatusCode, wait: Option<Duration>, body: &Body) -> Result<Answer, ActivityFailure> {
    let outcome = match body {
        Body::Whole(bytes) if call.reading.may_hold_outcome(status) => Some(call.reading.read(status, bytes, wait)),
        _ => None,
    };
    let no_outcome = match outcome {
        Some(Ok(outcome)) => return Ok(Answer { status, outcome }),
        Some(Err(why)) => Some(why),
        None => None,
    };
    Err(failure(call, status, wait, body, no_outcome))
}

fn failure(
    call: &Call,
    status: StatusCode,
    wait: Option<Duration>,
    body: &Body,
    no_outcome: Option<NoOutcome>,
) -> ActivityFailure {
    let code = status.as_u16();
    let explain = |what: String| {
        let quoted = excerpt(body.received(), call.secret.as_deref());
        let quoted = if quoted.is_empty() { String::new() } else { format!(": {quoted}") };
        format!("{} of {}: {what}{quoted}", call.definition.name, call.downstream)
    };
    let answered = || explain(format!("answered {status}"));
    if status.is_redirection() {
        return ActivityFailure::permanent("redirect", explain(format!("answered {status}, and no redirect is followed")));
    }
    if code == 429 || wait.is_some() {
        return ActivityFailure::neutral("throttled", answered(), wait);
    }
    if matches!(code, 408 | 425) || status.is_server_error() {
        return ActivityFailure::transient(format!("http-{code}"), answered());
    }
    match (body, no_outcome) {
        (Body::Broken(_, why), _) if call.reading.may_hold_outcome(status) => {
            ActivityFailure::transient("broken", explain(format!("answered {status}, and the answer was cut off ({why})")))
        }
        (Body::TooLarge(_), _) if status.is_success() => {
            let what = format!("answered {status} with more than {ANSWER_BYTES_MAX} bytes, beginning");
            ActivityFailure::transient("too-large", explain(what))
        }
        (_, Some(NoOutcome::Unreadable(why))) if status.is_success() => {
            ActivityFailure::transient("unreadable", explain(format!("answered {status}, but {why}")))
        }
        (_, Some(NoOutcome::Unknown(why))) if status.is_success() => {
            ActivityFailure::permanent("unknown-outcome", explain(format!("answered {status}, but {why}")))
        }
        _ => ActivityFailure::permanent(format!("http-{code}"), answered()),
    }
}

impl Answer {
    /// The outcome as its type. An outcome that lacks a field is as good as unknown: asking again gives the same.
    pub(crate) fn typed<O: DeserializeOwned>(self, call: &Call) -> Result<O, ActivityFailure> {
        let word = self.outcome.get("outcome").and_then(Value::as_str).unwrap_or_default().to_owned();
        serde_json::from_value(Value::Object(self.outcome)).map_err(|error| {
            let (name, downstream) = (call.definition.name, call.downstream);
            let why = excerpt(error.to_string().as_bytes(), call.secret.as_deref());
            ActivityFailure::permanent(
                "unknown-outcome",
                format!("{name} of {downstream}: the answer {word} is not complete: {why}"),
            )
        })
    }
}
