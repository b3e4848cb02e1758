//! Forecasts: what is counted, in which window, and where a count stops.

use std::sync::Arc;

use super::Specification;
use super::fixtures::{Node, advance, at, closed, new, order, sleeping};
use crate::id::WorkflowKey;
use crate::store::{DueCount, Status, Store, Write};
use crate::time::Timestamp;

async fn sleep(node: &Node, key: &WorkflowKey, wake_at: Option<Timestamp>) {
    let mut start = new(key);
    start.row = sleeping(wake_at);
    node.start(start).await;
}

/// The counts of the windows between these seconds, each with whether it was cut.
async fn counts(store: &Arc<dyn Store>, seconds: &[i64], types: Option<&[&str]>, rows_max: usize) -> Vec<(u64, bool)> {
    let edges: Vec<Timestamp> = seconds.iter().map(|second| at(*second)).collect();
    let types = types.map(|types| types.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let counted = store.due_counts(&edges, types.as_deref(), rows_max).await.unwrap();
    counted.into_iter().map(|DueCount { due, is_cut }| (due, is_cut)).collect()
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a forecast counts what is due in each window, the first instant included and the last one not", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for (id, second) in [("a", 59), ("b", 60), ("c", 61), ("d", 119), ("e", 120), ("f", 240), ("g", -5)] {
                sleep(&node, &order(id), Some(at(second))).await;
            }
            assert_eq!(counts(&store, &[60, 120, 180, 240], None, 100).await, [(3, false), (1, false), (0, false)]);
            assert_eq!(counts(&store, &[-10, 60], None, 100).await, [(2, false)]);
            assert_eq!(counts(&store, &[60, 60], None, 100).await, [(0, false)], "a window of no length");
            assert_eq!(counts(&store, &[60], None, 100).await, [], "one edge bounds nothing");
            assert_eq!(counts(&store, &[], None, 100).await, []);
        })
    }),
    ("what waits for nobody's time and what has ended is not in a forecast", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            sleep(&node, &order("idle"), None).await;
            sleep(&node, &order("ended"), Some(at(10))).await;
            sleep(&node, &order("blocked"), Some(at(10))).await;
            for (id, row) in [("ended", closed(Status::Completed, at(2))), ("blocked", sleeping(Some(at(10))))] {
                let mut change = advance(&order(id));
                let status = if id == "blocked" { Status::Blocked } else { row.status };
                change.row = Some(crate::store::RowChange { status, ..row });
                node.write(Write::Advance(change)).await;
            }
            assert_eq!(counts(&store, &[0, 100], None, 100).await, [(1, false)], "the blocked one is tried again then");
        })
    }),
    ("a forecast of some types counts no others, and none of no type", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for (workflow_type, id) in [("order-timeout", "a"), ("order-timeout", "b"), ("group-buy", "c"), ("parcel", "d")] {
                sleep(&node, &WorkflowKey::new(workflow_type, id), Some(at(10))).await;
            }
            assert_eq!(counts(&store, &[0, 60], None, 100).await, [(4, false)]);
            assert_eq!(counts(&store, &[0, 60], Some(&["order-timeout"]), 100).await, [(2, false)]);
            assert_eq!(counts(&store, &[0, 60], Some(&["parcel", "group-buy"]), 100).await, [(2, false)]);
            assert_eq!(counts(&store, &[0, 60], Some(&["nobody's"]), 100).await, [(0, false)]);
            assert_eq!(counts(&store, &[0, 60], Some(&[]), 100).await, [(0, false)]);
        })
    }),
    ("a window with as many rows as may be read is cut, and its neighbours are not", |store| {
        Box::pin(async move {
            let node = Node::on(store.clone()).await;
            for number in 0..30 {
                sleep(&node, &order(&format!("o-{number}")), Some(at(number % 3 * 60))).await;
            }
            sleep(&node, &order("one-more"), Some(at(60))).await;
            let seconds = [0, 60, 120, 180];
            assert_eq!(counts(&store, &seconds, None, 12).await, [(10, false), (11, false), (10, false)]);
            assert_eq!(counts(&store, &seconds, None, 11).await, [(10, false), (11, true), (10, false)]);
            assert_eq!(counts(&store, &seconds, None, 4).await, [(4, true), (4, true), (4, true)]);
            assert_eq!(counts(&store, &seconds, Some(&["parcel"]), 4).await, [(0, true); 3], "none of those that were read");
        })
    }),
];
