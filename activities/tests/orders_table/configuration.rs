//! What is refused before anything runs, and how that is said.

use overdue_activities::{DownstreamConfig, SqlConfig};

use super::shop::{Kind, Shop, documented};

fn sql(orders: &mut DownstreamConfig) -> &mut SqlConfig {
    orders.sql.as_mut().unwrap()
}

#[tokio::test]
async fn the_documented_configurations_pass_the_check() {
    for kind in Kind::ALL {
        assert_eq!(Shop::open(kind).await.checked().await, Ok(()), "{kind:?}");
        assert!(documented(kind).cancel_many.is_some(), "{kind:?}");
    }
}

#[tokio::test]
async fn what_can_be_seen_without_the_database_is_refused_with_what_to_write() {
    type Change = fn(&mut DownstreamConfig);
    let cases: [(Change, &str); 19] = [
        (|o| sql(o).cancel = "UPDATE orders SET status = 'C' WHERE id = :orderId".into(), "sql.cancel: has no guard on status"),
        (
            |o| sql(o).confirm_paid = "UPDATE orders SET transaction_id = :transactionId WHERE id = :orderId".into(),
            "sql.confirm_paid: has no guard",
        ),
        (
            |o| sql(o).cancel = "UPDATE orders SET x = 1 WHERE id = :id AND status = 'U'".into(),
            "sql.cancel: names :id, which there is not: it may use :orderId, :reason",
        ),
        (
            |o| sql(o).confirm_paid = "UPDATE orders SET x = 1 WHERE id = :orderId AND status = 'U'".into(),
            "sql.confirm_paid: does not use :transactionId",
        ),
        (|o| sql(o).look = "SELECT status FROM orders".into(), "sql.look: does not use :orderId"),
        (|o| sql(o).look = "DELETE FROM orders WHERE id = :orderId".into(), "sql.look: must be a SELECT"),
        (|o| sql(o).page = Some(sql(o).page.as_ref().unwrap().replace("LIMIT 500", "")), "sql.page: needs a LIMIT"),
        (
            |o| sql(o).cancel_many = Some(sql(o).cancel_many.as_ref().unwrap().replace("RETURNING id", "")),
            "sql.cancel_many: must tell which orders it changed",
        ),
        (|o| sql(o).statuses.waiting.clear(), "sql.statuses.waiting: must name at least one status"),
        (|o| sql(o).statuses.paid.push("UNPAID".into()), "sql.statuses.paid: names \"UNPAID\" a second time"),
        (|o| sql(o).connections = 0, "sql.connections: must be a whole number from 1 to 500"),
        (|o| sql(o).table = "orders; DROP TABLE x".into(), "sql.table: must be a plain name"),
        (|o| sql(o).url = "oracle://u@h/d".into(), "sql.url: must begin with postgres://, mysql:// or sqlite:"),
        (|o| sql(o).url = "postgres://u:geheim@h/d".into(), "sql.url: must hold no password"),
        (|o| sql(o).url = "postgres://h/d".into(), "sql.url: must name the user and the database"),
        (|o| sql(o).url = "sqlite::memory:".into(), "sql.url: must name the shop's database file"),
        (
            |o| sql(o).auth = Some(toml::from_str("env = \"OVERDUE_NO_SUCH\"").unwrap()),
            "sql.auth.env: the environment variable OVERDUE_NO_SUCH is not set",
        ),
        (|o| o.url = "http://orders.test".into(), "url: stands beside `sql`: leave one of them out"),
        (
            |o| {
                o.calls.insert("cancel-order".into(), Default::default());
            },
            "calls: says how HTTP calls are made",
        ),
    ];
    let shop = Shop::open(Kind::Sqlite).await;
    for (change, message) in cases {
        let error = shop.again(change).err().unwrap_or_else(|| panic!("accepted: {message}"));
        assert!(error.starts_with(&format!("downstreams.orders.{message}")), "{message}: {error}");
        assert!(!error.contains("geheim"), "{error}");
    }
    let shop = Shop::open(Kind::MariaDb).await;
    let error = shop.again(|o| sql(o).lock_many = None).err().unwrap();
    assert!(error.starts_with("downstreams.orders.sql.lock_many: is needed beside cancel_many"), "{error}");
    let error =
        shop.again(|o| sql(o).lock_many = Some(sql(o).lock_many.as_ref().unwrap().replace("FOR UPDATE", ""))).err().unwrap();
    assert!(error.starts_with("downstreams.orders.sql.lock_many: must lock what it finds"), "{error}");
}

#[tokio::test]
async fn what_the_database_says_is_told_before_the_start() {
    type Change = fn(&mut DownstreamConfig);
    let cases: [(Change, &str); 4] = [
        (|o| sql(o).cancel = sql(o).cancel.replace("cancel_reason", "reasons"), "sql.cancel: "),
        (
            |o| sql(o).look = sql(o).look.replace("pay_deadline", "pay_deadline AS due"),
            "sql.look: does not give the column pay_deadline: write SELECT … AS pay_deadline",
        ),
        (
            |o| sql(o).page = Some(sql(o).page.as_ref().unwrap().replace("AS order_id", "AS number")),
            "sql.page: does not give the column order_id",
        ),
        (|o| sql(o).table = "no_orders".into(), "sql.table: there is no table \"no_orders\""),
    ];
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        for (change, message) in cases {
            let error = shop.again(change).unwrap().checked().await.unwrap_err();
            assert!(error.starts_with(&format!("downstreams.orders.{message}")), "{kind:?} {message}: {error}");
        }
        let told = shop.again(cases[0].0).unwrap().checked().await.unwrap_err();
        assert!(told.contains("does not accept it") && told.contains("reasons"), "{kind:?}: {told}");
    }
}

#[tokio::test]
async fn postgresql_is_told_to_cast_where_a_column_is_no_text() {
    let shop = Shop::open(Kind::Postgres).await;
    let uncast = shop.again(|o| sql(o).confirm_paid = sql(o).confirm_paid.replace("::numeric", "")).unwrap();
    let error = uncast.checked().await.unwrap_err();
    assert!(error.contains("Every value is bound as text: cast it") && error.contains(":amount::numeric"), "{error}");
}

#[tokio::test]
async fn a_missing_index_is_a_warning_or_a_refusal_with_the_command_that_makes_it() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        let strict = shop.again(|o| sql(o).require_index = true).unwrap();
        assert_eq!(strict.checked().await, Ok(()), "{kind:?}");
        let mut session = shop.session().await;
        session
            .run(if kind == Kind::MariaDb { "DROP INDEX orders_by_deadline ON orders" } else { "DROP INDEX orders_by_deadline" })
            .await;
        session.run("CREATE INDEX other_way_round ON orders (pay_deadline, status)").await;
        assert_eq!(shop.checked().await, Ok(()), "{kind:?}: only a warning");
        let error = strict.checked().await.unwrap_err();
        let create = if kind == Kind::Postgres { "CREATE INDEX CONCURRENTLY" } else { "CREATE INDEX" };
        let create = format!("{create} orders_pay_deadline ON orders (status, pay_deadline)");
        assert!(error.starts_with("downstreams.orders.sql.page: has no index") && error.ends_with(&create), "{kind:?}: {error}");
        // What it says helps; and so does an index among the unpaid alone.
        session.run(&create).await;
        assert_eq!(strict.checked().await, Ok(()), "{kind:?}");
        if kind != Kind::MariaDb {
            session.run("DROP INDEX orders_pay_deadline").await;
            session.run("CREATE INDEX among_some ON orders (pay_deadline) WHERE status = 'UNPAID'").await;
            assert_eq!(strict.checked().await, Ok(()), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused_and_no_file_is_made() {
    let shop = Shop::open(Kind::Sqlite).await;
    let nowhere = format!("{}.not", shop.database());
    let url = format!("sqlite:{nowhere}");
    let error = shop.again(|o| sql(o).url = url.as_str().into()).unwrap().checked().await.unwrap_err();
    assert!(error.starts_with("downstreams.orders.sql.url: no connection to the order database"), "{error}");
    assert!(!std::path::Path::new(&nowhere).exists());
    for (kind, url) in [(Kind::Postgres, "postgres://u@127.0.0.1:1/d"), (Kind::MariaDb, "mysql://u@127.0.0.1:1/d")] {
        let shop = Shop::open(kind).await;
        let error = shop.again(|o| sql(o).url = url.into()).unwrap().checked().await.unwrap_err();
        assert!(error.starts_with("downstreams.orders.sql.url: no connection to the order database"), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let shop = Shop::open(Kind::MariaDb).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "falsches-wort").unwrap();
    let wrong =
        shop.again(|o| sql(o).auth = Some(toml::from_str(&format!("file = {:?}", file.path().to_str().unwrap())).unwrap()));
    let error = wrong.unwrap().checked().await.unwrap_err();
    assert!(error.contains("no connection") && error.contains("Access denied") && !error.contains("falsches-wort"), "{error}");
}
