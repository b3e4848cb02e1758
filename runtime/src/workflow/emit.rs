//! What a workflow tells those outside: the name of an event, and its data.

use serde::Serialize;

use crate::payload::Payload;

/// The longest name of an event, in bytes: receivers keep it in indexed columns and routes.
pub const EVENT_NAME_BYTES_MAX: usize = 100;
/// The most data of an event, in bytes of JSON: what common receivers of webhooks take, with room for what surrounds it.
pub const EVENT_DATA_BYTES_MAX: usize = 64 * 1024;

/// Something that happened, for those outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Emitted {
    /// What happened: dotted, in lower case.
    pub(crate) name: String,
    /// What is told of it: no more, and no deeper, than every store and receiver can take.
    pub(crate) data: Payload,
}

/// Why an event is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitRefused {
    /// Its name.
    #[error(transparent)]
    Name(#[from] InvalidEventName),
    /// Its data are too much.
    #[error(
        "the data of event {event} have {bytes} bytes, the limit is {EVENT_DATA_BYTES_MAX}: name the thing and let the receiver ask for it"
    )]
    TooLarge {
        /// The event.
        event: String,
        /// How much they are.
        bytes: usize,
    },
    /// Its data cannot be written as JSON that every store can take.
    #[error("the data of event {event} cannot be sent as JSON: {reason}")]
    Unwritable {
        /// The event.
        event: String,
        /// Why.
        reason: String,
    },
}

/// A text that cannot name an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an event cannot be named {0:?}: write 1 to {EVENT_NAME_BYTES_MAX} bytes of lower-case letters, digits and '-', in parts with a dot \
     between them, each beginning with a letter, such as shipment.sent"
)]
pub struct InvalidEventName(pub String);

impl Emitted {
    /// An event, checked.
    ///
    /// # Errors
    /// [`EmitRefused`].
    pub fn new(event: &str, data: &impl Serialize) -> Result<Self, EmitRefused> {
        check_event_name(event)?;
        let unwritable = |reason: String| EmitRefused::Unwritable { event: event.to_owned(), reason };
        let data = Payload::of(data).map_err(|error| unwritable(error.to_string()))?;
        // What is read back from a store is checked like what comes in.
        let data = Payload::from_json(data.as_str()).map_err(|error| unwritable(error.to_string()))?;
        if data.len() > EVENT_DATA_BYTES_MAX {
            return Err(EmitRefused::TooLarge { event: event.to_owned(), bytes: data.len() });
        }
        Ok(Self { name: event.to_owned(), data })
    }
}

/// Checks the name of an event.
///
/// # Errors
/// [`InvalidEventName`].
pub fn check_event_name(name: &str) -> Result<(), InvalidEventName> {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    let fits = name.len() <= EVENT_NAME_BYTES_MAX && name.split('.').all(is_part);
    if fits { Ok(()) } else { Err(InvalidEventName(name.chars().take(EVENT_NAME_BYTES_MAX).collect())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dotted_and_in_lower_case() {
        for name in ["a", "shipment.sent", "shipment.needs-attention", "a.b2.c"] {
            assert_eq!(check_event_name(name), Ok(()), "{name}");
        }
        let long = "a".repeat(EVENT_NAME_BYTES_MAX);
        assert_eq!(check_event_name(&long), Ok(()));
        for name in ["", ".", "a.", ".a", "a..b", "Shipment.sent", "a b", "a/b", "1a", "a.2", "-a", "é", &format!("{long}a")] {
            assert!(check_event_name(name).unwrap_err().to_string().contains("shipment.sent"), "{name}");
        }
    }

    #[test]
    fn data_over_the_limit_and_data_that_no_store_could_give_back_are_refused() {
        let fits = "x".repeat(EVENT_DATA_BYTES_MAX - 2);
        assert_eq!(Emitted::new("a", &fits).unwrap().data.len(), EVENT_DATA_BYTES_MAX);
        let error = Emitted::new("a", &format!("{fits}x")).unwrap_err();
        for unfit in [serde_json::json!("a\0b"), (0..200).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]))] {
            assert!(matches!(Emitted::new("a", &unfit), Err(EmitRefused::Unwritable { .. })), "no store could give it back");
        }
        assert_eq!(error, EmitRefused::TooLarge { event: "a".into(), bytes: EVENT_DATA_BYTES_MAX + 1 });
    }
}
