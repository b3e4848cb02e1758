//! Commits whose outcome nobody heard: applied, not applied, landing later.

use std::time::Duration;

use super::cluster::*;
use super::harness::*;
use crate::client::SignalOutcome;
use crate::store::{CommitFailure, Status};

const SECOND: Duration = Duration::from_secs(1);
const FATES: [CommitFailure; 3] =
    [CommitFailure::UnknownApplied, CommitFailure::UnknownNotApplied, CommitFailure::UnknownLandsLater];

#[tokio::test]
async fn a_start_whose_commit_was_not_heard_of_is_answered_and_there_once() {
    for fate in FATES {
        let cluster = Cluster::of(1).await;
        cluster.store.fail_next_commit(fate);
        cluster.order(0, "1", 5).await;
        assert_eq!(cluster.kinds(0, "1").await, ["WorkflowStarted", "TimerStarted"], "{fate:?}");
        cluster.pass(7 * SECOND).await;
        assert_eq!(cluster.calls_of("1"), 1, "{fate:?}");
    }
}

#[tokio::test]
async fn a_signal_whose_commit_was_not_heard_of_is_applied_once() {
    for fate in FATES {
        let cluster = Cluster::of(1).await;
        cluster.order(0, "1", 5).await;
        cluster.store.fail_next_commit(fate);
        assert_eq!(cluster.pay(0, "1", "tx-1").await, SignalOutcome::Applied, "{fate:?}");
        let kinds = cluster.kinds(0, "1").await;
        assert_eq!(kinds.iter().filter(|kind| **kind == "SignalReceived").count(), 1, "{fate:?}");
        assert_eq!(cluster.pay(0, "1", "tx-1").await, SignalOutcome::Duplicate, "{fate:?}");
    }
}

#[tokio::test]
async fn a_firing_whose_commit_was_not_heard_of_makes_one_call() {
    for fate in FATES {
        for skipped in 0..3 {
            let cluster = Cluster::of(1).await;
            cluster.order(0, "1", 1).await;
            // The firing, the completion of the call, and the end are commits of their own.
            for _ in 0..skipped {
                cluster.pass(if skipped == 2 { 32 * SECOND } else { Duration::ZERO }).await;
            }
            cluster.store.fail_next_commit(fate);
            cluster.pass(70 * SECOND).await;
            assert_eq!(cluster.calls_of("1"), 1, "{fate:?} after {skipped}");
            let ended = cluster.until(0, "1", "it ends", |found| found.status == Status::Completed).await;
            assert_eq!(ended.result.unwrap().as_str(), r#""done""#, "{fate:?}");
        }
    }
}

#[tokio::test]
async fn a_batch_in_which_everybody_waits_is_settled_for_each() {
    for fate in FATES {
        let cluster = Cluster::of(1).await;
        cluster.order(0, "there", 50).await;
        cluster.store.fail_next_commit(fate);
        let (again, new, paid) = tokio::join!(
            async { cluster.order(0, "there", 50).await },
            async { cluster.order(0, "new", 50).await },
            cluster.pay(0, "never-started", "tx-9")
        );
        let ((), ()) = (again, new);
        assert!(matches!(paid, SignalOutcome::Buffered | SignalOutcome::Duplicate), "{fate:?}: {paid:?}");
        cluster.order(0, "never-started", 50).await;
        let ended = cluster.until(0, "never-started", "it takes the payment up", |found| found.closed_at.is_some()).await;
        assert_eq!(ended.result.unwrap().as_str(), r#""paid by tx-9""#, "{fate:?}");
        assert_eq!(cluster.kinds(0, "new").await.len(), 2);
    }
}

#[tokio::test]
async fn a_node_whose_fence_is_lost_joins_again_and_goes_on() {
    let cluster = Cluster::of(1).await;
    cluster.order(0, "1", 5).await;
    cluster.store.fail_next_commit(CommitFailure::FenceLost);
    let refused = cluster.nodes[0].client.start(start_request("2", order_in(&cluster, 9))).await;
    assert!(refused.is_err(), "nothing was applied, and the caller is told to come again");
    cluster.pass(SECOND).await;
    cluster.order(0, "2", 5).await;
    cluster.pass(7 * SECOND).await;
    assert_eq!((cluster.calls_of("1"), cluster.calls_of("2")), (1, 1));
}

fn order_in(cluster: &Cluster, seconds: u64) -> crate::payload::Payload {
    let deadline = cluster.now().saturating_add(Duration::from_secs(seconds));
    crate::payload::Payload::of(&Order { deadline }).unwrap()
}
