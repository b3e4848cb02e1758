//! Caller data: JSON text that passes through the engine unchanged.
//!
//! A payload is checked once, where it comes in, and is never re-rendered: no number loses a digit on its way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// How deeply arrays and objects may be nested; deeper text is refused before any recursive reader sees it.
pub const JSON_DEPTH_MAX: usize = 128;

/// JSON text, valid and of bounded depth.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<str>);

/// Why a text is not a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPayload {
    /// Not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// Nested too deeply.
    #[error("JSON is nested more than {JSON_DEPTH_MAX} levels deep")]
    TooDeep,
    /// A string holds U+0000, which not every store can keep.
    #[error("JSON must not contain the NUL character (\\u0000)")]
    Nul,
}

impl Payload {
    /// The payload `null`.
    pub fn null() -> Self {
        Self(Arc::from("null"))
    }

    /// Checks `text` and keeps it as it is, but for white space around it.
    ///
    /// # Errors
    /// [`InvalidPayload`] when it is not JSON, too deep, or holds a NUL character.
    pub fn from_json(text: &str) -> Result<Self, InvalidPayload> {
        check_depth(text)?;
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| InvalidPayload::Syntax(error.to_string()))?;
        check_nul(raw.get())?;
        Ok(Self(Arc::from(raw.get())))
    }

    /// The JSON of a value.
    ///
    /// # Errors
    /// When the value cannot be written as JSON (a map with keys that are not strings, for example).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self(Arc::from(serde_json::to_string(value)?)))
    }

    /// The text as it came in.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: the shortest JSON text has one byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the payload as a typed value.
    ///
    /// # Errors
    /// When the JSON does not have the shape of `T`; the error names the field.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, InvalidField> {
        let mut reader = serde_json::Deserializer::from_str(&self.0);
        serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            InvalidField::of_reader(if path == "." { "" } else { &path }, &error.into_inner().to_string())
        })
    }

    /// A hash under which two payloads are equal when they are the same JSON value: members in any order, strings
    /// by content, numbers by spelling.
    pub fn canonical_hash(&self) -> [u8; 16] {
        let mut hasher = Sha256::new();
        canonicalize(&self.0, &mut hasher);
        let mut short = [0; 16];
        short.copy_from_slice(&hasher.finalize()[..16]);
        short
    }
}

/// A field of caller data that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}{message}", self.prefix())]
pub struct InvalidField {
    /// Path of the field in the request, such as `payDeadline`; empty for the whole value.
    pub field: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl InvalidField {
    fn prefix(&self) -> String {
        if self.field.is_empty() { String::new() } else { format!("{}: ", self.field) }
    }

    /// A field and what is wrong with it.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// A JSON reader's complaint at `path`: the member that it is about is named as the field, and where in the text it
    /// stood is left out, because that may be another text than the caller's.
    fn of_reader(path: &str, complaint: &str) -> Self {
        let text = complaint.rsplit_once(" at line ").map_or(complaint, |(text, _)| text);
        let member = text.strip_prefix("missing field `").or_else(|| text.strip_prefix("unknown field `"));
        match member.and_then(|rest| rest.split_once('`')) {
            Some((name, _)) if text.starts_with("missing") => Self::new(name, "missing").beneath(path),
            Some((name, rest)) if !path.ends_with(name) => Self::new(name, format!("unknown{rest}")).beneath(path),
            Some((_, rest)) => Self::new(path, format!("unknown{rest}")),
            None => Self::new(path, text),
        }
    }

    fn beneath(self, outer: &str) -> Self {
        if outer.is_empty() { self } else { self.within(outer) }
    }

    /// The same fault, seen from the object that holds this one under `outer`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        self.field = if self.field.is_empty() { outer.to_owned() } else { format!("{outer}.{}", self.field) };
        self
    }
}

fn check_depth(text: &str) -> Result<(), InvalidPayload> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return Err(InvalidPayload::TooDeep);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Only an escape can bring a NUL in: JSON does not allow the bare character.
fn check_nul(text: &str) -> Result<(), InvalidPayload> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(offset) = text[at..].find('\\') {
        at += offset;
        if bytes[at + 1..].starts_with(b"u0000") {
            return Err(InvalidPayload::Nul);
        }
        at += 2;
    }
    Ok(())
}

fn canonicalize(text: &str, hasher: &mut Sha256) {
    let part = |hasher: &mut Sha256, tag: u8, bytes: &[u8]| {
        hasher.update([tag]);
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            part(hasher, b'{', &(members.len() as u64).to_le_bytes());
            for (name, value) in members {
                part(hasher, b'k', name.as_bytes());
                canonicalize(value.get(), hasher);
            }
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            part(hasher, b'[', &(items.len() as u64).to_le_bytes());
            for item in items {
                canonicalize(item.get(), hasher);
            }
        }
        Some(b'"') => {
            // A lone surrogate escape has no Unicode content; it is compared by its spelling.
            let content = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
            part(hasher, b'"', content.as_bytes());
        }
        _ => part(hasher, b'#', text.as_bytes()),
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payloads hold personal data: debug output, and so every log, shows their size only.
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<C> minicbor::Encode<C> for Payload {
    fn encode<W: minicbor::encode::Write>(
        &self,
        encoder: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        encoder.str(&self.0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Payload {
    fn decode(decoder: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        decoder.str().map(|text| Self(Arc::from(text)))
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Payload {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new().schema_type(utoipa::openapi::schema::SchemaType::AnyValue).into()
    }
}

impl utoipa::ToSchema for Payload {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_every_digit() {
        let text = r#"{"a":9007199254740993,"b":3544790567247868102,"c":1.10}"#;
        let payload = Payload::from_json(text).unwrap();
        assert_eq!(payload.as_str(), text);
        assert_eq!(serde_json::to_string(&payload).unwrap(), text);
    }

    #[test]
    fn depth_is_refused_beyond_the_limit_and_not_before() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Payload::from_json(&nested(JSON_DEPTH_MAX)).is_ok());
        assert_eq!(Payload::from_json(&nested(JSON_DEPTH_MAX + 1)), Err(InvalidPayload::TooDeep));
        assert_eq!(Payload::from_json(&"[".repeat(100_000)), Err(InvalidPayload::TooDeep));
        assert!(Payload::from_json(&format!("\"{}\"", "[".repeat(1000))).is_ok(), "brackets in a string do not nest");
    }

    #[test]
    fn an_escaped_nul_is_refused_and_an_escaped_backslash_before_u0000_is_not() {
        assert_eq!(Payload::from_json(r#""a\u0000b""#), Err(InvalidPayload::Nul));
        assert!(Payload::from_json(r#""a\\u0000b""#).is_ok());
    }

    #[test]
    fn equal_values_hash_equal_and_numbers_count_by_spelling() {
        let hash = |text: &str| Payload::from_json(text).unwrap().canonical_hash();
        assert_eq!(hash(r#"{"a":1,"b":"é"}"#), hash(r#" { "b" : "\u00e9", "a":1 } "#));
        assert_ne!(hash("1"), hash("1.0"));
        assert_ne!(hash(r#"["a","b"]"#), hash(r#"["ab"]"#));
        assert_ne!(hash(r#"{"a":[]}"#), hash(r#"{"a":{}}"#));
    }

    #[test]
    fn debug_output_shows_no_content() {
        assert_eq!(format!("{:?}", Payload::from_json("\"secret\"").unwrap()), "Payload(8 bytes)");
    }

    #[test]
    fn a_missing_or_unknown_member_is_named_as_the_field() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Order {
            #[allow(dead_code, reason = "only read by the parser")]
            amount: String,
        }
        let fault = |json: &str| Payload::from_json(json).unwrap().parse::<Order>().unwrap_err();
        assert_eq!(fault("{}"), InvalidField::new("amount", "missing"));
        let unknown = fault(r#"{"amout":"1"}"#);
        assert_eq!((unknown.field.as_str(), unknown.to_string().contains("`amount`")), ("amout", true), "{unknown}");
        assert!(!unknown.message.contains("line"));
    }

    #[test]
    fn a_wrong_shape_names_the_field() {
        #[derive(Debug, Deserialize)]
        struct Order {
            #[allow(dead_code, reason = "only read by the parser")]
            amount: String,
        }
        let error = Payload::from_json(r#"{"amount":5}"#).unwrap().parse::<Order>().unwrap_err();
        assert_eq!(error.field, "amount");
    }
}
