//! Mistakes of a committer, put back where a test asks for them (see [`crate::fault::Bug`]). Nothing else is here, and
//! without the feature `fault-injection` none of it happens.

use std::future::Future;

use futures::future::{Either, select, select_all};
use tokio::sync::oneshot;

use super::committer::{CommitRequest, ReplyTo};
use crate::fault::{Bug, planted};
use crate::store::{Outcome, Write};

/// The outcome that a write has if all goes well.
pub(super) fn hoped_for(write: &Write) -> Outcome {
    match write {
        Write::Start(_) => Outcome::Started { inbox: false },
        Write::Advance(_) => Outcome::Advanced,
        Write::Deposit(_) => Outcome::Deposited,
        Write::Refuse(_) => Outcome::Refused,
        Write::Retire(_) => Outcome::Retired,
        Write::Forget(_) => Outcome::Forgotten,
        Write::Dispatch(_) => Outcome::Dispatched,
    }
}

/// Answers callers before their batch is committed; afterwards there is nobody left to be told.
pub(super) fn answer_early(batch: Vec<CommitRequest>) -> Vec<CommitRequest> {
    if !planted(Bug::AckBeforeCommit) {
        return batch;
    }
    let answered = |CommitRequest { write, reply_to }: CommitRequest| {
        let reply_to = match reply_to {
            ReplyTo::Request(caller) => {
                let _ = caller.send(Ok(hoped_for(&write)));
                ReplyTo::Request(oneshot::channel().0)
            }
            core => core,
        };
        CommitRequest { write, reply_to }
    };
    batch.into_iter().map(answered).collect()
}

/// Has the commit live only as long as those who asked for it: `None` when one of them hung up before it ended.
pub(super) async fn as_long_as_asked_for<T>(commit: impl Future<Output = T>, replies: &mut [ReplyTo]) -> Option<T> {
    if !planted(Bug::CommitInRequest) {
        return Some(commit.await);
    }
    let callers: Vec<_> = replies
        .iter_mut()
        .filter_map(|reply_to| match reply_to {
            ReplyTo::Request(caller) => Some(Box::pin(caller.closed())),
            ReplyTo::Core(_) => None,
        })
        .collect();
    if callers.is_empty() {
        return Some(commit.await);
    }
    match select(Box::pin(commit), select_all(callers)).await {
        Either::Left((committed, _)) => Some(committed),
        Either::Right(_) => None,
    }
}
