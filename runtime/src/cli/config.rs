//! Configuration: defaults, a file, the environment, in this order. Unknown keys are refused by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use config::{Config as Layers, Environment as EnvironmentLayer, File, FileFormat, Value, ValueKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::duration::ConfigDuration;
use crate::engine::{EngineConfig, Retain};

/// The shortest time for which a history can be kept: whoever waits for the end must be able to look at it.
const RETAIN_MIN: Duration = Duration::from_secs(1);
/// How long an id stays taken: longer than any provider repeats a notification, and than a year's books are open.
const TOMBSTONES: Duration = Duration::from_secs(400 * 24 * 3600);

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("the configuration cannot be read: {0}")]
    Unreadable(String),
    /// A section or key is unknown.
    #[error("unknown configuration {key:?}; known are {known}")]
    UnknownKey {
        /// What was found.
        key: String,
        /// What could be there.
        known: String,
    },
    /// A value is not as it must be.
    #[error("configuration {path}: {message}")]
    Invalid {
        /// Where, such as `engine.scan`.
        path: String,
        /// What is wrong, and what to write.
        message: String,
    },
}

/// The configuration of a program.
#[derive(Clone, Debug)]
pub struct Config {
    layers: BTreeMap<String, Value>,
}

/// `[engine]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSection {
    /// Number of shards; fixed when the store is created.
    pub shards: u16,
    /// For how long a node that does not answer keeps its shards, where nodes share the store.
    #[serde(deserialize_with = "duration")]
    pub lease: Duration,
    /// Time between scans.
    #[serde(deserialize_with = "duration")]
    pub scan: Duration,
    /// How long calls under way may take to end when the node stops.
    #[serde(deserialize_with = "duration")]
    pub drain: Duration,
    /// How long a signal waits for its workflow to be started.
    #[serde(deserialize_with = "duration")]
    pub buffer: Duration,
    /// How long the history of a closed workflow is kept; for ever, if not given.
    #[serde(deserialize_with = "optional_duration")]
    pub retain: Option<Duration>,
    /// How long, from its end on, the id of a closed workflow stays taken and its signals known.
    #[serde(deserialize_with = "duration")]
    pub tombstones: Duration,
}

impl Default for EngineSection {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            shards: 64,
            lease: Duration::from_secs(10),
            scan: engine.scan,
            drain: engine.drain,
            buffer: engine.buffer,
            retain: None,
            tombstones: TOMBSTONES,
        }
    }
}

impl EngineSection {
    /// What the engine is given.
    pub fn engine(&self) -> EngineConfig {
        let retain = self.retain.map(|history| Retain { history, tombstone: self.tombstones });
        EngineConfig {
            scan: self.scan,
            drain: self.drain,
            buffer: self.buffer,
            lease: self.lease,
            url: None,
            timers: true,
            retain,
        }
    }

    /// Whether the values can be used, alone and together.
    ///
    /// # Errors
    /// [`ConfigError`], which names the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        let invalid = |key: &str, message: &str| ConfigError::Invalid { path: format!("engine.{key}"), message: message.into() };
        if self.shards == 0 || self.shards > 4096 {
            return Err(invalid("shards", "a number from 1 to 4096"));
        }
        if self.scan < Duration::from_millis(10) || self.scan > Duration::from_secs(60) {
            return Err(invalid("scan", "10ms to 60s"));
        }
        if self.lease < Duration::from_secs(1) || self.lease > Duration::from_secs(300) {
            return Err(invalid("lease", "1s to 300s"));
        }
        if self.retain.is_some_and(|retain| retain < RETAIN_MIN) {
            return Err(invalid("retain", "1s or longer; leave it out to keep histories for ever"));
        }
        if self.retain.is_some_and(|retain| retain > self.tombstones) {
            return Err(invalid("tombstones", "at least as long as engine.retain"));
        }
        Ok(())
    }
}

impl Config {
    /// Reads the file, if one is given, and the environment (`OVERDUE_ENGINE__SCAN=2s`). Besides `store`, `listen`,
    /// `advertise` and `[engine]` only `sections` are known.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file or the key.
    pub fn read(file: Option<&Path>, sections: &[&str]) -> Result<Self, ConfigError> {
        let known: Vec<&str> = ["store", "listen", "advertise", "engine"].into_iter().chain(sections.iter().copied()).collect();
        let mut builder = Layers::builder();
        if let Some(file) = file {
            let text =
                std::fs::read_to_string(file).map_err(|error| ConfigError::Unreadable(format!("{}: {error}", file.display())))?;
            let read = Layers::builder().add_source(File::from_str(&text, FileFormat::Toml)).build();
            let read = read.and_then(Layers::try_deserialize::<BTreeMap<String, Value>>);
            let read = read.map_err(|error| ConfigError::Unreadable(format!("{}: {error}", file.display())))?;
            if let Some(key) = read.keys().find(|key| !known.contains(&key.as_str())) {
                return Err(ConfigError::UnknownKey { key: key.clone(), known: known.join(", ") });
            }
            builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
        }
        let environment = EnvironmentLayer::with_prefix("OVERDUE").prefix_separator("_").separator("__").try_parsing(true);
        let built = builder.add_source(environment).build();
        let layers = built.and_then(Layers::try_deserialize::<BTreeMap<String, Value>>);
        let mut layers = layers.map_err(|error| ConfigError::Unreadable(error.to_string()))?;
        // Variables that merely begin alike (a container platform sets OVERDUE_PORT for a service of that name) are not ours;
        // one that names a section we do not have is a misspelling.
        let section = |value: &Value| matches!(value.kind, ValueKind::Table(_));
        if let Some((key, _)) = layers.iter().find(|(key, value)| !known.contains(&key.as_str()) && section(value)) {
            let key = format!("OVERDUE_{}__… (a variable of the environment)", key.to_uppercase());
            return Err(ConfigError::UnknownKey { key, known: known.join(", ") });
        }
        layers.retain(|key, _| known.contains(&key.as_str()));
        Ok(Self { layers })
    }

    /// The store's URL.
    pub fn store(&self) -> Result<String, ConfigError> {
        self.text("store", "sqlite:overdue.db")
    }

    /// The address to listen on.
    pub fn listen(&self) -> Result<String, ConfigError> {
        self.text("listen", "127.0.0.1:7070")
    }

    /// Where other nodes reach this one.
    pub fn advertise(&self) -> Result<Option<String>, ConfigError> {
        self.layers.contains_key("advertise").then(|| self.text("advertise", "")).transpose()
    }

    /// `[engine]`, checked.
    ///
    /// # Errors
    /// [`ConfigError`], which names the key.
    pub fn engine(&self) -> Result<EngineSection, ConfigError> {
        let engine: EngineSection = self.section("engine")?.unwrap_or_default();
        engine.check()?;
        Ok(engine)
    }

    /// A section of the program's own; `None` when it is not there.
    ///
    /// # Errors
    /// [`ConfigError`], which names the key.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.layers.get(name) else { return Ok(None) };
        let read = serde_path_to_error::deserialize(value.clone());
        read.map(Some).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { name.to_owned() } else { format!("{name}.{path}") };
            ConfigError::Invalid { path, message: without_values(&error.into_inner().to_string()) }
        })
    }

    /// A table within a section, by names that are tried in order: environment variables cannot spell every one.
    ///
    /// # Errors
    /// [`ConfigError`], which names the key.
    pub fn table<T: DeserializeOwned>(&self, section: &str, names: &[&str]) -> Result<Option<T>, ConfigError> {
        let Some(Value { kind: ValueKind::Table(table), .. }) = self.layers.get(section) else { return Ok(None) };
        if let Some(key) = table.keys().find(|key| !names.contains(&key.as_str())) {
            return Err(ConfigError::UnknownKey { key: format!("{section}.{key}"), known: names.join(", ") });
        }
        let mut merged = config::Map::new();
        for name in names {
            if let Some(Value { kind: ValueKind::Table(found), .. }) = table.get(*name) {
                merged.extend(found.clone());
            }
        }
        let value = Value::new(None, ValueKind::Table(merged));
        serde_path_to_error::deserialize(value).map(Some).map_err(|error| {
            let path = format!("{section}.{}.{}", names.first().unwrap_or(&""), error.path());
            ConfigError::Invalid { path, message: without_values(&error.into_inner().to_string()) }
        })
    }

    fn text(&self, key: &str, default: &str) -> Result<String, ConfigError> {
        let Some(value) = self.layers.get(key) else { return Ok(default.to_owned()) };
        value.clone().into_string().map_err(|error| ConfigError::Invalid { path: key.to_owned(), message: error.to_string() })
    }
}

/// A reader's complaint without the text that it complains about, which may be a secret in the wrong place.
fn without_values(complaint: &str) -> String {
    let Some((before, rest)) = complaint.split_once("string \"") else { return complaint.to_owned() };
    match rest.rsplit_once("\", ") {
        Some((_, after)) => format!("{before}a text, {after}"),
        None => complaint.to_owned(),
    }
}

fn optional_duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

fn duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    ConfigDuration::deserialize(deserializer).map(|duration| duration.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::read(Some(file.path()), &["workflows"])
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        assert!(read("[engin]\nscan = \"1s\"").unwrap_err().to_string().contains("engin"));
        let error = read("[engine]\nscann = \"1s\"").unwrap().engine().unwrap_err();
        assert!(error.to_string().contains("scann"), "{error}");
    }

    #[test]
    fn a_text_in_the_wrong_place_is_not_shown() {
        let error = read("[engine]\nshards = \"hunter2\"").unwrap().engine().unwrap_err().to_string();
        assert!(error.contains("engine.shards") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_path() {
        let error = read("[engine]\nscan = \"soon\"").unwrap().engine().unwrap_err();
        assert!(error.to_string().contains("engine.scan") && error.to_string().contains("500ms"), "{error}");
        assert!(read("[engine]\nshards = 0").unwrap().engine().unwrap_err().to_string().contains("engine.shards"));
    }

    #[test]
    fn histories_are_kept_for_ever_unless_a_time_is_given_and_ids_stay_taken_at_least_as_long() {
        let retain = |text: &str| read(text).unwrap().engine().map(|engine| engine.engine().retain);
        assert_eq!(retain("").unwrap(), None);
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(retain("[engine]\nretain = \"30d\"").unwrap(), Some(Retain { history: 30 * day, tombstone: 400 * day }));
        assert!(retain("[engine]\nretain = \"0s\"").unwrap_err().to_string().contains("engine.retain"));
        let error = retain("[engine]\nretain = \"30d\"\ntombstones = \"29d\"").unwrap_err().to_string();
        assert!(error.contains("engine.tombstones") && error.contains("engine.retain"), "{error}");
    }

    #[test]
    fn without_a_file_the_defaults_hold() {
        let config = Config::read(None, &[]).unwrap();
        assert_eq!(config.engine().unwrap().shards, 64);
        assert_eq!(
            (config.store().unwrap().as_str(), config.listen().unwrap().as_str()),
            ("sqlite:overdue.db", "127.0.0.1:7070")
        );
    }

    #[test]
    fn a_table_may_be_spelled_as_the_environment_can() {
        #[derive(Debug, Deserialize, PartialEq)]
        struct Window {
            window: String,
        }
        let config = read("[workflows.order_timeout]\nwindow = \"7d\"").unwrap();
        let window: Option<Window> = config.table("workflows", &["order-timeout", "order_timeout"]).unwrap();
        assert_eq!(window, Some(Window { window: "7d".into() }));
        let error = config.table::<Window>("workflows", &["order-timeout"]).unwrap_err();
        assert!(error.to_string().contains("workflows.order_timeout"), "{error}");
    }
}
