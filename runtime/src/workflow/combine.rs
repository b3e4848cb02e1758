//! Waiting for several things at once, the same way live and on replay.
//!
//! Everything here is biased: what is named first is asked first. `tokio::select!` and other combinators that choose at
//! random must not be used in workflows.

use std::future::Future;
use std::pin::pin;

pub use futures::future::{Either, join, join_all};

/// Waits for the first of two futures, asking `first` first, and drops the other one: a timer or activity that loses is
/// cancelled.
pub async fn race<A: Future, B: Future>(first: A, second: B) -> Either<A::Output, B::Output> {
    match futures::future::select(pin!(first), pin!(second)).await {
        Either::Left((output, _)) => Either::Left(output),
        Either::Right((output, _)) => Either::Right(output),
    }
}
