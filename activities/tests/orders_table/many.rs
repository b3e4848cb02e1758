//! Many orders given up by one update.

use overdue_activities::{CancelOrderInput, CancelOrderOutcome, CancelReason};
use overdue_runtime::history::FailureClass;

use super::shop::{Kind, LATER, PAST, Shop, class};

fn timed_out(id: &str) -> CancelOrderInput {
    CancelOrderInput { order_id: id.into(), reason: CancelReason::Timeout, pay_deadline: PAST.parse().unwrap() }
}

#[tokio::test]
async fn each_order_of_many_has_its_own_outcome() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place_all(&["due-1", "due-2", "due-3"], "UNPAID", PAST, None).await;
        shop.place("not-due", "UNPAID", LATER).await;
        shop.place("user", "UNPAID", LATER).await;
        shop.place("odd", "ON_HOLD", PAST).await;
        shop.place_paid("paid", "tx-1").await;
        let user = CancelOrderInput { reason: CancelReason::User, ..timed_out("user") };
        let orders = ["due-1", "paid", "due-2", "not-due", "odd", "nobody", "due-1", "due-3"].map(timed_out);
        let outcomes = shop.table().cancel_many(orders.into_iter().chain([user]).collect()).await.unwrap();
        let mut outcomes = outcomes.into_iter();
        let mut next = || outcomes.next().unwrap();
        assert_eq!(next().unwrap(), CancelOrderOutcome::Cancelled, "{kind:?}");
        assert_eq!(next().unwrap(), CancelOrderOutcome::AlreadyPaid { transaction_id: Some("tx-1".into()) }, "{kind:?}");
        assert_eq!(next().unwrap(), CancelOrderOutcome::Cancelled, "{kind:?}");
        assert_eq!(next().unwrap(), CancelOrderOutcome::NotDue { pay_deadline: LATER.parse().unwrap() }, "{kind:?}");
        assert_eq!(class(&next().unwrap_err()), (FailureClass::Permanent, "unknown-outcome"), "{kind:?}");
        assert_eq!(next().unwrap(), CancelOrderOutcome::NotFound, "{kind:?}");
        assert_eq!(next().unwrap(), CancelOrderOutcome::AlreadyCancelled, "{kind:?}: named a second time");
        assert_eq!(next().unwrap(), CancelOrderOutcome::Cancelled, "{kind:?}");
        assert_eq!(next().unwrap(), CancelOrderOutcome::Cancelled, "{kind:?}: by its user");
        assert_eq!(shop.column("user", "cancel_reason").await.as_deref(), Some("USER"), "{kind:?}");
        assert_eq!(shop.status("not-due").await, "UNPAID", "{kind:?}");
        assert_eq!(shop.status("odd").await, "ON_HOLD", "{kind:?}");
    }
}

#[tokio::test]
async fn five_hundred_at_once_and_no_more() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        let ids: Vec<String> = (0..501).map(|number| format!("o-{number}")).collect();
        shop.place_all(&ids.iter().map(String::as_str).collect::<Vec<_>>(), "UNPAID", PAST, None).await;
        let orders = |count: usize| ids[..count].iter().map(|id| timed_out(id)).collect::<Vec<_>>();
        let refused = shop.table().cancel_many(orders(501)).await.unwrap_err();
        assert_eq!(class(&refused), (FailureClass::Permanent, "input"), "{kind:?}");
        let outcomes = shop.table().cancel_many(orders(500)).await.unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.as_ref() == Ok(&CancelOrderOutcome::Cancelled)), "{kind:?}");
        assert_eq!((outcomes.len(), shop.status("o-500").await), (500, "UNPAID".to_owned()), "{kind:?}");
        assert_eq!(shop.table().cancel_many(Vec::new()).await.unwrap(), Vec::new(), "{kind:?}");
    }
}

#[tokio::test]
async fn an_update_that_tells_of_other_orders_is_taken_back() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let shop = Shop::configured(kind, |orders| {
            let sql = orders.sql.as_mut().unwrap();
            let update = sql.cancel_many.as_mut().unwrap();
            *update = update.replace("RETURNING id", "RETURNING status");
        })
        .await;
        shop.place("o", "UNPAID", PAST).await;
        let failure = shop.table().cancel_many(vec![timed_out("o")]).await.unwrap_err();
        assert_eq!(class(&failure), (FailureClass::Permanent, "sql"), "{kind:?}");
        assert_eq!(shop.status("o").await, "UNPAID", "{kind:?}");
    }
    let shop = Shop::configured(Kind::MariaDb, |orders| {
        let sql = orders.sql.as_mut().unwrap();
        sql.cancel_many = Some("UPDATE orders SET status = 'CANCELLED' WHERE id IN (:orderIds) AND status = 'PAID'".into());
    })
    .await;
    shop.place("o", "UNPAID", PAST).await;
    let failure = shop.table().cancel_many(vec![timed_out("o")]).await.unwrap_err();
    assert!(failure.failure.message.contains("would change 0 of the 1 orders that `lock_many` found"), "{failure}");
    assert_eq!(shop.status("o").await, "UNPAID");
}

#[tokio::test]
async fn when_the_database_refuses_one_look_nothing_is_told_as_done_that_was_rolled_back() {
    let shop = Shop::configured(Kind::Postgres, |orders| {
        let sql = orders.sql.as_mut().unwrap();
        sql.look = "SELECT status, transaction_id, (1 / (CASE id WHEN 'bad' THEN 0 ELSE 1 END))::text AS pay_deadline \
                    FROM orders WHERE id = :orderId"
            .into();
    })
    .await;
    shop.place("due", "UNPAID", PAST).await;
    shop.place_paid("bad", "tx-1").await;
    let failure = shop.table().cancel_many(vec![timed_out("due"), timed_out("bad")]).await.unwrap_err();
    assert_eq!(class(&failure), (FailureClass::Permanent, "sql"), "{failure}");
    assert_eq!(shop.status("due").await, "UNPAID");
}
