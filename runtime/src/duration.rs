//! Durations as configuration writes them: `500ms`, `5s`, `5m`, `72h`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest duration that configuration may name: 100 years of 366 days.
const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// A duration in configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigDuration(pub Duration);

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration: write a whole number and its unit, such as \"500ms\", \"5s\", \"5m\", \"72h\" or \"7d\"")]
pub struct InvalidDuration;

/// Reads a whole number followed by `ms`, `s`, `m`, `h` or `d`; several may follow each other, as in `1h30m`.
///
/// # Errors
/// [`InvalidDuration`] for everything else, also for more than 100 years.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let mut rest = text;
    let mut total_ms = 0u64;
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(InvalidDuration)?;
        let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_ms)).ok_or(InvalidDuration)?;
        total_ms = total_ms.checked_add(ms).ok_or(InvalidDuration)?;
        if tail.is_empty() {
            break;
        }
        rest = tail;
    }
    let total = Duration::from_millis(total_ms);
    if total > DURATION_MAX { Err(InvalidDuration) } else { Ok(total) }
}

impl FromStr for ConfigDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        parse_duration(text).map(Self)
    }
}

impl fmt::Display for ConfigDuration {
    /// Writes it with the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let fitting = UNITS.iter().find(|(_, unit_ms)| ms != 0 && ms.is_multiple_of(u128::from(*unit_ms)));
        match fitting {
            Some((unit, unit_ms)) => write!(f, "{}{unit}", ms / u128::from(*unit_ms)),
            None => write!(f, "{ms}ms"),
        }
    }
}

impl Serialize for ConfigDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = ConfigDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, such as \"500ms\", \"5s\", \"5m\", \"72h\" or \"7d\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ConfigDuration, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_written_back() {
        for (text, ms) in [("500ms", 500), ("5s", 5000), ("5m", 300_000), ("72h", 259_200_000), ("7d", 604_800_000), ("0s", 0)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        for (text, shortest) in [("90s", "90s"), ("60s", "1m"), ("72h", "3d"), ("1500ms", "1500ms"), ("0s", "0ms")] {
            assert_eq!(text.parse::<ConfigDuration>().unwrap().to_string(), shortest);
        }
    }

    #[test]
    fn what_has_no_unit_or_is_no_whole_number_is_refused() {
        for text in
            ["", "5", "s", "-5s", "1.5s", "5 s", "5S", "5s ", "5sm", "36601d", "18446744073709551616ms", "9999999999999999999d"]
        {
            assert_eq!(parse_duration(text), Err(InvalidDuration), "{text}");
        }
    }
}
