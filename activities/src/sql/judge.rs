//! What an order's row says to a question, when the update changed nothing: pure.

use std::time::Duration;

use overdue_runtime::Timestamp;
use overdue_runtime::activity::ActivityFailure;
use serde_json::{Map, Value, json};

use super::failure::Teller;

/// What a status means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Waiting,
    Paid,
    Cancelled,
    /// Neither can be decided yet.
    Creating,
}

/// How long until an order that is still being created is asked for again.
const CREATING_WAIT: Duration = Duration::from_secs(5);

/// The type of failures that are a row's own: a person must say what it means.
pub(crate) const UNKNOWN_OUTCOME: &str = "unknown-outcome";

/// An order's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) meaning: Meaning,
    pub(crate) transaction_id: Option<String>,
    pub(crate) pay_deadline: Option<Timestamp>,
}

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Cancel { pay_deadline: Timestamp },
    ConfirmPaid { paid_at: Timestamp },
}

pub(crate) type Outcome = Map<String, Value>;

/// The outcome of an update that changed the one row.
pub(crate) fn won(question: &Question) -> Outcome {
    plain(match question {
        Question::Cancel { .. } => "CANCELLED",
        Question::ConfirmPaid { .. } => "PAID",
    })
}

/// The outcome of an update that changed nothing.
pub(crate) fn lost(
    question: &Question,
    found: Option<&Found>,
    now: Timestamp,
    teller: &Teller,
) -> Result<Outcome, ActivityFailure> {
    let Some(found) = found else { return Ok(plain("NOT_FOUND")) };
    match (question, found.meaning) {
        (_, Meaning::Cancelled) => Ok(plain("ALREADY_CANCELLED")),
        (Question::Cancel { .. }, Meaning::Paid) => {
            let transaction = found.transaction_id.iter().map(|id| ("transactionId".to_owned(), json!(id)));
            Ok(plain("ALREADY_PAID").into_iter().chain(transaction).collect())
        }
        (Question::ConfirmPaid { .. }, Meaning::Paid) => match &found.transaction_id {
            Some(transaction_id) => Ok(with("ALREADY_PAID", "transactionId", json!(transaction_id))),
            None => Err(teller.permanent(
                UNKNOWN_OUTCOME,
                "the order is paid, but the table does not say by which transaction: a person must tell whether it was this one",
            )),
        },
        (Question::Cancel { .. }, Meaning::Creating) => Ok(with("NOT_READY", "retryAfter", json!(CREATING_WAIT.as_secs()))),
        (Question::ConfirmPaid { .. }, Meaning::Creating) => {
            let what = teller.worded("the order is still being created");
            Err(ActivityFailure::neutral("not-ready", what, Some(CREATING_WAIT)))
        }
        (Question::Cancel { pay_deadline }, Meaning::Waiting) => match found.pay_deadline {
            Some(known) if known > *pay_deadline || known > now => Ok(with("NOT_DUE", "payDeadline", json!(known))),
            _ => Err(undecided(teller)),
        },
        (Question::ConfirmPaid { paid_at }, Meaning::Waiting) => match found.pay_deadline {
            Some(known) if known < *paid_at || known <= now => Ok(plain("EXPIRED")),
            _ => Err(undecided(teller)),
        },
    }
}

/// The row changed between the two statements, or the update asks for more than the look tells.
fn undecided(teller: &Teller) -> ActivityFailure {
    teller.transient(
        "undecided",
        "the order waits, but the update changed nothing: its WHERE asks for something that `look` does not tell",
    )
}

fn plain(word: &str) -> Outcome {
    Map::from_iter([("outcome".to_owned(), json!(word))])
}

fn with(word: &str, field: &str, value: Value) -> Outcome {
    Map::from_iter([("outcome".to_owned(), json!(word)), (field.to_owned(), value)])
}
