//! Deadlines as objects: listed by the time they come, counted ahead, moved by a person either way, and recorded.

use std::time::Duration;

use overdue_runtime::Timestamp;
use overdue_runtime::client::{ActionOutcome, ClientError, DeadlineRequest, ForecastQuery, NewToken, SignalOutcome};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Node, Order, START, outcome, program, run};

const MINUTE: Duration = Duration::from_secs(60);

fn after(minutes: u32) -> Timestamp {
    START.saturating_add(MINUTE * minutes)
}

async fn place(node: &Node, id: &str, due: Timestamp) {
    node.place(&Order::bare(id).due(due)).await;
}

async fn set(node: &Node, id: &str, deadline: Timestamp) -> Result<ActionOutcome, ClientError> {
    let request = DeadlineRequest {
        workflow_type: "order-timeout".into(),
        id: id.into(),
        deadline,
        reason: "the payment service was down".into(),
        actor: "dana".into(),
        signal_id: None,
    };
    node.client.set_deadline(request).await
}

fn route(id: &str) -> String {
    format!("/v1/workflows/order-timeout/{id}/deadline")
}

fn ids(page: &Value) -> Vec<&str> {
    page["workflows"].as_array().unwrap().iter().map(|workflow| workflow["id"].as_str().unwrap()).collect()
}

fn field(answer: &Answer) -> (u16, Value) {
    (answer.status.as_u16(), answer.json()["errors"][0]["field"].clone())
}

// Moving one.

#[tokio::test]
async fn a_deadline_that_is_moved_later_is_kept_to_the_millisecond_and_recorded_with_who_and_why() {
    let node = Node::start().await;
    place(&node, "o-1", after(30)).await;

    assert_eq!(set(&node, "o-1", after(90)).await.unwrap(), ActionOutcome::Applied);

    let look = node.look("o-1").await;
    assert_eq!((&look["wakeAt"], look["pendingTimers"].as_array().unwrap().len()), (&json!(after(90)), 1));
    let events = node.events("o-1").await;
    let recorded = events.iter().find(|event| event["kind"] == "SignalReceived").unwrap();
    assert_eq!(recorded["name"], "set-deadline");
    let says = json!({ "payDeadline": after(90), "reason": "the payment service was down", "actor": "dana" });
    assert_eq!(recorded["payload"], says);
    node.pass_to(after(90).saturating_sub(Duration::from_millis(1))).await;
    assert_eq!(node.shop.all().len(), 0);
    node.pass(Duration::from_millis(1)).await;
    node.until_phase("o-1", "watching").await;
    let asked = node.shop.only("cancel-order");
    assert_eq!((asked.at, &asked.body["payDeadline"]), (after(90), &json!(after(90))));
}

#[tokio::test]
async fn a_deadline_that_is_pulled_forward_comes_then_and_one_that_is_pulled_into_the_past_comes_at_once() {
    let node = Node::start().await;
    place(&node, "o-1", after(30)).await;
    place(&node, "o-2", after(30)).await;

    assert_eq!(set(&node, "o-1", after(10)).await.unwrap(), ActionOutcome::Applied);
    assert_eq!(set(&node, "o-2", START.saturating_sub(MINUTE)).await.unwrap(), ActionOutcome::Applied);

    node.until_phase("o-2", "watching").await;
    assert_eq!(node.shop.only("cancel-order").at, START);
    node.pass_to(after(10)).await;
    node.until_phase("o-1", "watching").await;
    assert_eq!(node.shop.sent("cancel-order")[1].at, after(10));
}

#[tokio::test]
async fn an_order_service_that_knows_a_later_deadline_keeps_an_order_whose_deadline_was_pulled_forward() {
    let node = Node::start().await;
    node.shop.answers("cancel-order", [outcome("NOT_DUE", json!({ "payDeadline": after(30) }))]);
    place(&node, "o-1", after(30)).await;

    set(&node, "o-1", after(10)).await.unwrap();
    node.pass_to(after(10)).await;

    let look = node.until("o-1", "it waits again", |look| look["wakeAt"] == json!(after(30))).await;
    assert_eq!(look["progress"]["phase"], "waiting-for-payment");
    assert_eq!(node.pay("o-1", "txn-1").await, SignalOutcome::Applied);
    assert_eq!(node.ended("o-1").await["decision"], "paid");
}

#[tokio::test]
async fn after_the_decision_a_deadline_is_not_moved_any_more_and_the_answer_says_late() {
    let node = Node::start().await;
    place(&node, "o-1", after(30)).await;
    node.let_the_deadline_come().await;
    let watched = node.until_phase("o-1", "watching").await;

    assert_eq!(set(&node, "o-1", after(90)).await.unwrap(), ActionOutcome::Late);
    assert_eq!(node.look("o-1").await["wakeAt"], watched["wakeAt"]);
    node.ended("o-1").await;
    assert_eq!(set(&node, "o-1", after(90)).await.unwrap(), ActionOutcome::Late);
    assert_eq!(node.linked("o-1").await.len(), 0, "a request for an order that has ended is no signal of it");
}

#[tokio::test]
async fn a_request_that_is_repeated_is_a_duplicate_and_another_one_under_its_key_a_conflict() {
    let node = Node::start().await;
    let api = node.listen().await;
    place(&node, "o-1", after(30)).await;
    let keyed = async |deadline: Timestamp| {
        let body = json!({ "deadline": deadline, "reason": "r" }).to_string();
        api.send(api.request(Method::POST, &route("o-1")).header("idempotency-key", "k-1").body(body)).await
    };

    assert_eq!(keyed(after(60)).await.json(), json!({ "outcome": "applied" }));
    set(&node, "o-1", after(90)).await.unwrap();
    assert_eq!(keyed(after(60)).await.json(), json!({ "outcome": "duplicate" }));
    assert_eq!(keyed(after(61)).await.status, 409);
    assert_eq!(node.look("o-1").await["wakeAt"], json!(after(90)), "the repeated one moved nothing back");
}

#[tokio::test]
async fn a_faulty_request_is_refused_with_its_field_and_moves_nothing() {
    let node = Node::start().await;
    let api = node.listen().await;
    place(&node, "o-1", after(30)).await;
    let before = node.events("o-1").await;
    for (body, expected) in [
        (json!({ "reason": "r" }), (400, "deadline")),
        (json!({ "deadline": after(60) }), (400, "reason")),
        (json!({ "deadline": "2026-11-30T19:00:00", "reason": "r" }), (400, "deadline")),
        (json!({ "deadline": 1_796_061_600, "reason": "r" }), (400, "deadline")),
        (json!({ "deadline": after(60), "reason": " " }), (422, "reason")),
        (json!({ "deadline": after(60), "reason": "r", "force": true }), (400, "force")),
    ] {
        let refused = api.post(&route("o-1"), &body).await;
        assert_eq!(field(&refused), (expected.0, json!(expected.1)), "{body}");
    }
    let body = json!({ "deadline": after(60), "reason": "r" });
    assert_eq!(api.post(&route("nobody"), &body).await.status, 404);
    let without = api.post("/v1/workflows/late-payment/o-1/deadline", &body).await;
    assert_eq!(field(&without), (422, json!("type")), "nobody can move what the type does not declare");
    assert_eq!(node.events("o-1").await, before);
}

// Listing.

#[tokio::test]
async fn open_workflows_are_listed_by_the_time_they_are_due_in_a_window_and_page_by_page() {
    let node = Node::start().await;
    let api = node.listen().await;
    for (id, minutes) in [("e", 50), ("b", 20), ("d", 40), ("a", 10), ("c", 30), ("ended", 30)] {
        place(&node, id, after(minutes)).await;
    }
    node.client.terminate("order-timeout", "ended", "a test order", "ops").await.unwrap();

    assert_eq!(ids(&api.get("/v1/deadlines").await.json()), ["a", "b", "c", "d", "e"]);
    let window = format!("due_after={}&due_before={}", after(20), after(50));
    for route in ["/v1/deadlines", "/v1/workflows"] {
        let page = api.get(&format!("{route}?{window}&limit=2")).await.json();
        assert_eq!(ids(&page), ["b", "c"], "{route}");
        let next = page["next"].as_str().unwrap();
        let rest = api.get(&format!("{route}?{window}&limit=2&cursor={next}")).await.json();
        assert_eq!((ids(&rest), &rest["next"]), (vec!["d"], &Value::Null), "{route}");
        let elsewhere = api.get(&format!("{route}?due_after={}&limit=2&cursor={next}", after(20))).await;
        assert_eq!(field(&elsewhere), (400, json!("cursor")), "{route}");
    }
    assert_eq!(ids(&api.get(&format!("/v1/workflows?due_after={}", after(40))).await.json()), ["d", "e"]);
    assert_eq!(field(&api.get("/v1/deadlines?due_after=tomorrow").await), (400, json!("due_after")));
}

// Counting ahead.

fn counted(forecast: &Value) -> Vec<u64> {
    forecast["minutes"].as_array().unwrap().iter().map(|minute| minute["due"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_forecast_says_how_many_become_due_in_each_minute_from_the_present_one_on() {
    let node = Node::start().await;
    let api = node.listen().await;
    for (id, due) in [
        ("a", after(1)),
        ("b", after(1).saturating_add(MINUTE - Duration::from_micros(1))),
        ("c", after(2)),
        ("d", after(4)),
        ("far", after(400)),
    ] {
        place(&node, id, due).await;
    }
    node.pass(Duration::from_secs(30)).await;

    let forecast = api.get("/v1/deadlines/forecast?minutes=4").await.json();
    assert_eq!((&forecast["from"], counted(&forecast)), (&json!(START), vec![0, 2, 1, 0]), "{forecast}");
    assert_eq!(forecast["minutes"][1], json!({ "at": after(1), "due": 2, "isAtLeast": false }));
    assert_eq!(forecast["lookedAtPerMinuteMax"], 150_000);
    let shifted = api.get(&format!("/v1/deadlines/forecast?minutes=2&from={}", after(400))).await.json();
    assert_eq!(counted(&shifted), [1, 0]);
    assert_eq!(counted(&api.get("/v1/deadlines/forecast").await.json()).len(), 60);
    assert_eq!(counted(&api.get("/v1/deadlines/forecast?type=late-payment&minutes=4").await.json()), [0; 4]);
    for (query, name) in [("minutes=0", "minutes"), ("minutes=1441", "minutes"), ("from=noon", "from"), ("hours=1", "hours")] {
        assert_eq!(field(&api.get(&format!("/v1/deadlines/forecast?{query}")).await), (400, json!(name)), "{query}");
    }
}

#[tokio::test]
async fn a_forecast_of_a_day_costs_no_more_than_its_limit_of_rows_and_says_where_it_stopped() {
    let node = Node::start().await;
    // One row more than a minute of a day's forecast may look at.
    for number in 0..417 {
        place(&node, &format!("o-{number}"), after(10)).await;
    }
    let day = ForecastQuery { minutes: 1_440, ..ForecastQuery::default() };
    let forecast = node.client.forecast(&day).await.unwrap();
    assert_eq!(forecast.looked_at_per_minute_max, 416);
    assert_eq!((forecast.minutes[10].due, forecast.minutes[10].is_at_least), (416, true));
    assert!(forecast.minutes.iter().enumerate().all(|(at, minute)| at == 10 || (minute.due, minute.is_at_least) == (0, false)));
    let too_long = node.client.forecast(&ForecastQuery { minutes: 1_441, ..day }).await.unwrap_err();
    let ClientError::Malformed(fields) = too_long else { panic!("{too_long}") };
    assert_eq!(fields[0].field, "minutes");
}

#[tokio::test]
async fn a_token_for_some_types_lists_and_counts_the_deadlines_of_no_others() {
    let node = Node::start().await;
    let api = node.listen().await;
    place(&node, "o-1", after(1)).await;
    let token = async |name: &str, types: &str| {
        let new = NewToken { name: name.into(), scopes: vec!["read".into()], types: vec![types.into()], expires_at: None };
        api.with_token(&node.client.create_token(new).await.unwrap())
    };
    let (late, orders) = (token("late", "late-payment").await, token("orders", "order-timeout").await);

    assert_eq!(ids(&late.get("/v1/deadlines").await.json()).len(), 0);
    assert_eq!(counted(&late.get("/v1/deadlines/forecast?minutes=2").await.json()), [0, 0]);
    for route in ["/v1/deadlines?type=order-timeout", "/v1/deadlines/forecast?type=order-timeout"] {
        assert_eq!(late.get(route).await.status, 403, "{route}");
        assert_eq!(orders.get(route).await.status, 200, "{route}");
    }
    assert_eq!(ids(&orders.get("/v1/deadlines").await.json()), ["o-1"]);
    assert_eq!(counted(&orders.get("/v1/deadlines/forecast?minutes=2").await.json()), [0, 1]);
}

// The command line.

async fn at(api: &Api, args: &[&str]) -> (Option<i32>, String, String) {
    let ran = run(program().args(["deadlines"]).args(args).args(["--url", &api.url]).env("USER", "dana")).await;
    (ran.code, ran.stdout, ran.stderr)
}

#[tokio::test]
async fn the_command_line_lists_counts_and_moves_deadlines() {
    let node = Node::start().await;
    let api = node.listen().await;
    for (id, minutes) in [("z-first", 1), ("a-last", 9)] {
        place(&node, id, after(minutes)).await;
    }

    let (code, listed, _) = at(&api, &["list"]).await;
    assert_eq!(code, Some(0));
    assert!(listed.find("z-first").unwrap() < listed.find("a-last").unwrap(), "{listed}");
    let (_, window, _) = at(&api, &["list", "--due-after", &after(9).to_string(), "--json"]).await;
    assert!(window.lines().count() == 1 && window.contains("a-last"), "{window}");
    let (code, forecast, _) = at(&api, &["forecast", "--minutes", "5"]).await;
    assert_eq!(code, Some(0));
    assert!(forecast.contains(&after(1).to_string()) && !forecast.contains(&after(2).to_string()), "{forecast}");
    assert!(forecast.trim_end().ends_with(&format!("1 workflows become due in 5 minutes from {START}")), "{forecast}");

    let to = after(90).to_string();
    let (code, moved, _) = at(&api, &["set", "order-timeout", "a-last", &to, "--reason", "they asked for time"]).await;
    assert_eq!((code, moved.trim()), (Some(0), "applied"));
    let events = node.events("a-last").await;
    let recorded = events.iter().find(|event| event["kind"] == "SignalReceived").unwrap();
    assert_eq!(recorded["payload"], json!({ "payDeadline": after(90), "reason": "they asked for time", "actor": "dana" }));
    let (code, _, said) = at(&api, &["set", "order-timeout", "a-last", "tomorrow", "--reason", "r"]).await;
    assert!(code == Some(1) && said.contains("write RFC 3339 with an offset"), "{said}");
}
