//! `history`, once or as it grows.

use std::process::ExitCode;

use futures::StreamExt;
use reqwest::Method;
use serde_json::value::RawValue;

use super::args::{Connection, HistoryArgs};
use super::program::Failure;
use super::remote::{Remote, path, problem};
use super::show::printable;

pub(super) async fn run(connection: &Connection, args: HistoryArgs) -> Result<ExitCode, Failure> {
    let remote = Remote::new(connection)?;
    let route = format!("{}/history", path(&args.target));
    if args.follow {
        return follow(connection, &remote, &format!("{route}?follow=1&after={}", args.after)).await;
    }
    let mut after = Some(args.after);
    while let Some(number) = after {
        #[derive(serde::Deserialize)]
        struct Page {
            events: Vec<Box<RawValue>>,
            next: Option<u64>,
        }
        let answer = remote.ask(Method::GET, &format!("{route}?after={number}&limit=1000"), None).await?;
        let page: Page = serde_json::from_str(&answer.body)?;
        for event in &page.events {
            print_event(connection, event.get());
        }
        after = page.next;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints server-sent events until the stream ends.
async fn follow(connection: &Connection, remote: &Remote, route: &str) -> Result<ExitCode, Failure> {
    let response = remote.send(Method::GET, route, None, None).await?;
    let status = response.status();
    if !status.is_success() {
        return Err(problem(status, &response.text().await?));
    }
    let mut stream = response.bytes_stream();
    let mut buffer = Vec::new();
    while let Some(chunk) = stream.next().await {
        buffer.extend_from_slice(&chunk.map_err(|_| "the server ended the stream; ask again with --after")?);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            if let Some(event) = String::from_utf8_lossy(&line).trim_end().strip_prefix("data:") {
                print_event(connection, event.trim_start());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_event(connection: &Connection, event: &str) {
    if connection.json {
        anstream::println!("{event}");
        return;
    }
    let members: std::collections::BTreeMap<String, Box<RawValue>> = serde_json::from_str(event).unwrap_or_default();
    let text = |key: &str| members.get(key).map(|raw| raw.get().trim_matches('"').to_owned()).unwrap_or_default();
    let shown = ["number", "at", "kind"];
    let rest: Vec<String> = members
        .iter()
        .filter(|(name, value)| !shown.contains(&name.as_str()) && value.get() != "null")
        .map(|(name, value)| format!("{name}={}", value.get()))
        .collect();
    anstream::println!("{:>5}  {}  {:<20}  {}", text("number"), text("at"), text("kind"), printable(&rest.join(" ")));
}
