//! The names of things: workflow types and ids, run ids, shards.
//!
//! One validator for every id, so that each store and each edge accepts the same ones.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unicode_normalization::{UnicodeNormalization, is_nfc};
use uuid::Uuid;

use crate::time::Timestamp;

/// The longest id, in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 200;
/// The longest id of an execution that the engine derives itself (`{id}~{16 hex digits}`).
pub const DERIVED_ID_BYTES_MAX: usize = ID_BYTES_MAX + 17;

/// Why a text cannot be an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Empty or over the limit.
    #[error("an id has 1 to {ID_BYTES_MAX} bytes of UTF-8; this one has {bytes}")]
    Length {
        /// Its length.
        bytes: usize,
    },
    /// A character that is not allowed.
    #[error("an id must not contain {0:?}: it is printable text without '/', '~' and control characters")]
    Character(char),
    /// A relative path segment.
    #[error("an id must not be '.' or '..'")]
    PathSegment,
    /// Not in Unicode normalization form C.
    #[error("an id must be in Unicode normalization form C (NFC): send {0:?}")]
    NotNormalized(String),
    /// Surrounded by white space.
    #[error("an id must not begin or end with white space")]
    Surrounded,
}

/// Checks a caller's id: 1 to 200 bytes of printable UTF-8 in NFC, without `/`, `~` and control characters.
///
/// # Errors
/// [`InvalidId`], which says what to change.
pub fn check_id(text: &str) -> Result<(), InvalidId> {
    if text.is_empty() || text.len() > ID_BYTES_MAX {
        return Err(InvalidId::Length { bytes: text.len() });
    }
    if text == "." || text == ".." {
        return Err(InvalidId::PathSegment);
    }
    if let Some(bad) = text.chars().find(|c| is_refused(*c)) {
        return Err(InvalidId::Character(bad));
    }
    if text.trim() != text {
        return Err(InvalidId::Surrounded);
    }
    if !is_nfc(text) {
        return Err(InvalidId::NotNormalized(text.nfc().collect()));
    }
    Ok(())
}

/// Control characters, separators of lines and paragraphs, invisible formatting (which makes twins of ids), and
/// the two characters that the API gives a meaning.
fn is_refused(c: char) -> bool {
    matches!(c, '/' | '~' | '\u{fffd}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{e0000}'..='\u{e007f}' | '\u{fff0}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}')
        || c.is_control()
}

/// Names an execution: its workflow type and its workflow id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkflowKey {
    workflow_type: Arc<str>,
    id: Arc<str>,
}

impl WorkflowKey {
    /// The key of a stored or derived execution; not checked.
    pub fn new(workflow_type: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { workflow_type: workflow_type.into(), id: id.into() }
    }

    /// The workflow type, such as `order-timeout`.
    pub fn workflow_type(&self) -> &str {
        &self.workflow_type
    }

    /// The workflow id, such as an order's number.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The shard of this execution among `shards`.
    pub fn shard(&self, shards: u16) -> u16 {
        shard_of(&self.id, shards)
    }

    /// The key of the execution that acts on `subject` for this one after it ended: same shard, and not an id that
    /// a caller can choose.
    pub fn derived(&self, workflow_type: &str, subject: &str) -> Self {
        let digest = Sha256::digest(subject.as_bytes());
        Self::new(workflow_type, format!("{}~{}", self.id, hex::encode(&digest[..8])))
    }

    /// The id of the execution that this one was derived from, or its own.
    pub fn root_id(&self) -> &str {
        root_of(&self.id)
    }
}

impl fmt::Display for WorkflowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workflow_type, self.id)
    }
}

impl fmt::Debug for WorkflowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn root_of(id: &str) -> &str {
    id.split_once('~').map_or(id, |(root, _)| root)
}

/// The shard of a workflow id: the first two bytes of `sha256(id up to the first '~')`, big-endian, modulo `shards`.
///
/// The same in Rust and in SQL; a golden file pins it.
pub fn shard_of(id: &str, shards: u16) -> u16 {
    let digest = Sha256::digest(root_of(id).as_bytes());
    u16::from_be_bytes([digest[0], digest[1]]) % shards.max(1)
}

/// Names one run of an execution; ascending in time of creation (UUID version 7, RFC 9562).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId(pub Uuid);

impl RunId {
    /// A run id for an execution created at `millis` since the epoch, with 10 random bytes.
    pub fn new(millis: u64, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// When the execution was created, to the millisecond: the id holds it.
    pub fn created_at(&self) -> Timestamp {
        let bytes = self.0.as_bytes();
        let millis = bytes[..6].iter().fold(0i64, |sum, byte| sum << 8 | i64::from(*byte));
        Timestamp::from_micros(millis * 1000)
    }

    /// The 16 bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl utoipa::PartialSchema for RunId {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, Type};
        let format = SchemaFormat::Custom("uuid".into());
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl utoipa::ToSchema for RunId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_order_number_is_an_id() {
        for id in ["4711", "order-0000004711", "Bestellung Nº 7", "注文-1", &"x".repeat(200)] {
            assert_eq!(check_id(id), Ok(()), "{id}");
        }
    }

    #[test]
    fn an_id_that_could_be_mistaken_for_another_is_refused() {
        let too_long = "x".repeat(201);
        for id in ["", ".", "..", "a/b", "a~b", "a\0b", "a\nb", " a", "a ", "a\u{200b}", "e\u{301}", &too_long] {
            assert!(check_id(id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn a_derived_execution_lives_in_the_shard_of_its_order() {
        let order = WorkflowKey::new("order-timeout", "4711");
        let late = order.derived("late-payment", "txn-1");
        assert_eq!(late.shard(64), order.shard(64));
        assert_eq!(late.root_id(), "4711");
        assert_ne!(late, order.derived("late-payment", "txn-2"));
    }

    #[test]
    fn a_run_id_holds_its_time_of_creation() {
        assert_eq!(RunId::new(1_700_000_000_123, [9; 10]).created_at(), Timestamp::from_micros(1_700_000_000_123_000));
    }

    #[test]
    fn the_shard_function_never_changes() {
        let pinned: Vec<u16> = ["4711", "order-1", "order-2", "注文-1"].iter().map(|id| shard_of(id, 64)).collect();
        let golden = include_str!("../golden/shards.txt");
        let expected: Vec<u16> = golden.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert_eq!(pinned, expected);
    }
}
