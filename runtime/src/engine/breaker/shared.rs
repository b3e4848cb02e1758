//! Where a breaker stands for all nodes: the document that they share.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::BreakerName;
use crate::store::Control;
use crate::time::Timestamp;

/// The names of breakers' documents begin with this.
const PREFIX: &str = "breaker ";

/// Where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "position")]
pub(crate) enum SharedPosition {
    /// Calls go.
    Closed,
    /// Nothing goes, but for a probe.
    Open {
        /// From when on a call may probe, in microseconds of the store's clock.
        until: i64,
        /// The probe under way, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        probe: Option<Probe>,
    },
    /// Nothing goes until a person says so.
    ForcedOpen,
    /// Everything goes until a person says so, whatever comes of it.
    ForcedClosed,
}

/// Which node probes, and until when at most: then its place is free again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    pub(crate) node: String,
    pub(crate) until: i64,
}

/// What all nodes know of a breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedBreaker {
    #[serde(flatten)]
    pub(crate) position: SharedPosition,
    /// Since when, in microseconds of the store's clock.
    pub(crate) since: i64,
    /// Why, where a person or a refusal forced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Who forced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
}

impl SharedBreaker {
    pub(crate) fn new(position: SharedPosition, now: Timestamp) -> Self {
        Self { position, since: now.as_micros(), reason: None, actor: None }
    }

    /// As it is stored behind revision `rev`.
    pub(crate) fn control(&self, name: &BreakerName, rev: u64) -> Control {
        let value = serde_json::to_vec(self).expect("writing to memory cannot fail");
        Control { name: format!("{PREFIX}{name}"), rev: rev + 1, value: Bytes::from(value) }
    }

    /// Reads a document, if it is one of a breaker and this program understands it.
    pub(crate) fn read(control: &Control) -> Option<(BreakerName, Self)> {
        let name = control.name.strip_prefix(PREFIX)?;
        let shared = serde_json::from_slice(&control.value);
        let unreadable =
            |error: &serde_json::Error| tracing::warn!(breaker = name, %error, "the breaker's document cannot be read");
        Some((name.into(), shared.inspect_err(unreadable).ok()?))
    }
}
