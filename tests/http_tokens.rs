//! Tokens: every route with every scope, expiry, revocation, and a server that nobody may reach without one.

use std::time::Duration;

use overdue_runtime::Timestamp;
use overdue_runtime::client::NewToken;
use overdue_runtime::http::{Listener, Need, ROUTES, Scope, ServeError, Server};
use reqwest::Method;
use serde_json::json;

use crate::harness::{Api, Node, Order, START, Site, program, run};

async fn token(node: &Node, name: &str, scopes: &[&str], types: &[&str], expires_at: Option<Timestamp>) -> String {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let new = NewToken { name: name.into(), scopes: owned(scopes), types: owned(types), expires_at };
    node.client.create_token(new).await.unwrap()
}

/// Asks a route of the table for something that is well-formed and does not exist.
async fn ask(api: &Api, method: &str, route: &str) -> u16 {
    let path = route
        .replace("{type}", "order-timeout")
        .replace("{id}", "nobody")
        .replace("{name}", "nobody")
        .replace("{number}", "1")
        .replace("{downstream}", "nothing")
        .replace("{file}", "page.js");
    let body = if method == "POST" { "{}" } else { "" };
    let request = api.request(Method::from_bytes(method.as_bytes()).unwrap(), &path).body(body);
    api.send(request).await.status.as_u16()
}

#[tokio::test]
async fn every_route_is_open_to_its_scope_and_to_no_other() {
    let node = Node::start().await;
    let api = node.listen().await;
    let mut secrets = Vec::new();
    for scope in Scope::ALL {
        secrets.push((scope, token(&node, scope.as_str(), &[scope.as_str()], &[], None).await));
    }
    let expired = token(&node, "expired", &["start", "signal", "read", "operate", "admin"], &[], Some(START)).await;
    let revoked = token(&node, "revoked", &["start", "signal", "read", "operate", "admin"], &[], None).await;
    assert!(node.store.revoke_token("revoked").await.unwrap());

    for (method, route, need) in ROUTES {
        let refused = [401, 403];
        for (scope, secret) in &secrets {
            let status = ask(&api.with_token(secret), method, route).await;
            let allowed = *need == Need::Nothing || *need == Need::Scope(*scope);
            assert_eq!(refused.contains(&status), !allowed, "{method} {route} with {scope:?}: {status}");
            let refusal = if *need == Need::Peer { 401 } else { 403 };
            assert!(allowed || status == refusal, "{method} {route} with {scope:?}: {status}");
        }
        for (who, stranger) in [
            ("nobody", api.with_token("")),
            ("a made-up token", api.with_token("ovd_0000000000000000000000000000000000000000000000000000000000000000")),
            ("an expired token", api.with_token(&expired)),
            ("a revoked token", api.with_token(&revoked)),
        ] {
            let status = ask(&stranger, method, route).await;
            assert_eq!(status == 401, *need != Need::Nothing, "{method} {route} with {who}: {status}");
        }
    }
}

#[tokio::test]
async fn no_route_of_the_server_is_missing_from_the_table() {
    // A route that is not in the table is refused to everybody, whatever it is: 405 or 404, never an answer.
    let node = Node::start().await;
    let api = node.listen().await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        for (_, route, _) in ROUTES {
            if ROUTES.iter().any(|(allowed, other, _)| *allowed == method && other == route) {
                continue;
            }
            assert_eq!(ask(&api, method, route).await, 405, "{method} {route}");
        }
    }
}

#[tokio::test]
async fn a_token_expires_by_the_nodes_clock_and_a_revoked_one_is_refused_within_a_second() {
    let node = Node::start().await;
    let api = node.listen().await;
    let secret = token(&node, "short", &["read"], &[], Some(START.saturating_add(Duration::from_secs(60)))).await;
    let admin = api.with_token(&token(&node, "admin", &["admin"], &[], None).await);
    let reader = api.with_token(&secret);
    assert_eq!(reader.get("/v1/workflows").await.status, 200);
    node.pass(Duration::from_millis(59_999)).await;
    assert_eq!(reader.get("/v1/workflows").await.status, 200);
    node.pass(Duration::from_millis(1)).await;
    assert_eq!(reader.get("/v1/workflows").await.status, 401);

    let other = api.with_token(&token(&node, "other", &["read"], &[], None).await);
    node.pass(Duration::from_secs(1)).await;
    assert_eq!(other.get("/v1/workflows").await.status, 200);
    assert_eq!(admin.send(admin.request(Method::DELETE, "/v1/tokens/other")).await.status, 204);
    assert_eq!(other.get("/v1/workflows").await.status, 401, "at once on the node that was told");
    assert_eq!(admin.send(admin.request(Method::DELETE, "/v1/tokens/other")).await.status, 404);
}

#[tokio::test]
async fn a_token_for_some_types_sees_and_touches_no_others() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::new("o-1")).await;
    let scopes = ["start", "signal", "read", "operate"];
    let late = api.with_token(&token(&node, "late", &scopes, &["late-payment"], None).await);
    let orders = api.with_token(&token(&node, "orders", &scopes, &["order-timeout"], None).await);
    for (method, route, _) in ROUTES.iter().filter(|(_, route, _)| route.contains("{type}")) {
        assert_eq!(ask_well(&late, method, route).await, 403, "{method} {route}");
        assert_ne!(ask_well(&orders, method, route).await, 403, "{method} {route}");
    }
    assert_eq!(late.get("/v1/workflows").await.json()["workflows"], json!([]), "the list shows only its own");
    assert_eq!(late.get("/v1/workflows?type=order-timeout").await.status, 403);
    assert!(orders.get("/v1/workflows").await.text.contains(r#""id":"o-1""#));
}

/// Asks with a body that every handler can read.
async fn ask_well(api: &Api, method: &str, route: &str) -> u16 {
    let path = route.replace("{type}", "order-timeout").replace("{id}", "nobody").replace("{number}", "1");
    let (path, body) = if route.ends_with("/{id}") {
        (path, json!({ "input": Order::new("nobody").input() }))
    } else if route.contains("signals") {
        (path.replace("{name}", "payment-failed"), json!({ "payload": { "reason": "r" } }))
    } else if route.ends_with("/deadline") {
        (path, json!({ "deadline": START, "reason": "r" }))
    } else {
        (path, json!({ "reason": "r", "result": {} }))
    };
    let body = if route.contains("activities") || method == "GET" { body } else { without_result(body) };
    let request = api.request(Method::from_bytes(method.as_bytes()).unwrap(), &path);
    let request = if method == "GET" { request } else { request.body(body.to_string()) };
    api.send(request).await.status.as_u16()
}

fn without_result(mut body: serde_json::Value) -> serde_json::Value {
    body.as_object_mut().unwrap().remove("result");
    body
}

#[tokio::test]
async fn who_acted_is_the_tokens_name_whatever_the_caller_says() {
    let node = Node::start().await;
    let api = node.listen().await;
    node.place(&Order::new("o-1")).await;
    let ops = api.with_token(&token(&node, "dana", &["operate"], &[], None).await);
    let request = ops.request(Method::POST, "/v1/workflows/order-timeout/o-1/terminate").header("x-actor", "somebody else");
    assert_eq!(ops.send(request.body(r#"{"reason":"a test order"}"#)).await.status, 200);
    assert_eq!(node.story("o-1").await.last().unwrap(), "terminated by dana: a test order");
}

#[tokio::test]
async fn a_tokens_secret_is_shown_once_and_stored_nowhere() {
    let node = Node::start().await;
    let api = node.listen().await;
    let created =
        api.post("/v1/tokens", &json!({ "name": "first", "scopes": ["admin", "read"], "types": ["order-timeout"] })).await;
    assert_eq!(created.status, 201);
    let secret = created.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(api.get("/v1/tokens").await.status, 401, "from the first token on, every request needs one");

    let admin = api.with_token(&secret);
    let listed = admin.get("/v1/tokens").await;
    assert!(!listed.text.contains(&secret[4..]), "{}", listed.text);
    let shown =
        json!({ "name": "first", "scopes": "admin,read", "types": "order-timeout", "createdAt": START, "expiresAt": null });
    assert_eq!(listed.json()["tokens"], json!([shown]));
    assert_eq!(admin.post("/v1/tokens", &json!({ "name": "first", "scopes": ["read"] })).await.status, 409);
    for (body, field) in [
        (json!({ "name": "x", "scopes": ["write"] }), "scopes"),
        (json!({ "name": "x", "scopes": [] }), "scopes"),
        (json!({ "name": "a/b", "scopes": ["read"] }), "name"),
        (json!({ "name": "x", "scopes": ["read"], "types": ["a,b"] }), "types"),
    ] {
        let refused = admin.post("/v1/tokens", &body).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["errors"][0]["field"]), (422, &json!(field)), "{body}");
    }
}

#[tokio::test]
async fn a_server_beyond_loopback_is_refused_until_there_is_a_token() {
    // B100: there is no built-in token either.
    let node = Node::start().await;
    let refused = Server::on(node.client.clone(), Listener::bind("0.0.0.0:0").await.unwrap()).await.err().unwrap();
    assert!(matches!(refused, ServeError::Open { .. }), "{refused}");
    token(&node, "first", &["admin"], &[], None).await;
    assert!(Server::on(node.client.clone(), Listener::bind("0.0.0.0:0").await.unwrap()).await.is_ok());

    let site = Site::alone();
    let ran = run(&mut site.serve("0.0.0.0:0")).await;
    assert_eq!(ran.code, Some(1));
    let said = ran.stderr;
    assert!(said.contains("refusing to listen") && said.contains("overdue token create NAME --scopes admin --store"), "{said}");
    let created = run(program().args(["token", "create", "first", "--scopes", "admin", "--store", &site.store()])).await;
    assert_eq!(created.code, Some(0), "{created:?}");
    assert!(created.stdout.trim().starts_with("ovd_"));
}

#[tokio::test]
async fn a_server_beyond_loopback_whose_last_token_was_revoked_refuses_everybody() {
    let node = Node::start().await;
    let secret = token(&node, "only", &["read", "admin"], &[], None).await;
    let api = node.listen_beyond_loopback().await;
    let mine = api.with_token(&secret);
    assert_eq!(mine.get("/v1/workflows").await.status, 200);
    assert_eq!(mine.send(mine.request(Method::DELETE, "/v1/tokens/only")).await.status, 204);

    assert_eq!(mine.get("/v1/workflows").await.status, 401);
    assert_eq!(api.get("/v1/workflows").await.status, 401, "no token is no leave");
    assert_eq!(api.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_page_of_another_site_can_change_nothing() {
    let node = Node::start().await;
    let api = node.listen().await;
    let start = json!({ "input": Order::new("o-1").input() }).to_string();
    for (header, value) in [("sec-fetch-site", "cross-site"), ("origin", "http://shop.example"), ("origin", "null.example://x")] {
        let request = api.request(Method::POST, "/v1/workflows/order-timeout/o-1").header(header, value).body(start.clone());
        assert_eq!(api.send(request).await.status, 403, "{header}: {value}");
    }
    let own = api.url.clone();
    let request = api.request(Method::POST, "/v1/workflows/order-timeout/o-1").header("origin", own).body(start);
    assert_eq!(api.send(request).await.status, 201);
}
