//! The stock service: `release-stock`.

use serde::{Deserialize, Serialize};

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
