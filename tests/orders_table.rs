//! The flagship on a shop whose orders are a table: the program updates the table itself, and calls the other three services.

use std::time::Duration;

use jiff::Timestamp;
use overdue_workflows::sandbox::{Capture, FaultPlan, NewOrder, ReservationStatus, Service, Shop};
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Row};
use tempfile::TempDir;

use crate::harness::{Server, Site, run};

/// A shop with its order table in a SQLite file.
struct Tabled {
    shop: Shop,
    folder: TempDir,
}

/// The configuration that the README of the activities offers for SQLite, of a table in this file.
fn documented(file: &str) -> String {
    let readme = include_str!("../activities/README.md");
    let blocks = readme.split("```toml\n").skip(1).filter_map(|block| block.split("```").next());
    let mut ours = blocks.filter(|block| block.contains("url = \"sqlite:"));
    ours.next().unwrap().replace("sqlite:/var/lib/shop/orders.db", &format!("sqlite:{file}"))
}

impl Tabled {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("shop")).unwrap();
        let shop = Shop::start(&folder.path().join("shop"), FaultPlan::none()).await.unwrap();
        let tabled = Self { shop, folder };
        let sql = "CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT NOT NULL, pay_deadline TEXT NOT NULL, transaction_id TEXT, \
                   cancel_reason TEXT, paid_amount TEXT, paid_currency TEXT, paid_at TEXT)";
        sqlx::query(sql).execute(&mut tabled.session().await).await.unwrap();
        tabled
    }

    fn file(&self) -> String {
        self.folder.path().join("orders.db").display().to_string()
    }

    async fn session(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.file()).create_if_missing(true);
        options.busy_timeout(Duration::from_secs(10)).connect().await.unwrap()
    }

    fn site(&self) -> Site {
        let urls = self.shop.urls();
        let mut site = Site::calling(urls).with(&format!("url = \"{}\"\n", urls.of(Service::Orders)), "");
        site.config.push_str(&documented(&self.file()));
        site
    }

    /// An order with stock, a coupon and a payment, to be paid until then; its workflow is started.
    async fn place(&self, server: &Server, id: &str, deadline: Timestamp) {
        self.shop.place_order(&NewOrder::new(id, deadline).with_everything()).await.unwrap();
        let sql = "INSERT INTO orders (id, status, pay_deadline) VALUES (?, 'UNPAID', ?)";
        let (id_bound, deadline_bound) = (id.to_owned(), format!("{deadline:.3}"));
        sqlx::query(sql).bind(id_bound).bind(deadline_bound).execute(&mut self.session().await).await.unwrap();
        let input = json!({
            "orderId": id, "payDeadline": format!("{deadline:.3}"), "amount": "19.99", "currency": "USD",
            "paymentId": format!("{id}-pay"), "stockToken": format!("{id}-stock"), "couponId": format!("{id}-coupon"),
            "latePaymentWindow": "PT2S",
        });
        assert_eq!(server.start_order(id, &input).await.status, 201);
    }

    /// A payment is captured at the channel, and the payment service tells of it.
    async fn pay(&self, server: &Server, id: &str, transaction: &str) {
        self.shop.capture(&format!("{id}-pay"), &Capture::now(transaction, "19.99", "USD")).await.unwrap();
        let paid_at = format!("{:.3}", Timestamp::now());
        let payload = json!({ "transactionId": transaction, "amount": "19.99", "currency": "USD", "paidAt": paid_at });
        assert_eq!(server.signal(id, "payment-succeeded", &payload).await.status, 200);
    }

    /// Its status, its transaction, and why it was given up.
    async fn row(&self, id: &str) -> (String, Option<String>, Option<String>) {
        let sql = "SELECT status, transaction_id, cancel_reason FROM orders WHERE id = ?";
        let row = sqlx::query(sql).bind(id.to_owned()).fetch_one(&mut self.session().await).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }
}

fn soon(duration: Duration) -> Timestamp {
    Timestamp::now() + duration
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpaid_order_is_cancelled_in_its_table_and_given_back_and_a_paid_one_is_kept() {
    let tabled = Tabled::open().await;
    let server = Server::start(tabled.site()).await;
    tabled.place(&server, "unpaid", soon(Duration::from_millis(500))).await;
    tabled.place(&server, "paid", soon(Duration::from_secs(60))).await;
    tabled.pay(&server, "paid", "tx-1").await;

    let paid = server.until("paid", "it is kept", |look| look["status"] == "completed").await;
    assert_eq!(paid["result"]["decision"], "paid", "{paid}");
    let unpaid = server.until("unpaid", "it is given back", |look| look["progress"]["phase"] == "watching").await;
    assert_eq!(unpaid["progress"]["decision"], "cancelled", "{unpaid}");
    assert_eq!(tabled.row("unpaid").await, ("CANCELLED".into(), None, Some("TIMEOUT".into())));
    assert_eq!(tabled.row("paid").await, ("PAID".into(), Some("tx-1".into()), None));
    assert_eq!(tabled.shop.reservation("unpaid-stock"), Some(ReservationStatus::Released));
    assert_ne!(tabled.shop.reservation("paid-stock"), Some(ReservationStatus::Released));
    assert_eq!(tabled.shop.requests(Service::Orders).unwrap().len(), 0, "no order service is called");

    // Money that comes now goes back: the table says that the order is given up.
    tabled.pay(&server, "unpaid", "tx-late").await;
    let ended = server.until("unpaid", "its money goes back", |look| look["status"] == "completed").await;
    assert_eq!(ended["result"]["refunds"][0]["status"], "refunded", "{ended}");
    assert!(tabled.shop.refunded("unpaid-pay", "tx-late"));
    assert_eq!(tabled.row("unpaid").await.0, "CANCELLED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_shop_decided_in_its_table_stands_whatever_the_deadline_says() {
    let tabled = Tabled::open().await;
    let server = Server::start(tabled.site()).await;
    tabled.place(&server, "shipped", soon(Duration::from_millis(500))).await;
    let shipped = "UPDATE orders SET status = 'SHIPPED', transaction_id = 'tx-7' WHERE id = 'shipped'";
    sqlx::query(shipped).execute(&mut tabled.session().await).await.unwrap();
    let look = server.until("shipped", "it is left alone", |look| look["status"] == "completed").await;
    assert_eq!(look["result"]["decision"], "paid", "{look}");
    assert_eq!(tabled.row("shipped").await.0, "SHIPPED");
    assert_ne!(tabled.shop.reservation("shipped-stock"), Some(ReservationStatus::Released));
}

/// `serve` ends at once and says why.
async fn refused(site: &Site, saying: &str) {
    let ran = run(&mut site.serve("127.0.0.1:0")).await;
    assert!(ran.code == Some(1) && ran.stderr.contains(saying), "{saying}: {ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_refuses_an_order_table_that_is_not_as_configured_and_commands_that_only_read_do_not_ask() {
    let tabled = Tabled::open().await;
    let unguarded = tabled.site().with("WHERE id = :orderId AND status = 'UNPAID' AND (", "WHERE id = :orderId AND (");
    refused(&unguarded, "downstreams.orders.sql.cancel: has no guard on status in its WHERE").await;

    let server = Server::start(tabled.site()).await;
    server.terminate().await;
    server.ended().await;
    sqlx::query("ALTER TABLE orders RENAME TO elsewhere").execute(&mut tabled.session().await).await.unwrap();
    refused(&server.site, "downstreams.orders.sql.cancel: SQLite does not accept it").await;
    let verified = run(&mut server.site.verify()).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
}
