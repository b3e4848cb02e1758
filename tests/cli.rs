//! The command line: exit codes for scripts, JSON that can be read, and errors that say what to do.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Api, Node, Order, Ran, Reply, START, Server, Site, outcome, program, run};

/// Runs a command against the API.
async fn at(api: &Api, args: &[&str]) -> Ran {
    run(program().args(args).args(["--url", &api.url])).await
}

fn failed(ran: &Ran, saying: &str) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(saying), "{saying}: {ran:?}");
    assert_eq!(ran.stdout, "", "{ran:?}");
}

fn input(order: &Order) -> String {
    order.input().to_string()
}

// start --wait (B102).

#[tokio::test]
async fn a_start_that_waits_ends_with_0_when_it_completed_1_when_it_did_not_and_3_when_it_still_runs() {
    let node = Node::start().await;
    let api = node.listen().await;
    let start = async |order: &Order, timeout: &str| {
        let args = ["start", "order-timeout", &order.id, "--input", &input(order), "--wait", "--timeout", timeout, "--json"];
        at(&api, &args).await
    };

    let completed = start(&Order::bare("o-1").due(START).with("latePaymentWindow", "PT0S"), "10s").await;
    assert_eq!((completed.code, &completed.json()["status"]), (Some(0), &json!("completed")));
    let running = start(&Order::bare("o-2"), "1ms").await;
    assert_eq!((running.code, &running.json()["status"]), (Some(3), &json!("running")));
    node.client.terminate("order-timeout", "o-2", "a test order", "ops").await.unwrap();
    let terminated = start(&Order::bare("o-2"), "10s").await;
    assert_eq!((terminated.code, &terminated.json()["status"]), (Some(1), &json!("terminated")));
}

#[tokio::test]
async fn a_start_takes_its_input_as_it_is_from_a_file_or_from_standard_input_and_says_what_it_did() {
    let node = Node::start().await;
    let api = node.listen().await;
    let order = Order::bare("o-1");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), input(&order)).unwrap();
    let from_file = format!("@{}", file.path().display());

    let started = at(&api, &["start", "order-timeout", "o-1", "--input", &input(&order), "--attribute", "shop=berlin"]).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    assert!(started.stdout.starts_with("order-timeout o-1 started: run "), "{started:?}");
    let again = at(&api, &["start", "order-timeout", "o-1", "--input", &from_file, "--attribute", "shop=berlin"]).await;
    assert!(again.stdout.starts_with("order-timeout o-1 was started before: run "), "{again:?}");
    let mut command = program();
    command
        .args(["start", "order-timeout", "o-2", "--input", "-", "--json", "--url", &api.url])
        .stdin(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, input(&Order::bare("o-2")).as_bytes()).await.unwrap();
    drop(stdin);
    let output = tokio::time::timeout(Duration::from_secs(10), child.wait_with_output()).await.unwrap().unwrap();
    let body: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &body["id"]), (Some(0), &json!("o-2")));
    assert_eq!(node.look("o-1").await["attributes"], json!({ "shop": "berlin" }));
}

#[tokio::test]
async fn what_the_server_refuses_ends_with_1_and_says_why() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::bare("o-1")).await;
    let cases: [(&[&str], &str); 10] = [
        (&["start", "order-timeout", "o-2", "--input", "{}"], "input.orderId: missing"),
        (&["start", "order-timeout", "o-2", "--input", "{"], "--input: not valid JSON"),
        (&["start", "order-timeout", "o-2", "--input", "@/nowhere/at/all"], "/nowhere/at/all"),
        (&["start", "orders", "o-2", "--input", "{}"], "this program knows late-payment, late-signal, order-timeout"),
        (&["signal", "order-timeout", "o-1", "paid", "--payload", "{}"], "it takes"),
        (&["describe", "order-timeout", "nobody"], "there is no workflow"),
        (&["explain", "order-timeout", "nobody"], "there is no workflow"),
        (&["history", "order-timeout", "nobody"], "there is no workflow"),
        (&["retry", "order-timeout", "o-1", "99", "--reason", "r"], "no activity of this number"),
        (&["list", "--attribute", "shop"], "write NAME=VALUE"),
    ];
    for (args, saying) in cases {
        failed(&at(&api, args).await, saying);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_not_there_and_how_to_name_another() {
    let mut command = program();
    let ran = run(command.args(["list", "--url", "http://127.0.0.1:9"])).await;
    failed(&ran, "http://127.0.0.1:9: it cannot be reached; is a server running there? (--url, or OVERDUE_URL)");
    let by_environment = run(program().args(["list"]).env("OVERDUE_URL", "http://127.0.0.1:9")).await;
    failed(&by_environment, "http://127.0.0.1:9: it cannot be reached");
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_told_how_it_goes() {
    for args in [
        &["start", "order-timeout"][..],
        &["cancel", "order-timeout", "o-1"],
        &["resolve", "order-timeout", "o-1", "5", "--reason", "r"],
        &["start", "order-timeout", "o-1", "--input", "{}", "--timeout", "5s"],
        &["token", "create", "x", "--scopes"],
        &["nonsense"],
    ] {
        let ran = run(program().args(args)).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("Usage: ") || ran.stderr.contains("--help"), "{ran:?}");
    }
}

// Looking and acting.

#[tokio::test]
async fn describe_explain_history_and_list_show_an_order_to_people_and_to_scripts() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.shop.answers("release-stock", [Reply::json(422, json!({ "title": "no such\u{1b}[31m token" }))]);
    node.place(&Order::new("o-1").due(START)).await;
    let number = node.until_a_person_is_needed("o-1", "release-stock").await["number"].to_string();

    for (args, words) in [
        (&["describe", "order-timeout", "o-1"][..], &["o-1", "running", "release-stock", "needs-attention", "http-422"][..]),
        (&["explain", "order-timeout", "o-1"], &["release-stock, needs a person since", "overdue retry order-timeout o-1"]),
        (&["history", "order-timeout", "o-1"], &["WorkflowStarted", "AttentionRequested"]),
        (&["list", "--needs-attention"], &["o-1", "needed", "1 workflows"]),
    ] {
        let shown = at(&api, args).await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        for word in words {
            assert!(shown.stdout.contains(word), "{word}: {}", shown.stdout);
        }
        assert!(!shown.stdout.contains('\u{1b}'), "peer text does not steer the terminal: {:?}", shown.stdout);
    }
    let described = at(&api, &["describe", "order-timeout", "o-1", "--json"]).await.json();
    assert_eq!(described["pendingActivities"][0]["number"].to_string(), number);
    let explained = at(&api, &["explain", "order-timeout", "o-1", "--json"]).await.json();
    assert!(explained["actions"][0].as_str().unwrap().starts_with(&format!("overdue retry order-timeout o-1 {number}")));
    for args in [&["history", "order-timeout", "o-1", "--json"][..], &["list", "--json"]] {
        let lines = at(&api, args).await;
        assert!(lines.stdout.lines().count() > 0);
        for line in lines.stdout.lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
    }
    let behind = at(&api, &["history", "order-timeout", "o-1", "--after", "3", "--json"]).await;
    assert!(behind.stdout.starts_with(r#"{"number":4,"#), "{}", behind.stdout);
}

#[tokio::test]
async fn explain_gives_commands_that_can_be_run_as_they_stand() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.shop.answers("release-stock", [Reply::status(422)]);
    node.place(&Order::new("it's o 1").due(START)).await;
    node.until_a_person_is_needed("it's o 1", "release-stock").await;

    let explained = at(&api, &["explain", "order-timeout", "it's o 1", "--json"]).await.json();
    let retry = explained["actions"][0].as_str().unwrap().replace("TEXT", "'it is back'");
    let shell = retry.replacen("overdue", "\"$PROGRAM\"", 1);
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", &shell]).env("PROGRAM", env!("CARGO_BIN_EXE_overdue")).env("OVERDUE_URL", &api.url);
    let ran = run(&mut command).await;

    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "applied"), "{retry}: {ran:?}");
    assert_eq!(node.ended("it's o 1").await["decision"], "cancelled");
}

#[tokio::test]
async fn a_person_signals_retries_resolves_skips_cancels_and_terminates_by_name_and_reason() {
    let node = Node::start().await;
    let api = node.listen().await;
    for call in ["release-stock", "return-coupon", "close-payment"] {
        node.shop.answers(call, [Reply::status(422)]);
    }
    node.place(&Order::new("o-1").due(START)).await;
    for call in ["release-stock", "return-coupon", "close-payment"] {
        node.until_a_person_is_needed("o-1", call).await;
    }
    let number = async |step: &str| node.pending("o-1", step).await["number"].to_string();
    let (stock, coupon, payment) = (number("release-stock").await, number("return-coupon").await, number("close-payment").await);
    let decide = async |args: &[&str]| run(program().args(args).args(["--url", &api.url]).env("USER", "dana")).await;

    for args in [
        &["retry", "order-timeout", "o-1", &stock, "--reason", "it is back"][..],
        &["resolve", "order-timeout", "o-1", &coupon, "--result", r#"{"outcome":"RETURNED"}"#, "--reason", "by hand"],
        &["skip", "order-timeout", "o-1", &payment, "--reason", "never opened"],
    ] {
        let ran = decide(args).await;
        assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "applied"), "{ran:?}");
    }
    assert_eq!(node.ended("o-1").await["decision"], "cancelled");
    let story = node.story("o-1").await;
    for line in [
        "release-stock retried by dana: it is back",
        "return-coupon resolved by dana: by hand",
        "close-payment skipped by dana: never opened",
    ] {
        assert!(story.contains(&line.to_owned()), "{line}: {story:?}");
    }
    failed(&decide(&["retry", "order-timeout", "o-1", &stock, "--reason", "again"]).await, "has ended");

    node.place(&Order::bare("o-2").with("payDeadline", "2026-12-31T00:00:00Z")).await;
    let later = r#"{"payDeadline":"2027-01-01T00:00:00Z"}"#;
    let signal = ["signal", "order-timeout", "o-2", "extend-deadline", "--payload", later, "--signal-id", "evt-1", "--json"];
    assert_eq!(decide(&signal).await.json(), json!({ "outcome": "applied", "signalId": "evt-1" }));
    assert_eq!(decide(&signal).await.json(), json!({ "outcome": "duplicate", "signalId": "evt-1" }));
    let cancel = decide(&["cancel", "order-timeout", "o-2", "--reason", "changed my mind"]).await;
    assert_eq!(cancel.stdout.trim(), "applied");
    node.place(&Order::bare("o-3").with("payDeadline", "2026-12-31T00:00:00Z")).await;
    let terminate = decide(&["terminate", "order-timeout", "o-3", "--reason", "a test order"]).await;
    assert_eq!(terminate.stdout.trim(), "applied");
    assert_eq!(node.story("o-3").await.last().unwrap(), "terminated by dana: a test order");
}

#[tokio::test]
async fn a_history_is_followed_until_its_workflow_ends() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::bare("o-1")).await;
    let gate = node.shop.holds("confirm-paid", outcome("PAID", json!({})));
    let live = async {
        node.pay("o-1", "txn-1").await;
        node.shop.received("confirm-paid", 1).await;
        gate.open();
    };
    let (followed, ()) = tokio::join!(at(&api, &["history", "order-timeout", "o-1", "--follow", "--json"]), live);

    assert_eq!(followed.code, Some(0), "{followed:?}");
    let events: Vec<Value> = followed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events, node.events("o-1").await);
}

#[tokio::test]
async fn a_list_of_many_is_cut_at_its_limit_and_says_so() {
    let node = Node::start().await;
    let api = node.listen().await;
    for number in 0..5 {
        node.place(&Order::bare(&format!("o-{number}"))).await;
    }
    let some = at(&api, &["list", "--limit", "2"]).await;
    assert!(some.stdout.contains("2 workflows; there are more (--limit)"), "{}", some.stdout);
    let all = at(&api, &["list", "--status", "running", "--type", "order-timeout", "--json"]).await;
    assert_eq!(all.stdout.lines().count(), 5);
}

#[tokio::test]
async fn tokens_are_made_listed_and_revoked() {
    let node = Node::start().await;
    let api = node.listen().await;
    let made =
        at(&api, &["token", "create", "ops", "--scopes", "admin,read", "--types", "order-timeout", "--expires", "90d", "--json"])
            .await;
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    failed(&at(&api, &["token", "list"]).await, "send a token");

    let with_token =
        async |args: &[&str]| run(program().args(args).args(["--url", &api.url]).env("OVERDUE_TOKEN", &secret)).await;
    let listed = with_token(&["token", "list"]).await;
    assert!(listed.stdout.starts_with("ops  admin,read  order-timeout  until "), "{listed:?}");
    assert!(!listed.stdout.contains(&secret));
    assert_eq!(with_token(&["token", "revoke", "ops"]).await.stdout.trim(), "revoked");
    failed(&with_token(&["token", "revoke", "ops"]).await, "");
}

// Commands that need no server.

#[tokio::test]
async fn stored_histories_are_replayed_and_a_store_in_use_is_not_touched() {
    let server = Server::start(Site::alone()).await;
    server.start_order("o-1", &Order::bare("o-1").due("2099-01-01T00:00:00Z".parse().unwrap()).input()).await;
    let store = server.site.store();
    let config = server.site.config_file();
    let replay = async || run(program().args(["replay", "--store", &store, "--json", "--config"]).arg(&config)).await;
    failed(&replay().await, "is in use by another");
    server.kill().await;

    let replayed = replay().await;
    assert_eq!((replayed.code, replayed.json()), (Some(0), json!({ "workflows": 1, "retired": 0, "events": 3, "faults": [] })));
    let migrated = run(program().args(["migrate", "--store", &store])).await;
    assert_eq!((migrated.code, migrated.stdout.contains("is at this program's schema")), (Some(0), true), "{migrated:?}");
    let nowhere = format!("sqlite:{}", server.site.path("nowhere.db").display());
    failed(&run(program().args(["migrate", "--store", &nowhere])).await, "there is no database at");
    failed(&run(program().args(["migrate", "--store", "mysql://x"])).await, "write sqlite:PATH");
}

#[tokio::test]
async fn a_configuration_that_is_not_as_it_must_be_is_refused_with_its_key() {
    for (from, to, saying) in [
        ("scan = \"200ms\"", "scan = \"soon\"", "engine.scan"),
        ("[engine]", "[engin]", "engin"),
        ("timeout = \"500ms\"", "timeout = 5", "timeout"),
        ("failures = 1000", "failures = 0", "breaker.failures"),
        ("late_payment_window = \"1s\"", "late_payment_windw = \"1s\"", "late_payment_windw"),
        ("url = \"http://127.0.0.1:9\"", "url = \"http://user:s3cr3t@127.0.0.1:9\"", "must hold no credentials"),
        ("jitter = false", "jitter = false, attempts = 0", "retry.attempts"),
        ("jitter = false", "jitter = false, attempts = -1", "retry.attempts"),
        ("jitter = false", "jitter = false, attempts = 4294967296", "retry.attempts"),
    ] {
        let site = Site::alone().with(from, to);
        let ran = run(&mut site.serve("127.0.0.1:0")).await;
        failed(&ran, saying);
        assert!(!ran.stderr.contains("s3cr3t"), "a secret is not shown: {ran:?}");
    }
}

#[tokio::test]
async fn the_description_of_the_api_is_printed_as_json() {
    let printed = run(program().args(["openapi"])).await;
    assert_eq!(printed.code, Some(0));
    assert_eq!(printed.stdout.trim_end(), overdue_runtime::http::openapi());
}

#[tokio::test]
async fn help_names_every_command() {
    let help = run(program().args(["--help"])).await;
    assert_eq!(help.code, Some(0));
    for command in [
        "serve",
        "start",
        "signal",
        "describe",
        "explain",
        "history",
        "list",
        "cancel",
        "terminate",
        "retry",
        "resolve",
        "skip",
        "token",
        "breaker",
        "replay",
        "verify",
        "migrate",
        "openapi",
        "demo",
    ] {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{command}: {}", help.stdout);
    }
}

// Times do not depend on where the process runs (B008).

#[tokio::test]
async fn a_process_in_another_time_zone_stores_the_same_instants() {
    for zone in ["America/New_York", "Asia/Kolkata", "UTC"] {
        let site = Site::alone();
        let server = Server::start_in(site, zone).await;
        for (id, written, stored) in [
            ("o-1", "2026-11-01T01:30:00-04:00", "2026-11-01T05:30:00.000Z"),
            ("o-2", "2026-11-01T01:30:00-05:00", "2026-11-01T06:30:00.000Z"),
        ] {
            server.start_order(id, &Order::bare(id).with("payDeadline", written).input()).await;
            let events = server.history("order-timeout", id).await;
            let timer = events.iter().find(|event| event["kind"] == "TimerStarted").unwrap();
            assert_eq!((&timer["name"], &timer["fireAt"]), (&json!("payDeadline"), &json!(stored)), "{zone}");
        }
        let refused = server.start_order("o-3", &Order::bare("o-3").with("payDeadline", "2026-11-01T01:30:00").input()).await;
        assert_eq!(refused.status, 422, "{zone}");
    }
}
