//! The calls to a shop's order, stock, coupon and payment services, each through one tower stack, and the webhooks that
//! others are told by.
//!
//! One file per service holds what its calls are given and answer; `stack.rs` lists the layers that every request
//! passes, and `answer.rs` says what an answer means. A program calls [`init_crypto`] and then [`register`]. The contract
//! that a service must keep, and how an existing one is called without changing it, stands in the README.

mod answer;
mod call;
mod client;
mod config;
mod coupons;
mod definition;
mod endpoint;
mod error;
mod excerpt;
mod layers;
mod money;
mod orders;
mod path;
mod payments;
mod reading;
mod register;
mod retry_after;
mod settings;
mod sql;
mod stack;
mod stock;
mod trace;
mod webhooks;
mod wire;

pub use client::init_crypto;
pub use config::{
    AuthConfig, BreakerConfig, CallConfig, DownstreamConfig, DownstreamsConfig, Hidden, OutcomeConfig, RateConfig, RetryConfig,
};
pub use coupons::{ReturnCoupon, ReturnCouponInput, ReturnCouponOutcome};
pub use error::ConfigError;
pub use money::{InvalidMoney, Money};
pub use orders::{
    CancelOrder, CancelOrderInput, CancelOrderOutcome, CancelReason, ConfirmPaid, ConfirmPaidInput, ConfirmPaidOutcome,
};
pub use path::{InvalidPathSegment, PATH_SEGMENT_BYTES_MAX, check_path_segment};
pub use payments::{
    Capture, ClosePayment, ClosePaymentOutcome, EndPaymentInput, RefundPayment, RefundPaymentInput, RefundPaymentOutcome,
    RefundStatus, RefundStatusInput, RefundStatusOutcome, VoidPayment, VoidPaymentOutcome,
};
pub use register::{Downstreams, register, register_over};
pub use sql::{
    CANCEL_MANY_MAX, CancelManyOutcome, ListedOrder, OrderPage, OrdersTable, PageOf, PasswordConfig, SqlConfig, StatusesConfig,
};
pub use stock::{ReleaseStock, ReleaseStockInput, ReleaseStockOutcome};
pub use webhooks::{SecretConfig, WebhookConfig, WebhookRetryConfig, WebhooksConfig, register_webhooks, register_webhooks_over};
pub use wire::{Incoming, NoAnswer, Outgoing, Wire};
