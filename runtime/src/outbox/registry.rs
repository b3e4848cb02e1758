//! The sinks of a program, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Sink;

/// The longest name of a sink, in bytes: it stands in every row that waits for it.
const NAME_BYTES_MAX: usize = 40;

/// A text that cannot name a sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sink cannot be named {0:?}: write 1 to {NAME_BYTES_MAX} lower-case letters, digits, '-' and '_'")]
pub struct InvalidSinkName(pub String);

/// Checks the name of a sink.
///
/// # Errors
/// [`InvalidSinkName`].
pub fn check_sink_name(name: &str) -> Result<(), InvalidSinkName> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
    if fits { Ok(()) } else { Err(InvalidSinkName(name.chars().take(NAME_BYTES_MAX).collect())) }
}

/// The sinks of a program. Without one nothing is written for those outside.
#[derive(Clone, Default)]
pub struct SinkRegistry {
    by_name: BTreeMap<String, Arc<dyn Sink>>,
}

impl SinkRegistry {
    /// Adds a sink. A later one of the same name replaces an earlier one.
    ///
    /// # Errors
    /// [`InvalidSinkName`].
    pub fn register(&mut self, sink: impl Sink) -> Result<(), InvalidSinkName> {
        check_sink_name(sink.name())?;
        self.by_name.insert(sink.name().to_owned(), Arc::new(sink));
        Ok(())
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Sink>> {
        self.by_name.values()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether there is one of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The names of those that take an event.
    pub(crate) fn takers<'a>(&'a self, event: &'a str) -> impl Iterator<Item = &'a str> {
        self.by_name.iter().filter(move |(_, sink)| sink.takes(event)).map(|(name, _)| name.as_str())
    }
}
