//! A sandbox shop: order, stock, coupon and payment services on loopback, each with its own durable ledger.
//!
//! The demo plays with it and the integration tests use it as their downstream double. It keeps the contract that a
//! real downstream must keep: effects once per idempotency key *and* once per business id, tombstones for a
//! compensation that comes before its forward call, and an order service that alone judges who won. It misbehaves
//! only as its [`FaultPlan`] says. Deliberately absent: the batch endpoints, and any call into the engine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the shop is outside the engine and reads its own clock")]

mod book;
mod coupons;
mod desk;
mod direct;
mod error;
mod faults;
mod http;
mod ledger;
mod look;
mod money;
mod order;
mod orders;
mod payments;
mod record;
mod refunds;
mod shop;
mod stock;
#[cfg(test)]
mod tests;
pub(crate) mod time;

pub use coupons::CouponStatus;
pub use desk::{Counts, ledger_file};
pub use direct::Told;
pub use error::Error;
pub use faults::{Fault, FaultPlan, FaultRates};
pub use ledger::read as read_ledger;
pub(crate) use money::same_amount;
pub use order::{NewOrder, NewPayment, NewReservation};
pub use orders::{Decided, Order, OrderStatus};
pub use payments::{Capture, PaymentStatus, PaymentTerms};
pub use record::{Call, Effect, EffectRecord, FaultKind, Record, RequestRecord, Service};
pub use shop::{Shop, Urls};
pub use stock::{ReservationStatus, StockLevel};
