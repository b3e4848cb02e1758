//! When a step cannot be done: three classes of failure, a person's three ways out, and what else goes on meanwhile.

use std::time::Duration;

use overdue_runtime::client::ActionOutcome;
use overdue_runtime::engine::OperatorAction;
use overdue_runtime::{ConfigDuration, Timestamp};
use serde_json::{Value, json};

use crate::harness::{Node, Order, Reply, START, Setup, outcome};

fn due_at() -> Timestamp {
    START.saturating_add(Order::TIME_TO_PAY)
}

/// An order whose stock is asked to be released, by a service that answers like this.
async fn releasing(setup: Setup, answers: impl IntoIterator<Item = Reply>) -> Node {
    let node = setup.start().await;
    node.shop.answers("release-stock", answers);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node
}

fn asked_at(node: &Node, call: &str) -> Vec<u64> {
    node.shop.sent(call).iter().map(|sent| sent.at.since(due_at()).as_secs()).collect()
}

// The classes (B022).

#[tokio::test]
async fn a_transient_failure_is_repeated_under_its_key_five_times_at_growing_gaps_and_then_needs_a_person() {
    for status in [408, 425, 500, 502, 503, 504] {
        let node = releasing(Setup::default(), (0..5).map(|_| Reply::status(status))).await;
        let look = node.pass_until("o-1", "a person is needed", |look| look["needsAttention"] == true).await;

        assert_eq!(asked_at(&node, "release-stock"), [0, 1, 3, 7, 15], "{status}");
        assert_eq!(node.shop.keys("release-stock"), ["order-timeout/o-1/release-stock"; 5]);
        let step = &look["pendingActivities"][0];
        assert_eq!((&step["attempt"], &step["maxAttempts"]), (&json!(5), &json!(5)));
        assert_eq!(
            (&step["lastFailure"]["class"], &step["lastFailure"]["errorType"]),
            (&json!("transient"), &json!(format!("http-{status}")))
        );
        assert_eq!(node.events("o-1").await.iter().filter(|event| event["kind"] == "AttentionRequested").count(), 1);
        node.pass(Duration::from_secs(60)).await;
        assert_eq!(node.shop.sent("release-stock").len(), 5, "no loop");
        assert_eq!((node.shop.sent("return-coupon").len(), node.shop.sent("close-payment").len()), (1, 1), "the others go on");
    }
}

#[tokio::test]
async fn attempts_and_the_time_of_the_next_one_are_durable() {
    let mut node = releasing(Setup::default(), (0..3).map(|_| Reply::status(503))).await;
    let before = node.until_it_backs_off("o-1", "release-stock", 1).await;
    assert_eq!(before["nextAttemptAt"], json!(due_at().saturating_add(Duration::from_secs(1))));

    node.restart().await;
    let after = node.pending("o-1", "release-stock").await;
    assert_eq!((&after["attempt"], &after["nextAttemptAt"]), (&before["attempt"], &before["nextAttemptAt"]));
    node.ended("o-1").await;

    assert_eq!(asked_at(&node, "release-stock"), [0, 1, 3, 7], "a restart neither hurries nor forgets");
}

#[tokio::test]
async fn a_connection_that_is_refused_is_transient() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let setup = Setup::default().calling(move |config| config.url = url.as_str().into());
    let node = setup.start().await;
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    let look = node.pass_until("o-1", "a person is needed", |look| look["needsAttention"] == true).await;

    let step = &look["pendingActivities"][0];
    assert_eq!((&step["name"], &step["lastFailure"]["errorType"]), (&json!("cancel-order"), &json!("connect")));
    assert_eq!(step["attempt"], 5);
    assert_eq!(node.now(), due_at().saturating_add(Duration::from_secs(15)));
}

#[tokio::test]
async fn a_permanent_failure_is_not_repeated_and_holds_up_no_other_step() {
    for status in [400, 401, 403, 404, 410, 422] {
        let node = releasing(Setup::default(), [Reply::json(status, json!({ "title": "no" }))]).await;
        let step = node.until_a_person_is_needed("o-1", "release-stock").await;

        assert_eq!(step["attempt"], 1);
        assert_eq!(
            (&step["lastFailure"]["class"], &step["lastFailure"]["errorType"]),
            (&json!("permanent"), &json!(format!("http-{status}")))
        );
        node.shop.received("return-coupon", 1).await;
        node.shop.received("close-payment", 1).await;
        node.pass(Duration::from_secs(600)).await;
        assert_eq!(node.shop.sent("release-stock").len(), 1, "{status}");
    }
}

#[tokio::test]
async fn throttling_waits_as_long_as_it_says_and_costs_no_attempt() {
    let throttled = || Reply::status(429).header("retry-after", "7");
    let node = releasing(Setup::default(), [throttled(), throttled(), throttled(), throttled(), throttled(), throttled()]).await;
    let parked = node
        .until("o-1", "it is parked", |look| look["pendingActivities"][0]["nextAttemptAt"].is_string())
        .await["pendingActivities"][0]
        .clone();
    assert_eq!(parked["lastFailure"]["errorType"], "throttled");

    node.ended("o-1").await;

    assert_eq!(asked_at(&node, "release-stock"), [0, 7, 14, 21, 28, 35, 42], "six times, though five attempts are allowed");
    let completed = node
        .events("o-1")
        .await
        .into_iter()
        .find(|event| event["kind"] == "ActivityCompleted" && event["result"]["outcome"] == "RELEASED");
    let completed = completed.unwrap();
    assert_eq!((&completed["attempts"], &completed["sends"]), (&json!(1), &json!(7)), "but each send is counted");
}

#[tokio::test]
async fn a_retry_after_on_any_status_is_honoured_within_its_bound() {
    let setup = Setup::default().calling(|config| config.retry_after_max = ConfigDuration(Duration::from_secs(60)));
    let node =
        releasing(setup, [Reply::status(503).header("retry-after", "3"), Reply::status(403).header("retry-after", "86400")])
            .await;
    node.ended("o-1").await;
    assert_eq!(asked_at(&node, "release-stock"), [0, 3, 63]);
}

#[tokio::test]
async fn a_retry_after_that_is_no_wait_is_ordinary_back_off() {
    // B026.
    for value in ["Mon, 30 Nov 2020 18:00:00 GMT", "-5", "1.5", "abc", ""] {
        let node = releasing(Setup::default(), [Reply::status(503).header("retry-after", value)]).await;
        node.ended("o-1").await;
        assert_eq!(asked_at(&node, "release-stock"), [0, 1], "{value:?}");
    }
}

#[tokio::test]
async fn what_is_neutral_does_not_count_against_the_time_to_give_up() {
    let setup = Setup::default().calling(|config| {
        config.retry.attempts = None;
        config.retry.give_up_after = Some(ConfigDuration(Duration::from_secs(10)));
    });
    let throttled = Reply::status(429).header("retry-after", "600");
    let node = releasing(setup, [Reply::status(500), throttled, Reply::status(500), Reply::status(500)]).await;
    node.ended("o-1").await;
    let at = asked_at(&node, "release-stock");
    assert_eq!(at.len(), 5, "ten minutes behind a limit are not held against it: {at:?}");
    assert_eq!(at[..3], [0, 1, 601]);
}

#[tokio::test]
async fn a_step_that_runs_out_of_time_needs_a_person() {
    let setup = Setup::default().calling(|config| {
        config.retry.attempts = None;
        config.retry.give_up_after = Some(ConfigDuration(Duration::from_secs(10)));
    });
    let node = releasing(setup, (0..20).map(|_| Reply::status(500))).await;
    node.pass_until("o-1", "a person is needed", |look| look["needsAttention"] == true).await;
    assert_eq!(asked_at(&node, "release-stock"), [0, 1, 3, 7], "no attempt is begun after ten seconds");
}

#[tokio::test]
async fn one_attempt_is_one_call_and_two_are_two() {
    // B024.
    for attempts in [1, 2] {
        let setup = Setup::default().calling(move |config| config.retry.attempts = Some(attempts));
        let node = releasing(setup, (0..5).map(|_| Reply::status(500))).await;
        node.pass_until("o-1", "a person is needed", |look| look["needsAttention"] == true).await;
        assert_eq!(node.shop.sent("release-stock").len() as i64, attempts);
    }
}

#[tokio::test]
async fn jitter_only_shortens_a_wait() {
    let setup = Setup::default().calling(|config| config.retry.jitter = true);
    let node = releasing(setup, (0..4).map(|_| Reply::status(500))).await;
    node.ended("o-1").await;
    let at: Vec<u128> = node.shop.sent("release-stock").iter().map(|sent| sent.at.since(due_at()).as_millis()).collect();
    for (gap, most) in at.windows(2).map(|pair| pair[1] - pair[0]).zip([1000, 2000, 4000, 8000]) {
        assert!(gap <= most, "{at:?}");
    }
    assert_ne!(at, [0, 1000, 3000, 7000, 15000], "it does shorten");
}

#[tokio::test]
async fn a_call_without_an_answer_is_given_up_at_its_timeout_and_repeated_under_the_same_key() {
    // B049: it is not known whether it took effect; it is never skipped.
    let node = Node::start().await;
    let gate = node.shop.holds("release-stock", outcome("RELEASED", json!({})));
    node.shop.answers("release-stock", [outcome("ALREADY_RELEASED", json!({}))]);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.shop.received("release-stock", 1).await;

    node.pass(Duration::from_secs(5)).await;
    let step = node.until_it_backs_off("o-1", "release-stock", 1).await;
    assert_eq!(step["lastFailure"]["errorType"], "timeout");
    gate.open();

    node.ended("o-1").await;
    assert_eq!(node.shop.keys("release-stock"), ["order-timeout/o-1/release-stock"; 2]);
    assert!(node.story("o-1").await.contains(&"release-stock answered ALREADY_RELEASED".to_owned()));
}

#[tokio::test]
async fn a_known_outcome_is_read_on_2xx_404_and_409_alike() {
    for status in [200, 201, 404, 409] {
        let node = releasing(Setup::default(), [Reply::json(status, json!({ "outcome": "ALREADY_RELEASED" }))]).await;
        assert_eq!(node.ended("o-1").await["decision"], "cancelled", "{status}");
        assert_eq!(node.shop.sent("release-stock").len(), 1);
    }
}

#[tokio::test]
async fn a_huge_or_deep_or_unprintable_answer_fails_its_attempt_and_leaves_an_excerpt() {
    // B060, B062, B064.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = format!("{{\"outcome\":\"RELEASED\",\"padding\":\"{}\"}}", "x".repeat(10 * 1024 * 1024));
    let unprintable = b"{\"title\":\"a\\u0000b \\ud800 \xff\"".to_vec();
    for (status, body, error_type) in
        [(200, deep.into_bytes(), "unreadable"), (200, huge.into_bytes(), "too-large"), (500, unprintable, "http-500")]
    {
        let node = releasing(Setup::default(), [Reply::raw(status, body)]).await;
        let step = node.until_it_backs_off("o-1", "release-stock", 1).await;
        assert_eq!(step["lastFailure"]["errorType"], error_type);
        let message = step["lastFailure"]["message"].as_str().unwrap().to_owned();
        assert!(message.len() <= 1024 && !message.contains('\0'), "{message}");
        assert_eq!(node.ended("o-1").await["decision"], "cancelled", "it goes on");
        assert_eq!(node.shop.sent("release-stock").len(), 2);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    // B096.
    let node = releasing(Setup::default(), [Reply::status(307).header("location", "http://169.254.169.254/")]).await;
    let step = node.until_a_person_is_needed("o-1", "release-stock").await;
    assert_eq!((&step["lastFailure"]["class"], &step["lastFailure"]["errorType"]), (&json!("permanent"), &json!("redirect")));
}

// A person's three ways out (B104).

async fn stuck_at_close() -> Node {
    let node = Node::start().await;
    node.shop.answers("close-payment", [Reply::json(422, json!({ "title": "no such merchant" }))]);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_a_person_is_needed("o-1", "close-payment").await;
    node
}

#[tokio::test]
async fn a_retry_by_hand_repeats_the_step_alone_under_its_key() {
    let node = stuck_at_close().await;
    assert_eq!(node.progress("o-1").await["phase"], "giving-back");

    node.retry("o-1", "close-payment").await;

    assert_eq!(node.ended("o-1").await["decision"], "cancelled");
    assert_eq!(node.shop.keys("close-payment"), ["order-timeout/o-1/close-payment"; 2]);
    for call in ["cancel-order", "release-stock", "return-coupon"] {
        assert_eq!(node.shop.sent(call).len(), 1, "{call}");
    }
    let story = node.story("o-1").await;
    assert!(story.contains(&"close-payment retried by ops: it is mended".to_owned()), "{story:?}");
}

#[tokio::test]
async fn a_step_that_a_person_resolves_has_the_given_result_and_says_who_and_why() {
    let node = stuck_at_close().await;

    node.resolve("o-1", "close-payment", json!({ "outcome": "CLOSED" })).await;

    assert_eq!(node.ended("o-1").await["decision"], "cancelled");
    assert_eq!(node.shop.sent("close-payment").len(), 1);
    let resolved = node.events("o-1").await.into_iter().find(|event| event["kind"] == "ActivityResolved").unwrap();
    let recorded = (&resolved["result"], &resolved["reason"], &resolved["actor"]);
    assert_eq!(recorded, (&json!({ "outcome": "CLOSED" }), &json!("done by hand, ticket 4711"), &json!("ops")));
}

#[tokio::test]
async fn a_step_that_a_person_skips_is_left_undone_and_says_who_and_why() {
    for step in ["release-stock", "return-coupon", "close-payment"] {
        let node = Node::start().await;
        node.shop.answers(step, [Reply::status(422)]);
        node.place(&Order::new("o-1")).await;
        node.let_the_deadline_come().await;
        node.until_a_person_is_needed("o-1", step).await;

        node.skip("o-1", step).await;

        assert_eq!(node.ended("o-1").await["decision"], "cancelled");
        assert_eq!(node.shop.sent(step).len(), 1);
        assert!(node.story("o-1").await.contains(&format!("{step} skipped by ops: not worth it")));
    }
}

#[tokio::test]
async fn a_cancel_that_a_person_resolves_decides_the_order_as_the_answer_would_have() {
    for (result, decision) in [
        (json!({ "outcome": "CANCELLED" }), json!("cancelled")),
        (json!({ "outcome": "ALREADY_PAID" }), json!("paid")),
        (json!({ "outcome": "NOT_FOUND" }), json!("order-not-found")),
    ] {
        let node = Node::start().await;
        node.shop.answers("cancel-order", [Reply::status(422)]);
        node.place(&Order::new("o-1")).await;
        node.let_the_deadline_come().await;
        node.until_a_person_is_needed("o-1", "cancel-order").await;
        node.resolve("o-1", "cancel-order", result).await;
        assert_eq!(node.ended("o-1").await["decision"], decision);
    }
}

#[tokio::test]
async fn a_cancel_that_a_person_skips_leaves_the_order_as_it_is() {
    let node = Node::start().await;
    node.shop.answers("cancel-order", [Reply::status(422)]);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_a_person_is_needed("o-1", "cancel-order").await;

    node.skip("o-1", "cancel-order").await;

    assert_eq!(node.ended("o-1").await["decision"], Value::Null);
    assert_eq!(node.shop.counts(), [("cancel-order".to_owned(), 1)].into(), "nothing is given back");
}

#[tokio::test]
async fn a_payment_still_arrives_while_cancel_order_needs_a_person() {
    let node = Node::start().await;
    node.shop.answers("cancel-order", [Reply::status(422), outcome("ALREADY_PAID", json!({ "transactionId": "txn-1" }))]);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    node.until_a_person_is_needed("o-1", "cancel-order").await;
    node.pay("o-1", "txn-1").await;
    node.retry("o-1", "cancel-order").await;
    assert_eq!(node.ended("o-1").await["decision"], "paid");
    assert_eq!(node.shop.sent("refund-payment").len(), 0);
}

#[tokio::test]
async fn a_confirm_that_a_person_skips_sends_the_money_back_and_the_order_waits_on() {
    let node = Node::start().await;
    node.shop.answers("confirm-paid", [Reply::status(422)]);
    node.place(&Order::new("o-1")).await;
    node.pay("o-1", "txn-1").await;
    node.until_a_person_is_needed("o-1", "confirm-paid").await;

    node.skip("o-1", "confirm-paid").await;

    node.until("o-1", "it is refunded", |look| look["progress"]["refunds"][0]["status"] == "refunded").await;
    assert_eq!(node.progress("o-1").await["phase"], "waiting-for-payment");
    assert_eq!(node.ended("o-1").await["decision"], "cancelled");
    assert_eq!(node.shop.sent("refund-payment").len(), 1);
}

#[tokio::test]
async fn explain_says_which_step_waits_for_whom_since_when_and_how_to_go_on() {
    let node = stuck_at_close().await;
    let number = node.pending("o-1", "close-payment").await["number"].clone();

    let explained = node.explain("o-1").await;

    assert_eq!(explained.waiting_for, Some(format!("a person, about step {number} close-payment")));
    assert_eq!(explained.since, Some(due_at()));
    let said = format!("Step {number}, close-payment, needs a person since {}: http-422:", due_at());
    assert!(explained.text.contains(&said), "{}", explained.text);
    assert!(explained.text.contains("no such merchant"), "{}", explained.text);
    let actions = [
        format!("overdue retry order-timeout o-1 {number} --reason TEXT"),
        format!("overdue resolve order-timeout o-1 {number} --result JSON --reason TEXT"),
        format!("overdue skip order-timeout o-1 {number} --reason TEXT"),
        "overdue cancel order-timeout o-1 --reason TEXT".to_owned(),
    ];
    assert_eq!(explained.actions, actions);
}

#[tokio::test]
async fn a_step_in_back_off_can_be_tried_at_once_and_a_step_that_ended_cannot() {
    let node = releasing(Setup::default(), [Reply::status(503)]).await;
    node.until_it_backs_off("o-1", "release-stock", 1).await;
    let number = node.pending("o-1", "release-stock").await["number"].as_u64().unwrap();
    node.retry("o-1", "release-stock").await;
    node.until_phase("o-1", "watching").await;
    assert_eq!(asked_at(&node, "release-stock"), [0, 0]);

    let again = node.client.operate("order-timeout", "o-1", number, OperatorAction::Retry, "again", "ops").await;
    assert!(again.unwrap_err().to_string().contains("has ended already"));
    assert_eq!(node.shop.sent("release-stock").len(), 2);
}

#[tokio::test]
async fn stock_and_coupon_go_back_once_although_everybody_cancels_and_presses_retry() {
    // B054.
    let node = Node::start().await;
    node.place(&Order::new("o-1")).await;
    node.shop.answers("release-stock", [Reply::status(422)]);
    node.let_the_deadline_come().await;
    node.until_a_person_is_needed("o-1", "release-stock").await;
    let cancels = [
        node.client.cancel("order-timeout", "o-1", "the user", "u-1").await.unwrap(),
        node.client.cancel("order-timeout", "o-1", "the user", "u-1").await.unwrap(),
    ];
    assert_eq!(cancels, [ActionOutcome::Late, ActionOutcome::Duplicate]);
    let number = node.pending("o-1", "release-stock").await["number"].as_u64().unwrap();
    let press = || node.client.operate("order-timeout", "o-1", number, OperatorAction::Retry, "again", "ops");
    let presses = tokio::join!(press(), press(), press());
    assert_eq!([presses.0.is_ok(), presses.1.is_ok(), presses.2.is_ok()].iter().filter(|ok| **ok).count(), 1);

    assert_eq!(node.ended("o-1").await["decision"], "cancelled");
    let done = |word: &str| {
        let word = word.to_owned();
        move |line: &String| *line == word
    };
    let story = node.story("o-1").await;
    assert_eq!(story.iter().filter(|line| done("release-stock answered RELEASED")(line)).count(), 1);
    assert_eq!((node.shop.sent("release-stock").len(), node.shop.sent("return-coupon").len()), (2, 1));
    assert_eq!(node.shop.sent("cancel-order").len(), 1);
}

// The breaker and the limits, through the engine (B028, B030, B032).

#[tokio::test]
async fn refusals_leave_the_breaker_closed_so_that_the_next_order_is_called_at_once() {
    let setup = Setup::default().calling(|config| config.breaker.failures = 5);
    let node = setup.start().await;
    node.shop.judges("release-stock", |sent| match sent.subject() {
        "good-stock" => outcome("RELEASED", json!({})),
        _ => Reply::status(422),
    });
    for number in 0..10 {
        let id = format!("o-{number}");
        node.place(&Order::new(&id).due(START)).await;
        node.until_a_person_is_needed(&id, "release-stock").await;
    }
    node.place(&Order::new("good").due(START)).await;
    node.until_phase("good", "watching").await;
    assert_eq!(node.now(), START, "no time had to pass");
}

#[tokio::test]
async fn orders_behind_an_open_breaker_are_parked_at_no_cost_and_all_finish_after_one_good_probe() {
    let setup = Setup::default().calling(|config| config.breaker.failures = 5);
    let node = setup.start().await;
    node.shop.answers("release-stock", (0..5).map(|_| Reply::status(503)));
    node.place(&Order::new("first").due(START)).await;
    node.pass_until("first", "the breaker is open", |look| look["needsAttention"] == true).await;
    assert_eq!(node.shop.sent("release-stock").len(), 5);
    let orders: Vec<String> = (0..20).map(|number| format!("o-{number}")).collect();
    for id in &orders {
        node.place(&Order::new(id).due(START)).await;
        node.until(id, "it is parked", |look| look["pendingActivities"][0]["state"] == "parked").await;
    }
    assert_eq!(node.shop.sent("release-stock").len(), 5, "nothing is sent while it is open");
    let explained = node.explain("o-0").await;
    assert_eq!(explained.waiting_for.as_deref(), Some("the breaker of stock"));

    // Time for the late payment passes only when none of them is being called any more.
    for id in &orders {
        node.pass_until(id, "its stock is back", |look| look["progress"]["phase"] == "watching").await;
    }
    for id in &orders {
        node.ended(id).await;
    }
    let counts = node.shop.sent("release-stock").len();
    assert_eq!(counts, 25, "one call each, no attempt was lost");
    let probe = &node.shop.sent("release-stock")[5];
    assert!(probe.at.since(node.shop.sent("release-stock")[4].at) >= Duration::from_secs(2), "{:?}", probe.at);
}
