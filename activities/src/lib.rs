//! The calls to a shop's order, stock, coupon and payment services, each through one tower stack.

mod coupons;
mod money;
mod orders;
mod path;
mod payments;
mod stock;

pub use coupons::{ReturnCouponInput, ReturnCouponOutcome};
pub use money::{InvalidMoney, Money};
pub use orders::{CancelOrderInput, CancelOrderOutcome, CancelReason, ConfirmPaidInput, ConfirmPaidOutcome};
pub use path::{InvalidPathSegment, PATH_SEGMENT_BYTES_MAX, check_path_segment};
pub use payments::{
    Capture, ClosePaymentOutcome, EndPaymentInput, RefundPaymentInput, RefundPaymentOutcome, RefundStatusInput,
    RefundStatusOutcome, VoidPaymentOutcome,
};
pub use stock::{ReleaseStockInput, ReleaseStockOutcome};
