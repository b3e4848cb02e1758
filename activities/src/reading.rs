//! How an answer's body becomes one of our outcomes, by the contract or by what the configuration says otherwise.
//!
//! Only what is needed is read, and as it was written: no number loses a digit, and text that nobody needs may hold
//! whatever it likes.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use overdue_runtime::{InvalidPayload, Payload};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::config::OutcomeConfig;
use crate::definition::{Definition, Field, Kind};
use crate::error::ConfigError;
use crate::excerpt::excerpt;
use crate::settings::Keys;

/// A wait for which the answer gives no time.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(5);

/// How the answers of one call are read.
pub(crate) struct Reading {
    definition: &'static Definition,
    outcome: Vec<String>,
    words: BTreeMap<String, &'static str>,
    status: BTreeMap<u16, &'static str>,
    fields: BTreeMap<String, Vec<String>>,
    pub(crate) retry_after_max: Duration,
}

/// Why a body holds no outcome.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoOutcome {
    /// It is not JSON, or nested too deeply, or not an object: what happened cannot be known.
    Unreadable(String),
    /// It is clear and says something that we do not know.
    Unknown(String),
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

impl Reading {
    pub(crate) fn new(
        keys: &Keys,
        definition: &'static Definition,
        config: &OutcomeConfig,
        retry_after_max: Duration,
    ) -> Result<Self, ConfigError> {
        let known = |key: &str, word: &str| match definition.outcome(word) {
            Some(outcome) => Ok(outcome.word),
            None => keys.refuse(&format!("outcome.{key}"), format!("must be one of {}", definition.words())),
        };
        let (mut words, mut status) = (BTreeMap::new(), BTreeMap::new());
        for (theirs, ours) in &config.words {
            words.insert(theirs.clone(), known(&format!("words.{theirs}"), ours)?);
        }
        for (code, ours) in &config.status {
            let key = format!("status.{code}");
            let Some(parsed) = code.parse().ok().filter(|code| is_conclusive(*code)) else {
                let message = "must be a status of 200 to 299 or 400 to 499 but for 408, 425 and 429: the others do not say \
                               whether the request took effect";
                return keys.refuse(&format!("outcome.{key}"), message);
            };
            status.insert(parsed, known(&key, ours)?);
        }
        let names = |name: &str| definition.outcomes.iter().any(|outcome| outcome.fields.iter().any(|f| f.name == name));
        if let Some(unknown) = config.fields.keys().find(|name| !names(name)) {
            return keys.refuse(&format!("outcome.fields.{unknown}"), "is no field of this call's outcomes");
        }
        let split = |path: &str| path.split('.').map(str::to_owned).collect::<Vec<_>>();
        let outcome = split(config.field.as_deref().unwrap_or("outcome"));
        let fields = config.fields.iter().map(|(name, path)| (name.clone(), split(path))).collect();
        Ok(Self { definition, outcome, words, status, fields, retry_after_max })
    }

    /// Whether a body with this status may hold an outcome.
    pub(crate) fn may_hold_outcome(&self, status: StatusCode) -> bool {
        status.is_success() || matches!(status.as_u16(), 404 | 409) || self.status.contains_key(&status.as_u16())
    }

    /// Reads an outcome with its fields; `wait` is what the `Retry-After` header says.
    pub(crate) fn read(&self, status: StatusCode, body: &[u8], wait: Option<Duration>) -> Result<Map<String, Value>, NoOutcome> {
        let text = String::from_utf8_lossy(body);
        let members = members(&text);
        let found = match &members {
            Ok(members) => self.word(members),
            Err(reason) => Err(NoOutcome::Unreadable(reason.clone())),
        };
        let word = match (found, self.status.get(&status.as_u16())) {
            (Ok(Some(word)), _) => word,
            // The status stands in for a word that is not there, never for one that we do not know.
            (Ok(None) | Err(NoOutcome::Unreadable(_)), Some(word)) => *word,
            (Ok(None), None) => {
                return Err(NoOutcome::Unknown(format!("the answer has no {:?}", self.outcome.join("."))));
            }
            (Err(why), _) => return Err(why),
        };
        let outcome = self.definition.outcome(word).expect("every word comes from the definition");
        let members = members.unwrap_or_default();
        let mut read = Map::from_iter([("outcome".to_owned(), Value::from(word))]);
        for field in outcome.fields {
            if let Some(value) = self.field(&members, field, wait)? {
                read.insert(field.name.to_owned(), value);
            }
        }
        Ok(read)
    }

    fn word(&self, members: &Members<'_>) -> Result<Option<&'static str>, NoOutcome> {
        let Some(raw) = find(members, &self.outcome) else { return Ok(None) };
        let word = spelling(&raw).ok_or_else(|| NoOutcome::Unknown("the answer's outcome is not a word".to_owned()))?;
        let known = self.words.get(&word).copied().or_else(|| Some(self.definition.outcome(&word)?.word));
        let unknown = || NoOutcome::Unknown(format!("the outcome {:?} is none of this call's", excerpt(word.as_bytes(), None)));
        known.map(Some).ok_or_else(unknown)
    }

    fn field(&self, members: &Members<'_>, field: &Field, wait: Option<Duration>) -> Result<Option<Value>, NoOutcome> {
        let raw = match self.fields.get(field.name) {
            Some(path) => find(members, path),
            None => members.get(field.name).map(|raw| (*raw).to_owned()),
        };
        let spelled = raw.as_ref().and_then(|raw| spelling(raw));
        Ok(match field.kind {
            Kind::Text => match spelled {
                Some(text) if text.contains(|c: char| c.is_control() || c == '\u{fffd}') => {
                    return Err(NoOutcome::Unreadable(format!("{} holds characters that no id, amount or time has", field.name)));
                }
                text => text.map(Value::from),
            },
            Kind::Seconds => {
                let named = spelled.and_then(|text| text.parse().ok()).map(Duration::from_secs);
                let seconds = named.or(wait).unwrap_or(RETRY_AFTER_DEFAULT).min(self.retry_after_max).as_secs();
                Some(Value::from(seconds.max(1)))
            }
            Kind::Note => spelled.map(|text| Value::from(excerpt(text.as_bytes(), None))),
        })
    }
}

/// Whether a status says for sure what became of the request, so that it can stand for an outcome.
fn is_conclusive(status: u16) -> bool {
    matches!(status, 200..=299 | 400..=499) && !matches!(status, 408 | 425 | 429)
}

fn members(text: &str) -> Result<Members<'_>, String> {
    match Payload::from_json(text) {
        // A NUL where nobody reads it does no harm.
        Ok(_) | Err(InvalidPayload::Nul) => {}
        Err(InvalidPayload::Syntax(_)) => return Err("the answer is not JSON".to_owned()),
        Err(error @ InvalidPayload::TooDeep) => return Err(error.to_string()),
    }
    serde_json::from_str(text).map_err(|_| "the answer is not a JSON object".to_owned())
}

/// The member at the end of `path`, unless it is missing or null.
fn find(members: &Members<'_>, path: &[String]) -> Option<Box<RawValue>> {
    let (first, rest) = path.split_first()?;
    let raw = members.get(first.as_str())?;
    if rest.is_empty() {
        return Some((*raw).to_owned());
    }
    find(&serde_json::from_str(raw.get()).ok()?, rest)
}

/// The content of a string, or a number, true or false as it is written; nothing for null, arrays and objects.
fn spelling(raw: &RawValue) -> Option<String> {
    match raw.get().as_bytes().first()? {
        b'"' => serde_json::from_str(raw.get()).ok(),
        b'[' | b'{' | b'n' => None,
        _ => Some(raw.get().to_owned()),
    }
}
