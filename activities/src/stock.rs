//! The stock service: `release-stock`.

use async_trait::async_trait;
use http::Method;
use overdue_runtime::activity::{Activity, ActivityContext, ActivityFailure, ActivityOptions};
use serde::{Deserialize, Serialize};

use crate::definition::{Definition, plain};
use crate::endpoint::Endpoint;

pub(crate) const RELEASE_STOCK: Definition = Definition {
    name: "release-stock",
    method: Method::POST,
    path: "/reservations/{stockToken}/release",
    body: &["orderId"],
    others: &["stockToken"],
    outcomes: &[plain("RELEASED"), plain("ALREADY_RELEASED"), plain("NOT_FOUND")],
};

/// What `release-stock` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStockInput {
    /// The reservation.
    pub stock_token: String,
    /// The order that it was made for.
    pub order_id: String,
}

/// What `release-stock` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReleaseStockOutcome {
    /// Back on the shelf.
    Released,
    /// It was before.
    AlreadyReleased,
    /// No such reservation, and there will be none: the service keeps a tombstone.
    NotFound,
}

/// Gives reserved stock back.
pub struct ReleaseStock(pub(crate) Endpoint);

#[async_trait]
impl Activity for ReleaseStock {
    const NAME: &'static str = RELEASE_STOCK.name;
    type Input = ReleaseStockInput;
    type Output = ReleaseStockOutcome;

    fn options(&self) -> ActivityOptions {
        self.0.options()
    }

    async fn execute(&self, ctx: &ActivityContext, input: ReleaseStockInput) -> Result<ReleaseStockOutcome, ActivityFailure> {
        self.0.call(ctx, &input, None).await
    }
}
