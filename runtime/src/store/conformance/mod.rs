//! What every store must do, as one suite that is run on each of them.
//!
//! A specification gets an empty store of [`SHARDS`] shards and knows nothing else of it. [`random`] compares a store
//! with the model under random operations.

mod audit;
pub(in crate::store) mod fixtures;
mod forecasts;
mod gates;
mod inbox;
mod lanes;
mod listing;
mod nodes;
pub(in crate::store) mod outbox;
pub(in crate::store) mod random;
mod retention;
pub(in crate::store) mod sagas;
mod scans;
mod starts;
mod tokens;
mod transitions;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{ModelStore, Sharing, Store};

/// The number of shards of a store under test.
pub(in crate::store) const SHARDS: u16 = 64;

/// The longest that one specification may take.
const PATIENCE: Duration = Duration::from_secs(60);

type Specification = (&'static str, fn(Arc<dyn Store>) -> BoxFuture<'static, ()>);

fn specifications(sharing: Sharing) -> impl Iterator<Item = Specification> {
    let of_kind = match sharing {
        Sharing::Embedded => lanes::OF_ONE_NODE,
        Sharing::Shared => nodes::SPECIFICATIONS,
    };
    [
        lanes::SPECIFICATIONS,
        of_kind,
        starts::SPECIFICATIONS,
        transitions::SPECIFICATIONS,
        inbox::SPECIFICATIONS,
        scans::SPECIFICATIONS,
        listing::SPECIFICATIONS,
        forecasts::SPECIFICATIONS,
        retention::SPECIFICATIONS,
        tokens::SPECIFICATIONS,
        gates::SPECIFICATIONS,
        audit::SPECIFICATIONS,
        outbox::SPECIFICATIONS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Runs every specification, each on an empty store of its own, and fails with the names of those that did not hold.
pub(in crate::store) async fn every_specification(make: impl AsyncFn() -> Arc<dyn Store>) {
    let mut broken = Vec::new();
    let sharing = make().await.facts().sharing;
    for (name, run) in specifications(sharing) {
        let store = make().await;
        let run = AssertUnwindSafe(run(Arc::clone(&store))).catch_unwind();
        match tokio::time::timeout(PATIENCE, run).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => broken.push(name.to_owned()),
            Err(_) => broken.push(format!("{name} (took longer than {PATIENCE:?})")),
        }
        store.close().await;
    }
    assert!(broken.is_empty(), "{} specifications do not hold:\n  {}", broken.len(), broken.join("\n  "));
}

#[tokio::test]
async fn the_model_keeps_every_specification() {
    every_specification(async || Arc::new(ModelStore::new(SHARDS)) as Arc<dyn Store>).await;
    every_specification(async || Arc::new(ModelStore::shared(SHARDS, None)) as Arc<dyn Store>).await;
}
