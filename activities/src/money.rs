//! Money: an amount as it was written, and its ISO 4217 currency.
//!
//! Amounts are compared as numbers and passed on as written; nothing here rounds, and nothing is a float.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// The longest amount, in characters; the number type holds 28 digits.
const AMOUNT_CHARS_MAX: usize = 30;

/// An amount above zero in a known currency. Two are equal when currency and number are: "19.9" is "19.90".
///
/// In JSON it is the two members `"amount": "19.99", "currency": "USD"`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Money {
    amount: String,
    currency: String,
    value: Decimal,
}

#[derive(Serialize, Deserialize)]
struct Written {
    amount: String,
    currency: String,
}

/// Why a text is not money.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMoney {
    /// Not three upper-case letters that ISO 4217 knows as a currency.
    #[error("currency must be a code of ISO 4217 such as USD, JPY or KWD")]
    Currency,
    /// Not a plain decimal number.
    #[error("amount must be a decimal string such as \"19.99\", without sign, exponent or separators")]
    Amount,
    /// Zero.
    #[error("amount must be more than zero")]
    Zero,
    /// More digits after the point than the currency has.
    #[error("amount must have at most {allowed} digits after the point in {currency}; this one has {digits}")]
    Digits {
        /// The currency.
        currency: String,
        /// What it has.
        allowed: u32,
        /// What was given.
        digits: u32,
    },
}

impl InvalidMoney {
    /// The member at fault: `amount` or `currency`.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Currency => "currency",
            Self::Amount | Self::Zero | Self::Digits { .. } => "amount",
        }
    }
}

impl Money {
    /// Reads an amount and its currency.
    ///
    /// # Errors
    /// [`InvalidMoney`], which says what to write instead.
    pub fn new(amount: impl Into<String>, currency: impl Into<String>) -> Result<Self, InvalidMoney> {
        let (amount, currency) = (amount.into(), currency.into());
        let allowed = minor_digits(&currency).ok_or(InvalidMoney::Currency)?;
        let (whole, fraction) = match amount.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (amount.as_str(), None),
        };
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if amount.len() > AMOUNT_CHARS_MAX || !is_digits(whole) || !fraction.is_none_or(is_digits) {
            return Err(InvalidMoney::Amount);
        }
        let digits = u32::try_from(fraction.map_or(0, str::len)).unwrap_or(u32::MAX);
        if digits > allowed {
            return Err(InvalidMoney::Digits { currency, allowed, digits });
        }
        let value = Decimal::from_str_exact(&amount).map_err(|_| InvalidMoney::Amount)?;
        if value.is_zero() {
            return Err(InvalidMoney::Zero);
        }
        Ok(Self { amount, currency, value })
    }

    /// The amount as it was written.
    pub fn amount(&self) -> &str {
        &self.amount
    }

    /// The currency's code.
    pub fn currency(&self) -> &str {
        &self.currency
    }
}

impl PartialEq for Money {
    fn eq(&self, other: &Self) -> bool {
        self.currency == other.currency && self.value == other.value
    }
}

impl Eq for Money {}

impl std::fmt::Display for Money {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.amount, self.currency)
    }
}

impl TryFrom<Written> for Money {
    type Error = InvalidMoney;

    fn try_from(written: Written) -> Result<Self, InvalidMoney> {
        Self::new(written.amount, written.currency)
    }
}

impl From<Money> for Written {
    fn from(money: Money) -> Self {
        Self { amount: money.amount, currency: money.currency }
    }
}

/// Digits after the point of a currency, as ISO 4217 lists them; none for a code that is no currency.
fn minor_digits(currency: &str) -> Option<u32> {
    let listed = |codes: &str| codes.split_ascii_whitespace().any(|code| code == currency);
    [(2, TWO_DIGITS), (0, NO_DIGITS), (3, THREE_DIGITS), (4, FOUR_DIGITS)]
        .into_iter()
        .find_map(|(digits, codes)| listed(codes).then_some(digits))
}

const NO_DIGITS: &str = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF";
const THREE_DIGITS: &str = "BHD IQD JOD KWD LYD OMR TND";
const FOUR_DIGITS: &str = "CLF UYW";
const TWO_DIGITS: &str = "\
    USD EUR CNY GBP HKD TWD SGD INR BRL AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BSD BTN BWP \
    BYN BZD CAD CDF CHE CHF CHW COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB FJD FKP GEL GHS GIP GMD GTQ GYD HNL HTG HUF \
    IDR ILS IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN \
    NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SHP SLE SOS SRD SSP STN SVC SYP SZL \
    THB TJS TMT TOP TRY TTD TZS UAH USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_keep_their_spelling_in_every_currency() {
        for (amount, currency) in [("5800", "JPY"), ("1.255", "KWD"), ("19.99", "USD"), ("0.001", "BHD"), ("19.9", "USD")] {
            let money = Money::new(amount, currency).unwrap();
            let json = serde_json::to_value(&money).unwrap();
            assert_eq!(json, serde_json::json!({ "amount": amount, "currency": currency }));
            assert_eq!(serde_json::from_value::<Money>(json).unwrap().amount(), amount);
        }
    }

    #[test]
    fn more_digits_than_the_currency_has_are_refused() {
        for (amount, currency, allowed, digits) in [("58.5", "JPY", 0, 1), ("19.999", "USD", 2, 3), ("1.2555", "KWD", 3, 4)] {
            let expected = InvalidMoney::Digits { currency: currency.into(), allowed, digits };
            assert_eq!(Money::new(amount, currency), Err(expected));
        }
    }

    #[test]
    fn amounts_are_compared_as_numbers_and_only_within_a_currency() {
        let money = |amount: &str, currency: &str| Money::new(amount, currency).unwrap();
        assert_eq!(money("19.9", "USD"), money("19.90", "USD"));
        assert_ne!(money("19.9", "USD"), money("19.91", "USD"));
        assert_ne!(money("20", "USD"), money("20", "EUR"));
    }

    #[test]
    fn what_is_not_a_plain_decimal_above_zero_is_refused() {
        for amount in ["", "-1", "+1", "1e3", "1_000", "1,5", ".5", "5.", " 1", "١", "NaN", &"9".repeat(31), &"9".repeat(30)] {
            assert_eq!(Money::new(amount, "USD"), Err(InvalidMoney::Amount), "{amount}");
        }
        assert_eq!(Money::new("0.00", "USD"), Err(InvalidMoney::Zero));
    }

    #[test]
    fn a_code_that_is_no_currency_is_refused() {
        for currency in ["usd", "US", "XXX", "XAU", "ABC", "", "USD EUR"] {
            assert_eq!(Money::new("1", currency), Err(InvalidMoney::Currency), "{currency}");
        }
    }
}
