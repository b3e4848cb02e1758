//! What a start says about an order, and what is wrong with it if something is.

use std::time::Duration;

use overdue_activities::{Money, check_path_segment};
use overdue_runtime::{InvalidField, Payload, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest late-payment window: a closed execution is remembered for longer than that.
const WINDOW_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// The longest text field, in bytes.
const TEXT_BYTES_MAX: usize = 200;

/// Whether the payment is closed after or before the order is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClosePayment {
    /// Cancel first, then close the payment beside the other steps.
    AfterCancel,
    /// Close the payment while the order still waits: a payment that is found then saves the sale.
    BeforeCancel,
}

/// An ISO 8601 duration of days and smaller units, such as `P7D` or `PT2.5S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsoDuration(pub Duration);

impl Serialize for IsoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = self.0.as_millis();
        serializer.collect_str(&format_args!("PT{}.{:03}S", millis / 1000, millis % 1000))
    }
}

impl<'de> Deserialize<'de> for IsoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_iso(&text).map(Self).ok_or_else(|| {
            serde::de::Error::custom(
                "not an ISO 8601 duration of at least zero in weeks, days or less: write P7D, PT30M or PT2.5S",
            )
        })
    }
}

/// Days have 24 hours: no time zone is involved.
fn parse_iso(text: &str) -> Option<Duration> {
    if !text.starts_with('P') {
        return None;
    }
    let span: jiff::Span = text.parse().ok()?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return None;
    }
    let signed = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(signed).ok()
}

/// An order that waits to be paid.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrderInput {
    /// The order; equals the workflow id.
    pub order_id: String,
    /// Until when it may be paid. One in the past is due at once.
    pub pay_deadline: Timestamp,
    /// What it costs: a decimal string.
    pub amount: String,
    /// In which ISO 4217 currency.
    pub currency: String,
    /// The payment that was opened for it, if one was: it is to be closed.
    pub payment_id: Option<String>,
    /// The channel of that payment.
    pub payment_channel: Option<String>,
    /// The stock that is held for it, if any: it is to be given back.
    pub stock_token: Option<String>,
    /// The coupon that was used for it, if any: it is to be given back.
    pub coupon_id: Option<String>,
    /// Who ordered.
    pub user_id: Option<String>,
    /// What was ordered.
    pub sku_id: Option<String>,
    /// The number that people know the order by.
    pub order_no: Option<String>,
    /// Instead of the configured order of steps.
    pub close_payment: Option<ClosePayment>,
    /// Instead of the configured window.
    pub late_payment_window: Option<IsoDuration>,
    /// Whatever the caller wants to find with the order.
    pub metadata: Option<Payload>,
}

impl OrderInput {
    /// What it costs.
    pub fn price(&self) -> Option<Money> {
        Money::new(self.amount.as_str(), self.currency.as_str()).ok()
    }

    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// Every field that is not as it must be.
    pub fn check(&self, workflow_id: &str) -> Result<(), Vec<InvalidField>> {
        let mut errors = Vec::new();
        let mut fail = |field: &str, message: String| errors.push(InvalidField::new(field, message));
        if self.order_id != workflow_id {
            fail("orderId", format!("must equal the workflow id, {workflow_id:?}"));
        }
        if let Err(error) = Money::new(self.amount.as_str(), self.currency.as_str()) {
            fail(error.field(), error.to_string());
        }
        let segments = [
            ("orderId", Some(&self.order_id)),
            ("paymentId", self.payment_id.as_ref()),
            ("stockToken", self.stock_token.as_ref()),
            ("couponId", self.coupon_id.as_ref()),
        ];
        for (field, value) in segments {
            if let Some(Err(error)) = value.map(|value| check_path_segment(value)) {
                fail(field, error.to_string());
            }
        }
        let texts = [
            ("paymentChannel", &self.payment_channel),
            ("userId", &self.user_id),
            ("skuId", &self.sku_id),
            ("orderNo", &self.order_no),
        ];
        for (field, value) in texts {
            if value.as_ref().is_some_and(|value| value.is_empty() || value.len() > TEXT_BYTES_MAX) {
                fail(field, format!("1 to {TEXT_BYTES_MAX} bytes; leave it out if there is none"));
            }
        }
        if self.late_payment_window.is_some_and(|window| window.0 > WINDOW_MAX) {
            fail("latePaymentWindow", "at most P366D".into());
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<OrderInput, InvalidField> {
        Payload::from_json(json).unwrap().parse()
    }

    fn order(amount: &str, currency: &str) -> OrderInput {
        let deadline = "2026-11-30T18:00:00Z";
        read(&format!(r#"{{"orderId":"4711","payDeadline":"{deadline}","amount":"{amount}","currency":"{currency}"}}"#)).unwrap()
    }

    #[test]
    fn amounts_have_the_digits_of_their_currency() {
        for (amount, currency) in [("5800", "JPY"), ("1.255", "KWD"), ("19.99", "USD"), ("19.9", "USD"), ("0.001", "BHD")] {
            assert_eq!(order(amount, currency).check("4711"), Ok(()), "{amount} {currency}");
        }
        for (amount, currency, field) in [("58.5", "JPY", "amount"), ("19.999", "USD", "amount"), ("1", "usd", "currency")] {
            assert_eq!(order(amount, currency).check("4711").unwrap_err()[0].field, field, "{amount} {currency}");
        }
    }

    #[test]
    fn a_bare_number_or_a_time_without_offset_is_refused_by_name() {
        for deadline in ["1700000000", "1700000000000", "\"2026-11-01T01:30:00\""] {
            let error =
                read(&format!(r#"{{"orderId":"1","payDeadline":{deadline},"amount":"1","currency":"USD"}}"#)).unwrap_err();
            assert_eq!(error.field, "payDeadline", "{deadline}");
        }
    }

    #[test]
    fn a_misspelled_field_is_refused_by_name_so_that_nothing_is_forgotten() {
        let json = r#"{"orderId":"1","payDeadline":"2026-11-30T18:00:00Z","amount":"1","currency":"USD","coupon_id":"c"}"#;
        assert_eq!(read(json).unwrap_err().field, "coupon_id");
    }

    #[test]
    fn the_order_and_the_workflow_have_one_id() {
        assert_eq!(order("1", "USD").check("4712").unwrap_err()[0].field, "orderId");
    }

    #[test]
    fn a_path_segment_that_means_another_path_is_refused() {
        let mut order = order("1", "USD");
        order.stock_token = Some("..".into());
        order.coupon_id = Some(".".into());
        let fields: Vec<_> = order.check("4711").unwrap_err().into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["stockToken", "couponId"]);
    }

    #[test]
    fn windows_are_iso_durations_with_fractions() {
        for (text, millis) in [("P7D", 604_800_000), ("PT2.345S", 2_345), ("PT0S", 0), ("P1W", 604_800_000), ("PT30M", 1_800_000)]
        {
            assert_eq!(parse_iso(text).map(|duration| duration.as_millis()), Some(millis), "{text}");
        }
        for text in ["7d", "-PT1S", "P1M", "", "P", "30"] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
    }
}
