//! `start`, and waiting for the end.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::Serialize;

use super::args::{Connection, StartArgs};
use super::program::Failure;
use super::remote::{Remote, body, path, read_json};
use crate::engine::Environment;
use crate::payload::Payload;

/// The exit code of a wait that ended before the workflow did.
const STILL_RUNNING: u8 = 3;
/// Time between two looks while waiting.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) async fn run(connection: &Connection, args: StartArgs) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Start {
        input: Payload,
        #[serde(skip_serializing_if = "Option::is_none")]
        start_at: Option<String>,
        attributes: BTreeMap<String, Payload>,
    }
    let start = Start {
        input: read_json(&args.input, "--input")?,
        start_at: args.start_at.clone(),
        attributes: attributes(&args.attributes)?,
    };
    let remote = Remote::new(connection)?;
    let route = path(&args.target);
    let answer = remote.ask(Method::POST, &route, Some(&body(&start)?)).await?;
    let value = answer.value()?;
    let run_id = value["runId"].as_str().unwrap_or_default();
    let verb = if answer.status == StatusCode::CREATED { "started" } else { "was started before" };
    if !args.wait {
        match connection.json {
            true => anstream::println!("{}", answer.body),
            false => anstream::println!("{} {} {verb}: run {run_id}", args.target.workflow_type, args.target.id),
        }
        return Ok(ExitCode::SUCCESS);
    }
    wait(connection, &remote, &route, args.timeout).await
}

/// Looks until the workflow has ended or the time is up, and shows how it stands.
async fn wait(connection: &Connection, remote: &Remote, route: &str, timeout: Duration) -> Result<ExitCode, Failure> {
    let clock = Environment::system().clock;
    let until = clock.monotonic().saturating_add(timeout);
    loop {
        let answer = remote.ask(Method::GET, route, None).await?;
        let value = answer.value()?;
        let status = value["status"].as_str().unwrap_or_default();
        let code = match status {
            "completed" => Some(ExitCode::SUCCESS),
            "failed" | "cancelled" | "terminated" => Some(ExitCode::FAILURE),
            _ if clock.monotonic() >= until => Some(ExitCode::from(STILL_RUNNING)),
            _ => None,
        };
        if let Some(code) = code {
            match connection.json {
                true => anstream::println!("{}", answer.body),
                false => anstream::println!("{status}"),
            }
            return Ok(code);
        }
        clock.sleep(LOOK_AGAIN).await;
    }
}

/// `NAME=VALUE` pairs; a value that is a JSON number, true or false is one, everything else a text.
fn attributes(pairs: &[String]) -> Result<BTreeMap<String, Payload>, Failure> {
    let mut attributes = BTreeMap::new();
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(format!("--attribute {pair:?}: write NAME=VALUE").into());
        };
        let bare = Payload::from_json(value).ok().filter(|value| !value.as_str().starts_with(['"', '{', '[', 'n']));
        let payload = match bare {
            Some(payload) => payload,
            None => Payload::of(value)?,
        };
        attributes.insert(name.to_owned(), payload);
    }
    Ok(attributes)
}
