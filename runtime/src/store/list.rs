//! Listing executions: filters, positions, pages.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Execution, Status};
use crate::payload::Payload;
use crate::time::Timestamp;

/// The value of a search attribute.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number, by its spelling: `1` and `1.0` are different values.
    Number(Payload),
    /// A truth value.
    Bool(bool),
}

impl AttributeValue {
    /// The stored form: one letter for the kind, then the text. Equal values have equal forms.
    pub fn stored(&self) -> String {
        match self {
            Self::Text(text) => format!("t{text}"),
            Self::Number(number) => format!("n{}", number.as_str()),
            Self::Bool(value) => format!("b{value}"),
        }
    }

    /// The value of a stored form.
    pub fn from_stored(stored: &str) -> Option<Self> {
        let (kind, text) = stored.split_at_checked(1)?;
        match kind {
            "t" => Some(Self::Text(text.to_owned())),
            "n" => Payload::from_json(text).ok().map(Self::Number),
            "b" => text.parse().ok().map(Self::Bool),
            _ => None,
        }
    }
}

/// Which executions to list; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Of this workflow type.
    pub workflow_type: Option<String>,
    /// With this status.
    pub status: Option<Status>,
    /// With, or without, a step that waits for a person.
    pub needs_attention: Option<bool>,
    /// Open, with `wake_at` before this; the page is then ordered by `wake_at`.
    pub due_before: Option<Timestamp>,
    /// With these search attributes: for each name, any of these stored forms (a query's text may mean a text or a number).
    pub attributes: BTreeMap<String, Vec<String>>,
    /// Only these workflow types, when the caller may see no others.
    pub visible_types: Option<Vec<String>>,
}

/// Where a page ended: the order's key of its last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// `wake_at`, when the page is ordered by it.
    pub wake_at: Option<Timestamp>,
    /// Workflow type.
    pub workflow_type: String,
    /// Workflow id.
    pub id: String,
}

impl Position {
    /// The beginning of what is due at an instant or later, for a page that is ordered by time.
    pub fn at(wake_at: Timestamp) -> Self {
        // Types and ids are not empty, so the empty ones are before all.
        Self { wake_at: Some(wake_at), workflow_type: String::new(), id: String::new() }
    }
}

/// A listed execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its row.
    pub execution: Execution,
    /// Its search attributes, by name.
    pub attributes: Vec<(String, AttributeValue)>,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its rows, in order.
    pub rows: Vec<Listed>,
    /// Where to go on; `None` when this was the last page.
    pub next: Option<Position>,
}
