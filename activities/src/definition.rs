//! What a call is by default: its request and the outcomes that it may have.

use http::Method;

/// A call of a downstream, as the contract defines it.
pub(crate) struct Definition {
    /// The activity's name.
    pub(crate) name: &'static str,
    pub(crate) method: Method,
    /// Under the downstream's URL, with fields of the input in braces.
    pub(crate) path: &'static str,
    /// The fields of the input that are sent in the body.
    pub(crate) body: &'static [&'static str],
    /// The fields of the input that a configured path or body may use besides: those of the default path.
    pub(crate) others: &'static [&'static str],
    pub(crate) outcomes: &'static [Outcome],
}

/// An outcome and what comes with it.
pub(crate) struct Outcome {
    pub(crate) word: &'static str,
    pub(crate) fields: &'static [Field],
}

/// A member of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

/// How a member is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text, or a number by its spelling. It must be there unless the output's type says otherwise.
    Text,
    /// Whole seconds; the `Retry-After` header, then a default, stand in for it.
    Seconds,
    /// Words for a person: shortened and cleaned.
    Note,
}

impl Definition {
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.body.contains(&name) || self.others.contains(&name) || name == IDEMPOTENCY_KEY_FIELD
    }

    /// The fields that a configured path or body may name, for a message.
    pub(crate) fn fields(&self) -> String {
        let fields = self.body.iter().chain(self.others).chain(&[IDEMPOTENCY_KEY_FIELD]);
        fields.copied().collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn outcome(&self, word: &str) -> Option<&'static Outcome> {
        self.outcomes.iter().find(|outcome| outcome.word == word)
    }

    /// Its outcomes, for a message.
    pub(crate) fn words(&self) -> String {
        self.outcomes.iter().map(|outcome| outcome.word).collect::<Vec<_>>().join(", ")
    }
}

/// Names the idempotency key where a configured path or body wants it.
pub(crate) const IDEMPOTENCY_KEY_FIELD: &str = "idempotencyKey";

pub(crate) const fn plain(word: &'static str) -> Outcome {
    Outcome { word, fields: &[] }
}

pub(crate) const fn with(word: &'static str, fields: &'static [Field]) -> Outcome {
    Outcome { word, fields }
}

pub(crate) const fn text(name: &'static str) -> Field {
    Field { name, kind: Kind::Text }
}

pub(crate) const RETRY_AFTER: &[Field] = &[Field { name: "retryAfter", kind: Kind::Seconds }];
pub(crate) const REASON: &[Field] = &[Field { name: "reason", kind: Kind::Note }];
pub(crate) const CAPTURE: &[Field] = &[text("transactionId"), text("amount"), text("currency"), text("paidAt")];
