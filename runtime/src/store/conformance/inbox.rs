//! Deposits: signals for executions that cannot take them now, or that do not exist yet.

use super::fixtures::{Node, advance, all_shards, at, closed, deposit, new, order, signal};
use super::{SHARDS, Specification};
use crate::id::WorkflowKey;
use crate::store::{Advance, INBOX_ROWS_MAX, INBOX_ROWS_PER_KEY_MAX, Outcome, Refuse, Status, Write};

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a signal is read back as it was stored", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let row = signal(&order("1"), "txn-1", at(5));
            node.deposit(&row).await;
            node.start_over(&order("1")).await;
            assert_eq!(node.load(&order("1")).await.inbox, vec![row]);
        })
    }),
    ("signals are read oldest first, and by signal id within one instant", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            for (signal_id, second) in [("d", 2), ("a", 3), ("c", 2), ("b", 1)] {
                node.deposit(&signal(&order("1"), signal_id, at(second))).await;
            }
            let read: Vec<_> = node.load(&order("1")).await.inbox.into_iter().map(|row| row.signal_id).collect();
            assert_eq!(read, ["b", "c", "d", "a"]);
        })
    }),
    ("a signal that says the same again is a duplicate, and one that says something else a conflict", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let row = signal(&order("1"), "s", at(1));
            node.deposit(&row).await;
            let mut same = row.clone();
            same.received_at = at(9);
            let mut other = row.clone();
            other.identity = [7; 16];
            assert_eq!(node.commit(&[deposit(&same), deposit(&other)]).await, vec![Outcome::Duplicate, Outcome::Conflict]);
            node.start_over(&order("1")).await;
            assert_eq!(node.load(&order("1")).await.inbox, vec![row]);
        })
    }),
    ("of two signals with one id in one batch the first is stored", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let row = signal(&order("1"), "s", at(1));
            let mut other = row.clone();
            other.identity = [7; 16];
            let outcomes = node.commit(&[deposit(&row), deposit(&row), deposit(&other)]).await;
            assert_eq!(outcomes, vec![Outcome::Deposited, Outcome::Duplicate, Outcome::Conflict]);
            node.start_over(&order("1")).await;
            assert_eq!(node.load(&order("1")).await.inbox, vec![row]);
        })
    }),
    ("a start takes up the inbox rows that it names, also when its key exists", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let (nobody, late) = (order("1"), order("1-late"));
            for signal_id in ["a", "b", "c"] {
                node.deposit(&signal(&nobody, signal_id, at(1))).await;
            }
            for signal_id in ["a", "b"] {
                let mut start = new(&late);
                start.consume = vec![(nobody.clone(), signal_id.to_owned())];
                node.commit(&[Write::Start(start)]).await;
            }
            node.start_over(&nobody).await;
            let left: Vec<_> = node.load(&nobody).await.inbox.into_iter().map(|row| row.signal_id).collect();
            assert_eq!(left, ["c"]);
        })
    }),
    ("a held signal is not read, but still makes its repetition a duplicate", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            node.start(new(&order("1"))).await;
            let row = signal(&order("1"), "s", at(1));
            node.deposit(&row).await;
            let hold = Advance { hold: vec!["s".into()], ..advance(&order("1")) };
            assert_eq!(node.write(Write::Advance(hold)).await, Outcome::Advanced);
            assert_eq!(node.load(&order("1")).await.inbox, vec![]);
            assert_eq!(store.unread(&all_shards(), 10).await.unwrap(), vec![]);
            assert_eq!(node.write(deposit(&row)).await, Outcome::Duplicate);
        })
    }),
    ("one id takes a limited number of signals, and the neighbours go on", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let rows: Vec<_> =
                (0..=INBOX_ROWS_PER_KEY_MAX).map(|n| deposit(&signal(&order("1"), &format!("s{n}"), at(1)))).collect();
            let mut expected = vec![Outcome::Deposited; INBOX_ROWS_PER_KEY_MAX];
            expected.push(Outcome::InboxFull);
            assert_eq!(node.commit(&rows).await, expected);
            let full = node.write(deposit(&signal(&order("1"), "more", at(1)))).await;
            assert_eq!(full, Outcome::InboxFull);
            node.deposit(&signal(&order("2"), "s", at(1))).await;
            assert_eq!(node.write(rows[0].clone()).await, Outcome::Duplicate, "what is there is still told");

            node.start_over(&order("1")).await;
            let take = Advance { consume: vec!["s0".into()], ..advance(&order("1")) };
            assert_eq!(node.write(Write::Advance(take)).await, Outcome::Advanced);
            node.deposit(&signal(&order("1"), "more", at(1))).await;
        })
    }),
    ("a store takes a limited number of signals", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let mut stored = 0;
            for chunk in 0..INBOX_ROWS_MAX.div_ceil(500) {
                let rows: Vec<_> =
                    (0..500).map(|n| deposit(&signal(&order(&format!("{chunk}-{}", n % 7)), &format!("s{n}"), at(1)))).collect();
                stored += node.commit(&rows).await.into_iter().filter(|outcome| *outcome == Outcome::Deposited).count();
            }
            assert_eq!(stored, INBOX_ROWS_MAX);
            assert_eq!(node.write(deposit(&signal(&order("last"), "s", at(1)))).await, Outcome::InboxFull);
        })
    }),
    ("unread names each execution once that has signals, open or closed but not blocked, of the shards asked for", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for id in ["1", "2", "3", "4"] {
                node.start(new(&order(id))).await;
            }
            let mut close = advance(&order("2"));
            close.row = Some(closed(Status::Completed, at(1)));
            node.write(Write::Advance(close)).await;
            let mut block = advance(&order("4"));
            let row = block.row.insert(closed(Status::Blocked, at(1)));
            (row.wake_at, row.closed_at) = (Some(at(9)), None);
            node.write(Write::Advance(block)).await;
            for (id, signal_id) in [("1", "a"), ("1", "b"), ("2", "a"), ("3", "a"), ("4", "a"), ("unborn", "a")] {
                node.deposit(&signal(&order(id), signal_id, at(1))).await;
            }
            let mut found = store.unread(&all_shards(), 100).await.unwrap();
            found.sort();
            assert_eq!(found, [order("1"), order("2"), order("3")]);
            assert_eq!(store.unread(&all_shards(), 2).await.unwrap().len(), 2);
            let elsewhere: Vec<u16> =
                all_shards().into_iter().filter(|shard| *shard != order("1").shard(super::SHARDS)).collect();
            assert!(!store.unread(&elsewhere, 100).await.unwrap().contains(&order("1")));
            assert_eq!(store.unread(&[], 100).await.unwrap(), vec![]);
        })
    }),
    ("unclaimed are the oldest signals before an instant that have no execution", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            node.start(new(&order("born"))).await;
            let rows: Vec<_> =
                [("u3", 3), ("u1", 1), ("born", 0), ("u2", 2), ("u9", 9)].map(|(id, s)| signal(&order(id), "s", at(s))).into();
            for row in &rows {
                node.deposit(row).await;
            }
            let found = store.unclaimed(&all_shards(), at(9), 100).await.unwrap();
            assert_eq!(found, [rows[1].clone(), rows[3].clone(), rows[0].clone()], "before means before");
            assert_eq!(store.unclaimed(&all_shards(), at(9), 2).await.unwrap(), found[..2]);
            let shard = order("u1").shard(super::SHARDS);
            let elsewhere: Vec<u16> = all_shards().into_iter().filter(|other| *other != shard).collect();
            assert!(!store.unclaimed(&elsewhere, at(9), 100).await.unwrap().contains(&rows[1]));
        })
    }),
    ("a signal of one type is not another type's of the same id", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.deposit(&signal(&WorkflowKey::new("group-buy", "1"), "s", at(1))).await;
            node.start(new(&order("1"))).await;
            assert_eq!(node.load(&order("1")).await.inbox, vec![]);
        })
    }),
    ("a signal that is refused is held: nobody finds it again, and it holds nothing up", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let refuse = |signal_id: &str| {
                let (key, reason) = (order("1"), "it cannot be read".to_owned());
                Write::Refuse(Refuse { shard: key.shard(SHARDS), key, signal_id: Some(signal_id.into()), reason })
            };
            node.deposit(&signal(&order("1"), "s", at(1))).await;
            assert_eq!(node.write(refuse("s")).await, Outcome::Refused);
            assert_eq!(node.write(refuse("another")).await, Outcome::Refused, "what is not there needs no refusal");
            assert_eq!(node.store.unclaimed(&all_shards(), at(9), 10).await.unwrap(), []);
            node.start(new(&order("1"))).await;
            assert_eq!(node.store.unread(&all_shards(), 10).await.unwrap(), []);
            let guarded = Advance { guard_inbox: true, ..advance(&order("1")) };
            assert_eq!(node.write(Write::Advance(guarded)).await, Outcome::Advanced);
        })
    }),
];

impl Node {
    /// Starts an execution for which signals may wait.
    async fn start_over(&self, key: &WorkflowKey) {
        assert!(matches!(self.write(Write::Start(new(key))).await, Outcome::Started { .. }));
    }
}
