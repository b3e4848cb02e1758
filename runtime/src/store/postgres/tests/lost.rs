//! Connections that break around a COMMIT, clients that are stopped in the middle of one, servers that restart.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Executor, Row};
use tokio::task::JoinHandle;

use super::{aside, cluster, database, opened, session};
use crate::store::conformance::fixtures::{Node, joining, new, order};
use crate::store::postgres::PostgresStore;
use crate::store::{CommitError, NewNode, Outcome, Store, StoreError, Write};
use crate::testing::{CommitFault, Fsync, PostgresCluster, Proxy, eventually};

/// A node whose connections go through a proxy, and the URL that goes past it.
async fn behind_a_proxy() -> (Proxy, Arc<Node>, String) {
    let direct = database().await;
    let proxy = Proxy::before(cluster().port()).await.unwrap();
    let through = direct.replace(&format!(":{}/", cluster().port()), &format!(":{}/", proxy.port()));
    let node = Node::on(opened(&through).await).await;
    (proxy, Arc::new(node), direct)
}

fn start(id: &str) -> [Write; 1] {
    [Write::Start(new(&order(id)))]
}

/// Half of a COMMIT is with the server, and the rest does not come.
async fn stuck(proxy: &Proxy, node: &Arc<Node>) -> JoinHandle<Result<Vec<Outcome>, CommitError>> {
    proxy.fail_next_commit(CommitFault::Freeze);
    let commit = aside({
        let node = Arc::clone(node);
        async move { node.try_commit(&start("1")).await }
    });
    eventually("the commit is stuck", async || (proxy.struck() == 1).then_some(())).await;
    commit
}

const STARTED: Outcome = Outcome::Started { inbox: false };

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown_and_found_after_the_epoch_was_raised() {
    let (proxy, node, _) = behind_a_proxy().await;
    proxy.fail_next_commit(CommitFault::LoseTheAnswer);
    assert!(matches!(node.try_commit(&start("1")).await, Err(CommitError::Unknown(_))));
    assert_eq!(proxy.struck(), 1);
    let raised = node.store.raise(&node.fence).await.unwrap().unwrap();
    assert!(node.find(&order("1")).await.is_some(), "it was applied");
    assert!(matches!(node.try_commit(&[]).await, Err(CommitError::FenceLost { .. })));
    let node = Node { store: Arc::clone(&node.store), fence: raised };
    assert_eq!(node.commit(&start("2")).await, [STARTED]);
}

#[tokio::test]
async fn a_commit_that_is_lost_on_its_way_is_unknown_and_not_found_after_the_epoch_was_raised() {
    let (proxy, node, _) = behind_a_proxy().await;
    proxy.fail_next_commit(CommitFault::LoseTheCommit);
    assert!(matches!(node.try_commit(&start("1")).await, Err(CommitError::Unknown(_))));
    let fence = node.store.raise(&node.fence).await.unwrap().unwrap();
    assert_eq!(node.find(&order("1")).await, None);
    let node = Node { store: Arc::clone(&node.store), fence };
    assert_eq!(node.commit(&start("1")).await, [STARTED], "it is applied again");
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "what is promised is real time")]
async fn a_client_that_is_stopped_in_the_middle_of_its_commit_cannot_keep_its_successor_waiting() {
    let (proxy, stopped, direct) = behind_a_proxy().await;
    let heir = Node::beside(opened(&direct).await).await;
    let mut beside = session(&direct).await;
    let commit = stuck(&proxy, &stopped).await;
    let open = "SELECT a.state FROM overdue.lanes AS l JOIN pg_stat_activity AS a USING (pid, backend_start)
                WHERE a.xact_start IS NOT NULL AND l.node_id = $1";
    let state = sqlx::query(open).bind(&stopped.fence.node_id).fetch_one(&mut beside).await.unwrap();
    assert!(["active", "idle in transaction"].contains(&state.get::<&str, _>(0)), "{}", state.get::<&str, _>(0));

    let began = std::time::Instant::now();
    assert!(heir.store.take_over(&stopped.fence.node_id, Duration::ZERO).await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(heir.claim(usize::MAX).await.len(), 64);
    assert_eq!(heir.commit(&start("1")).await, [STARTED], "nothing of the stopped one is there");

    proxy.thaw();
    assert!(matches!(commit.await.unwrap(), Err(CommitError::Unknown(_))));
    assert_eq!(stopped.store.raise(&stopped.fence).await.unwrap(), None, "it was taken over");
    assert!(matches!(stopped.try_commit(&start("2")).await, Err(CommitError::FenceLost { .. })));
    assert_eq!(heir.find(&order("2")).await, None);
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "what is promised is real time")]
async fn a_client_that_is_stopped_in_the_first_commit_of_a_new_session_cannot_keep_its_successor_waiting_either() {
    let (proxy, stopped, direct) = behind_a_proxy().await;
    let heir = Node::beside(opened(&direct).await).await;
    let mut beside = session(&direct).await;
    let old = "SELECT pg_terminate_backend(pid) FROM overdue.lanes WHERE node_id = $1";
    sqlx::query(old).bind(&stopped.fence.node_id).execute(&mut beside).await.unwrap();
    let commit = stuck(&proxy, &stopped).await;

    let began = std::time::Instant::now();
    assert!(heir.store.take_over(&stopped.fence.node_id, Duration::ZERO).await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(heir.claim(usize::MAX).await.len(), 64);
    proxy.thaw();
    assert!(matches!(commit.await.unwrap(), Err(CommitError::Unknown(_))));
}

#[tokio::test]
async fn raising_the_own_epoch_ends_a_session_that_is_stuck_in_the_old_one() {
    let (proxy, node, direct) = behind_a_proxy().await;
    let commit = stuck(&proxy, &node).await;
    // Another session of the same node, as it has one after its connection broke.
    let again = opened(&direct).await;
    let fence = again.raise(&node.fence).await.unwrap().unwrap();
    assert!(matches!(commit.await.unwrap(), Err(CommitError::Unknown(_))));
    let node = Node { store: again, fence };
    assert_eq!(node.find(&order("1")).await, None);
    assert_eq!(node.commit(&start("1")).await, [STARTED]);
}

#[tokio::test]
async fn a_server_that_says_nothing_any_more_is_given_up_after_a_minute() {
    let (proxy, node, _) = behind_a_proxy().await;
    let commit = stuck(&proxy, &node).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(matches!(commit.await.unwrap(), Err(CommitError::Unknown(_))));
    tokio::time::resume();
    assert!(node.store.raise(&node.fence).await.unwrap().is_some(), "in another session");
}

#[tokio::test]
async fn a_renewal_waits_for_no_commit() {
    let url = database().await;
    let node = Arc::new(Node::on(opened(&url).await).await);
    let mut beside = session(&url).await;
    beside
        .execute(sqlx::raw_sql("BEGIN; SELECT FROM overdue.lanes FOR UPDATE; LOCK TABLE overdue.executions IN EXCLUSIVE MODE"))
        .await
        .unwrap();
    let commit = aside({
        let node = Arc::clone(&node);
        async move { node.try_commit(&start("1")).await }
    });
    for _ in 0..10 {
        assert!(node.store.renew(&node.fence, Duration::from_secs(9)).await.unwrap().is_some());
    }
    assert!(!commit.is_finished());
    beside.execute("ROLLBACK").await.unwrap();
    assert_eq!(commit.await.unwrap().unwrap(), [STARTED]);
}

#[tokio::test]
async fn a_renewal_that_is_faster_than_a_takeover_wins_and_a_slower_one_is_told() {
    let url = database().await;
    let node = Node::on(opened(&url).await).await;
    let heir = Node::beside(opened(&url).await).await;
    let mut beside = session(&url).await;
    beside.execute(sqlx::raw_sql("BEGIN; UPDATE overdue.nodes SET expires_at = clock_timestamp() + '1 h'")).await.unwrap();
    let taking = aside({
        let (store, dead) = (Arc::clone(&heir.store), node.fence.node_id.clone());
        async move { store.take_over(&dead, Duration::ZERO).await }
    });
    beside.execute("COMMIT").await.unwrap();
    assert!(!taking.await.unwrap().unwrap());
    beside.execute("UPDATE overdue.nodes SET expires_at = clock_timestamp()").await.unwrap();
    assert!(heir.store.take_over(&node.fence.node_id, Duration::ZERO).await.unwrap());
    assert_eq!(node.store.renew(&node.fence, Duration::from_secs(9)).await.unwrap(), None);
}

#[tokio::test]
async fn a_server_that_crashes_loses_nothing_that_was_acknowledged_and_gives_every_node_a_lease_to_come_back() {
    let durable = PostgresCluster::new(Fsync::On, &[]);
    let url = durable.url(&durable.create_database().await);
    let store = opened(&url).await;
    let lease = Duration::from_secs(3600);
    let fence = store.join(&NewNode { lease: Duration::ZERO, ..joining() }).await.unwrap();
    let node = Node { store: store.clone(), fence };
    node.claim(usize::MAX).await;
    let heir = Node::beside(opened(&url).await).await;
    for n in 0..20 {
        assert_eq!(node.commit(&start(&n.to_string())).await, [STARTED]);
    }
    durable.stop_immediate();
    assert!(matches!(node.try_commit(&start("down")).await, Err(CommitError::Unavailable(_))));
    assert!(matches!(heir.store.take_over(&node.fence.node_id, lease).await, Err(StoreError::Unavailable(_))));
    durable.start();

    assert!(!heir.store.take_over(&node.fence.node_id, lease).await.unwrap(), "the server has just come up");
    assert!(heir.membership().await.up < lease);
    assert_eq!(node.commit(&start("after")).await, [STARTED], "the fence still holds");
    for n in 0..20 {
        let found = eventually("reads work again", async || node.store.find(&order(&n.to_string())).await.ok()).await;
        assert!(found.is_some(), "{n} was acknowledged");
    }
    assert!(heir.store.take_over(&node.fence.node_id, Duration::ZERO).await.unwrap());
}

#[tokio::test]
async fn a_takeover_on_a_closed_store_says_that_it_is_closed() {
    let store: Arc<PostgresStore> = opened(&database().await).await;
    store.close().await;
    assert!(matches!(store.take_over("node", Duration::ZERO).await, Err(StoreError::Closed)));
    assert!(matches!(
        store.raise(&crate::store::Fence { node_id: "node".into(), lane: 0, epoch: 1 }).await,
        Err(StoreError::Closed)
    ));
}
