//! Starts: what decides who creates an execution, and what is there afterwards.

use super::Specification;
use super::fixtures::{Node, advance, at, deposit, new, order, signal, sleeping};
use crate::id::WorkflowKey;
use crate::store::{AttributeValue, CommitError, Outcome, Status, Write};

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a start creates the row, the first record and the attributes", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let mut start = new(&order("1"));
            start.attributes = vec![
                ("sku".into(), AttributeValue::Text("A-1".into())),
                ("amount".into(), AttributeValue::Number(serde_json::from_str("19.90").unwrap())),
                ("gift".into(), AttributeValue::Bool(true)),
            ];
            start.row.attempts = "notes".into();
            node.start(start.clone()).await;

            let loaded = node.load(&order("1")).await;
            assert_eq!(loaded.records, vec![start.record]);
            assert_eq!(loaded.inbox, vec![]);
            let row = loaded.execution;
            assert_eq!((row.key, row.shard, row.run_id, row.rev), (start.key, start.shard, start.run_id, 0));
            assert_eq!((row.status, row.wake_at, row.closed_at), (Status::Running, Some(at(3600)), None));
            assert_eq!((row.request_hash, row.needs_attention, row.attempts), (start.request_hash, false, "notes".into()));
            start.attributes.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(store.attributes(&order("1")).await.unwrap(), start.attributes, "by name, with every digit");
        })
    }),
    ("a second start of a key finds the first one's row and changes nothing", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            let before = node.load(&order("1")).await;
            let mut again = new(&order("1"));
            again.run_id = super::fixtures::run_of(&order("another run"));
            again.request_hash = [9; 16];
            again.row = sleeping(Some(at(1)));
            again.attributes = vec![("sku".into(), AttributeValue::Text("B".into()))];
            assert_eq!(node.write(Write::Start(again)).await, Outcome::Exists(Box::new(before.execution.clone())));
            assert_eq!(node.load(&order("1")).await, before);
            assert_eq!(node.store.attributes(&order("1")).await.unwrap(), vec![]);
        })
    }),
    ("of two starts of one key in one batch the first wins, and the second sees its row", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let mut second = new(&order("1"));
            second.run_id = super::fixtures::run_of(&order("another run"));
            let batch = [Write::Start(new(&order("1"))), Write::Start(second), Write::Start(new(&order("2")))];
            let outcomes = node.commit(&batch).await;
            let row = node.find(&order("1")).await.unwrap();
            assert_eq!(row.run_id, new(&order("1")).run_id);
            let started = Outcome::Started { inbox: false };
            assert_eq!(outcomes, vec![started.clone(), Outcome::Exists(Box::new(row)), started]);
        })
    }),
    ("one id under two types is two executions", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.start(new(&order("1"))).await;
            node.start(new(&WorkflowKey::new("group-buy", "1"))).await;
            assert_eq!(node.find(&order("1")).await.unwrap().key, order("1"));
            assert_eq!(node.find(&WorkflowKey::new("shipment", "1")).await, None);
        })
    }),
    ("a start tells whether a signal waits for it", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            node.deposit(&signal(&order("1"), "s", at(0))).await;
            let batch = [Write::Start(new(&order("1"))), Write::Start(new(&order("2")))];
            let outcomes = node.commit(&batch).await;
            assert_eq!(outcomes, vec![Outcome::Started { inbox: true }, Outcome::Started { inbox: false }]);
        })
    }),
    ("the writes of a batch come one after another where they are about one execution", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let row = signal(&order("1"), "s", at(0));
            let mut take = advance(&order("1"));
            take.guard_inbox = true;
            let outcomes = node
                .commit(&[
                    Write::Advance(take.clone()),
                    deposit(&row),
                    Write::Start(new(&order("1"))),
                    Write::Advance(take.clone()),
                    deposit(&row),
                    Write::Advance({
                        take.consume = vec!["s".into()];
                        take
                    }),
                    deposit(&row),
                ])
                .await;
            use Outcome::{Advanced, Deposited, Duplicate, Stale, Started, UnreadInbox};
            let expected = vec![Stale, Deposited, Started { inbox: true }, UnreadInbox, Duplicate, Advanced, Deposited];
            assert_eq!(outcomes, expected);
        })
    }),
    ("a batch of any size is stored whole", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for count in [1, 3, 4, 5, 15, 17, 63, 64, 65, 200, 333] {
                let keys: Vec<WorkflowKey> = (0..count).map(|n| order(&format!("{count}-{n}"))).collect();
                let batch: Vec<Write> = keys.iter().map(|key| Write::Start(new(key))).collect();
                assert_eq!(node.commit(&batch).await, vec![Outcome::Started { inbox: false }; count]);
                let loaded = store.load(&keys).await.unwrap();
                assert!(loaded.iter().zip(&keys).all(|(one, key)| one.as_ref().unwrap().execution.key == *key));
                assert!(loaded.iter().all(|one| one.as_ref().unwrap().records.len() == 1));
            }
        })
    }),
    ("loading answers in the order of the keys, with nothing for a key that is not there", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            node.start(new(&order("1"))).await;
            node.start(new(&order("2"))).await;
            let keys = [order("2"), order("absent"), order("1"), order("2")];
            let loaded = store.load(&keys).await.unwrap();
            let found: Vec<_> = loaded.into_iter().map(|one| one.map(|one| (one.execution.key, one.records.len()))).collect();
            assert_eq!(found, vec![Some((order("2"), 1)), None, Some((order("1"), 1)), Some((order("2"), 1))]);
            assert_eq!(store.load(&[]).await.unwrap(), vec![]);
        })
    }),
    ("a write that cannot be stored fails its batch, which leaves no trace", |store| {
        Box::pin(async move {
            let node = Node::on(store).await;
            let mut poison = new(&order("2"));
            poison.row.closed_at = Some(at(1));
            let batch = [Write::Start(new(&order("1"))), Write::Start(poison)];
            let error = node.try_commit(&batch).await.unwrap_err();
            assert!(matches!(error, CommitError::Rejected(_)), "{error}");
            assert_eq!(node.find(&order("1")).await, None);
            node.start(new(&order("1"))).await;
        })
    }),
];
