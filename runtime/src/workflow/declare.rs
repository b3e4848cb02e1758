//! What a workflow type declares about itself: its signals, its deadline, its steps by hand, what happens to late signals.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::payload::{InvalidField, Payload};
use crate::time::Timestamp;

/// A signal that a workflow takes.
pub trait Signal: Serialize + DeserializeOwned + Send + 'static {
    /// Its name in the API, such as `payment-succeeded`.
    const NAME: &'static str;

    /// Checks what the type cannot say.
    ///
    /// # Errors
    /// The fields that are not as they must be.
    fn check(&self) -> Result<(), Vec<InvalidField>> {
        Ok(())
    }

    /// What the signal is about. It serves as signal id where the sender gives none, and two signals of this name with
    /// the same subject are the same signal.
    fn subject(&self) -> Option<String> {
        None
    }

    /// The part of it that makes a second delivery the same. By default all of it.
    fn identity(&self) -> Option<Payload> {
        None
    }
}

/// A signal as it was checked at the door.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedSignal {
    /// What it is about.
    pub subject: Option<String>,
    /// Two deliveries say the same when this is equal.
    pub identity: [u8; 16],
}

/// The declaration of a signal, without its type.
#[derive(Clone, Copy)]
pub struct SignalDeclaration {
    /// Its name.
    pub name: &'static str,
    check: fn(&Payload) -> Result<CheckedSignal, Vec<InvalidField>>,
}

impl SignalDeclaration {
    /// Declares the signal `S`.
    pub fn of<S: Signal>() -> Self {
        Self { name: S::NAME, check: check_signal::<S> }
    }

    /// Checks a payload.
    ///
    /// # Errors
    /// The fields that are not as they must be.
    pub fn check(&self, payload: &Payload) -> Result<CheckedSignal, Vec<InvalidField>> {
        (self.check)(payload)
    }
}

fn check_signal<S: Signal>(payload: &Payload) -> Result<CheckedSignal, Vec<InvalidField>> {
    let signal: S = payload.parse().map_err(|error| vec![error])?;
    signal.check()?;
    let identity = signal.identity().as_ref().unwrap_or(payload).canonical_hash();
    Ok(CheckedSignal { subject: signal.subject(), identity })
}

/// A deadline as a person sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeadline {
    /// When the execution is to be due: later than it is now, or earlier.
    pub deadline: Timestamp,
    /// Why.
    pub reason: String,
    /// Who.
    pub actor: String,
}

/// The declaration of a deadline that can be moved: the timer that waits for it, and the signal that moves it.
#[derive(Clone, Copy)]
pub struct DeadlineDeclaration {
    /// What the workflow calls the timer, such as `payDeadline`.
    pub timer: &'static str,
    /// Name of the signal.
    pub signal: &'static str,
    payload: fn(NewDeadline) -> Result<Payload, serde_json::Error>,
}

impl DeadlineDeclaration {
    /// Declares that the signal `S`, one of the type's [`signals`](super::Workflow::signals), moves what `timer` waits for.
    pub fn of<S: Signal + From<NewDeadline>>(timer: &'static str) -> Self {
        Self { timer, signal: S::NAME, payload: |new| Payload::of(&S::from(new)) }
    }

    /// The signal's payload for this deadline.
    pub(crate) fn payload(&self, new: NewDeadline) -> Result<Payload, serde_json::Error> {
        (self.payload)(new)
    }
}

/// The declaration of a step that is left to a person.
#[derive(Clone, Copy)]
pub struct ByHandStep {
    /// Its name, such as `review-payment`.
    pub name: &'static str,
    check: fn(&Payload) -> Result<(), InvalidField>,
}

impl ByHandStep {
    /// Declares a step that is resolved with a `T`.
    pub fn of<T: DeserializeOwned>(name: &'static str) -> Self {
        Self { name, check: |payload| payload.parse::<T>().map(|_| ()) }
    }

    /// Checks a result that a person gives.
    ///
    /// # Errors
    /// The field that is not as it must be.
    pub fn check(&self, result: &Payload) -> Result<(), InvalidField> {
        (self.check)(result)
    }
}

/// A step that needs a person.
#[derive(Clone, Copy, Debug)]
pub struct StepInTrouble<'a> {
    /// Number of its `ActivityScheduled`.
    pub number: u64,
    /// Its name.
    pub name: &'a str,
    /// Why: the last failure, or what the workflow says of a step that is left to a person.
    pub why: &'a str,
}

/// A signal that came too late for its execution.
#[derive(Clone, Copy, Debug)]
pub struct SignalView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Identifies the delivery.
    pub signal_id: &'a str,
    /// What it says.
    pub payload: &'a Payload,
    /// Why it is late.
    pub lateness: Lateness,
    /// The input of its execution, if that was ever started.
    pub input: Option<&'a Payload>,
}

/// Why a signal is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// Its execution had ended.
    AfterTheEnd,
    /// Nobody started its execution since this time.
    NeverStarted {
        /// When the signal was received.
        received_at: Timestamp,
    },
}

/// The execution that acts on a late signal: its id is derived from the signal's execution and the subject.
#[derive(Clone, Debug, PartialEq)]
pub struct LateStart {
    /// Its workflow type.
    pub workflow_type: &'static str,
    /// What the signal is about; a second signal about the same is the same.
    pub subject: String,
    /// Its input.
    pub input: Payload,
}
