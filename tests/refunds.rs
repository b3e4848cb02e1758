//! `refund-payment`: one for each order and transaction, followed until it is final, never dropped.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Node, Order, Reply, Setup, outcome};
use crate::race::refund;

const KEY: &str = "order-timeout/o-1/refund-payment:txn-1";

/// A cancelled order to which txn-1 comes late, at a channel that answers refunds like this.
async fn late(answers: impl IntoIterator<Item = Reply>) -> Node {
    let node = Node::start().await;
    node.shop.answers("refund-payment", answers);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;
    node.pay("o-1", "txn-1").await;
    node
}

fn status_is(status: &'static str) -> impl Fn(&Value) -> bool {
    move |look| look["progress"]["refunds"][0]["status"] == status
}

#[tokio::test]
async fn refunded_and_already_refunded_are_the_end_of_it() {
    for word in ["REFUNDED", "ALREADY_REFUNDED"] {
        let node = late([outcome(word, json!({}))]).await;
        assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "refunded")]), "{word}");
        assert_eq!(node.shop.sent("refund-payment").len(), 1);
        assert_eq!(node.shop.sent("refund-status").len(), 0);
    }
}

#[tokio::test]
async fn an_accepted_refund_is_not_a_success_its_status_is_asked_until_it_is_final() {
    let node = late([outcome("PROCESSING", json!({}))]).await;
    let processing = || outcome("PROCESSING", json!({}));
    node.shop.answers("refund-status", [processing(), processing(), processing()]);
    let begun = node.now();
    node.until("o-1", "it is processing", status_is("processing")).await;

    assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "refunded")]));
    let asked = node.shop.sent("refund-status");
    assert_eq!(asked.iter().map(|sent| sent.at.since(begun).as_secs()).collect::<Vec<_>>(), [1, 3, 7, 15]);
    assert!(asked.iter().all(|sent| sent.path == "/payments/o-1-pay/refunds/o-1%3Atxn-1"), "{asked:?}");
    assert_eq!(node.shop.keys("refund-payment"), [KEY], "it is requested once");
}

#[tokio::test]
async fn a_refund_that_the_channel_has_forgotten_is_requested_again_under_the_same_key() {
    let node = late([outcome("PROCESSING", json!({}))]).await;
    node.shop.answers("refund-status", [Reply::json(404, json!({ "outcome": "NOT_FOUND" }))]);

    assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "refunded")]));
    assert_eq!(node.shop.keys("refund-payment"), [KEY, KEY]);
}

#[tokio::test]
async fn a_channel_that_forgets_a_refund_again_and_again_is_asked_at_growing_gaps_and_under_new_keys() {
    let node = Node::start().await;
    node.shop.always("refund-payment", outcome("PROCESSING", json!({})));
    node.shop.always("refund-status", Reply::json(404, json!({ "outcome": "NOT_FOUND" })));
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;
    node.pay("o-1", "txn-1").await;
    let begun = node.now();
    let asked = || node.shop.sent("refund-status");
    node.pass_until("o-1", "it is asked for again and again", |_| asked().len() >= 5).await;

    assert_eq!(asked()[..5].iter().map(|sent| sent.at.since(begun).as_secs()).collect::<Vec<_>>(), [1, 3, 7, 15, 31]);
    let keys: std::collections::BTreeSet<_> = asked().into_iter().map(|sent| sent.key).collect();
    assert_eq!(keys.len(), asked().len(), "each question is a new one: {keys:?}");
    assert!(node.shop.keys("refund-payment").iter().all(|key| key == KEY));
}

#[tokio::test]
async fn a_rejected_refund_needs_a_person_and_is_tried_again_by_itself_once_an_hour() {
    let rejected = || outcome("REJECTED", json!({ "reason": "insufficient balance" }));
    let node = late([rejected(), rejected()]).await;
    let begun = node.now();
    node.until_a_person_is_needed("o-1", "review-refund").await;

    let look = node.look("o-1").await;
    assert_eq!(look["progress"]["refunds"], json!([refund("txn-1", "needs-attention")]));
    assert_eq!(look["needsAttention"], true);
    let text = node.explain("o-1").await.text;
    assert!(text.contains("the channel rejected the refund: insufficient balance"), "{text}");
    let details = node.pending("o-1", "review-refund").await["input"].clone();
    let shown = json!({ "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paymentId": "o-1-pay" });
    assert_eq!(details, shown);

    let ended = node.ended("o-1").await;
    assert_eq!(ended["refunds"], json!([refund("txn-1", "refunded")]));
    let at: Vec<_> = node.shop.sent("refund-payment").iter().map(|sent| sent.at.since(begun).as_secs()).collect();
    assert_eq!(at, [0, 3600, 7200]);
    assert_eq!(node.shop.keys("refund-payment"), [KEY; 3]);
    assert_eq!(node.look("o-1").await["needsAttention"], false);
}

#[tokio::test]
async fn a_refund_that_is_rejected_after_it_was_accepted_needs_a_person_too() {
    let node = late([outcome("PROCESSING", json!({}))]).await;
    node.shop.answers("refund-status", [outcome("REJECTED", json!({ "reason": "account closed" }))]);
    let look = node.pass_until("o-1", "a person is needed", |look| look["needsAttention"] == true).await;

    assert_eq!(look["progress"]["refunds"], json!([refund("txn-1", "needs-attention")]));
    assert!(node.explain("o-1").await.text.contains("the channel rejected the refund: account closed"));
    node.retry("o-1", "review-refund").await;
    assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "refunded")]));
    assert_eq!(node.shop.keys("refund-payment"), [KEY, KEY]);
}

#[tokio::test]
async fn a_refund_outlives_the_watch_until_it_is_settled() {
    let node = late([outcome("REJECTED", json!({}))]).await;
    node.shop.always("refund-payment", outcome("REJECTED", json!({})));
    node.until_a_person_is_needed("o-1", "review-refund").await;
    for hour in 2..5 {
        node.pass(Duration::from_secs(3600)).await;
        node.shop.received("refund-payment", hour).await;
        node.until_a_person_is_needed("o-1", "review-refund").await;
    }
    assert_eq!(node.look("o-1").await["status"], "running", "never dropped");

    node.resolve("o-1", "review-refund", json!({})).await;

    assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "refunded")]));
    assert!(node.story("o-1").await.contains(&"review-refund resolved by ops: done by hand, ticket 4711".to_owned()));
}

#[tokio::test]
async fn a_refund_that_a_person_skips_stays_visible_in_the_result() {
    let node = late([outcome("REJECTED", json!({}))]).await;
    node.until_a_person_is_needed("o-1", "review-refund").await;

    node.skip("o-1", "review-refund").await;

    assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "needs-attention")]));
    assert_eq!(node.shop.sent("refund-payment").len(), 1);
}

#[tokio::test]
async fn a_refund_without_a_known_payment_asks_a_person_instead_of_guessing() {
    let node = Node::start().await;
    node.place(&Order::bare("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;
    node.pay("o-1", "txn-1").await;
    node.until_a_person_is_needed("o-1", "review-refund").await;

    let text = node.explain("o-1").await.text;
    assert!(text.contains("no paymentId is known for this transaction"), "{text}");
    assert_eq!(node.shop.sent("refund-payment").len(), 0);
}

#[tokio::test]
async fn a_refund_that_runs_out_of_attempts_needs_a_person_and_goes_on_under_its_key() {
    let node = late((0..5).map(|_| Reply::status(503))).await;
    node.pass_until("o-1", "a person is needed", |look| look["needsAttention"] == true).await;

    assert_eq!(node.shop.keys("refund-payment"), [KEY; 5]);
    assert!(node.explain("o-1").await.text.contains("http-503"));
    node.retry("o-1", "review-refund").await;
    assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "refunded")]));
    assert_eq!(node.shop.keys("refund-payment"), [KEY; 6]);
}

#[tokio::test]
async fn an_answer_that_got_lost_is_asked_for_again_and_the_money_goes_back_once() {
    // B036: the effect is there, the answer is not; three deliveries of the payment besides.
    let setup = Setup::default().calling(|config| config.retry.attempts = None);
    let node = setup.start().await;
    node.shop.answers(
        "refund-payment",
        [Reply::status(500), Reply::raw(200, "{\"outcome\":"), outcome("ALREADY_REFUNDED", json!({}))],
    );
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_phase("o-1", "watching").await;
    for _ in 0..3 {
        node.pay("o-1", "txn-1").await;
    }

    assert_eq!(node.ended("o-1").await["refunds"], json!([refund("txn-1", "refunded")]));
    let sent = node.shop.sent("refund-payment");
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|repeat| repeat.key == KEY && repeat.raw == sent[0].raw), "the same request, byte by byte");
    assert_eq!((node.shop.sent("release-stock").len(), node.shop.sent("return-coupon").len()), (1, 1));
}
