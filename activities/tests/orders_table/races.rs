//! Payment against cancel: one row, one winner.

use std::sync::Arc;

use futures::future::join_all;
use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::history::FailureClass;
use serde_json::{Value, json};

use super::shop::{Kind, PAST, Shop, class};

const RACES: usize = 1000;
/// More deadlocks in a row than a race of two has.
const REPEATS_MAX: usize = 20;

/// Asks again as the engine does after a deadlock, which the server has rolled back.
async fn repeated(ask: impl AsyncFn() -> Result<Value, ActivityFailure>) -> Value {
    for _ in 0..REPEATS_MAX {
        match ask().await {
            Ok(outcome) => return outcome,
            Err(failure) => assert_eq!(class(&failure), (FailureClass::Transient, "database"), "{failure}"),
        }
    }
    panic!("{REPEATS_MAX} deadlocks in a row");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn so_many_races_of_pay_against_cancel_give_so_many_decisions() {
    for kind in Kind::ALL {
        let shop = Arc::new(
            Shop::configured(kind, |orders| {
                let sql = orders.sql.as_mut().unwrap();
                sql.connections = 16;
                // A deadlock is asked for again, not held against the database.
                orders.breaker.failures = 10_000;
            })
            .await,
        );
        let ids: Vec<String> = (0..RACES).map(|number| format!("o-{number}")).collect();
        let names: Vec<&str> = ids.iter().map(String::as_str).collect();
        // Both may win: paid in time, and over by now.
        shop.place_all(&names, "UNPAID", PAST, None).await;
        let (mut paid, mut cancelled) = (0, 0);
        for chunk in ids.chunks(50) {
            let each = chunk.iter().enumerate().map(|(number, id)| {
                let shop = shop.clone();
                async move {
                    // Who is asked first changes from order to order.
                    let cancel = repeated(async || shop.cancel(id).await);
                    let confirm = repeated(async || shop.confirm(id, "tx").await);
                    if number % 2 == 0 {
                        tokio::join!(cancel, confirm)
                    } else {
                        let (confirmed, cancelled) = tokio::join!(confirm, cancel);
                        (cancelled, confirmed)
                    }
                }
            });
            let answers = join_all(each).await;
            let statuses = shop.statuses().await;
            for (id, (cancel, confirm)) in chunk.iter().zip(answers) {
                let status = &statuses[id];
                match status.as_str() {
                    "PAID" => {
                        paid += 1;
                        assert_eq!(confirm, json!({ "outcome": "PAID" }), "{kind:?} {id}");
                        assert_eq!(cancel, json!({ "outcome": "ALREADY_PAID", "transactionId": "tx" }), "{kind:?} {id}");
                    }
                    _ => {
                        cancelled += 1;
                        assert_eq!(cancel, json!({ "outcome": "CANCELLED" }), "{kind:?} {id}");
                        assert_eq!(confirm, json!({ "outcome": "ALREADY_CANCELLED" }), "{kind:?} {id}");
                    }
                }
            }
        }
        assert_eq!(paid + cancelled, RACES, "{kind:?}");
        assert!(paid > 0 && cancelled > 0, "{kind:?}: {paid} paid, {cancelled} cancelled");
    }
}
