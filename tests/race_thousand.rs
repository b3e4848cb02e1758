//! A thousand races between a payment and the deadline, driven to the millisecond in both orders: a thousand decisions.
//!
//! The shop's order service is the judge here: a conditional update, as in a real one. Whatever it decided first stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use overdue_runtime::Timestamp;
use overdue_runtime::client::SignalOutcome;
use overdue_runtime::testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Node, Order, Reply, START, Sent, outcome};

const RACES: usize = 500;
const MILLISECOND: Duration = Duration::from_millis(1);

/// The orders' rows: who won.
#[derive(Clone, Default)]
struct Rows(Arc<Mutex<BTreeMap<String, Won>>>);

#[derive(Clone, Debug, PartialEq)]
enum Won {
    Paid(String),
    Cancelled,
}

impl Rows {
    /// `UPDATE … SET status = … WHERE status = 'WAIT_PAY'`
    fn decide(&self, order: &str, wanted: Won) -> (bool, Won) {
        let mut rows = self.0.lock().unwrap();
        let is_first = !rows.contains_key(order);
        (is_first, rows.entry(order.to_owned()).or_insert(wanted).clone())
    }

    fn cancel(&self, sent: &Sent) -> Reply {
        match self.decide(sent.subject(), Won::Cancelled) {
            (true, _) => outcome("CANCELLED", json!({})),
            (false, Won::Cancelled) => outcome("ALREADY_CANCELLED", json!({})),
            (false, Won::Paid(by)) => outcome("ALREADY_PAID", json!({ "transactionId": by })),
        }
    }

    fn confirm(&self, sent: &Sent) -> Reply {
        let transaction = sent.body["transactionId"].as_str().unwrap().to_owned();
        match self.decide(sent.subject(), Won::Paid(transaction)) {
            (true, _) => outcome("PAID", json!({})),
            (false, Won::Cancelled) => outcome("ALREADY_CANCELLED", json!({})),
            (false, Won::Paid(by)) => outcome("ALREADY_PAID", json!({ "transactionId": by })),
        }
    }

    fn all(&self) -> BTreeMap<String, Won> {
        self.0.lock().unwrap().clone()
    }
}

/// `RACES` orders that are due at one instant, judged by the order service.
async fn at_the_line() -> (Node, Rows, Timestamp) {
    let node = Node::start().await;
    let rows = Rows::default();
    let (cancel, confirm) = (rows.clone(), rows.clone());
    node.shop.judges("cancel-order", move |sent| cancel.cancel(sent));
    node.shop.judges("confirm-paid", move |sent| confirm.confirm(sent));
    let deadline = START.saturating_add(Duration::from_secs(60));
    let places = (0..RACES).map(|number| {
        let order = Order::new(&id(number)).due(deadline).with("latePaymentWindow", "PT10S").without("couponId");
        let node = &node;
        async move { node.place(&order).await }
    });
    futures::stream::iter(places).buffer_unordered(64).count().await;
    (node, rows, deadline)
}

fn id(number: usize) -> String {
    format!("o-{number:03}")
}

fn transaction(number: usize) -> String {
    format!("txn-{number:03}")
}

async fn pay(node: &Node, numbers: impl Iterator<Item = usize>) -> Vec<SignalOutcome> {
    let payments = numbers.map(|number| async move { node.pay(&id(number), &transaction(number)).await });
    futures::stream::iter(payments).buffered(64).collect().await
}

/// Lets everything come to its end, ten milliseconds at a time, never past a call under way for long.
async fn all_ended(node: &Node) -> Vec<Value> {
    // Time is one for all of them: it may pass only once no order has a call under way.
    for number in 0..RACES {
        let quiet = |look: &Value| look["pendingActivities"].as_array().unwrap().is_empty();
        let decided = |look: &Value| !look["progress"]["decision"].is_null();
        node.until(&id(number), "nothing is under way", |look| quiet(look) && decided(look)).await;
    }
    eventually_all(node, |look| !look["closedAt"].is_null()).await
}

async fn eventually_all(node: &Node, condition: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut looks = Vec::new();
    for number in 0..RACES {
        looks.push(node.pass_until(&id(number), "the race is over", &condition).await);
    }
    looks
}

/// D1 to D3, for each order and for all of them.
async fn judge(node: &Node, rows: &Rows, looks: &[Value], paid: &BTreeSet<String>) -> (usize, usize) {
    let (mut kept, mut given_up) = (0, 0);
    let won = rows.all();
    let sent = node.shop.all();
    let by_subject = |call: &str| {
        let mut counts: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
        for sent in sent.iter().filter(|sent| sent.call == call) {
            counts.entry(sent.subject().to_owned()).or_default().push(sent.clone());
        }
        counts
    };
    let (releases, closes, refunds) = (by_subject("release-stock"), by_subject("close-payment"), by_subject("refund-payment"));
    let times = |counts: &BTreeMap<String, Vec<Sent>>, subject: String| counts.get(&subject).map_or(0, Vec::len);
    for look in looks {
        let order = look["id"].as_str().unwrap();
        let decision = look["result"]["decision"].as_str().unwrap();
        let refunded = times(&refunds, format!("{order}-pay"));
        match &won[order] {
            Won::Paid(_) => {
                kept += 1;
                assert_eq!(decision, "paid", "{order}");
                assert_eq!(times(&releases, format!("{order}-stock")) + times(&closes, format!("{order}-pay")), 0, "{order}");
                assert_eq!(refunded, 0, "{order}");
            }
            Won::Cancelled => {
                given_up += 1;
                assert_eq!(decision, "cancelled", "{order}");
                assert_eq!(times(&releases, format!("{order}-stock")), 1, "{order}");
                assert_eq!(
                    refunded,
                    usize::from(paid.contains(order)),
                    "{order}: a refund for each payment of a cancelled order"
                );
            }
        }
        let story = node.story(order).await;
        let decisions =
            story.iter().filter(|line| matches!(line.as_str(), "cancel-order answered CANCELLED" | "confirm-paid answered PAID"));
        assert_eq!(decisions.count(), 1, "{order} has exactly one decision: {story:?}");
    }
    assert_eq!(kept + given_up, RACES);
    (kept, given_up)
}

fn everybody() -> BTreeSet<String> {
    (0..RACES).map(id).collect()
}

#[tokio::test]
async fn five_hundred_payments_one_millisecond_before_the_deadline_keep_five_hundred_orders() {
    let (node, rows, deadline) = at_the_line().await;
    node.pass_to(deadline.saturating_sub(MILLISECOND)).await;

    let outcomes = pay(&node, 0..RACES).await;
    node.pass(MILLISECOND).await;

    assert!(outcomes.iter().all(|outcome| *outcome == SignalOutcome::Applied));
    let looks = all_ended(&node).await;
    assert_eq!(judge(&node, &rows, &looks, &everybody()).await, (RACES, 0));
    assert_eq!(node.shop.sent("cancel-order").len(), 0);
}

#[tokio::test]
async fn five_hundred_payments_after_the_firing_are_five_hundred_cancelled_orders_and_refunds() {
    let (node, rows, deadline) = at_the_line().await;
    node.pass_to(deadline).await;
    let fired = || async { (node.shop.sent("cancel-order").len() == RACES).then_some(()) };
    eventually("every order is asked to be cancelled", fired).await;

    let outcomes = pay(&node, 0..RACES).await;

    assert!(outcomes.iter().all(|outcome| matches!(outcome, SignalOutcome::Applied | SignalOutcome::Late)));
    let looks = all_ended(&node).await;
    assert_eq!(judge(&node, &rows, &looks, &everybody()).await, (0, RACES));
    assert_eq!(node.shop.sent("refund-payment").len(), RACES);
}

#[tokio::test]
async fn payments_in_the_instant_of_the_deadline_are_decided_by_the_first_durable_write() {
    let (node, rows, deadline) = at_the_line().await;
    node.pass_to(deadline.saturating_sub(MILLISECOND)).await;

    // Half of them are on their way while time passes on, so that both kinds of write meet in the same batches.
    let half = pay(&node, (0..RACES).step_by(2));
    let rest = async {
        node.pass(MILLISECOND).await;
        pay(&node, (1..RACES).step_by(2)).await
    };
    let (half, rest) = tokio::join!(half, rest);

    assert_eq!(half.len() + rest.len(), RACES, "each was acknowledged");
    let looks = all_ended(&node).await;
    let (kept, given_up) = judge(&node, &rows, &looks, &everybody()).await;
    assert_eq!(node.shop.sent("refund-payment").len(), given_up);
    assert_eq!(kept + given_up, RACES);
}
