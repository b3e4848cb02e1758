//! Instants as the engine stores and compares them: whole microseconds of UTC.
//!
//! Times come in as RFC 3339 with an offset and go out in UTC with milliseconds; nothing here reads a clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// An instant, in microseconds since 1970-01-01T00:00:00Z.
///
/// In JSON it is RFC 3339 in UTC with milliseconds; in the history's binary form it is the bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The last instant that RFC 3339 can write in UTC: 9999-12-31T23:59:59.999999Z.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// The instant `micros` microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the epoch, rounded down.
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This instant plus `duration`; stops at [`Timestamp::MAX`] instead of overflowing.
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros).min(Self::MAX.0))
    }

    /// This instant minus `duration`, saturating.
    pub fn saturating_sub(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// How long after `earlier` this instant is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Why a text is not an instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a time: write RFC 3339 with an offset, such as 2026-11-30T18:00:00Z or 2026-11-30T18:00:00-05:00")]
pub struct InvalidTimestamp;

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Reads RFC 3339 with an offset. A space for the `T` and a lower-case `z` are accepted, as RFC 3339 allows.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        // Longer than any RFC 3339 text, or carrying an annotation such as `[Europe/Paris]`, which RFC 3339 does not know.
        if text.len() > 40 || text.contains('[') {
            return Err(InvalidTimestamp);
        }
        let pieces = Pieces::parse(text).map_err(|_| InvalidTimestamp)?;
        let (Some(time), Some(offset)) = (pieces.time(), pieces.to_numeric_offset()) else { return Err(InvalidTimestamp) };
        let local = pieces.date().to_datetime(time).duration_since(EPOCH);
        let utc = local - SignedDuration::from_secs(offset.seconds().into());
        let micros = i64::try_from(utc.as_micros()).map_err(|_| InvalidTimestamp)?;
        Ok(Self(micros.min(Self::MAX.0)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EPOCH.checked_add(SignedDuration::from_micros(self.0)) {
            Ok(instant) => write!(f, "{instant:.3}Z"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl<C> minicbor::Encode<C> for Timestamp {
    fn encode<W: minicbor::encode::Write>(
        &self,
        encoder: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        encoder.i64(self.0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Timestamp {
    fn decode(decoder: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        decoder.i64().map(Self)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl utoipa::ToSchema for Timestamp {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_keeps_its_instant_whatever_its_offset() {
        let summer: Timestamp = "2026-11-01T01:30:00-04:00".parse().unwrap();
        let winter: Timestamp = "2026-11-01T01:30:00-05:00".parse().unwrap();
        assert_eq!(summer.to_string(), "2026-11-01T05:30:00.000Z");
        assert_eq!(winter.since(summer), Duration::from_secs(3600));
    }

    #[test]
    fn a_time_without_an_offset_is_refused() {
        for text in ["2026-11-01T01:30:00", "2026-11-01", "1700000000", "", "2026-11-01T01:30:00[Europe/Paris]"] {
            assert_eq!(text.parse::<Timestamp>(), Err(InvalidTimestamp), "{text}");
        }
    }

    #[test]
    fn the_far_future_neither_overflows_nor_wraps() {
        let far: Timestamp = "9999-12-31T23:59:59Z".parse().unwrap();
        assert_eq!(far.to_string(), "9999-12-31T23:59:59.000Z");
        assert_eq!(far.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!("9999-12-31T23:59:59-23:00".parse(), Ok(Timestamp::MAX));
        assert_eq!(Timestamp::from_micros(0).since(far), Duration::ZERO);
    }

    proptest::proptest! {
        #[test]
        fn every_millisecond_reads_back_as_it_is_written(millis in -62_167_219_200_000i64..=253_402_300_799_999) {
            let stamp = Timestamp::from_micros(millis * 1000);
            proptest::prop_assert_eq!(stamp.to_string().parse::<Timestamp>(), Ok(stamp));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
            let _ = text.parse::<Timestamp>();
        }
    }

    #[test]
    fn milliseconds_survive_the_round_trip() {
        let stamp: Timestamp = "2026-11-30T18:00:00.123Z".parse().unwrap();
        assert_eq!(stamp.to_string(), "2026-11-30T18:00:00.123Z");
        assert_eq!(serde_json::to_string(&stamp).unwrap(), "\"2026-11-30T18:00:00.123Z\"");
    }
}
