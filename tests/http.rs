//! The HTTP API as others rely on it: codes, problems that name the field, limits, pages, following, and digits that stay.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use overdue_runtime::http::{BODY_BYTES_MAX, Need, ROUTES, openapi};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{Answer, Api, Node, Order, Reply, START, outcome, program, run};

const PATIENCE: Duration = Duration::from_secs(10);

fn path(id: &str) -> String {
    format!("/v1/workflows/order-timeout/{id}")
}

fn start(order: &Order) -> Value {
    json!({ "input": order.input() })
}

/// Checks that an answer is a problem, and gives the names of its fields.
fn problem(answer: &Answer, status: u16) -> Vec<String> {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/problem+json", "{answer:?}");
    let body = answer.json();
    assert_eq!(body["status"], status, "{body}");
    for member in ["type", "title", "detail"] {
        assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {body}");
    }
    let fields = body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(fields.iter().all(|field| field["message"].as_str().is_some_and(|text| !text.is_empty())), "{body}");
    fields.iter().map(|field| field["field"].as_str().unwrap().to_owned()).collect()
}

// Starting.

#[tokio::test]
async fn a_start_is_created_once_and_replayed_ever_after() {
    let node = Node::start().await;
    let api = node.listen().await;
    let order = Order::new("o-1");

    let created = api.post(&path("o-1"), &start(&order)).await;
    assert_eq!(created.status, 201);
    let body = created.json();
    let expected = json!({
        "type": "order-timeout", "id": "o-1", "runId": body["runId"], "status": "running", "startedAt": START,
        "wakeAt": START.saturating_add(Order::TIME_TO_PAY),
    });
    assert_eq!(body, expected);

    let replayed = api.post(&path("o-1"), &start(&order)).await;
    assert_eq!(replayed.status, 200);
    let mut again = expected.clone();
    again["replayed"] = json!(true);
    assert_eq!(replayed.json(), again);

    node.pay("o-1", "txn-1").await;
    node.ended("o-1").await;
    let after_the_end = api.post(&path("o-1"), &start(&order)).await;
    assert_eq!(after_the_end.status, 200);
    let body = after_the_end.json();
    assert_eq!((&body["runId"], &body["startedAt"]), (&expected["runId"], &expected["startedAt"]), "the original run");
    assert_eq!((&body["status"], &body["wakeAt"]), (&json!("completed"), &Value::Null), "as it stands now");
}

#[tokio::test]
async fn another_request_under_a_used_id_is_a_conflict_that_names_the_run_and_changes_nothing() {
    let node = Node::start().await;
    let api = node.listen().await;
    let run_id = api.post(&path("o-1"), &start(&Order::new("o-1"))).await.json()["runId"].clone();
    for other in [
        start(&Order::new("o-1").costs("20.00", "USD")),
        json!({ "input": Order::new("o-1").input(), "startAt": "2027-01-01T00:00:00Z" }),
        json!({ "input": Order::new("o-1").input(), "attributes": { "shop": "berlin" } }),
    ] {
        let refused = api.post(&path("o-1"), &other).await;
        problem(&refused, 409);
        assert_eq!(refused.json()["runId"], run_id);
    }
    assert_eq!(api.get(&path("o-1")).await.json()["input"], Order::new("o-1").input());
}

#[tokio::test]
async fn the_same_request_is_the_same_whatever_its_order_and_white_space_but_not_its_numbers_spelling() {
    let node = Node::start().await;
    let api = node.listen().await;
    let body = |metadata: &str, space: &str| {
        format!(
            r#"{{{space}"input":{{"orderId":"o-1","payDeadline":"2026-12-01T00:00:00Z","amount":"1","currency":"USD",{space}"metadata":{metadata}}}}}"#
        )
    };
    assert_eq!(api.post_text(&path("o-1"), body(r#"{"a":1,"b":2}"#, "")).await.status, 201);
    assert_eq!(api.post_text(&path("o-1"), body(r#"{ "b" : 2, "a" : 1 }"#, " \n ")).await.status, 200);
    problem(&api.post_text(&path("o-1"), body(r#"{"a":1.0,"b":2}"#, "")).await, 409);
}

#[tokio::test]
async fn fifty_identical_starts_at_once_are_one_run() {
    // B042.
    let node = Node::start().await;
    let api = node.listen().await;
    let starts = (0..50).map(|_| {
        let (api, order) = (&api, Order::new("o-1"));
        async move { api.post(&path("o-1"), &start(&order)).await }
    });
    let answers = futures::future::join_all(starts).await;

    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 49);
    let runs: BTreeSet<String> = answers.iter().map(|answer| answer.json()["runId"].to_string()).collect();
    assert_eq!(runs.len(), 1);
    assert_eq!(node.story("o-1").await, ["started", "settings kept", "wait for payDeadline"]);
}

#[tokio::test]
async fn every_fault_of_a_start_is_refused_with_its_status_and_its_field_and_nothing_is_started() {
    let node = Node::start().await;
    let api = node.listen().await;
    let with = |field: &str, value: Value| start(&Order::new("o-1").with(field, value)).to_string();
    let without = |field: &str| start(&Order::new("o-1").without(field)).to_string();
    let input = Order::new("o-1").input();
    let cases: Vec<(String, u16, &str)> = vec![
        ("{".into(), 400, ""),
        ("[]".into(), 400, ""),
        ("{}".into(), 400, "input"),
        (json!({ "input": input, "inputs": 1 }).to_string(), 400, "inputs"),
        (json!({ "input": input, "startAt": 1_700_000_000 }).to_string(), 400, "startAt"),
        (json!({ "input": input, "startAt": "2026-11-30T18:00:00" }).to_string(), 400, "startAt"),
        (json!({ "input": input, "attributes": { "shop": { "city": "berlin" } } }).to_string(), 422, "attributes.shop"),
        (json!({ "input": input, "attributes": { "": "berlin" } }).to_string(), 422, "attributes."),
        (json!({ "input": "o-1" }).to_string(), 422, "input"),
        (without("orderId"), 422, "input.orderId"),
        (without("payDeadline"), 422, "input.payDeadline"),
        (with("coupon_id", json!("c-1")), 422, "input.coupon_id"),
        (with("orderId", json!("o-2")), 422, "input.orderId"),
        (with("payDeadline", json!(1_700_000_000)), 422, "input.payDeadline"),
        (with("payDeadline", json!(1_700_000_000_000_u64)), 422, "input.payDeadline"),
        (with("payDeadline", json!("1700000000")), 422, "input.payDeadline"),
        (with("payDeadline", json!("2026-11-01T01:30:00")), 422, "input.payDeadline"),
        (with("amount", json!(19.99)), 422, "input.amount"),
        (with("amount", json!("19.999")), 422, "input.amount"),
        (with("amount", json!("-1")), 422, "input.amount"),
        (with("amount", json!("0")), 422, "input.amount"),
        (with("amount", json!("1e3")), 422, "input.amount"),
        (with("currency", json!("usd")), 422, "input.currency"),
        (with("currency", json!("XYZW")), 422, "input.currency"),
        (with("stockToken", json!("..")), 422, "input.stockToken"),
        (with("couponId", json!(".")), 422, "input.couponId"),
        (with("paymentId", json!("")), 422, "input.paymentId"),
        (with("latePaymentWindow", json!("7d")), 422, "input.latePaymentWindow"),
        (with("latePaymentWindow", json!("P1000D")), 422, "input.latePaymentWindow"),
        (with("closePayment", json!("never")), 422, "input.closePayment"),
    ];
    let mut wrong = Vec::new();
    for (body, status, field) in cases {
        let refused = api.post_text(&path("o-1"), body.clone()).await;
        let fields = problem(&refused, status);
        if fields.first().map(String::as_str) != Some(field) {
            wrong.push(format!("{field} expected: {}", refused.text));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    problem(&api.get(&path("o-1")).await, 404);
    problem(&api.post("/v1/workflows/order-timeouts/o-1", &start(&Order::new("o-1"))).await, 404);
}

#[tokio::test]
async fn times_of_any_offset_are_stored_in_utc_and_to_the_millisecond() {
    let node = Node::start().await;
    let api = node.listen().await;
    for (id, written, stored) in [
        ("o-1", "2026-12-01T01:30:00-04:00", "2026-12-01T05:30:00.000Z"),
        ("o-2", "2026-12-01T01:30:00-05:00", "2026-12-01T06:30:00.000Z"),
        ("o-3", "2026-12-01 01:30:00Z", "2026-12-01T01:30:00.000Z"),
        ("o-4", "2026-12-01T01:30:00.123z", "2026-12-01T01:30:00.123Z"),
        ("o-5", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
    ] {
        let started = api.post(&path(id), &start(&Order::new(id).with("payDeadline", written))).await;
        assert_eq!((started.status.as_u16(), &started.json()["wakeAt"]), (201, &json!(stored)), "{written}");
    }
}

#[tokio::test]
async fn many_are_started_line_by_line_and_answered_in_their_order() {
    let node = Node::start().await;
    let api = node.listen().await;
    let line = |id: &str, order: &Order| json!({ "id": id, "input": order.input() }).to_string();
    node.place(&Order::new("used")).await;
    let lines = [
        line("o-1", &Order::new("o-1")),
        line("o-2", &Order::new("o-2").with("amount", "1.999")),
        "{\"id\":\"o-3\"".into(),
        String::new(),
        line("o-1", &Order::new("o-1")),
        line("used", &Order::new("used").costs("1", "USD")),
        line("a/b", &Order::new("a/b")),
        line("o-4", &Order::new("o-4")),
    ];
    let answer = api.post_text("/v1/workflows/order-timeout", lines.join("\n")).await;

    assert_eq!((answer.status.as_u16(), answer.headers["content-type"].to_str().unwrap()), (200, "application/x-ndjson"));
    let answers: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| (answer["id"].as_str(), answer["status"].as_u64().unwrap())).collect();
    let expected = [
        (Some("o-1"), 201),
        (Some("o-2"), 422),
        (None, 400),
        (Some("o-1"), 200),
        (Some("used"), 409),
        (Some("a/b"), 422),
        (Some("o-4"), 201),
    ];
    assert_eq!(statuses, expected);
    assert_eq!(answers[1]["problem"]["errors"][0]["field"], "input.amount");
    assert_eq!(answers[0]["workflow"]["runId"], answers[3]["workflow"]["runId"]);
}

// Signals.

#[tokio::test]
async fn a_signal_is_answered_with_its_outcome_and_its_id() {
    let node = Node::start().await;
    let api = node.listen().await;
    let signal = format!("{}/signals/payment-failed", path("o-1"));
    let body = json!({ "signalId": "evt-1", "payload": { "reason": "card refused" } });

    let buffered = api.post(&signal, &body).await;
    node.place(&Order::new("o-1")).await;
    let duplicate = api.post(&signal, &body).await;
    let keyed = api.request(Method::POST, &signal).header("idempotency-key", "evt-2").body(r#"{"payload":{"reason":"x"}}"#);
    let applied = api.send(keyed).await;
    let other = json!({ "signalId": "evt-2", "payload": { "reason": "y" } });

    assert_eq!((buffered.status.as_u16(), buffered.json()), (200, json!({ "outcome": "buffered", "signalId": "evt-1" })));
    assert_eq!(duplicate.json(), json!({ "outcome": "duplicate", "signalId": "evt-1" }));
    assert_eq!(applied.json(), json!({ "outcome": "applied", "signalId": "evt-2" }));
    problem(&api.post(&signal, &other).await, 409);
    let payment = json!({ "payload": { "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": START } });
    let paid = api.post(&format!("{}/signals/payment-succeeded", path("o-1")), &payment).await;
    assert_eq!(paid.json(), json!({ "outcome": "applied", "signalId": "txn-1" }), "its transaction serves as its id");
}

#[tokio::test]
async fn a_faulty_signal_is_a_4xx_that_names_the_field_and_changes_nothing() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::new("o-1")).await;
    let before = node.events("o-1").await;
    for (name, body, status, field) in [
        ("payment-sucseeded", r#"{"payload":{}}"#, 422, "name"),
        (
            "payment-succeeded",
            r#"{"payload":{"transactionId":"t","amount":"1.999","currency":"USD","paidAt":"2026-11-30T18:00:00Z"}}"#,
            422,
            "payload.amount",
        ),
        (
            "payment-succeeded",
            r#"{"payload":{"transactionId":"t","amount":"1","currency":"USD","paidAt":"yesterday"}}"#,
            422,
            "payload.paidAt",
        ),
        ("payment-succeeded", r#"{"payload":"paid"}"#, 422, "payload"),
        ("payment-succeeded", r#"{}"#, 400, "payload"),
        ("payment-succeeded", "paid", 400, ""),
        ("payment-failed", r#"{"signalId":"","payload":{"reason":"r"}}"#, 422, "signalId"),
        ("payment-failed", r#"{"signalId":"a\nb","payload":{"reason":"r"}}"#, 422, "signalId"),
    ] {
        let refused = api.post_text(&format!("{}/signals/{name}", path("o-1")), body).await;
        assert_eq!(problem(&refused, status).first().map(String::as_str), Some(field), "{name} {body}");
    }
    assert_eq!(node.events("o-1").await, before);
}

#[tokio::test]
async fn too_many_signals_for_an_order_that_nobody_started_are_told_to_wait() {
    let node = Node::start().await;
    let api = node.listen().await;
    let send = |number: usize| {
        let (api, body) = (&api, json!({ "signalId": format!("evt-{number}"), "payload": { "reason": "r" } }));
        async move { api.post(&format!("{}/signals/payment-failed", path("o-1")), &body).await }
    };
    let answers: Vec<Answer> = futures::stream::iter((0..1_001).map(send)).buffer_unordered(64).collect().await;

    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert_eq!(refused.len(), 1, "the limit of one id");
    problem(refused[0], 429);
    assert_eq!(refused[0].headers["retry-after"], "1");
}

#[tokio::test]
async fn what_cannot_be_stored_is_a_503_with_a_time_to_come_back() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::new("o-1")).await;
    node.store.close().await;
    let payment = json!({ "payload": { "transactionId": "txn-1", "amount": "19.99", "currency": "USD", "paidAt": START } });
    for answer in [
        api.post(&format!("{}/signals/payment-succeeded", path("o-1")), &payment).await,
        api.post(&path("o-2"), &start(&Order::new("o-2"))).await,
        api.get(&path("o-1")).await,
    ] {
        problem(&answer, 503);
        assert_eq!(answer.headers["retry-after"], "1");
    }
}

// Looking.

#[tokio::test]
async fn a_description_has_every_field_that_others_rely_on() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.shop.answers("release-stock", [Reply::status(503)]);
    let body = json!({ "input": Order::new("o-1").input(), "attributes": { "shop": "berlin", "size": 3, "gift": true } });
    api.post(&path("o-1"), &body).await;
    node.let_the_deadline_come().await;
    node.until_it_backs_off("o-1", "release-stock", 1).await;

    let look = api.get(&path("o-1")).await.json();
    for member in ["type", "id", "runId", "status", "startedAt", "closedAt", "wakeAt", "input", "result", "failure", "linked"] {
        assert!(look.get(member).is_some(), "{member}: {look}");
    }
    assert_eq!(look["attributes"], json!({ "shop": "berlin", "size": 3, "gift": true }));
    assert_eq!((&look["status"], &look["needsAttention"]), (&json!("running"), &json!(false)));
    assert_eq!(look["progress"], json!({ "phase": "giving-back", "decision": "cancelled", "reason": "TIMEOUT", "refunds": [] }));
    let step = &look["pendingActivities"][0];
    let shown = json!({
        "number": step["number"], "name": "release-stock", "state": "backing-off", "attempt": 1, "maxAttempts": 5,
        "lastFailure": { "class": "transient", "errorType": "http-503", "message": step["lastFailure"]["message"] },
        "nextAttemptAt": node.now().saturating_add(Duration::from_secs(1)), "parkedBy": null, "since": node.now(),
        "idempotencyKey": "order-timeout/o-1/release-stock", "input": { "stockToken": "o-1-stock", "orderId": "o-1" },
    });
    assert_eq!(*step, shown);
    let explained = api.get(&format!("{}/explain", path("o-1"))).await.json();
    assert_eq!(explained["waitingFor"], format!("step {} release-stock", step["number"]));
    assert_eq!(explained["since"], json!(node.now()));
    assert!(explained["text"].as_str().unwrap().contains("release-stock, failed 1 times (http-503"), "{explained}");
    assert!(!explained["actions"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_history_is_read_page_by_page_behind_a_number() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::new("o-1")).await;
    node.pay("o-1", "txn-1").await;
    node.ended("o-1").await;
    let all = api.get(&format!("{}/history", path("o-1"))).await.json();
    assert_eq!(all["next"], Value::Null);
    let all = all["events"].as_array().unwrap().clone();
    assert_eq!((&all[0]["kind"], &all[0]["number"]), (&json!("WorkflowStarted"), &json!(1)));

    let mut read = Vec::new();
    let mut after = Some(0);
    while let Some(number) = after {
        let page = api.get(&format!("{}/history?after={number}&limit=3", path("o-1"))).await.json();
        read.extend(page["events"].as_array().unwrap().clone());
        after = page["next"].as_u64();
    }
    assert_eq!(read, all);
    for (query, field) in [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "query"), ("after=-1", "query")] {
        let refused = api.get(&format!("{}/history?{query}", path("o-1"))).await;
        assert_eq!(problem(&refused, 400)[0], field, "{query}");
    }
    problem(&api.get(&format!("{}/history", path("nobody"))).await, 404);
}

/// Reads server-sent events until the stream ends: their ids, kinds and data.
async fn follow(api: &Api, route: &str, last_event_id: Option<&str>) -> Vec<(u64, String, Value)> {
    let mut request = api.request(Method::GET, route);
    if let Some(id) = last_event_id {
        request = request.header("last-event-id", id);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = timeout(PATIENCE, response.text()).await.expect("the stream ends with the workflow").unwrap();
    let blocks = text.split("\n\n").filter(|block| block.contains("data:"));
    let field =
        |block: &str, name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    blocks
        .map(|block| {
            let data = serde_json::from_str(&field(block, "data:")).unwrap();
            (field(block, "id:").parse().unwrap(), field(block, "event:"), data)
        })
        .collect()
}

#[tokio::test]
async fn a_history_is_followed_to_its_end_and_resumed_behind_the_last_event_that_was_seen() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::new("o-1")).await;
    let route = format!("{}/history?follow=1", path("o-1"));
    let live = async {
        node.until("o-1", "it waits", |look| look["lastEvent"] == 3).await;
        node.pay("o-1", "txn-1").await;
        node.ended("o-1").await
    };
    let (followed, _) = tokio::join!(follow(&api, &route, None), live);

    let events = node.events("o-1").await;
    assert_eq!(followed.iter().map(|(_, _, data)| data.clone()).collect::<Vec<_>>(), events);
    assert!(followed.iter().all(|(id, kind, data)| data["number"] == *id && data["kind"] == **kind));
    let resumed = follow(&api, &route, Some("5")).await;
    assert_eq!(resumed.iter().map(|(id, _, _)| *id).collect::<Vec<_>>(), (6..=events.len() as u64).collect::<Vec<_>>());
    let behind = follow(&api, &format!("{route}&after=5"), None).await;
    assert_eq!(behind, resumed);
}

// Listing (B092).

#[tokio::test]
async fn orders_of_one_instant_are_listed_in_pages_without_gaps_and_a_cursor_belongs_to_its_filter() {
    let node = Node::start().await;
    let api = node.listen().await;
    let lines: Vec<String> = (0..250)
        .map(|number| {
            let id = format!("o-{number:03}");
            json!({ "id": id, "input": Order::bare(&id).input(), "attributes": { "shop": "berlin" } }).to_string()
        })
        .collect();
    api.post_text("/v1/workflows/order-timeout", lines.join("\n")).await;
    let route = "/v1/workflows?type=order-timeout&status=running&attr.shop=berlin&limit=100";

    let (mut sizes, mut ids, mut cursors) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut next = Some(String::new());
    while let Some(cursor) = next {
        let page = api.get(&format!("{route}{cursor}")).await.json();
        let listed = page["workflows"].as_array().unwrap();
        sizes.push(listed.len());
        ids.extend(listed.iter().map(|workflow| workflow["id"].as_str().unwrap().to_owned()));
        next = page["next"].as_str().map(|cursor| format!("&cursor={cursor}"));
        cursors.extend(next.clone());
    }

    assert_eq!(sizes, [100, 100, 50]);
    assert_eq!(ids.len(), 250);
    for other in [
        "/v1/workflows?type=order-timeout&limit=100",
        "/v1/workflows?type=order-timeout&status=running&attr.shop=berlin&limit=99",
    ] {
        let refused = api.get(&format!("{other}{}", cursors[0])).await;
        assert_eq!(problem(&refused, 400), ["cursor"]);
    }
}

#[tokio::test]
async fn a_faulty_query_is_a_400_that_names_the_parameter() {
    let node = Node::start().await;
    let api = node.listen().await;
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("cursor=00", "cursor"),
        ("cursor=%F0%9F%92%A9", "cursor"),
        ("status=open", "status"),
        ("needs_attention=yes", "needs_attention"),
        ("due_before=tomorrow", "due_before"),
        ("due_before=1700000000", "due_before"),
        ("kind=order", "kind"),
    ] {
        assert_eq!(problem(&api.get(&format!("/v1/workflows?{query}")).await, 400), [field], "{query}");
    }
}

#[tokio::test]
async fn the_filters_of_the_list_find_what_they_say() {
    let node = Node::start().await;
    let api = node.listen().await;
    for (id, attributes) in [("o-1", json!({ "shop": "berlin", "size": 3 })), ("o-2", json!({ "shop": "paris", "gift": true }))] {
        api.post(&path(id), &json!({ "input": Order::bare(id).input(), "attributes": attributes })).await;
    }
    node.place(&Order::new("stuck").due(START)).await;
    node.shop.answers("release-stock", [Reply::status(422)]);
    node.until_a_person_is_needed("stuck", "release-stock").await;
    node.place(&Order::bare("paid")).await;
    node.pay("paid", "txn-1").await;
    node.ended("paid").await;
    let found = async |query: &str| -> Vec<String> {
        let page = api.get(&format!("/v1/workflows?{query}")).await.json();
        page["workflows"].as_array().unwrap().iter().map(|listed| listed["id"].as_str().unwrap().to_owned()).collect()
    };
    let due = START.saturating_add(Order::TIME_TO_PAY + Duration::from_millis(1));

    assert_eq!(found("type=order-timeout").await, ["o-1", "o-2", "paid", "stuck"]);
    assert_eq!(found("type=late-payment").await, Vec::<String>::new());
    assert_eq!(found("status=completed").await, ["paid"]);
    assert_eq!(found("status=running").await, ["o-1", "o-2", "stuck"]);
    assert_eq!(found("needs_attention=true").await, ["stuck"]);
    assert_eq!(found("attr.shop=berlin").await, ["o-1"]);
    assert_eq!(found("attr.size=3").await, ["o-1"]);
    assert_eq!(found("attr.gift=true&attr.shop=paris").await, ["o-2"]);
    assert_eq!(found("attr.gift=true&attr.shop=berlin").await, Vec::<String>::new());
    assert_eq!(found(&format!("due_before={due}")).await, ["o-1", "o-2"]);
    assert_eq!(found(&format!("due_before={START}")).await, Vec::<String>::new());
}

#[tokio::test]
async fn list_description_history_and_command_line_tell_the_same_of_every_end() {
    // B090.
    let node = Node::start().await;
    let api = node.listen().await;
    for id in ["paid", "cancelled", "terminated"] {
        node.place(&Order::bare(id)).await;
    }
    node.pay("paid", "txn-1").await;
    node.client.terminate("order-timeout", "terminated", "a test order", "ops").await.unwrap();
    node.ended("paid").await;
    node.let_the_deadline_come().await;
    node.ended("cancelled").await;

    let list = api.get("/v1/workflows?limit=10").await.json();
    for (id, status, last) in [
        ("paid", "completed", "WorkflowCompleted"),
        ("cancelled", "completed", "WorkflowCompleted"),
        ("terminated", "terminated", "WorkflowTerminated"),
    ] {
        let listed = list["workflows"].as_array().unwrap().iter().find(|listed| listed["id"] == *id).unwrap();
        let look = api.get(&path(id)).await.json();
        let events = node.events(id).await;
        let shown = run(program().args(["describe", "order-timeout", id, "--json", "--url", &api.url])).await.json();
        assert_eq!([&listed["status"], &look["status"], &shown["status"]], [&json!(status); 3], "{id}");
        assert_eq!(events.last().unwrap()["kind"], last);
        assert_eq!((&look["pendingTimers"], &look["pendingActivities"]), (&json!([]), &json!([])), "{id}: nothing is left open");
        assert_eq!(listed["closedAt"], look["closedAt"]);
    }
}

// Acting.

#[tokio::test]
async fn an_operators_actions_are_recorded_with_who_and_why_and_refused_by_name() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.shop.answers("release-stock", [Reply::status(422), Reply::status(422)]);
    node.place(&Order::new("o-1")).await;
    node.let_the_deadline_come().await;
    let number = node.until_a_person_is_needed("o-1", "release-stock").await["number"].clone();
    let act = |action: &str| format!("{}/activities/{number}/{action}", path("o-1"));

    for (route, body, status, field) in [
        (act("retry"), json!({}), 400, Some("reason")),
        (act("retry"), json!({ "reason": " " }), 422, Some("reason")),
        (act("retry"), json!({ "reason": "x".repeat(1001) }), 422, Some("reason")),
        (act("resolve"), json!({ "reason": "done" }), 400, Some("result")),
        (act("resolve"), json!({ "reason": "done", "result": { "outcome": "GONE" } }), 422, Some("result.outcome")),
        (format!("{}/activities/9999/retry", path("o-1")), json!({ "reason": "r" }), 404, None),
        (format!("{}/activities/x/retry", path("o-1")), json!({ "reason": "r" }), 400, Some("path")),
        (format!("{}/activities/1/retry", path("nobody")), json!({ "reason": "r" }), 404, None),
        (format!("{}/cancel", path("nobody")), json!({ "reason": "r" }), 404, None),
        (format!("{}/terminate", path("nobody")), json!({ "reason": "r" }), 404, None),
    ] {
        let refused = api.post(&route, &body).await;
        assert_eq!(problem(&refused, status).first().map(String::as_str), field, "{route} {body}: {}", refused.text);
    }
    let retry = api.request(Method::POST, &act("retry")).header("x-actor", "dana").body(r#"{"reason":"stock is back"}"#);
    assert_eq!(api.send(retry).await.json(), json!({ "outcome": "applied" }));
    node.until_a_person_is_needed("o-1", "release-stock").await;
    let resolve = json!({ "reason": "released by hand", "result": { "outcome": "RELEASED" } });
    assert_eq!(api.post(&act("resolve"), &resolve).await.json(), json!({ "outcome": "applied" }));
    problem(&api.post(&act("skip"), &json!({ "reason": "too late" })).await, 409);
    let story = node.story("o-1").await;
    assert!(story.contains(&"release-stock retried by dana: stock is back".to_owned()), "{story:?}");
    assert!(story.contains(&"release-stock resolved by anonymous: released by hand".to_owned()), "{story:?}");
}

#[tokio::test]
async fn a_cancel_of_an_order_is_the_users_once_and_late_after_the_decision() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::bare("o-1")).await;
    let gate = node.shop.holds("cancel-order", outcome("CANCELLED", json!({})));
    let cancel = async || api.post(&format!("{}/cancel", path("o-1")), &json!({ "reason": "changed my mind" })).await;
    assert_eq!(cancel().await.json(), json!({ "outcome": "applied" }));
    assert_eq!(cancel().await.json(), json!({ "outcome": "duplicate" }));
    gate.open();
    assert_eq!(node.ended("o-1").await["reason"], "USER");
    node.place(&Order::bare("o-2").due(START)).await;
    node.ended("o-2").await;
    let late = api.post(&format!("{}/cancel", path("o-2")), &json!({ "reason": "changed my mind" })).await;
    assert_eq!(late.json(), json!({ "outcome": "late" }));
}

#[tokio::test]
async fn a_terminated_order_ends_at_once_whatever_its_size_and_says_who_and_why() {
    // B062: an order at the limit of its input can be ended like any other.
    let node = Node::start().await;
    let api = node.listen().await;
    let gate = node.shop.holds("cancel-order", outcome("CANCELLED", json!({})));
    let order = Order::new("o-1").due(START).with("metadata", "x".repeat(900_000));
    assert_eq!(api.post(&path("o-1"), &start(&order)).await.status, 201);
    node.shop.received("cancel-order", 1).await;

    let ended = api.post(&format!("{}/terminate", path("o-1")), &json!({ "reason": "a test order" })).await;

    assert_eq!(ended.json(), json!({ "outcome": "applied" }));
    let look = api.get(&path("o-1")).await.json();
    assert_eq!((&look["status"], &look["failure"]["message"]), (&json!("terminated"), &json!("a test order")));
    assert_eq!(node.story("o-1").await.last().unwrap(), "terminated by anonymous: a test order");
    gate.open();
    assert_eq!(node.shop.all().len(), 1);
}

// Limits (B062, B064).

/// A start of `o-1` whose body has exactly this many bytes.
fn start_of(bytes: usize) -> String {
    let empty = start(&Order::new("o-1").with("metadata", "")).to_string();
    start(&Order::new("o-1").with("metadata", "x".repeat(bytes - empty.len()))).to_string()
}

#[tokio::test]
async fn a_body_of_a_mebibyte_is_taken_and_one_byte_more_is_not() {
    let node = Node::start().await;
    let api = node.listen().await;

    problem(&api.post_text(&path("o-1"), start_of(BODY_BYTES_MAX + 1)).await, 413);
    problem(&api.get(&path("o-1")).await, 404);
    assert_eq!(api.post_text(&path("o-1"), start_of(BODY_BYTES_MAX)).await.status, 201);
    let payload = json!({ "payload": { "reason": "x".repeat(64 * 1024) } });
    problem(&api.post(&format!("{}/signals/payment-failed", path("o-1")), &payload).await, 413);
}

#[tokio::test]
async fn json_is_taken_down_to_depth_128_and_deeper_is_malformed_and_harms_nobody() {
    let node = Node::start().await;
    let api = node.listen().await;
    // The body and its input are two levels, the list itself the rest.
    let start = |id: &str, depth: usize| {
        let mut order = Order::bare(id).input().to_string();
        order.pop();
        format!(r#"{{"input":{order},"metadata":{}{}}}}}"#, "[".repeat(depth - 2), "]".repeat(depth - 2))
    };
    for (id, depth) in [("o-100", 100), ("o-127", 127), ("o-128", 128)] {
        let started = api.post_text(&path(id), start(id, depth)).await;
        assert_eq!(started.status, 201, "{depth}: {}", started.text);
        assert!(api.get(&path(id)).await.text.contains(&"[".repeat(depth - 2)), "it comes back as it was");
    }
    for depth in [129, 100_000] {
        problem(&api.post_text(&path("o-deep"), start("o-deep", depth)).await, 400);
        let signal = format!(r#"{{"payload":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        problem(&api.post_text(&format!("{}/signals/payment-failed", path("o-100")), signal).await, 400);
    }
    assert_eq!(api.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_nul_is_refused_and_other_text_comes_back_as_it_was() {
    let node = Node::start().await;
    let api = node.listen().await;
    let body = start(&Order::bare("o-1").with("metadata", "a\u{0}b")).to_string();
    assert!(body.contains("\\u0000"));
    problem(&api.post_text(&path("o-1"), body).await, 400);
    let hostile = "<img src=x onerror=alert(1)> \u{1f9c3} \u{202e} ' \" \\ \n";
    assert_eq!(api.post(&path("o-2"), &start(&Order::bare("o-2").with("metadata", hostile))).await.status, 201);
    let look = api.get(&path("o-2")).await;
    assert_eq!(look.json()["input"]["metadata"], hostile);
    assert_eq!(look.headers["content-type"], "application/json");
}

#[tokio::test]
async fn ids_are_printable_unicode_in_nfc_and_reach_the_service_as_one_path_segment() {
    let node = Node::start().await;
    let api = node.listen().await;
    for (id, encoded) in [
        ("bestellung-42", "bestellung-42"),
        ("заказ 7", "%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7%207"),
        ("a?b#c%d", "a%3Fb%23c%25d"),
        ("caf\u{e9}", "caf%C3%A9"),
    ] {
        let started = api.post(&path(encoded), &start(&Order::bare(id).due(START))).await;
        assert_eq!(started.status, 201, "{id}: {}", started.text);
        assert_eq!(started.json()["id"], id);
        node.until_phase(id, "watching").await;
        let asked = node.shop.all().pop().unwrap();
        assert_eq!(asked.path, format!("/orders/{encoded}/cancel"), "{id}");
    }
    for encoded in ["a%2Fb", "a~b", "a%00b", "a%0Ab", "cafe%CC%81", "%20a", "a%E2%80%8Bb", &"x".repeat(201)] {
        let refused = api.post(&path(encoded), &start(&Order::bare("o-1"))).await;
        assert_eq!(problem(&refused, 422)[0], "id", "{encoded}");
    }
    let longest = "x".repeat(200);
    assert_eq!(api.post(&path(&longest), &start(&Order::bare(&longest))).await.status, 201);
}

#[tokio::test]
async fn numbers_keep_their_digits_from_the_start_to_the_command_line() {
    // B058.
    let node = Node::start().await;
    let api = node.listen().await;
    let metadata = r#"{"a":9007199254740993,"b":3544790567247868102,"c":1.10,"d":1e400}"#;
    let mut input = Order::bare("o-1").input().to_string();
    input.pop();
    let body = format!(r#"{{"input":{input},"metadata":{metadata}}},"attributes":{{"size":9007199254740993,"weight":1.10}}}}"#);
    assert_eq!(api.post_text(&path("o-1"), body).await.status, 201);

    let described = api.get(&path("o-1")).await.text;
    let history = api.get(&format!("{}/history", path("o-1"))).await.text;
    let listed = api.get("/v1/workflows?attr.size=9007199254740993").await.text;
    let url = api.url.as_str();
    let shown = run(program().args(["describe", "order-timeout", "o-1", "--url", url])).await;
    let as_json = run(program().args(["describe", "order-timeout", "o-1", "--json", "--url", url])).await.stdout;
    let events = run(program().args(["history", "order-timeout", "o-1", "--json", "--url", url])).await.stdout;
    for (place, text) in
        [("describe", &described), ("history", &history), ("describe --json", &as_json), ("history --json", &events)]
    {
        assert!(text.contains(metadata), "{place}: {text}");
    }
    let digits: String = shown.stdout.chars().filter(|c| !c.is_whitespace() && *c != '│').collect();
    assert!(digits.contains("9007199254740993") && digits.contains("3544790567247868102"), "{shown:?}");
    let list = run(program().args(["list", "--json", "--url", url])).await.stdout;
    for (place, text) in [("list", &listed), ("list --json", &list)] {
        assert!(text.contains(r#""size":9007199254740993,"weight":1.10"#), "{place}: {text}");
    }

    // A number that a service gives as an id comes back to it with the same digits.
    node.shop.answers("close-payment", [Reply::raw(409,
        r#"{"outcome":"ALREADY_PAID","transactionId":3544790567247868102,"amount":"19.99","currency":"USD","paidAt":"2026-11-30T18:00:00Z"}"#)]);
    node.place(&Order::new("o-2").due(START)).await;
    node.shop.received("refund-payment", 1).await;
    assert!(node.shop.only("refund-payment").raw.contains("3544790567247868102"));
}

// The rest of HTTP.

#[tokio::test]
async fn what_is_not_there_and_what_is_not_taken_are_problems_too() {
    let node = Node::start().await;
    let api = node.listen().await;
    problem(&api.get("/").await, 404);
    problem(&api.get("/v2/workflows").await, 404);
    problem(&api.get("/v1/workflows/order-timeout/o-1/nothing").await, 404);
    problem(&api.get(&path("nobody")).await, 404);
    problem(&api.get("/v1/workflows/nothing/o-1").await, 404);
    for (method, route) in [
        (Method::DELETE, path("o-1")),
        (Method::PUT, path("o-1")),
        (Method::PATCH, "/v1/workflows".to_owned()),
        (Method::GET, format!("{}/cancel", path("o-1"))),
        (Method::POST, "/livez".to_owned()),
    ] {
        problem(&api.send(api.request(method.clone(), &route)).await, 405);
    }
    node.place(&Order::new("o-1")).await;
    let head = api.send(api.request(Method::HEAD, &path("o-1"))).await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
    assert_eq!(head.headers["content-type"], "application/json");
    assert_eq!(api.send(api.request(Method::HEAD, "/readyz")).await.status, 200);
    assert_eq!(api.send(api.request(Method::HEAD, &path("nobody"))).await.status, 404);
}

#[tokio::test]
async fn the_description_of_the_api_names_every_route_and_is_the_one_that_was_agreed_on() {
    let described: Value = serde_json::from_str(&openapi()).unwrap();
    let is_public =
        |route: &str, need: &Need| *need != Need::Peer && !matches!(route, "/openapi.json" | "/docs" | "/docs/{file}");
    for (method, route, _) in ROUTES.iter().filter(|(_, route, need)| is_public(route, need)) {
        let operation = &described["paths"][*route][method.to_lowercase()];
        assert!(operation["responses"].is_object(), "{method} {route} is not described");
    }
    let node = Node::start().await;
    let api = node.listen().await;
    assert_eq!(api.get("/openapi.json").await.json(), described);

    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/openapi.json");
    if std::env::var_os("RENEW_GOLDEN").is_some() {
        std::fs::write(golden, openapi() + "\n").unwrap();
    }
    let agreed = std::fs::read_to_string(golden).unwrap_or_default();
    assert!(
        agreed.trim_end() == openapi(),
        "the API's description has changed. If that is meant, renew it and look at the difference:\n\
         RENEW_GOLDEN=1 cargo test -p overdue-workflows --test specifications the_description_of_the_api"
    );
}

#[tokio::test]
async fn the_documentation_page_runs_no_inline_script_and_loads_nothing_from_elsewhere() {
    let node = Node::start().await;
    let api = node.listen().await;
    let page = api.get("/docs").await;
    let policy = page.headers["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    for script in page.text.split("<script").skip(1) {
        assert!(script.starts_with(" src=\"/docs/") && script.contains("></script>"), "{script}");
    }
    assert!(!page.text.contains("http://") && !page.text.contains("https://") && !page.text.contains(" on"), "{}", page.text);
    for file in ["/docs/scalar.js", "/docs/page.js"] {
        let script = api.get(file).await;
        assert_eq!((script.status.as_u16(), script.headers["content-security-policy"].to_str().unwrap()), (200, policy.as_str()));
    }
    assert_eq!(api.get("/docs/other.js").await.status, 404);
}

#[tokio::test]
async fn a_breaker_is_seen_opened_and_closed_by_hand() {
    let node = Node::start().await;
    let api = node.listen().await;
    let positions = async || -> Vec<String> {
        let all = api.get("/v1/breakers").await.json();
        all["breakers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|view| format!("{} {}", view["downstream"], view["position"]).replace('"', ""))
            .collect()
    };
    assert_eq!(positions().await, ["coupons closed", "orders closed", "payments closed", "stock closed"]);
    assert_eq!(api.post("/v1/breakers/stock/open", &json!({ "reason": "they are moving" })).await.status, 204);
    assert_eq!(positions().await[3], "stock forced-open");
    node.place(&Order::new("o-1").due(START)).await;
    node.until("o-1", "its stock is parked", |look| look["pendingActivities"][0]["parkedBy"] == "breaker of stock").await;
    assert_eq!(api.post("/v1/breakers/stock/close", &json!({ "reason": "they have moved" })).await.status, 204);
    assert_eq!(node.ended("o-1").await["decision"], "cancelled");
    problem(&api.post("/v1/breakers/stocks/open", &json!({ "reason": "r" })).await, 404);
}
