//! Every outcome that the domain knows, from a row of the table.

use overdue_runtime::history::FailureClass;
use serde_json::json;

use super::shop::{Kind, LATER, PAST, Shop, class};

#[tokio::test]
async fn cancel_order_has_the_outcome_that_the_row_says() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("due", "UNPAID", PAST).await;
        shop.place("not-due", "UNPAID", LATER).await;
        shop.place("cancelled", "CANCELLED", PAST).await;
        shop.place("creating", "CREATING", PAST).await;
        shop.place("shipped", "SHIPPED", PAST).await;
        shop.place_paid("paid", "tx-1").await;
        for (order, expected) in [
            ("due", json!({ "outcome": "CANCELLED" })),
            ("not-due", json!({ "outcome": "NOT_DUE", "payDeadline": LATER })),
            ("cancelled", json!({ "outcome": "ALREADY_CANCELLED" })),
            ("creating", json!({ "outcome": "NOT_READY", "retryAfter": 5 })),
            ("shipped", json!({ "outcome": "ALREADY_PAID" })),
            ("paid", json!({ "outcome": "ALREADY_PAID", "transactionId": "tx-1" })),
            ("nobody", json!({ "outcome": "NOT_FOUND" })),
        ] {
            assert_eq!(shop.cancel(order).await.unwrap(), expected, "{kind:?} {order}");
        }
        assert_eq!(shop.status("due").await, "CANCELLED", "{kind:?}");
        assert_eq!(shop.column("due", "cancel_reason").await.as_deref(), Some("TIMEOUT"), "{kind:?}");
        assert_eq!(shop.status("not-due").await, "UNPAID", "{kind:?}");
        assert_eq!(shop.status("paid").await, "PAID", "{kind:?}");
    }
}

#[tokio::test]
async fn a_user_cancels_before_the_deadline() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("o", "UNPAID", LATER).await;
        assert_eq!(shop.cancel_for("o", "USER").await.unwrap(), json!({ "outcome": "CANCELLED" }), "{kind:?}");
        assert_eq!(shop.column("o", "cancel_reason").await.as_deref(), Some("USER"), "{kind:?}");
    }
}

#[tokio::test]
async fn confirm_paid_has_the_outcome_that_the_row_says() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("waiting", "UNPAID", LATER).await;
        shop.place("expired", "UNPAID", "2026-11-30T17:00:00.000Z").await;
        shop.place("cancelled", "CANCELLED", PAST).await;
        shop.place_paid("paid", "tx-1").await;
        for (order, expected) in [
            ("waiting", json!({ "outcome": "PAID" })),
            ("expired", json!({ "outcome": "EXPIRED" })),
            ("cancelled", json!({ "outcome": "ALREADY_CANCELLED" })),
            ("paid", json!({ "outcome": "ALREADY_PAID", "transactionId": "tx-1" })),
            ("nobody", json!({ "outcome": "NOT_FOUND" })),
        ] {
            assert_eq!(shop.confirm(order, "tx-9").await.unwrap(), expected, "{kind:?} {order}");
        }
        assert_eq!(shop.status("waiting").await, "PAID", "{kind:?}");
        assert_eq!(shop.column("waiting", "transaction_id").await.as_deref(), Some("tx-9"), "{kind:?}");
        assert_eq!(shop.status("expired").await, "UNPAID", "{kind:?}");
    }
}

#[tokio::test]
async fn an_amount_arrives_exactly_and_a_time_as_the_instant_that_it_is() {
    for (kind, amount, paid_at) in [
        (Kind::Sqlite, "19.99", "2026-11-30T17:59:00.000Z"),
        (Kind::Postgres, "19.9900", "2026-11-30 17:59:00+00"),
        (Kind::MariaDb, "19.9900", "2026-11-30 17:59:00.000000"),
    ] {
        let shop = Shop::open(kind).await;
        shop.place("o", "UNPAID", LATER).await;
        shop.confirm("o", "tx-1").await.unwrap();
        assert_eq!(shop.column("o", "paid_amount").await.as_deref(), Some(amount), "{kind:?}");
        let read = match kind {
            Kind::Postgres => shop.column("o", "paid_at AT TIME ZONE 'UTC'").await.map(|text| format!("{text}+00")),
            _ => shop.column("o", "paid_at").await,
        };
        assert_eq!(read.as_deref(), Some(paid_at), "{kind:?}");
        assert_eq!(shop.column("o", "paid_currency").await.as_deref(), Some("USD"), "{kind:?}");
    }
}

#[tokio::test]
async fn asking_again_after_an_unknown_outcome_finds_what_the_first_one_did() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("c", "UNPAID", PAST).await;
        shop.place("p", "UNPAID", LATER).await;
        shop.cancel("c").await.unwrap();
        shop.confirm("p", "tx-1").await.unwrap();
        assert_eq!(shop.cancel("c").await.unwrap(), json!({ "outcome": "ALREADY_CANCELLED" }), "{kind:?}");
        let same = json!({ "outcome": "ALREADY_PAID", "transactionId": "tx-1" });
        assert_eq!(shop.confirm("p", "tx-1").await.unwrap(), same, "{kind:?}");
        assert_eq!(shop.confirm("p", "tx-2").await.unwrap(), same, "{kind:?}: a double payment is told by the first transaction");
        assert_eq!(shop.column("p", "transaction_id").await.as_deref(), Some("tx-1"), "{kind:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_judged_comes_to_a_person_with_what_to_do() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("odd", "ON_HOLD", PAST).await;
        shop.place("shipped", "SHIPPED", PAST).await;
        let failure = shop.cancel("odd").await.unwrap_err();
        assert_eq!(class(&failure), (FailureClass::Permanent, "unknown-outcome"), "{kind:?}");
        assert!(failure.failure.message.contains("status \"ON_HOLD\" is none that `statuses` knows"), "{failure}");
        let failure = shop.confirm("shipped", "tx-1").await.unwrap_err();
        assert_eq!(class(&failure), (FailureClass::Permanent, "unknown-outcome"), "{kind:?}");
        assert!(failure.failure.message.contains("does not say by which transaction"), "{failure}");
    }
}

#[tokio::test]
async fn an_order_that_is_still_being_created_is_paid_later_at_no_cost() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("o", "CREATING", LATER).await;
        let failure = shop.confirm("o", "tx-1").await.unwrap_err();
        assert_eq!(class(&failure), (FailureClass::Neutral, "not-ready"), "{kind:?}");
        assert_eq!(failure.retry_after.map(|wait| wait.as_secs()), Some(5));
    }
}

#[tokio::test]
async fn an_update_that_would_change_more_than_the_one_order_changes_none() {
    for kind in Kind::ALL {
        let shop = Shop::configured(kind, |orders| {
            let sql = orders.sql.as_mut().unwrap();
            sql.cancel = "UPDATE orders SET status = 'CANCELLED' WHERE id LIKE :orderId AND status = 'UNPAID'".into();
        })
        .await;
        shop.place_all(&["a-1", "a-2"], "UNPAID", PAST, None).await;
        let failure = shop.cancel("a-%").await.unwrap_err();
        assert_eq!(class(&failure), (FailureClass::Permanent, "sql"), "{kind:?}");
        assert!(failure.failure.message.contains("`cancel` would change 2 rows, and changed none"), "{failure}");
        assert_eq!((shop.status("a-1").await, shop.status("a-2").await), ("UNPAID".into(), "UNPAID".into()), "{kind:?}");
        // And its session is as good as before.
        assert_eq!(shop.cancel("a-1").await.unwrap(), json!({ "outcome": "CANCELLED" }), "{kind:?}");
    }
}

#[tokio::test]
async fn an_id_that_looks_like_sql_is_only_an_id() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("innocent", "UNPAID", PAST).await;
        for id in ["x' OR '1'='1", "x'; DROP TABLE orders; --", r"x\' OR 1=1 -- ", ":orderId", "$1", "?"] {
            assert_eq!(shop.cancel(id).await.unwrap(), json!({ "outcome": "NOT_FOUND" }), "{kind:?} {id}");
        }
        assert_eq!(shop.status("innocent").await, "UNPAID", "{kind:?}");
    }
}

#[tokio::test]
async fn a_deadline_finer_than_a_millisecond_does_not_ask_for_ever() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let shop = Shop::open(kind).await;
        shop.place("o", "UNPAID", "2026-11-30T18:30:00.123456Z").await;
        let outcome = shop.cancel("o").await.unwrap();
        // Passed back as it was told, it covers what is in the row.
        assert_eq!(outcome, json!({ "outcome": "NOT_DUE", "payDeadline": "2026-11-30T18:30:00.124Z" }), "{kind:?}");
    }
}
