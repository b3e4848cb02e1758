//! What happens to an order in the demo, and when: a story is a few acts before and after the deadline.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::Serialize;

/// The stories, each with its share of all orders in percent.
///
/// The first orders of a run get one story each in this order, so that even a small run has all of them that fit; the
/// very first is paid late, because that one needs every service.
pub(super) const STORIES: [(Story, u32); 14] = [
    (Story::PaidLate, 7),
    (Story::PaidInTime, 24),
    (Story::PaidTwice, 5),
    (Story::WrongAmount, 4),
    (Story::CancelledByUser, 6),
    (Story::PaidAtTheDeadline, 15),
    (Story::Unpaid, 22),
    (Story::PaidAfterTheClose, 4),
    (Story::PaidBeforeTheStart, 2),
    (Story::PaidUnnoticed, 3),
    (Story::CancelledByShop, 2),
    (Story::PaymentFailed, 2),
    (Story::DeadlineExtended, 2),
    (Story::DeadlineMovedSilently, 2),
];

/// When a payment at the deadline is made: capturing it durably takes some milliseconds, so that the engine hears of it on
/// both sides of the deadline.
const RACE_MS: std::ops::RangeInclusive<i64> = -16..=6;

/// What happens to one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Story {
    PaidLate,
    PaidInTime,
    PaidTwice,
    WrongAmount,
    CancelledByUser,
    PaidAtTheDeadline,
    Unpaid,
    PaidAfterTheClose,
    PaidBeforeTheStart,
    PaidUnnoticed,
    CancelledByShop,
    PaymentFailed,
    DeadlineExtended,
    DeadlineMovedSilently,
}

/// When an act happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The order is at the shop, the workflow not started.
    BeforeStart,
    /// So many milliseconds after the deadline; before it when negative.
    Deadline(i64),
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// The buyer pays, and the engine hears of it after the delay.
    Pay { amount: Amount, notified_after: Duration },
    /// The user gives up, which the order service hands to the engine.
    CancelByUser,
    /// The order service cancels by itself; the engine hears nothing.
    CancelByShop,
    /// The buyer's last card is refused.
    FailPayment,
    /// The deadline moves at the order service, and the engine is told or not.
    MoveDeadline { by: Duration, told: bool },
    /// An operator decides on a payment held for review, if it still is.
    Review,
}

/// How much the buyer pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// What the order costs.
    Right,
    /// Another amount.
    Wrong,
    /// The right number in another currency.
    WrongCurrency,
}

/// One act of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Act {
    pub(super) at: Moment,
    pub(super) deed: Deed,
}

impl Story {
    /// Draws a story at its share.
    pub(super) fn draw(dice: &mut StdRng) -> Story {
        let mut left = dice.random_range(0..STORIES.iter().map(|(_, share)| share).sum());
        for (story, share) in STORIES {
            if left < share {
                return story;
            }
            left -= share;
        }
        Story::Unpaid
    }

    /// The acts, in order of time. `watch_ms` is how long the workflow watches for late payments.
    pub(super) fn acts(self, watch_ms: i64, dice: &mut StdRng) -> Vec<Act> {
        let pay = |at, amount| Act { at: Moment::Deadline(at), deed: paid(amount, 0) };
        let at = |at, deed| Act { at: Moment::Deadline(at), deed };
        match self {
            Story::Unpaid => Vec::new(),
            Story::PaidInTime => vec![pay(dice.random_range(-2000..-150), Amount::Right)],
            Story::PaidBeforeTheStart => vec![Act { at: Moment::BeforeStart, deed: paid(Amount::Right, 0) }],
            Story::PaidAtTheDeadline => vec![pay(dice.random_range(RACE_MS), Amount::Right)],
            Story::PaidLate => vec![pay(dice.random_range(300..1500), Amount::Right)],
            Story::PaidAfterTheClose => vec![pay(watch_ms + dice.random_range(1500..2500), Amount::Right)],
            Story::PaidUnnoticed => {
                let delay = dice.random_range(500..2500);
                vec![at(dice.random_range(-400..-20), paid(Amount::Right, delay))]
            }
            Story::PaidTwice => {
                let first = dice.random_range(-1500..-100);
                vec![pay(first, Amount::Right), pay(first + dice.random_range(5..2500), Amount::Right)]
            }
            Story::WrongAmount => wrong_amount(dice),
            Story::CancelledByUser => vec![at(dice.random_range(-2000..-5), Deed::CancelByUser)],
            Story::CancelledByShop => vec![at(dice.random_range(-2000..-5), Deed::CancelByShop)],
            Story::PaymentFailed => vec![at(dice.random_range(-2000..-5), Deed::FailPayment)],
            Story::DeadlineExtended => vec![at(-1000, move_deadline(dice, true))],
            Story::DeadlineMovedSilently => vec![at(-500, move_deadline(dice, false))],
        }
    }
}

fn paid(amount: Amount, notified_after_ms: u64) -> Deed {
    Deed::Pay { amount, notified_after: Duration::from_millis(notified_after_ms) }
}

fn move_deadline(dice: &mut StdRng, told: bool) -> Deed {
    Deed::MoveDeadline { by: Duration::from_millis(dice.random_range(500..1500)), told }
}

/// Paid wrongly in time (an operator decides on some of them) or wrongly after the deadline.
fn wrong_amount(dice: &mut StdRng) -> Vec<Act> {
    let amount = if dice.random_bool(0.7) { Amount::Wrong } else { Amount::WrongCurrency };
    let late = dice.random_bool(0.3);
    let at = if late { dice.random_range(100..1000) } else { dice.random_range(-2000..-1200) };
    let mut acts = vec![Act { at: Moment::Deadline(at), deed: paid(amount, 0) }];
    if !late && dice.random_bool(0.5) {
        acts.push(Act { at: Moment::Deadline(-900), deed: Deed::Review });
    }
    acts
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn the_shares_add_up_to_all_orders() {
        assert_eq!(STORIES.iter().map(|(_, share)| share).sum::<u32>(), 100);
    }

    #[test]
    fn acts_come_in_order_of_time() {
        let mut dice = StdRng::seed_from_u64(3);
        for (story, _) in STORIES.iter().cycle().take(500) {
            let times: Vec<_> = story
                .acts(2000, &mut dice)
                .iter()
                .map(|act| match act.at {
                    Moment::BeforeStart => i64::MIN,
                    Moment::Deadline(ms) => ms,
                })
                .collect();
            assert!(times.is_sorted(), "{story:?} {times:?}");
        }
    }

    #[test]
    fn a_payment_at_the_deadline_comes_on_both_sides_of_it() {
        let mut dice = StdRng::seed_from_u64(3);
        let mut times = Vec::new();
        for _ in 0..200 {
            if let Moment::Deadline(ms) = Story::PaidAtTheDeadline.acts(2000, &mut dice)[0].at {
                times.push(ms);
            }
        }
        assert!(times.iter().any(|ms| *ms < 0) && times.iter().any(|ms| *ms > 0));
        assert!(times.iter().all(|ms| RACE_MS.contains(ms)));
    }
}
