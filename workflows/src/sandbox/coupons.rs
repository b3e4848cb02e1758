//! The coupon service: a coupon is locked by one order, and goes back to its owner or is used up.
//!
//! | coupon | return |
//! |---|---|
//! | locked | RETURNED |
//! | returned | ALREADY_RETURNED |
//! | used | 409 without an outcome |
//! | unknown, or locked by another order | NOT_FOUND; an unknown one can no longer be locked |

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde_json::json;

use super::book::{Ask, Book, Decision};
use super::{Call, Effect, Service};

/// Where a coupon stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CouponStatus {
    /// Held by its order.
    Locked,
    /// Its owner has it back.
    Returned,
    /// Used up by a paid order.
    Used,
}

struct Coupon {
    order_id: String,
    status: CouponStatus,
}

#[derive(Default)]
pub(super) struct Coupons {
    coupons: HashMap<String, Coupon>,
    tombstones: HashSet<String>,
}

impl Coupons {
    pub(super) fn coupon(&self, coupon_id: &str) -> Option<CouponStatus> {
        self.coupons.get(coupon_id).map(|coupon| coupon.status)
    }

    pub(super) fn refused(&self, coupon_id: &str) -> bool {
        self.tombstones.contains(coupon_id) || self.coupon(coupon_id).is_some_and(|status| status != CouponStatus::Returned)
    }

    fn give_back(&self, ask: &Ask<'_>) -> Result<Decision, Decision> {
        let order_id = ask.text("orderId")?;
        let Some(coupon) = self.coupons.get(ask.subject) else {
            return Ok(Decision::unknown("NOT_FOUND").with(Effect::Tombstone));
        };
        if coupon.order_id != order_id {
            return Ok(Decision::unknown("NOT_FOUND"));
        }
        Ok(match coupon.status {
            CouponStatus::Locked => Decision::outcome("RETURNED").with(Effect::CouponReturned),
            CouponStatus::Returned => Decision::outcome("ALREADY_RETURNED").again(Effect::CouponReturned, ask.subject),
            CouponStatus::Used => Decision::conflict(json!({ "title": "the coupon was used" })),
        })
    }

    fn settle(&mut self, coupon_id: &str, status: CouponStatus) {
        if let Some(coupon) = self.coupons.get_mut(coupon_id) {
            coupon.status = status;
        }
    }
}

impl Book for Coupons {
    const SERVICE: Service = Service::Coupons;

    fn decide(&self, ask: &Ask<'_>) -> Decision {
        match ask.call {
            Call::ReturnCoupon => self.give_back(ask).unwrap_or_else(|refusal| refusal),
            _ => Decision::unknown("NOT_FOUND"),
        }
    }

    fn apply(&mut self, subject: &str, effect: &Effect, _at: Timestamp) {
        match effect {
            Effect::CouponLocked { order_id } => {
                let coupon = Coupon { order_id: order_id.clone(), status: CouponStatus::Locked };
                self.coupons.insert(subject.to_owned(), coupon);
            }
            Effect::CouponReturned => self.settle(subject, CouponStatus::Returned),
            Effect::CouponUsed => self.settle(subject, CouponStatus::Used),
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

    fn locked() -> Coupons {
        let mut coupons = Coupons::default();
        coupons.apply("c-1", &Effect::CouponLocked { order_id: "o-1".into() }, Timestamp::UNIX_EPOCH);
        coupons
    }

    fn give_back(coupons: &mut Coupons, order_id: &str) -> Decision {
        ask(coupons, Call::ReturnCoupon, "c-1", json!({ "orderId": order_id }))
    }

    #[test]
    fn a_coupon_is_returned_once_whatever_is_asked() {
        let mut coupons = locked();
        assert_eq!(give_back(&mut coupons, "o-1").answer["outcome"], "RETURNED");
        let again = give_back(&mut coupons, "o-1");
        assert_eq!(again.answer["outcome"], "ALREADY_RETURNED");
        assert!(again.effects.is_empty());
    }

    #[test]
    fn a_used_coupon_is_never_returned() {
        let mut coupons = locked();
        coupons.apply("c-1", &Effect::CouponUsed, Timestamp::UNIX_EPOCH);
        assert_eq!(give_back(&mut coupons, "o-1").status, 409);
        assert_eq!(coupons.coupon("c-1"), Some(CouponStatus::Used));
    }

    #[test]
    fn a_coupon_locked_by_another_order_is_not_found() {
        assert_eq!(give_back(&mut locked(), "o-2").answer["outcome"], "NOT_FOUND");
    }

    #[test]
    fn returning_an_unknown_coupon_leaves_a_tombstone() {
        let mut coupons = Coupons::default();
        assert_eq!(give_back(&mut coupons, "o-1").status, 404);
        assert!(coupons.refused("c-1"));
    }
}
