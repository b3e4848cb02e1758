//! Listing: filters, order, pages.

use std::sync::Arc;

use super::Specification;
use super::fixtures::{Node, advance, at, closed, new, order, sleeping};
use crate::id::WorkflowKey;
use crate::store::{AttributeValue, Filter, Outcome, Page, Position, Status, Store, Write};

/// All pages of a listing, and their sizes.
async fn pages(store: &Arc<dyn Store>, filter: &Filter, limit: usize) -> (Vec<WorkflowKey>, Vec<usize>) {
    let (mut keys, mut sizes, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let Page { rows, next } = store.list(filter, after.as_ref(), limit).await.unwrap();
        sizes.push(rows.len());
        keys.extend(rows.into_iter().map(|listed| listed.execution.key));
        after = next;
        if after.is_none() {
            return (keys, sizes);
        }
    }
}

async fn listed(store: &Arc<dyn Store>, filter: Filter) -> Vec<String> {
    pages(store, &filter, 2).await.0.into_iter().map(|key| key.id().to_owned()).collect()
}

async fn start_all(node: &Node, keys: &[WorkflowKey], wake_at: i64) {
    let batch: Vec<Write> = keys
        .iter()
        .map(|key| {
            let mut start = new(key);
            start.row = sleeping(Some(at(wake_at)));
            Write::Start(start)
        })
        .collect();
    assert!(node.commit(&batch).await.iter().all(|outcome| matches!(outcome, Outcome::Started { .. })));
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::Text(text.into())
}

fn number(text: &str) -> AttributeValue {
    AttributeValue::Number(serde_json::from_str(text).unwrap())
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a listing goes by type and id, page after page, and ends", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            // Created in an order that is neither that of the types nor that of the ids.
            let mut keys = Vec::new();
            for workflow_type in ["zebra", "order-timeout", "aardvark"] {
                keys.extend(["b", "ä", "a", "Z", "c"].map(|id| WorkflowKey::new(workflow_type, id)));
            }
            start_all(&node, &keys, 1).await;
            keys.sort();
            for limit in [1, 2, 4, 5, 7, 15, 100] {
                let (found, sizes) = pages(&store, &Filter::default(), limit).await;
                assert_eq!(found, keys, "pages of {limit}");
                assert_eq!(sizes.len(), keys.len().div_ceil(limit), "no empty page after the last");
            }
        })
    }),
    ("two hundred and fifty rows with one wake_at come in pages of 100, 100 and 50, each row once", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let mut keys: Vec<WorkflowKey> = (0..250)
                .map(|n| WorkflowKey::new(if n % 3 == 0 { "group-buy" } else { "order-timeout" }, n.to_string()))
                .collect();
            start_all(&node, &keys, 5).await;
            keys.sort();
            for filter in [Filter::default(), Filter { due_before: Some(at(6)), ..Filter::default() }] {
                let (found, sizes) = pages(&store, &filter, 100).await;
                assert_eq!(sizes, [100, 100, 50]);
                assert_eq!(found, keys);
            }
        })
    }),
    ("with due_before the order is that of time, and the instant itself is not before it", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for (id, second) in [("a", 30), ("b", 10), ("c", 20), ("d", 20), ("e", 40)] {
                start_all(&node, &[order(id)], second).await;
            }
            let mut idle = new(&order("idle"));
            idle.row = sleeping(None);
            node.start(idle).await;
            let mut close = advance(&order("c"));
            close.row = Some(closed(Status::Completed, at(2)));
            node.write(Write::Advance(close)).await;
            assert_eq!(listed(&store, Filter { due_before: Some(at(40)), ..Filter::default() }).await, ["b", "d", "a"]);
        })
    }),
    ("a page by time may begin at an instant: what is due then is on it, what is due before is not", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for (id, second) in [("a", 30), ("b", 10), ("c", 20), ("d", 20), ("e", 19)] {
                start_all(&node, &[order(id)], second).await;
            }
            let filter = Filter { due_before: Some(at(30)), ..Filter::default() };
            let page = store.list(&filter, Some(&Position::at(at(20))), 10).await.unwrap();
            let ids: Vec<&str> = page.rows.iter().map(|listed| listed.execution.key.id()).collect();
            assert_eq!((ids, page.next), (vec!["c", "d"], None));
        })
    }),
    ("conditions on type, status and attention hold together, with every order", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let rows = [
                ("a", "order-timeout", Status::Running, false),
                ("b", "order-timeout", Status::Running, true),
                ("c", "order-timeout", Status::Blocked, false),
                ("d", "order-timeout", Status::Blocked, true),
                ("e", "group-buy", Status::Running, true),
                ("f", "order-timeout", Status::Failed, true),
                ("g", "order-timeout", Status::Completed, false),
            ];
            for (id, workflow_type, status, needs_attention) in rows {
                let mut start = new(&WorkflowKey::new(workflow_type, id));
                start.row = if status.is_open() { sleeping(Some(at(1))) } else { closed(status, at(1)) };
                start.row.status = status;
                start.row.needs_attention = needs_attention;
                node.start(start).await;
            }
            let orders = || Filter { workflow_type: Some("order-timeout".into()), ..Filter::default() };
            let status = |status| Filter { status: Some(status), ..orders() };
            let attention = |needs| Filter { needs_attention: Some(needs), ..orders() };
            assert_eq!(listed(&store, orders()).await, ["a", "b", "c", "d", "f", "g"]);
            assert_eq!(listed(&store, status(Status::Running)).await, ["a", "b"]);
            assert_eq!(listed(&store, status(Status::Blocked)).await, ["c", "d"]);
            assert_eq!(listed(&store, status(Status::Failed)).await, ["f"]);
            assert_eq!(listed(&store, attention(true)).await, ["b", "d", "f"]);
            assert_eq!(listed(&store, attention(false)).await, ["a", "c", "g"]);
            let both = Filter { needs_attention: Some(true), ..status(Status::Blocked) };
            assert_eq!(listed(&store, both.clone()).await, ["d"]);
            assert_eq!(listed(&store, Filter { needs_attention: Some(false), ..both.clone() }).await, ["c"]);
            assert_eq!(listed(&store, Filter { due_before: Some(at(5)), ..both }).await, ["d"]);
            assert_eq!(listed(&store, Filter { due_before: Some(at(5)), ..attention(true) }).await, ["b", "d"]);
            assert_eq!(listed(&store, Filter { workflow_type: Some("none".into()), ..Filter::default() }).await.len(), 0);
        })
    }),
    ("types that the caller may not see are not listed", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let keys = ["a", "b", "c"].map(|workflow_type| WorkflowKey::new(workflow_type, workflow_type));
            start_all(&node, &keys, 1).await;
            let visible = |types: &[&str]| Some(types.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
            for due_before in [None, Some(at(5))] {
                let filter = Filter { due_before, visible_types: visible(&["c", "a"]), ..Filter::default() };
                assert_eq!(listed(&store, filter.clone()).await, ["a", "c"]);
                assert_eq!(listed(&store, Filter { workflow_type: Some("b".into()), ..filter.clone() }).await.len(), 0);
                assert_eq!(listed(&store, Filter { workflow_type: Some("c".into()), ..filter }).await, ["c"]);
                let none = Filter { due_before, visible_types: visible(&[]), ..Filter::default() };
                assert_eq!(listed(&store, none).await.len(), 0);
            }
        })
    }),
    ("an attribute is found by any of the forms asked for, and several attributes must all be there", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let rows = [
                ("a", vec![("sku", text("7")), ("region", text("eu"))]),
                ("b", vec![("sku", number("7")), ("region", text("us"))]),
                ("c", vec![("sku", number("7.0")), ("region", text("eu"))]),
                ("d", vec![("sku", AttributeValue::Bool(true))]),
                ("e", vec![]),
                // The value asked for, under another name.
                ("f", vec![("region", text("eu")), ("sku", text("B")), ("colour", text("7"))]),
            ];
            for (id, attributes) in rows {
                let mut start = new(&order(id));
                start.attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                start.row = sleeping(Some(at(1)));
                node.start(start).await;
            }
            let filter = |wanted: &[(&str, &[AttributeValue])]| Filter {
                attributes: wanted
                    .iter()
                    .map(|(name, values)| ((*name).to_owned(), values.iter().map(AttributeValue::stored).collect()))
                    .collect(),
                ..Filter::default()
            };
            let cases = [
                (filter(&[("sku", &[text("7")])]), vec!["a"]),
                (filter(&[("sku", &[text("7"), number("7")])]), vec!["a", "b"]),
                (filter(&[("sku", &[number("7"), number("7.0"), text("7")])]), vec!["a", "b", "c"]),
                (filter(&[("sku", &[AttributeValue::Bool(true), text("true")])]), vec!["d"]),
                (filter(&[("region", &[text("eu")])]), vec!["a", "c", "f"]),
                (filter(&[("region", &[text("eu")]), ("sku", &[text("7"), number("7")])]), vec!["a"]),
                (filter(&[("sku", &[])]), vec![]),
                (filter(&[("colour", &[text("red")])]), vec![]),
            ];
            for (filter, expected) in cases {
                assert_eq!(listed(&store, filter.clone()).await, expected, "{filter:?}");
                let by_time = Filter { due_before: Some(at(5)), ..filter };
                assert_eq!(listed(&store, by_time.clone()).await, expected, "{by_time:?}");
            }
        })
    }),
    ("a listed row comes with its attributes, by name", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let mut start = new(&order("a"));
            start.attributes = vec![("z".into(), text("1")), ("b".into(), number("-1.50"))];
            node.start(start).await;
            node.start(new(&order("b"))).await;
            let page = store.list(&Filter::default(), None, 10).await.unwrap();
            assert_eq!(page.rows[0].attributes, [("b".into(), number("-1.50")), ("z".into(), text("1"))]);
            assert_eq!(page.rows[1].attributes, []);
            assert_eq!(page.rows[0].execution, node.find(&order("a")).await.unwrap());
        })
    }),
    ("derived executions are those with exactly this prefix, of any type", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            let keys = [
                ("b-type", "1~0a"),
                ("b-type", "1~0b"),
                ("a-type", "1~ff"),
                ("a-type", "1"),
                ("a-type", "10~0a"),
                ("a-type", "2~0a"),
                ("a-type", "1%~0a"),
                ("a-type", "1_~0a"),
                ("a-type", "注文~0a"),
                ("a-type", "注文-~0a"),
                ("a-type", "1\u{7f}"),
                ("a-type", "1ÿ~0a"),
            ]
            .map(|(workflow_type, id)| WorkflowKey::new(workflow_type, id));
            start_all(&node, &keys, 1).await;
            let derived = async |root: &str| -> Vec<WorkflowKey> { store.derived(root, 100).await.unwrap() };
            assert_eq!(derived("1").await, [keys[2].clone(), keys[0].clone(), keys[1].clone()], "by type and id");
            assert_eq!(store.derived("1", 2).await.unwrap(), [keys[2].clone(), keys[0].clone()]);
            assert_eq!(derived("1%").await, [keys[6].clone()]);
            assert_eq!(derived("1_").await, [keys[7].clone()]);
            assert_eq!(derived("注文").await, [keys[8].clone()]);
            assert_eq!(derived("1~0").await, []);
            assert_eq!(derived("3").await, []);
        })
    }),
    ("an empty store lists nothing", |store| {
        Box::pin(async move {
            let page = store.list(&Filter::default(), None, 10).await.unwrap();
            assert_eq!(page, Page { rows: vec![], next: None });
        })
    }),
];
