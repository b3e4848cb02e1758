//! Which events a sink takes, as it is written in a configuration.

use crate::workflow::check_event_name;

/// All events, those below a name, or those of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPattern(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    All,
    /// With the dot at its end.
    Below(String),
    Exactly(String),
}

/// A text that is no pattern of events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no events: write a name such as shipment.sent, or shipment.* for all below, or * for all")]
pub struct InvalidPattern(pub String);

impl EventPattern {
    /// Reads `shipment.sent`, `shipment.*` or `*`.
    ///
    /// # Errors
    /// [`InvalidPattern`].
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let refuse = |_| InvalidPattern(text.to_owned());
        if text == "*" {
            return Ok(Self(Kind::All));
        }
        if let Some(prefix) = text.strip_suffix(".*") {
            check_event_name(prefix).map_err(refuse)?;
            return Ok(Self(Kind::Below(format!("{prefix}."))));
        }
        check_event_name(text).map_err(refuse)?;
        Ok(Self(Kind::Exactly(text.to_owned())))
    }

    /// Whether events of this name are meant.
    pub fn takes(&self, event: &str) -> bool {
        match &self.0 {
            Kind::All => true,
            Kind::Below(prefix) => event.starts_with(prefix.as_str()),
            Kind::Exactly(name) => event == name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_a_prefix_or_all() {
        let takes = |pattern: &str, event: &str| EventPattern::parse(pattern).unwrap().takes(event);
        assert!(takes("*", "shipment.sent") && takes("shipment.*", "shipment.sent") && takes("shipment.*", "shipment.a.b"));
        assert!(takes("shipment.sent", "shipment.sent"));
        assert!(
            !takes("shipment.*", "shipment") && !takes("shipment.*", "shipments.sent") && !takes("shipment.sent", "shipment")
        );
        for text in ["", ".*", "**", "shipment*", "*.sent", "Shipment.*"] {
            assert!(EventPattern::parse(text).unwrap_err().to_string().contains("shipment.*"), "{text}");
        }
    }
}
