//! Fences: who may write.

use super::Specification;
use super::fixtures::{Node, joining, new, order};
use crate::store::{CommitError, NewNode, Write};

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("each node that joins gets a higher epoch, and ends the one that it replaces", |store| {
        Box::pin(async move {
            let first = Node::on(store.clone()).await;
            let second = Node::on(store.clone()).await;
            let replaces = Some(second.fence.node_id.clone());
            let third = store.join(&NewNode { replaces, ..joining() }).await.unwrap();
            assert!(first.fence.epoch < second.fence.epoch && second.fence.epoch < third.epoch);
            for fence in [&first.fence, &second.fence] {
                let lost = store.commit(fence, &[]).await.unwrap_err();
                assert!(matches!(lost, CommitError::FenceLost { expected } if expected == fence.epoch), "{lost}");
            }
            assert_eq!(store.commit(&third, &[]).await.unwrap(), vec![]);
        })
    }),
    ("a commit under a lost fence leaves no trace", |store| {
        Box::pin(async move {
            let late = Node::on(store.clone()).await;
            let node = Node::on(store).await;
            let lost = late.try_commit(&[Write::Start(new(&order("1")))]).await.unwrap_err();
            assert!(matches!(lost, CommitError::FenceLost { .. }), "{lost}");
            assert_eq!(node.find(&order("1")).await, None);
        })
    }),
    ("a fence that was given back is void, and giving it back again is no error", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            store.leave(&node.fence).await.unwrap();
            store.leave(&node.fence).await.unwrap();
            assert!(matches!(node.try_commit(&[]).await, Err(CommitError::FenceLost { .. })));
            assert!(store.join(&joining()).await.unwrap().epoch > node.fence.epoch, "epochs go on");
        })
    }),
    ("a fence that is lost cannot end its successor", |store| {
        Box::pin(async move {
            let late = Node::on(store.clone()).await;
            let node = Node::on(store.clone()).await;
            store.leave(&late.fence).await.unwrap();
            assert_eq!(node.commit(&[]).await, vec![]);
        })
    }),
    ("a node that was ended is told so when it renews its lease", |store| {
        Box::pin(async move {
            let late = Node::on(store.clone()).await;
            let node = Node::on(store.clone()).await;
            assert_eq!(store.renew(&late.fence, super::PATIENCE).await.unwrap(), None);
            assert!(store.renew(&node.fence, super::PATIENCE).await.unwrap().is_some());
        })
    }),
    ("a closed store answers that it is closed", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            store.close().await;
            assert!(matches!(node.try_commit(&[]).await, Err(CommitError::Unavailable(_))));
            assert!(matches!(store.find(&order("1")).await, Err(crate::store::StoreError::Closed)));
            assert!(matches!(store.join(&joining()).await, Err(crate::store::StoreError::Closed)));
        })
    }),
];

/// Of a store that one node has to itself.
pub(super) const OF_ONE_NODE: &[Specification] = &[("the node that joined last owns every shard and is alone", |store| {
    Box::pin(async move {
        let first = Node::beside(store.clone()).await;
        let second = Node::beside(store.clone()).await;
        assert_eq!(second.shards().await.len(), usize::from(super::SHARDS));
        assert_eq!(second.membership().await.members.len(), 1);
        assert!(matches!(first.try_commit(&[]).await, Err(CommitError::FenceLost { .. })));
        assert_eq!(second.commit(&[]).await, vec![]);
        assert!(!store.take_over(&second.fence.node_id, std::time::Duration::ZERO).await.unwrap());
    })
})];
