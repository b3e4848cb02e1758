//! The work list, and bulk jobs over it: durable, at a rate, with a dry run and a result for each item.

use std::time::Duration;

use overdue_runtime::client::{
    ActionOutcome, ClientError, JobAction, JobFilter, JobPhase, JobRequest, JobView, NewToken, OutcomeOfItem, Shift,
    SignalOutcome, StartRequest,
};
use overdue_runtime::engine::OperatorAction;
use overdue_runtime::store::Status;
use overdue_runtime::testing::eventually;
use overdue_runtime::{Payload, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Node, Order, Reply, START, outcome, program, run};

const STEP: Duration = Duration::from_millis(100);

fn after(minutes: u64) -> Timestamp {
    START.saturating_add(Duration::from_secs(60 * minutes))
}

/// Orders whose stock nobody can release: a step of each waits for a person, and fails again when it is tried again.
async fn stuck(node: &Node, ids: &[&str]) {
    node.shop.always("release-stock", Reply::json(422, json!({ "title": "no such token" })));
    for id in ids {
        node.place(&Order::new(id).without("paymentId").without("couponId").due(START)).await;
        node.until_a_person_is_needed(id, "release-stock").await;
    }
}

fn steps() -> JobFilter {
    JobFilter { workflow_type: Some("order-timeout".into()), activity: Some("release-stock".into()), ..JobFilter::default() }
}

fn retry(per_second: u32) -> JobRequest {
    JobRequest { per_second, ..JobRequest::new(JobAction::Retry, steps(), "stock is back", "dana") }
}

async fn start(node: &Node, request: &JobRequest) -> String {
    node.client.start_job(None, request).await.unwrap().0.id
}

/// Lets time pass in small steps until the job has ended.
async fn ended(node: &Node, job: &str) -> JobView {
    let step = || async {
        let view = node.client.job(job).await.ok()?;
        if view.closed_at.is_some() {
            return Some(view);
        }
        node.pass(STEP).await;
        None
    };
    eventually("the job ends", step).await
}

/// What people decided about an order's steps: when, and in which words.
async fn decisions(node: &Node, id: &str) -> Vec<(String, String)> {
    let decided =
        |event: &Value| matches!(event["kind"].as_str(), Some("ActivityRetried" | "ActivityResolved" | "ActivitySkipped"));
    let events = node.events(id).await;
    let said = |event: &Value| format!("{} by {}: {}", event["kind"], event["actor"], event["reason"]).replace('"', "");
    events.iter().filter(|event| decided(event)).map(|event| (event["at"].as_str().unwrap().to_owned(), said(event))).collect()
}

async fn until_decided(node: &Node, id: &str) {
    let decided = || async { (!decisions(node, id).await.is_empty()).then_some(()) };
    eventually(&format!("something is decided about {id}"), decided).await;
}

async fn outcomes(node: &Node, job: &str) -> Vec<(String, Option<OutcomeOfItem>)> {
    let page = node.client.job_items(job, 0, 1_000).await.unwrap();
    page.items.into_iter().map(|item| (item.selected.id, item.outcome)).collect()
}

fn field(answer: &Answer) -> (u16, Value) {
    (answer.status.as_u16(), answer.json()["errors"][0]["field"].clone())
}

// The work list.

#[tokio::test]
async fn the_work_list_tells_each_step_that_waits_for_a_person_by_type_name_failure_and_attribute() {
    let node = Node::start().await;
    let api = node.listen().await;
    stuck(&node, &["s-1", "s-2"]).await;
    let wrong = json!({ "input": Order::new("p-1").input(), "attributes": { "shop": "berlin" } });
    api.post("/v1/workflows/order-timeout/p-1", &wrong).await;
    node.pay_amount("p-1", "txn-1", "5.00", "USD").await;
    node.place(&Order::new("calm")).await;
    let listed = async |query: &str| -> Vec<String> {
        let page = api.get(&format!("/v1/attention?{query}")).await.json();
        let steps = page["steps"].as_array().unwrap();
        steps.iter().map(|step| format!("{} {} {}", step["id"], step["name"], step["failure"]).replace('"', "")).collect()
    };

    let all = ["p-1 review-payment by-hand", "s-1 release-stock http-422", "s-2 release-stock http-422"];
    assert_eq!(listed("").await, all);
    assert_eq!(listed("activity=release-stock").await, all[1..]);
    assert_eq!(listed("failure=by-hand").await, all[..1]);
    assert_eq!(listed("failure=http-422&activity=review-payment").await.len(), 0);
    assert_eq!(listed("attr.shop=berlin").await, all[..1]);
    assert_eq!(listed("type=late-payment").await.len(), 0);
    let first = api.get("/v1/attention?limit=2").await.json();
    let step = &first["steps"][1];
    assert_eq!((&step["type"], &step["since"]), (&json!("order-timeout"), &json!(START)));
    assert_eq!(step["number"], node.pending("s-1", "release-stock").await["number"]);
    assert!(step["message"].as_str().unwrap().contains("no such token"), "{step}");
    let next = first["next"].as_str().unwrap();
    assert_eq!(listed(&format!("limit=2&cursor={next}")).await, all[2..]);
    assert_eq!(field(&api.get(&format!("/v1/attention?limit=3&cursor={next}")).await), (400, json!("cursor")));
    assert_eq!(field(&api.get("/v1/attention?limit=0").await), (400, json!("limit")));
}

// What a job does.

#[tokio::test]
async fn a_job_retries_the_steps_of_its_filter_once_each_and_records_who_why_and_itself() {
    let node = Node::start().await;
    stuck(&node, &["s-1", "s-2"]).await;
    node.place(&Order::new("p-1")).await;
    node.pay_amount("p-1", "txn-1", "5.00", "USD").await;

    let job = start(&node, &retry(10)).await;
    let view = ended(&node, &job).await;

    assert_eq!((view.status, view.progress.phase), (Status::Completed, JobPhase::Done));
    assert_eq!((view.progress.selected, view.progress.done, view.progress.is_cut), (2, 2, false));
    assert_eq!(view.progress.outcomes, [(OutcomeOfItem::Applied, 2)].into());
    for id in ["s-1", "s-2"] {
        let said: Vec<String> = decisions(&node, id).await.into_iter().map(|(_, said)| said).collect();
        assert_eq!(said, [format!("ActivityRetried by dana: stock is back (bulk-operation {job})")]);
    }
    assert_eq!(decisions(&node, "p-1").await.len(), 0, "its step is another one");
    let page = node.client.job_items(&job, 0, 1).await.unwrap();
    assert_eq!((page.next, page.items[0].item, page.items[0].selected.failure.as_deref()), (Some(1), 1, Some("http-422")));
    assert_eq!(node.client.job_items(&job, 1, 1).await.unwrap().items[0].selected.id, "s-2");
}

#[tokio::test]
async fn a_dry_run_lists_what_it_would_touch_and_changes_nothing() {
    let node = Node::start().await;
    stuck(&node, &["s-1", "s-2"]).await;
    let before = (node.events("s-1").await, node.events("s-2").await, node.shop.all().len());

    let job = start(&node, &JobRequest { dry_run: true, ..retry(10) }).await;
    let view = ended(&node, &job).await;

    assert_eq!((view.status, view.progress.selected, view.progress.done), (Status::Completed, 2, 0));
    assert_eq!(outcomes(&node, &job).await, [("s-1".to_owned(), None), ("s-2".to_owned(), None)]);
    node.pass(Duration::from_secs(5)).await;
    assert_eq!((node.events("s-1").await, node.events("s-2").await, node.shop.all().len()), before);
}

#[tokio::test]
async fn an_item_that_is_refused_does_not_stop_the_others() {
    let node = Node::start().await;
    node.place(&Order::new("a-1")).await;
    node.pay_amount("a-1", "txn-1", "5.00", "USD").await;
    stuck(&node, &["s-1"]).await;

    // The shape that a release has, and a review has not.
    let result = Some(Payload::from_json(r#"{"outcome":"RELEASED"}"#).unwrap());
    let request = JobRequest::new(JobAction::Resolve, JobFilter::default(), "done by hand, ticket 4711", "dana");
    let job = start(&node, &JobRequest { result, ..request }).await;
    ended(&node, &job).await;

    let page = node.client.job_items(&job, 0, 10).await.unwrap();
    let told: Vec<_> = page.items.iter().map(|item| (item.selected.id.as_str(), item.outcome.unwrap())).collect();
    assert_eq!(told, [("a-1", OutcomeOfItem::Refused), ("s-1", OutcomeOfItem::Applied)]);
    assert!(page.items[0].detail.as_ref().unwrap().contains("result"), "{:?}", page.items[0]);
    assert_eq!(decisions(&node, "a-1").await.len(), 0);
    node.until_phase("s-1", "watching").await;
}

#[tokio::test]
async fn an_item_that_is_not_as_it_was_selected_is_left_alone() {
    let node = Node::start().await;
    stuck(&node, &["s-1", "s-2"]).await;
    let job = start(&node, &retry(1)).await;
    until_decided(&node, "s-1").await;

    node.decide("s-2", "release-stock", OperatorAction::Skip, "not worth it").await;
    ended(&node, &job).await;

    assert_eq!(decisions(&node, "s-2").await.len(), 1, "what the person decided");
    let expected = [("s-1".to_owned(), Some(OutcomeOfItem::Applied)), ("s-2".to_owned(), Some(OutcomeOfItem::Changed))];
    assert_eq!(outcomes(&node, &job).await, expected);
}

#[tokio::test]
async fn what_waits_since_or_until_a_fraction_of_a_millisecond_is_still_as_it_was_selected() {
    let node = Node::start().await;
    node.pass(Duration::from_micros(1_234_567)).await;
    stuck(&node, &["s-1"]).await;
    // The order service is not due at a deadline that has passed: a second from now it is asked again.
    node.shop.answers("cancel-order", [outcome("NOT_DUE", json!({ "payDeadline": START }))]);
    node.place(&Order::bare("o-1").due(START)).await;
    let waits_again =
        |look: &Value| look["pendingTimers"][0]["fireAt"].as_str().is_some_and(|at| at > START.to_string().as_str());
    node.until("o-1", "it waits again", waits_again).await;
    let by = Some(Shift { by: Duration::from_secs(3600), earlier: false });
    let request = JobRequest::new(JobAction::MoveDeadline, JobFilter::default(), "the shop is late", "dana");

    for request in [JobRequest { by, ..request }, retry(10)] {
        let job = start(&node, &request).await;
        assert_eq!(ended(&node, &job).await.progress.outcomes, [(OutcomeOfItem::Applied, 1)].into(), "{request:?}");
    }
}

// That it is durable, and slow enough.

#[tokio::test]
async fn a_job_that_is_killed_in_the_middle_goes_on_and_does_no_item_twice() {
    let mut node = Node::start().await;
    let ids = ["s-1", "s-2", "s-3", "s-4", "s-5", "s-6", "s-7"];
    stuck(&node, &ids).await;
    let job = start(&node, &retry(1)).await;
    until_decided(&node, "s-1").await;
    // It fails again, at the very instant at which it was selected: only its history tells that the job was there.
    let failed_again = |look: &Value| look["needsAttention"] == true;
    node.until("s-1", "it needs a person again", failed_again).await;
    node.pass(Duration::from_secs(1)).await;
    until_decided(&node, "s-2").await;
    node.until("s-2", "it needs a person again", failed_again).await;

    node.restart().await;
    let view = ended(&node, &job).await;

    assert_eq!(view.progress.outcomes, [(OutcomeOfItem::Applied, 7)].into());
    for id in ids {
        assert_eq!(decisions(&node, id).await.len(), 1, "{id}");
        node.until(id, "it needs a person again", failed_again).await;
    }
    assert_eq!(node.shop.count("release-stock"), 14, "once before the job and once by it, for each");
}

#[tokio::test]
async fn a_job_acts_no_faster_than_its_rate_also_from_one_batch_to_the_next() {
    let node = Node::start().await;
    let ids = ["s-1", "s-2", "s-3", "s-4", "s-5", "s-6", "s-7"];
    stuck(&node, &ids).await;
    let job = start(&node, &retry(1)).await;
    ended(&node, &job).await;

    let mut times: Vec<Timestamp> = Vec::new();
    for id in ids {
        times.extend(decisions(&node, id).await.iter().map(|(at, _)| at.parse::<Timestamp>().unwrap()));
    }
    assert_eq!(times.len(), 7);
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_secs(1)), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap < Duration::from_secs(2)), "and not much slower: {gaps:?}");
}

#[tokio::test]
async fn a_job_that_is_cancelled_stops_before_its_next_item_and_tells_how_far_it_came() {
    let node = Node::start().await;
    stuck(&node, &["s-1", "s-2", "s-3"]).await;
    let job = start(&node, &retry(1)).await;
    until_decided(&node, "s-1").await;

    assert_eq!(node.client.cancel_job(&job, "the wrong filter", "dana").await.unwrap(), ActionOutcome::Applied);
    let view = ended(&node, &job).await;
    node.pass(Duration::from_secs(10)).await;

    assert_eq!((view.status, view.progress.done), (Status::Cancelled, 1));
    assert_eq!((decisions(&node, "s-2").await.len(), decisions(&node, "s-3").await.len()), (0, 0));
    let expected = [("s-1", Some(OutcomeOfItem::Applied)), ("s-2", None), ("s-3", None)];
    assert_eq!(outcomes(&node, &job).await, expected.map(|(id, outcome)| (id.to_owned(), outcome)));
    assert_eq!(node.client.cancel_job(&job, "again", "dana").await.unwrap(), ActionOutcome::Late);
}

// Deadlines by filter.

#[tokio::test]
async fn a_job_moves_the_deadlines_of_a_window_once_each_although_they_come_into_it_again() {
    let node = Node::start().await;
    for (id, minutes) in [("o-1", 10), ("o-2", 20), ("o-3", 50), ("o-4", 70)] {
        node.place(&Order::bare(id).due(after(minutes))).await;
    }
    let filter = JobFilter { due_after: Some(after(15)), due_before: Some(after(60)), ..JobFilter::default() };
    let by = Some(Shift { by: Duration::from_secs(20 * 60), earlier: false });
    let request = JobRequest { by, ..JobRequest::new(JobAction::MoveDeadline, filter, "the payment service was down", "dana") };

    let job = start(&node, &request).await;
    let view = ended(&node, &job).await;

    assert_eq!(view.progress.outcomes, [(OutcomeOfItem::Applied, 2)].into());
    let mut due = Vec::new();
    for id in ["o-1", "o-2", "o-3", "o-4"] {
        due.push(node.look(id).await["wakeAt"].clone());
    }
    assert_eq!(due, [10, 40, 70, 70].map(|minutes| json!(after(minutes))), "o-2 is in the window again, and was not moved again");
    let events = node.events("o-2").await;
    let recorded = events.iter().find(|event| event["kind"] == "SignalReceived").unwrap();
    let reason = format!("the payment service was down (bulk-operation {job})");
    assert_eq!(recorded["payload"], json!({ "payDeadline": after(40), "reason": reason, "actor": "dana" }));
    let items = serde_json::to_value(node.client.job_items(&job, 0, 10).await.unwrap()).unwrap();
    assert_eq!((&items["items"][0]["from"], &items["items"][0]["to"]), (&json!(after(20)), &json!(after(40))));
}

#[tokio::test]
async fn a_deadline_that_somebody_else_has_moved_since_it_was_selected_is_left_alone_and_a_killed_job_moves_none_twice() {
    let mut node = Node::start().await;
    for (id, minutes) in [("o-1", 10), ("o-2", 20), ("o-3", 30)] {
        node.place(&Order::bare(id).due(after(minutes))).await;
    }
    let by = Some(Shift { by: Duration::from_secs(5 * 60), earlier: true });
    let request = JobRequest::new(JobAction::MoveDeadline, JobFilter::default(), "the shop closes", "dana");
    let job = start(&node, &JobRequest { by, per_second: 1, ..request }).await;
    node.until("o-1", "its deadline is moved", |look| look["wakeAt"] == json!(after(5))).await;

    let later = json!({ "payDeadline": after(40) });
    assert_eq!(node.signal("o-2", "extend-deadline", later.clone()).await, SignalOutcome::Applied);
    assert_eq!(node.signal("o-1", "extend-deadline", later).await, SignalOutcome::Applied);
    node.restart().await;
    ended(&node, &job).await;

    let expected = [("o-1", OutcomeOfItem::Applied), ("o-2", OutcomeOfItem::Changed), ("o-3", OutcomeOfItem::Applied)];
    assert_eq!(outcomes(&node, &job).await, expected.map(|(id, outcome)| (id.to_owned(), Some(outcome))));
    for (id, minutes) in [("o-1", 40), ("o-2", 40), ("o-3", 25)] {
        assert_eq!(node.look(id).await["wakeAt"], json!(after(minutes)), "{id}");
    }
}

#[tokio::test]
async fn a_job_pulls_deadlines_forward_and_orders_that_are_decided_are_no_items_of_it() {
    let node = Node::start().await;
    node.place(&Order::bare("o-1").due(after(10))).await;
    node.place(&Order::bare("o-2").due(START)).await;
    node.until_phase("o-2", "watching").await;
    let request = JobRequest::new(JobAction::SetDeadline, JobFilter::default(), "the shop closes", "dana");

    let job = start(&node, &JobRequest { deadline: Some(START), ..request }).await;
    ended(&node, &job).await;

    assert_eq!(outcomes(&node, &job).await, [("o-1".to_owned(), Some(OutcomeOfItem::Applied))]);
    node.until_phase("o-1", "watching").await;
}

// Over HTTP.

fn body(action: &str) -> Value {
    json!({ "action": action, "filter": { "type": "order-timeout" }, "reason": "r" })
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

#[tokio::test]
async fn every_fault_of_a_job_is_refused_with_its_field_and_nothing_is_started() {
    let node = Node::start().await;
    let api = node.listen().await;
    let cases = [
        (json!({ "filter": {}, "reason": "r" }), 400, "action"),
        (json!({ "action": "retry", "filter": {} }), 400, "reason"),
        (json!({ "action": "retry", "reason": "r" }), 400, "filter"),
        (body("explode"), 400, "action"),
        (with(body("retry"), "filter", json!({ "kind": "x" })), 400, "filter.kind"),
        (with(body("move-deadline"), "by", json!("30m")), 400, "by"),
        (with(body("move-deadline"), "by", json!("P1M")), 400, "by"),
        (with(body("retry"), "reason", json!(" ")), 422, "reason"),
        (with(body("retry"), "perSecond", json!(0)), 422, "perSecond"),
        (with(body("retry"), "perSecond", json!(501)), 422, "perSecond"),
        (with(body("retry"), "result", json!({})), 422, "result"),
        (with(body("retry"), "deadline", json!(START)), 422, "deadline"),
        (body("resolve"), 422, "result"),
        (body("set-deadline"), 422, "deadline"),
        (body("move-deadline"), 422, "by"),
        (with(body("retry"), "filter", json!({ "dueBefore": START })), 422, "filter.dueBefore"),
        (with(body("retry"), "filter", json!({ "type": "orders" })), 422, "filter.type"),
        (with(body("retry"), "filter", json!({ "type": "bulk-operation" })), 422, "filter.type"),
        (
            json!({ "action": "set-deadline", "deadline": START, "filter": { "activity": "a" }, "reason": "r" }),
            422,
            "filter.activity",
        ),
        (
            json!({ "action": "set-deadline", "deadline": START, "filter": { "type": "late-payment" }, "reason": "r" }),
            422,
            "filter.type",
        ),
    ];
    for (body, status, name) in cases {
        assert_eq!(field(&api.post("/v1/jobs", &body).await), (status, json!(name)), "{body}");
    }
    assert_eq!(api.get("/v1/jobs").await.json()["workflows"], json!([]));
    assert_eq!(api.get("/v1/jobs/nothing").await.status, 404);
    assert_eq!(api.get("/v1/jobs/nothing/items").await.status, 404);
    assert_eq!(api.post("/v1/jobs/nothing/cancel", &json!({ "reason": "r" })).await.status, 404);
}

#[tokio::test]
async fn the_same_request_under_a_key_is_the_same_job_and_another_one_a_conflict() {
    let node = Node::start().await;
    let api = node.listen().await;
    let keyed = async |body: Value| {
        let request = api.request(Method::POST, "/v1/jobs").header("idempotency-key", "incident-7").header("x-actor", "dana");
        api.send(request.body(body.to_string())).await
    };

    let created = keyed(with(body("retry"), "dryRun", json!(true))).await;
    assert_eq!(created.status, 201);
    let shown = created.json();
    let expected = json!({
        "id": "incident-7", "action": "retry", "filter": { "type": "order-timeout" }, "reason": "r", "actor": "dana",
        "dryRun": true, "perSecond": 10,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(shown[name], *value, "{name}: {shown}");
    }
    assert_eq!(keyed(with(body("retry"), "dryRun", json!(true))).await.status, 200);
    assert_eq!(keyed(body("retry")).await.status, 409);
    ended(&node, "incident-7").await;
    let done = api.get("/v1/jobs/incident-7").await.json();
    assert_eq!((&done["status"], &done["phase"], &done["selected"]), (&json!("completed"), &json!("done"), &json!(0)));
    let listed = api.get("/v1/jobs?type=order-timeout&status=completed").await.json();
    assert_eq!(listed["workflows"][0]["attributes"], json!({ "action": "retry", "type": "order-timeout" }));
    assert_eq!(api.get("/v1/jobs?type=late-payment").await.json()["workflows"], json!([]));
}

#[tokio::test]
async fn nobody_starts_a_job_by_the_door_of_the_workflows() {
    let node = Node::start().await;
    let api = node.listen().await;
    let input = serde_json::to_value(retry(10)).unwrap();
    let refused = api.post("/v1/workflows/bulk-operation/b-1", &json!({ "input": input })).await;
    assert_eq!(field(&refused), (422, json!("type")));
    let line = json!({ "id": "b-1", "input": input }).to_string();
    let many = api.post_text("/v1/workflows/bulk-operation", line).await;
    assert!(many.text.contains(r#""status":422"#), "{}", many.text);
    let request = StartRequest {
        workflow_type: "bulk-operation".into(),
        id: "b-1".into(),
        input: Payload::of(&input).unwrap(),
        start_at: None,
        attributes: Default::default(),
        traceparent: None,
    };
    assert!(matches!(node.client.start(request).await, Err(ClientError::Invalid(_))));
    assert_eq!(api.get("/v1/jobs/b-1").await.status, 404);
}

#[tokio::test]
async fn a_token_for_some_types_has_jobs_of_those_types_alone() {
    let node = Node::start().await;
    let api = node.listen().await;
    let job = start(&node, &retry(10)).await;
    let token = async |name: &str, types: &[&str]| {
        let scopes = ["read", "operate"].map(str::to_owned).to_vec();
        let types = types.iter().map(|name| (*name).to_owned()).collect();
        let new = NewToken { name: name.into(), scopes, types, expires_at: None };
        api.with_token(&node.client.create_token(new).await.unwrap())
    };
    let (late, orders) = (token("late", &["late-payment"]).await, token("orders", &["order-timeout"]).await);
    let everybody = json!({ "action": "retry", "filter": {}, "reason": "r" });

    assert_eq!(late.post("/v1/jobs", &body("retry")).await.status, 403);
    assert_eq!(orders.post("/v1/jobs", &everybody).await.status, 403, "no type is every type");
    assert_eq!(orders.post("/v1/jobs", &body("retry")).await.status, 201);
    let cancel = json!({ "reason": "r" });
    for (route, of_late, of_orders) in [
        (format!("/v1/jobs/{job}"), 403, 200),
        (format!("/v1/jobs/{job}/items"), 403, 200),
        ("/v1/jobs".into(), 403, 403),
        ("/v1/jobs?type=order-timeout".into(), 403, 200),
        ("/v1/attention?type=order-timeout".into(), 403, 200),
    ] {
        assert_eq!(late.get(&route).await.status, of_late, "{route}");
        assert_eq!(orders.get(&route).await.status, of_orders, "{route}");
    }
    assert_eq!(late.post(&format!("/v1/jobs/{job}/cancel"), &cancel).await.status, 403);
    assert_eq!(orders.post(&format!("/v1/jobs/{job}/cancel"), &cancel).await.status, 200);
}

// The command line.

async fn at(api: &Api, args: &[&str]) -> (Option<i32>, String, String) {
    let ran = run(program().args(args).args(["--url", &api.url]).env("USER", "dana")).await;
    (ran.code, ran.stdout, ran.stderr)
}

#[tokio::test]
async fn the_command_line_shows_the_work_list_and_runs_jobs_over_it() {
    let node = Node::start().await;
    let api = node.listen().await;
    stuck(&node, &["s-1", "s-2"]).await;

    let (code, list, _) = at(&api, &["attention", "--activity", "release-stock"]).await;
    assert!(code == Some(0) && list.contains("s-1") && list.contains("http-422") && list.contains("2 steps"), "{list}");
    let (_, lines, _) = at(&api, &["attention", "--limit", "1", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(lines.trim()).unwrap()["id"], "s-1");

    let (code, started, said) =
        at(&api, &["jobs", "start", "retry", "--activity", "release-stock", "--reason", "stock is back", "--id", "j-1"]).await;
    assert!(code == Some(0) && started.contains("overdue jobs show j-1"), "{started} {said}");
    ended(&node, "j-1").await;
    let (_, shown, _) = at(&api, &["jobs", "show", "j-1"]).await;
    for word in ["j-1", "completed", "stock is back", "dana", "2 items selected, 2 gone through: 2 applied"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let (_, items, _) = at(&api, &["jobs", "items", "j-1"]).await;
    assert!(items.contains("s-2") && items.contains("release-stock (http-422)") && items.contains("applied"), "{items}");
    let (_, listed, _) = at(&api, &["jobs", "list"]).await;
    assert!(listed.contains("j-1") && listed.contains("retry"), "{listed}");
    let (code, cancelled, _) = at(&api, &["jobs", "cancel", "j-1", "--reason", "r"]).await;
    assert_eq!((code, cancelled.trim()), (Some(0), "late"));

    node.place(&Order::bare("o-1").due(after(10))).await;
    let before = after(20).to_string();
    let args = ["jobs", "start", "move-deadline", "--due-before", &before, "--later", "90m", "--reason", "r", "--json"];
    let (code, job, said) = at(&api, &args).await;
    assert_eq!(code, Some(0), "{said}");
    ended(&node, serde_json::from_str::<Value>(&job).unwrap()["id"].as_str().unwrap()).await;
    assert_eq!(node.look("o-1").await["wakeAt"], json!(after(100)));
    let (code, _, said) = at(&api, &["jobs", "start", "resolve", "--reason", "r"]).await;
    assert!(code == Some(1) && said.contains("resolve needs it"), "{said}");
}
