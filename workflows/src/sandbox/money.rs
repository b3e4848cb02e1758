//! Amounts as the channel compares them: decimal strings, equal as numbers.

use rust_decimal::Decimal;

/// Whether two decimal strings mean the same amount; text that is no number equals nothing.
pub(crate) fn same_amount(left: &str, right: &str) -> bool {
    match (left.parse::<Decimal>(), right.parse::<Decimal>()) {
        (Ok(left), Ok(right)) => left == right,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::same_amount;

    #[test]
    fn amounts_are_equal_as_numbers() {
        assert!(same_amount("19.9", "19.90"));
        assert!(!same_amount("19.9", "19.91"));
        assert!(!same_amount("money", "money"));
    }
}
