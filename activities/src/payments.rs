//! The payment service: `close-payment`, `void-payment`, `refund-payment` and `refund-status`.

use async_trait::async_trait;
use http::Method;
use overdue_runtime::Timestamp;
use overdue_runtime::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions};
use serde::{Deserialize, Serialize};

use crate::definition::{CAPTURE, Definition, REASON, RETRY_AFTER, plain, with};
use crate::endpoint::Endpoint;
use crate::money::Money;

pub(crate) const CLOSE_PAYMENT: Definition = Definition {
    name: "close-payment",
    method: Method::POST,
    path: "/payments/{paymentId}/close",
    body: &["orderId"],
    others: &["paymentId", "paymentChannel"],
    outcomes: &[
        plain("CLOSED"),
        plain("ALREADY_CLOSED"),
        with("ALREADY_PAID", CAPTURE),
        plain("AUTHORIZED"),
        plain("IN_PROGRESS"),
        plain("NOT_CREATED"),
        with("TOO_EARLY", RETRY_AFTER),
        with("REJECTED", REASON),
    ],
};

pub(crate) const VOID_PAYMENT: Definition = Definition {
    name: "void-payment",
    method: Method::POST,
    path: "/payments/{paymentId}/void",
    body: &["orderId"],
    others: &["paymentId", "paymentChannel"],
    outcomes: &[plain("VOIDED"), plain("ALREADY_VOIDED"), with("ALREADY_PAID", CAPTURE)],
};

pub(crate) const REFUND_PAYMENT: Definition = Definition {
    name: "refund-payment",
    method: Method::POST,
    path: "/payments/{paymentId}/refunds",
    body: &["refundId", "transactionId", "amount", "currency", "reason"],
    others: &["paymentId", "paymentChannel"],
    outcomes: &[plain("REFUNDED"), plain("ALREADY_REFUNDED"), plain("PROCESSING"), with("REJECTED", REASON)],
};

pub(crate) const REFUND_STATUS: Definition = Definition {
    name: "refund-status",
    method: Method::GET,
    path: "/payments/{paymentId}/refunds/{refundId}",
    body: &[],
    others: &["paymentId", "refundId", "paymentChannel"],
    outcomes: &[plain("REFUNDED"), plain("PROCESSING"), with("REJECTED", REASON), plain("NOT_FOUND")],
};

/// Money that a channel took. Two are equal when transaction, money (as a number) and time are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capture {
    /// The channel's id of this taking.
    pub transaction_id: String,
    /// How much.
    #[serde(flatten)]
    pub money: Money,
    /// When.
    pub paid_at: Timestamp,
}

/// What `close-payment` and `void-payment` are given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndPaymentInput {
    /// The payment.
    pub payment_id: String,
    /// The order that it is for.
    pub order_id: String,
    /// The channel, by which the breaker is chosen; not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_channel: Option<String>,
}

/// What `close-payment` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum ClosePaymentOutcome {
    /// The channel closed it.
    Closed,
    /// A repeat of our call, or it had expired.
    AlreadyClosed,
    /// Money is there although the order is cancelled: it is to be refunded.
    AlreadyPaid(Capture),
    /// Held, not captured: the hold is to be voided.
    Authorized,
    /// The buyer is paying now.
    InProgress,
    /// The channel has no such payment; a pay link may still be out.
    NotCreated,
    /// The channel refuses a close in the first minutes.
    TooEarly {
        /// Seconds until it is to be asked again; at least 1.
        retry_after: u64,
    },
    /// A fault of ours: bad signature, no permission, unknown merchant. The channel's breaker is open now.
    Rejected {
        /// What the channel says, if anything; at most 200 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// What `void-payment` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum VoidPaymentOutcome {
    /// The hold is given up.
    Voided,
    /// It was before.
    AlreadyVoided,
    /// Captured meanwhile: it is to be refunded.
    AlreadyPaid(Capture),
}

/// What `refund-payment` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefundPaymentInput {
    /// The payment.
    pub payment_id: String,
    /// Our name for the refund: one for each order and transaction.
    pub refund_id: String,
    /// The transaction that is to go back.
    pub transaction_id: String,
    /// All that was captured.
    #[serde(flatten)]
    pub money: Money,
    /// Why, for the channel's records.
    pub reason: String,
    /// The channel, by which the breaker is chosen; not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_channel: Option<String>,
}

/// What `refund-payment` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum RefundPaymentOutcome {
    /// The money is on its way back for good.
    Refunded,
    /// It was before.
    AlreadyRefunded,
    /// Accepted, not done: its status is to be asked until it is final.
    Processing,
    /// Refused, as for lack of balance or of an account.
    Rejected {
        /// What the channel says, if anything; at most 200 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// What `refund-status` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefundStatusInput {
    /// The payment.
    pub payment_id: String,
    /// Our name for the refund.
    pub refund_id: String,
    /// The channel, by which the breaker is chosen; not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_channel: Option<String>,
}

/// What `refund-status` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum RefundStatusOutcome {
    /// Done.
    Refunded,
    /// Not final.
    Processing,
    /// Refused.
    Rejected {
        /// What the channel says, if anything; at most 200 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The channel knows no such refund.
    NotFound,
}

/// Closes a payment, so that the buyer can no longer begin to pay.
pub struct ClosePayment(pub(crate) Endpoint);

#[async_trait]
impl Activity for ClosePayment {
    const NAME: &'static str = CLOSE_PAYMENT.name;
    type Input = EndPaymentInput;
    type Output = ClosePaymentOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: EndPaymentInput) -> Result<ClosePaymentOutcome, ActivityFailure> {
        let outcome = self.0.call(ctx, &input, input.payment_channel.as_deref()).await?;
        if let ClosePaymentOutcome::Rejected { reason } = &outcome {
            let said = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            self.0.force_open(input.payment_channel.as_deref(), &format!("close-payment was answered REJECTED{said}"));
        }
        Ok(outcome)
    }
}

/// Gives up a hold on the buyer's money.
pub struct VoidPayment(pub(crate) Endpoint);

#[async_trait]
impl Activity for VoidPayment {
    const NAME: &'static str = VOID_PAYMENT.name;
    type Input = EndPaymentInput;
    type Output = VoidPaymentOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: EndPaymentInput) -> Result<VoidPaymentOutcome, ActivityFailure> {
        self.0.call(ctx, &input, input.payment_channel.as_deref()).await
    }
}

/// Sends captured money back.
pub struct RefundPayment(pub(crate) Endpoint);

#[async_trait]
impl Activity for RefundPayment {
    const NAME: &'static str = REFUND_PAYMENT.name;
    type Input = RefundPaymentInput;
    type Output = RefundPaymentOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: RefundPaymentInput) -> Result<RefundPaymentOutcome, ActivityFailure> {
        self.0.call(ctx, &input, input.payment_channel.as_deref()).await
    }
}

/// Asks what became of a refund.
pub struct RefundStatus(pub(crate) Endpoint);

#[async_trait]
impl Activity for RefundStatus {
    const NAME: &'static str = REFUND_STATUS.name;
    type Input = RefundStatusInput;
    type Output = RefundStatusOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: RefundStatusInput) -> Result<RefundStatusOutcome, ActivityFailure> {
        self.0.call(ctx, &input, input.payment_channel.as_deref()).await
    }
}
