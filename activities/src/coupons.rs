//! The coupon service: `return-coupon`.

use async_trait::async_trait;
use http::Method;
use overdue_runtime::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions};
use serde::{Deserialize, Serialize};

use crate::definition::{Definition, plain};
use crate::endpoint::Endpoint;

pub(crate) const RETURN_COUPON: Definition = Definition {
    name: "return-coupon",
    method: Method::POST,
    path: "/coupons/{couponId}/return",
    body: &["orderId"],
    others: &["couponId"],
    outcomes: &[plain("RETURNED"), plain("ALREADY_RETURNED"), plain("NOT_FOUND")],
};

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

/// Gives a used coupon back.
pub struct ReturnCoupon(pub(crate) Endpoint);

#[async_trait]
impl Activity for ReturnCoupon {
    const NAME: &'static str = RETURN_COUPON.name;
    type Input = ReturnCouponInput;
    type Output = ReturnCouponOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: ReturnCouponInput) -> Result<ReturnCouponOutcome, ActivityFailure> {
        self.0.call(ctx, &input, None).await
    }
}
