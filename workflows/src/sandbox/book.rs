//! What the four services have in common: a pure decision over their books, and effects that change them.
//!
//! Invariant: a book changes by effects alone, and each effect is a line of the ledger, so replaying the ledger gives
//! the same book.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Call, Effect, Service};

/// A request, stripped of HTTP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) call: Call,
    pub(super) subject: &'a str,
    pub(super) body: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Ask<'a> {
    /// A string field of the body; its absence is the caller's mistake.
    pub(super) fn text(&self, field: &'static str) -> Result<&'a str, Decision> {
        self.body
            .get(field)
            .and_then(Value::as_str)
            .ok_or_else(|| Decision::invalid(format!("{field} must be given as a string")))
    }
}

/// What a service answers and what it changes by answering.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) status: u16,
    pub(super) answer: Value,
    pub(super) effects: Vec<Effect>,
    /// The once-only effect (see [`Effect::once`]) that was asked for although it stood already.
    pub(super) asked_again: Option<String>,
    /// Whether the same key gets this answer again; a refusal that may turn out otherwise is asked afresh.
    pub(super) kept: bool,
}

impl Decision {
    /// 200 with an outcome and its fields.
    pub(super) fn done(answer: Value) -> Decision {
        Decision { status: 200, answer, effects: Vec::new(), asked_again: None, kept: true }
    }

    /// 200 with a bare outcome.
    pub(super) fn outcome(outcome: &str) -> Decision {
        Decision::done(json!({ "outcome": outcome }))
    }

    /// 404 with its outcome.
    pub(super) fn unknown(outcome: &str) -> Decision {
        Decision { status: 404, ..Decision::outcome(outcome) }
    }

    /// 409 with an outcome and its fields: the state speaks against what was asked.
    pub(super) fn conflict(answer: Value) -> Decision {
        Decision { status: 409, ..Decision::done(answer) }
    }

    /// 422 without an outcome: the request breaks the contract.
    pub(super) fn invalid(detail: String) -> Decision {
        Decision { status: 422, kept: false, ..Decision::done(json!({ "title": "invalid request", "detail": detail })) }
    }

    pub(super) fn with(mut self, effect: Effect) -> Decision {
        self.effects.push(effect);
        self
    }

    pub(super) fn again(mut self, effect: Effect, subject: &str) -> Decision {
        self.asked_again = effect.once(subject);
        self
    }

    pub(super) fn not_kept(mut self) -> Decision {
        self.kept = false;
        self
    }
}

/// One service's state.
pub(super) trait Book: Default + Send + 'static {
    /// Whose book it is.
    const SERVICE: Service;

    /// Answers a request without changing anything.
    fn decide(&self, ask: &Ask<'_>) -> Decision;

    /// Changes the book as the effect says; an effect of another service is none of its business.
    fn apply(&mut self, subject: &str, effect: &Effect, at: Timestamp);
}

/// Asks and applies without a desk: what the services' own tests need.
#[cfg(test)]
pub(super) fn ask<B: Book>(book: &mut B, call: Call, subject: &str, body: Value) -> Decision {
    ask_at(book, call, subject, body, Timestamp::now())
}

#[cfg(test)]
pub(super) fn ask_at<B: Book>(book: &mut B, call: Call, subject: &str, body: Value, now: Timestamp) -> Decision {
    let decision = book.decide(&Ask { call, subject, body: &body, now });
    for effect in &decision.effects {
        book.apply(subject, effect, now);
    }
    decision
}
