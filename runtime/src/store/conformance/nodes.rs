//! Nodes that share a store: leases, owners of shards, takeover, epochs. A lease of zero is over at once.

use std::time::Duration;

use super::fixtures::{Node, advance, closed, deposit, forget, joining, new, order, record, retire, signal, sleeping};
use super::{PATIENCE, SHARDS, Specification};
use crate::store::{Advance, CommitError, NewNode, Outcome, Owner, Status, Write};
use crate::time::Timestamp;

fn moved_on() -> Write {
    let row = Some(sleeping(Some(Timestamp::from_micros(9))));
    Write::Advance(Advance { record: Some(record(2, "more")), row, ..advance(&order("1")) })
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a new node owns nothing, and the first that claims a shard has it alone", |store| {
        Box::pin(async move {
            let (one, two) = (Node::beside(store.clone()).await, Node::beside(store).await);
            assert_eq!(one.shards().await, Vec::<u16>::new());
            let first = one.claim(40).await;
            assert_eq!((first.len(), one.shards().await), (40, first.clone()));
            let second = two.claim(usize::MAX).await;
            assert_eq!(second.len(), usize::from(SHARDS) - 40);
            assert!(second.iter().all(|shard| !first.contains(shard)));
            assert_eq!(one.claim(usize::MAX).await, Vec::<u16>::new());
            assert_eq!(two.shards().await, second);
        })
    }),
    ("everybody sees who is there, where, and whether it is alive", |store| {
        Box::pin(async move {
            let url = Some("http://10.0.0.1:7070".to_owned());
            let alive = NewNode { url: url.clone(), lease: PATIENCE, secret: "s1".into(), ..joining() };
            let fence = store.join(&alive).await.unwrap();
            let dead = Node::beside(store.clone()).await;
            let members = dead.membership().await.members;
            let seen = |node_id: &str| members.iter().find(|member| member.node_id == node_id).unwrap();
            assert_eq!((seen(&fence.node_id).alive, &seen(&fence.node_id).url), (true, &url));
            assert_eq!(seen(&fence.node_id).secret, "s1");
            assert!(!seen(&dead.fence.node_id).alive);
            assert!(members.is_sorted_by(|a, b| a.node_id < b.node_id));
        })
    }),
    ("a renewal revives a lease that is over and was not taken over", |store| {
        Box::pin(async move {
            let node = Node::beside(store.clone()).await;
            assert!(!node.membership().await.members[0].alive);
            let revived = store.renew(&node.fence, PATIENCE).await.unwrap().unwrap();
            assert!(revived.members[0].alive);
            assert!(revived.now.is_some(), "the store's clock is the authority");
            assert!(!store.take_over(&node.fence.node_id, Duration::ZERO).await.unwrap());
            assert_eq!(node.commit(&[]).await, vec![]);
        })
    }),
    ("a dead node is ended: its fence is void and its shards are free", |store| {
        Box::pin(async move {
            let (dead, heir) = (Node::beside(store.clone()).await, Node::beside(store.clone()).await);
            dead.claim(usize::MAX).await;
            dead.start(new(&order("1"))).await;
            assert!(store.take_over(&dead.fence.node_id, Duration::ZERO).await.unwrap());
            assert!(!store.take_over(&dead.fence.node_id, Duration::ZERO).await.unwrap(), "it is gone already");
            assert!(matches!(dead.try_commit(&[moved_on()]).await, Err(CommitError::FenceLost { .. })));
            assert!(matches!(store.claim(&dead.fence, 1).await, Err(CommitError::FenceLost { .. })));
            assert!(matches!(store.hand_over(&dead.fence, &[0], None).await, Err(CommitError::FenceLost { .. })));
            assert_eq!(store.raise(&dead.fence).await.unwrap(), None);
            assert_eq!(heir.claim(usize::MAX).await.len(), usize::from(SHARDS));
            assert_eq!(heir.write(moved_on()).await, Outcome::Advanced);
        })
    }),
    ("a transition of a shard that the node does not own is left out, and its neighbours are not", |store| {
        Box::pin(async move {
            let (owner, other) = (Node::on(store.clone()).await, Node::beside(store).await);
            let inserts = [Write::Start(new(&order("1"))), deposit(&signal(&order("1"), "s", Timestamp::default()))];
            let outcomes = other.commit(&inserts).await;
            assert_eq!(outcomes, [Outcome::Started { inbox: false }, Outcome::Deposited], "whoever only inserts needs no shard");
            let kept = signal(&order("2"), "s", Timestamp::default());
            assert_eq!(other.commit(&[moved_on(), deposit(&kept)]).await, [Outcome::NotOwned, Outcome::Deposited]);
            assert_eq!(owner.load(&order("1")).await.records.len(), 1);
            let Write::Advance(mut moved) = moved_on() else { unreachable!() };
            moved.consume = vec!["s".into()];
            assert_eq!(owner.write(Write::Advance(moved)).await, Outcome::Advanced);
        })
    }),
    ("an execution of a shard that the node does not own is neither retired nor forgotten by it", |store| {
        Box::pin(async move {
            let (owner, other) = (Node::on(store.clone()).await, Node::beside(store).await);
            let mut start = new(&order("1"));
            start.row = closed(Status::Completed, Timestamp::default());
            owner.start(start).await;
            assert_eq!(other.write(Write::Retire(retire(&order("1"), 0))).await, Outcome::NotOwned);
            assert_eq!(owner.write(Write::Retire(retire(&order("1"), 0))).await, Outcome::Retired);
            assert_eq!(other.write(Write::Forget(forget(&order("1"), 1))).await, Outcome::NotOwned);
            assert_eq!(owner.write(Write::Forget(forget(&order("1"), 1))).await, Outcome::Forgotten);
        })
    }),
    ("shards are handed over to a node or to nobody, and only the giver's own", |store| {
        Box::pin(async move {
            let (giver, taker) = (Node::on(store.clone()).await, Node::beside(store.clone()).await);
            store.hand_over(&giver.fence, &[1, 5], Some(&taker.fence.node_id)).await.unwrap();
            store.hand_over(&giver.fence, &[1, 7], None).await.unwrap();
            assert_eq!(taker.shards().await, [1, 5]);
            let owners = giver.membership().await.owners;
            assert!(matches!(owners[7], Owner::Nobody(_)) && owners[6].is(&giver.fence.node_id));
            store.hand_over(&giver.fence, &[6], Some("nobody-of-that-name")).await.unwrap();
            assert!(matches!(giver.membership().await.owners[6], Owner::Nobody(_)));
            assert_eq!(taker.claim(usize::MAX).await, [6, 7]);
        })
    }),
    ("a node that comes back in the place of its former self has its shards", |store| {
        Box::pin(async move {
            let before = Node::on(store.clone()).await;
            let replaces = Some(before.fence.node_id.clone());
            let fence = store.join(&NewNode { replaces, ..joining() }).await.unwrap();
            let after = Node { store, fence };
            assert_eq!(after.shards().await.len(), usize::from(SHARDS));
            assert!(matches!(before.try_commit(&[]).await, Err(CommitError::FenceLost { .. })));
        })
    }),
    ("raising the own epoch ends what the old one may still send, and nothing else", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let raised = store.raise(&node.fence).await.unwrap().unwrap();
            assert!(raised.epoch > node.fence.epoch);
            assert!(matches!(node.try_commit(&[Write::Start(new(&order("1")))]).await, Err(CommitError::FenceLost { .. })));
            assert_eq!(store.raise(&node.fence).await.unwrap(), None, "only the holder can raise it");
            let node = Node { store, fence: raised };
            assert_eq!(node.shards().await.len(), usize::from(SHARDS));
            node.start(new(&order("1"))).await;
            assert_eq!(node.write(moved_on()).await, Outcome::Advanced);
        })
    }),
    ("a node that leaves frees its shards at once", |store| {
        Box::pin(async move {
            let (leaver, stayer) = (Node::on(store.clone()).await, Node::beside(store.clone()).await);
            store.leave(&leaver.fence).await.unwrap();
            assert_eq!(stayer.membership().await.members.len(), 1);
            assert_eq!(stayer.claim(usize::MAX).await.len(), usize::from(SHARDS));
        })
    }),
];
