//! Fences: who may write.

use super::Specification;
use super::fixtures::{Node, new, order};
use crate::store::{CommitError, Write};

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("each join gets a higher epoch, and ends every fence before it", |store| {
        Box::pin(async move {
            let first = Node::on(store.clone()).await;
            let second = store.join("node-2", 0).await.unwrap();
            let third = store.join("node-2", 0).await.unwrap();
            assert!(first.fence.epoch < second.epoch && second.epoch < third.epoch);
            for fence in [&first.fence, &second] {
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
            assert!(store.join("node-2", 0).await.unwrap().epoch > node.fence.epoch, "epochs go on");
        })
    }),
    ("a fence that is lost cannot end the lane of its successor", |store| {
        Box::pin(async move {
            let late = Node::on(store.clone()).await;
            let node = Node::on(store.clone()).await;
            store.leave(&late.fence).await.unwrap();
            assert_eq!(node.commit(&[]).await, vec![]);
        })
    }),
    ("a closed store answers that it is closed", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            store.close().await;
            assert!(matches!(node.try_commit(&[]).await, Err(CommitError::Unavailable(_))));
            assert!(matches!(store.find(&order("1")).await, Err(crate::store::StoreError::Closed)));
            assert!(matches!(store.join("node-2", 0).await, Err(crate::store::StoreError::Closed)));
        })
    }),
];
