//! Commands that look: describe, explain, list.

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::args::{Connection, ListArgs, Target};
use super::program::Failure;
use super::remote::{Remote, path, read_value};
use crate::client::PAGE_MAX;

pub(super) async fn describe(connection: &Connection, target: &Target) -> Result<ExitCode, Failure> {
    let answer = Remote::new(connection)?.ask(Method::GET, &path(target), None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let value = answer.value()?;
    let mut facts = table(&[]);
    for (label, key) in [
        ("type", "type"),
        ("id", "id"),
        ("run", "runId"),
        ("status", "status"),
        ("started", "startedAt"),
        ("closed", "closedAt"),
        ("wakes", "wakeAt"),
        ("history removed", "retiredAt"),
    ] {
        if let Some(text) = value[key].as_str() {
            facts.add_row([label.to_owned(), printable(text)]);
        }
    }
    for (label, key) in [("input", "input"), ("progress", "progress"), ("result", "result"), ("failure", "failure")] {
        if !value[key].is_null() {
            // The text as it came: numbers keep their digits.
            facts.add_row([label.to_owned(), printable(raw_member(&answer.body, key).unwrap_or_default())]);
        }
    }
    anstream::println!("{facts}");
    print_activities(&value);
    for linked in value["linked"].as_array().into_iter().flatten() {
        anstream::println!("linked: {} {}", printable(text(linked, "type")), printable(text(linked, "id")));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_activities(value: &Value) {
    let pending = value["pendingActivities"].as_array().map(Vec::as_slice).unwrap_or_default();
    if pending.is_empty() {
        return;
    }
    let mut activities = table(&["number", "activity", "state", "attempt", "next attempt", "parked by", "last failure"]);
    for activity in pending {
        let failure = &activity["lastFailure"];
        let failure = match failure["errorType"].as_str() {
            Some(error_type) => format!("{error_type}: {}", text(failure, "message")),
            None => String::new(),
        };
        activities.add_row([
            activity["number"].to_string(),
            printable(text(activity, "name")),
            text(activity, "state").to_owned(),
            activity["attempt"].to_string(),
            text(activity, "nextAttemptAt").to_owned(),
            printable(text(activity, "parkedBy")),
            printable(&failure),
        ]);
    }
    anstream::println!("{activities}");
}

pub(super) async fn explain(connection: &Connection, target: &Target) -> Result<ExitCode, Failure> {
    let answer = Remote::new(connection)?.ask(Method::GET, &format!("{}/explain", path(target)), None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let value = answer.value()?;
    anstream::println!("{}", printable(text(&value, "text")));
    let actions = value["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !actions.is_empty() {
        anstream::println!("\nWhat you can do:");
        for action in actions {
            anstream::println!("  {}", printable(action.as_str().unwrap_or_default()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists workflows, page after page, in the order of the route.
pub(super) async fn list(connection: &Connection, route: &str, args: ListArgs) -> Result<ExitCode, Failure> {
    #[derive(Deserialize)]
    struct Page {
        workflows: Vec<Box<RawValue>>,
        next: Option<String>,
    }
    let remote = Remote::new(connection)?;
    let mut rows = table(&["type", "id", "status", "attention", "started", "wakes"]);
    let mut cursor: Option<String> = None;
    // A cursor belongs to one limit, so every page is asked for with the same.
    let limit = args.limit.clamp(1, PAGE_MAX);
    let mut shown = 0;
    loop {
        let page = format!("{route}?{}", query(&args, limit, cursor.as_deref())?);
        let answer = remote.ask(Method::GET, &page, None).await?;
        let page: Page = serde_json::from_str(&answer.body)?;
        for raw in page.workflows.iter().take(args.limit - shown) {
            shown += 1;
            if connection.json {
                // The text as it came: numbers keep their digits.
                anstream::println!("{}", raw.get());
                continue;
            }
            let workflow = &read_value(raw);
            rows.add_row([
                printable(text(workflow, "type")),
                printable(text(workflow, "id")),
                text(workflow, "status").to_owned(),
                if workflow["needsAttention"] == true { "needed".into() } else { String::new() },
                text(workflow, "startedAt").to_owned(),
                text(workflow, "wakeAt").to_owned(),
            ]);
        }
        cursor = page.next;
        if cursor.is_none() || shown >= args.limit {
            break;
        }
    }
    if !connection.json {
        anstream::println!("{rows}");
        let more = if cursor.is_some() { "; there are more (--limit)" } else { "" };
        anstream::println!("{shown} workflows{more}");
    }
    Ok(ExitCode::SUCCESS)
}

fn query(args: &ListArgs, limit: usize, cursor: Option<&str>) -> Result<String, Failure> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &limit.to_string());
    for (name, value) in [
        ("type", &args.workflow_type),
        ("status", &args.status),
        ("due_after", &args.due_after),
        ("due_before", &args.due_before),
    ] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    if args.needs_attention {
        query.append_pair("needs_attention", "true");
    }
    for pair in &args.attributes {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(format!("--attribute {pair:?}: write NAME=VALUE").into());
        };
        query.append_pair(&format!("attr.{name}"), value);
    }
    if let Some(cursor) = cursor {
        query.append_pair("cursor", cursor);
    }
    Ok(query.finish())
}

pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A member's JSON text as it stands in the answer.
fn raw_member<'a>(body: &'a str, key: &str) -> Option<&'a str> {
    let members: std::collections::HashMap<String, &'a RawValue> = serde_json::from_str(body).ok()?;
    members.get(key).map(|raw| raw.get())
}

/// Peer text must not steer the terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}
