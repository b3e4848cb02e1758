//! What a ledger line says: a request that arrived, or an effect that was applied.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One of the shop's four services; each keeps a ledger of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// The order rows, and the judge of who won.
    Orders,
    /// Reservations per SKU.
    Stock,
    /// Coupons locked by orders.
    Coupons,
    /// The payment channel.
    Payments,
}

impl Service {
    /// All four, in the order in which reports name them.
    pub const ALL: [Service; 4] = [Service::Orders, Service::Stock, Service::Coupons, Service::Payments];

    /// The name used in ledgers, file names and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Service::Orders => "orders",
            Service::Stock => "stock",
            Service::Coupons => "coupons",
            Service::Payments => "payments",
        }
    }
}

/// A call of the downstream contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// `POST /orders/{orderId}/cancel`
    CancelOrder,
    /// `POST /orders/{orderId}/confirm-paid`
    ConfirmPaid,
    /// `GET /orders`
    ListOrders,
    /// `POST /reservations/{stockToken}/release`
    ReleaseStock,
    /// `POST /coupons/{couponId}/return`
    ReturnCoupon,
    /// `POST /payments/{paymentId}/close`
    ClosePayment,
    /// `POST /payments/{paymentId}/void`
    VoidPayment,
    /// `POST /payments/{paymentId}/refunds`
    RefundPayment,
    /// `GET /payments/{paymentId}/refunds/{refundId}`
    RefundStatus,
}

impl Call {
    /// Whether the call only reads: it needs no idempotency key, and its answer is never a stored one.
    pub fn reads(self) -> bool {
        matches!(self, Call::ListOrders | Call::RefundStatus)
    }
}

/// What a fault was, as a ledger and the counts name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The effect was applied and the answer withheld for longer than the caller waits.
    TimeoutAfterEffect,
    /// 503, nothing was done.
    Unavailable,
    /// 429 with `Retry-After`, nothing was done.
    Throttled,
    /// 500, nothing was done.
    ServerError,
    /// The effect was applied and the connection broken in the middle of the answer.
    ConnectionClosed,
}

/// A request as it arrived, and how it was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// Position in the service's ledger, from 1, shared with the effects.
    pub n: u64,
    /// The service that was asked.
    pub service: Service,
    /// What it was asked for.
    pub call: Call,
    /// The order, reservation, coupon or payment in the path; `*` for a listing.
    pub subject: String,
    /// The `Idempotency-Key` header.
    pub key: Option<String>,
    /// When the whole request had arrived.
    #[serde(serialize_with = "super::time::serialize")]
    pub at: Timestamp,
    /// The JSON body, or the query of a listing.
    pub body: Value,
    /// SHA-256 of call, subject and body bytes: what "the same request" means for a key.
    pub digest: String,
    /// The HTTP status of the answer, as it was meant before a fault swallowed it.
    pub status: u16,
    /// The answer's body.
    pub answer: Value,
    /// The fault that this request met.
    pub fault: Option<FaultKind>,
    /// The answer was the stored one of an earlier request with the same key.
    pub repeated: bool,
    /// The same key gets this answer again.
    pub kept: bool,
    /// The request asked, under another key, for an effect that was already applied.
    pub duplicate_effect: bool,
    /// The key had been used before for another request.
    pub key_reused: bool,
}

/// An effect as it was applied: the ledger's truth, from which a service rebuilds its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectRecord {
    /// Position in the service's ledger, from 1, shared with the requests.
    pub n: u64,
    /// The service that applied it.
    pub service: Service,
    /// The order, reservation, coupon, payment or SKU that it changed.
    pub subject: String,
    /// The key of the request that caused it; none when the shop itself did it.
    pub key: Option<String>,
    /// When it was applied.
    #[serde(serialize_with = "super::time::serialize")]
    pub at: Timestamp,
    /// What changed.
    #[serde(flatten)]
    pub effect: Effect,
}

/// One line of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// A request that arrived.
    Request(RequestRecord),
    /// An effect that was applied.
    Effect(EffectRecord),
}

/// What can change in the shop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Effect {
    /// The order was created, waiting for its payment.
    OrderPlaced {
        /// Until when it waits.
        #[serde(serialize_with = "super::time::serialize")]
        pay_deadline: Timestamp,
        /// What it costs, a decimal string.
        amount: String,
        /// ISO 4217.
        currency: String,
        /// It refuses a payment past its deadline with `EXPIRED`.
        refuses_late_payment: bool,
        /// So many first cancels are answered `NOT_READY`.
        not_ready_asks: u32,
    },
    /// A cancel came while the order was still being created.
    OrderAskedEarly,
    /// The order service moved the deadline.
    DeadlineMoved {
        /// The later deadline.
        #[serde(serialize_with = "super::time::serialize")]
        pay_deadline: Timestamp,
    },
    /// The order was cancelled.
    OrderCancelled {
        /// `TIMEOUT`, `USER` or `PAYMENT_FAILED`.
        reason: String,
    },
    /// The order was paid.
    OrderPaid {
        /// The channel transaction that paid it.
        transaction_id: String,
    },
    /// Something was to be undone that nobody had done: the late forward call will be refused.
    Tombstone,
    /// A SKU got its initial quantity.
    StockAdded {
        /// Units put on the shelf.
        quantity: u64,
    },
    /// Units of a SKU were reserved under this token.
    StockReserved {
        /// For which order.
        order_id: String,
        /// Of which SKU.
        sku: String,
        /// How many units.
        quantity: u64,
    },
    /// The reservation went back to the shelf.
    StockReleased,
    /// The reservation left the shelf for good.
    StockSold,
    /// The coupon was locked by an order.
    CouponLocked {
        /// Which order.
        order_id: String,
    },
    /// The coupon went back to its owner.
    CouponReturned,
    /// The coupon was used up by a paid order.
    CouponUsed,
    /// A payment was opened at the channel.
    PaymentOpened {
        /// For which order.
        order_id: String,
        /// How the channel will treat it.
        terms: super::PaymentTerms,
    },
    /// A close came while the buyer was at the channel's page.
    PaymentAskedEarly,
    /// The channel holds the money without having captured it.
    PaymentHeld,
    /// The channel took the buyer's money.
    PaymentCaptured {
        /// The channel's id of this taking.
        transaction_id: String,
        /// How much, a decimal string.
        amount: String,
        /// ISO 4217.
        currency: String,
        /// When.
        #[serde(serialize_with = "super::time::serialize")]
        paid_at: Timestamp,
    },
    /// The payment was closed.
    PaymentClosed,
    /// The hold was given up.
    PaymentVoided,
    /// The channel refused a refund for now.
    RefundRefused {
        /// The caller's id of it.
        refund_id: String,
    },
    /// The channel took a refund on; the money is certain to go back.
    RefundAccepted {
        /// The caller's id of it.
        refund_id: String,
        /// What is refunded.
        transaction_id: String,
        /// How much, a decimal string.
        amount: String,
        /// ISO 4217.
        currency: String,
    },
    /// The status of a refund under way was asked.
    RefundAsked {
        /// The caller's id of it.
        refund_id: String,
    },
    /// The refund reached the buyer.
    RefundSettled {
        /// The caller's id of it.
        refund_id: String,
    },
}

impl Effect {
    /// The identity of what an engine may cause only once, whatever keys it uses.
    pub(crate) fn once(&self, subject: &str) -> Option<String> {
        match self {
            Effect::OrderCancelled { .. } => Some(format!("cancel {subject}")),
            Effect::StockReleased => Some(format!("release {subject}")),
            Effect::CouponReturned => Some(format!("return {subject}")),
            Effect::PaymentClosed => Some(format!("close {subject}")),
            Effect::PaymentVoided => Some(format!("void {subject}")),
            Effect::RefundAccepted { transaction_id, .. } => Some(format!("refund {subject} {transaction_id}")),
            _ => None,
        }
    }
}
