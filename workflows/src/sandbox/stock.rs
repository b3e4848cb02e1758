//! The stock service: units of a SKU are available, reserved or sold, and none is ever lost or made.
//!
//! | reservation | release |
//! |---|---|
//! | reserved | RELEASED |
//! | released | ALREADY_RELEASED |
//! | sold | 409 without an outcome: nothing may give back what was delivered |
//! | unknown, or of another order | NOT_FOUND; an unknown one can no longer be made |

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde_json::json;

use super::book::{Ask, Book, Decision};
use super::{Call, Effect, Service};

/// Where a reservation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationStatus {
    /// Held for its order.
    Reserved,
    /// Back on the shelf.
    Released,
    /// Gone to the buyer.
    Sold,
}

/// Units of one SKU; `initial = available + reserved + sold` always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockLevel {
    /// Units ever put on the shelf.
    pub initial: u64,
    /// Units that can be reserved.
    pub available: u64,
    /// Units held for orders.
    pub reserved: u64,
    /// Units gone to buyers.
    pub sold: u64,
}

impl StockLevel {
    /// Whether no unit was lost or made.
    pub fn conserves(&self) -> bool {
        self.initial == self.available + self.reserved + self.sold
    }
}

struct Reservation {
    order_id: String,
    sku: String,
    quantity: u64,
    status: ReservationStatus,
}

#[derive(Default)]
pub(super) struct Stock {
    levels: BTreeMap<String, StockLevel>,
    reservations: HashMap<String, Reservation>,
    tombstones: HashSet<String>,
}

impl Stock {
    pub(super) fn level(&self, sku: &str) -> StockLevel {
        self.levels.get(sku).copied().unwrap_or_default()
    }

    pub(super) fn levels(&self) -> BTreeMap<String, StockLevel> {
        self.levels.clone()
    }

    pub(super) fn reservation(&self, token: &str) -> Option<ReservationStatus> {
        self.reservations.get(token).map(|reservation| reservation.status)
    }

    pub(super) fn refused(&self, token: &str) -> bool {
        self.tombstones.contains(token) || self.reservations.contains_key(token)
    }

    fn release(&self, ask: &Ask<'_>) -> Result<Decision, Decision> {
        let order_id = ask.text("orderId")?;
        let Some(reservation) = self.reservations.get(ask.subject) else {
            return Ok(Decision::unknown("NOT_FOUND").with(Effect::Tombstone));
        };
        if reservation.order_id != order_id {
            return Ok(Decision::unknown("NOT_FOUND"));
        }
        Ok(match reservation.status {
            ReservationStatus::Reserved => Decision::outcome("RELEASED").with(Effect::StockReleased),
            ReservationStatus::Released => Decision::outcome("ALREADY_RELEASED").again(Effect::StockReleased, ask.subject),
            ReservationStatus::Sold => Decision::conflict(json!({ "title": "the reservation was sold" })),
        })
    }

    fn settle(&mut self, token: &str, status: ReservationStatus) {
        let Some(reservation) = self.reservations.get_mut(token) else { return };
        if reservation.status != ReservationStatus::Reserved {
            return;
        }
        reservation.status = status;
        let level = self.levels.entry(reservation.sku.clone()).or_default();
        level.reserved -= reservation.quantity;
        match status {
            ReservationStatus::Sold => level.sold += reservation.quantity,
            ReservationStatus::Released | ReservationStatus::Reserved => level.available += reservation.quantity,
        }
    }
}

impl Book for Stock {
    const SERVICE: Service = Service::Stock;

    fn decide(&self, ask: &Ask<'_>) -> Decision {
        match ask.call {
            Call::ReleaseStock => self.release(ask).unwrap_or_else(|refusal| refusal),
            _ => Decision::unknown("NOT_FOUND"),
        }
    }

    fn apply(&mut self, subject: &str, effect: &Effect, _at: Timestamp) {
        match effect {
            Effect::StockAdded { quantity } => {
                let level = self.levels.entry(subject.to_owned()).or_default();
                level.initial += quantity;
                level.available += quantity;
            }
            Effect::StockReserved { order_id, sku, quantity } => {
                let level = self.levels.entry(sku.clone()).or_default();
                level.available -= quantity;
                level.reserved += quantity;
                let reservation = Reservation {
                    order_id: order_id.clone(),
                    sku: sku.clone(),
                    quantity: *quantity,
                    status: ReservationStatus::Reserved,
                };
                self.reservations.insert(subject.to_owned(), reservation);
            }
            Effect::StockReleased => self.settle(subject, ReservationStatus::Released),
            Effect::StockSold => self.settle(subject, ReservationStatus::Sold),
            Effect::Tombstone => {
                self.tombstones.insert(subject.to_owned());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::book::ask;

    fn with_reservation() -> Stock {
        let mut stock = Stock::default();
        let now = Timestamp::UNIX_EPOCH;
        stock.apply("cup", &Effect::StockAdded { quantity: 5 }, now);
        let reserved = Effect::StockReserved { order_id: "o-1".into(), sku: "cup".into(), quantity: 2 };
        stock.apply("r-1", &reserved, now);
        stock
    }

    fn release(stock: &mut Stock, token: &str) -> Decision {
        ask(stock, Call::ReleaseStock, token, json!({ "orderId": "o-1" }))
    }

    #[test]
    fn a_reservation_is_released_once_whatever_is_asked() {
        let mut stock = with_reservation();
        assert_eq!(release(&mut stock, "r-1").answer["outcome"], "RELEASED");
        let again = release(&mut stock, "r-1");
        assert_eq!(again.answer["outcome"], "ALREADY_RELEASED");
        assert_eq!(again.asked_again.as_deref(), Some("release r-1"));
        assert_eq!(stock.level("cup"), StockLevel { initial: 5, available: 5, reserved: 0, sold: 0 });
    }

    #[test]
    fn what_was_sold_is_never_released() {
        let mut stock = with_reservation();
        stock.apply("r-1", &Effect::StockSold, Timestamp::UNIX_EPOCH);
        let refused = release(&mut stock, "r-1");
        assert_eq!((refused.status, refused.answer.get("outcome")), (409, None));
        assert_eq!(stock.level("cup"), StockLevel { initial: 5, available: 3, reserved: 0, sold: 2 });
    }

    #[test]
    fn no_unit_is_lost_or_made() {
        let mut stock = with_reservation();
        assert!(stock.level("cup").conserves());
        release(&mut stock, "r-1");
        stock.apply("r-1", &Effect::StockSold, Timestamp::UNIX_EPOCH);
        assert!(stock.level("cup").conserves());
    }

    #[test]
    fn releasing_an_unknown_reservation_leaves_a_tombstone() {
        let mut stock = Stock::default();
        assert_eq!(release(&mut stock, "r-9").status, 404);
        assert!(stock.refused("r-9"));
    }

    #[test]
    fn a_reservation_of_another_order_is_not_found_and_stays() {
        let mut stock = with_reservation();
        let refused = ask(&mut stock, Call::ReleaseStock, "r-1", json!({ "orderId": "o-2" }));
        assert_eq!(refused.answer["outcome"], "NOT_FOUND");
        assert_eq!(stock.reservation("r-1"), Some(ReservationStatus::Reserved));
    }
}
