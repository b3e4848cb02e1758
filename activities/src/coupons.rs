//! The coupon service: `return-coupon`.

use serde::{Deserialize, Serialize};

/// What `return-coupon` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReturnCouponInput {
    /// The coupon.
    pub coupon_id: String,
    /// The order that it was used for.
    pub order_id: String,
}

/// What `return-coupon` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReturnCouponOutcome {
    /// The user can use it again.
    Returned,
    /// It was returned before.
    AlreadyReturned,
    /// No such coupon, or not used for this order.
    NotFound,
}
