//! `outbox list`, `retry`, `skip`.

use std::process::ExitCode;

use reqwest::Method;
use serde::Serialize;

use super::args::{Connection, OutboxArgs, OutboxListArgs, OutboxTask};
use super::program::Failure;
use super::remote::{Remote, body, segment};
use super::show::printable;

pub(super) async fn run(connection: &Connection, args: OutboxArgs) -> Result<ExitCode, Failure> {
    match args.task {
        OutboxTask::List(args) => list(connection, args).await,
        OutboxTask::Retry { id, reason } => decide(connection, "retry", &id, reason).await,
        OutboxTask::Skip { id, reason } => decide(connection, "skip", &id, reason).await,
    }
}

async fn decide(connection: &Connection, action: &str, id: &str, reason: String) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct Decision {
        reason: String,
    }
    let route = format!("/v1/outbox/{}/{action}", segment(id));
    Remote::new(connection)?.ask(Method::POST, &route, Some(&body(&Decision { reason })?)).await?;
    if !connection.json {
        anstream::println!("done");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(connection: &Connection, args: OutboxListArgs) -> Result<ExitCode, Failure> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &args.limit.to_string());
    if let Some(sink) = &args.sink {
        query.append_pair("sink", sink);
    }
    if let Some(state) = &args.state {
        query.append_pair("state", state);
    }
    let answer = Remote::new(connection)?.ask(Method::GET, &format!("/v1/outbox?{}", query.finish()), None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let value = answer.value()?;
    for event in value["events"].as_array().into_iter().flatten() {
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let mut line = format!(
            "{}  {} of {} {} to {}: {}",
            text("id"),
            text("event"),
            text("type"),
            text("workflowId"),
            text("sink"),
            text("state")
        );
        if let Some(attempts) = event["attempts"].as_u64().filter(|attempts| *attempts > 0) {
            line.push_str(&format!(", {attempts} attempts failed"));
        }
        if !text("nextAttemptAt").is_empty() {
            line.push_str(&format!(", next at {}", text("nextAttemptAt")));
        }
        if !text("lastFailure").is_empty() {
            line.push_str(&format!(" ({})", text("lastFailure")));
        }
        anstream::println!("{}", printable(&line));
    }
    if value["next"].is_string() {
        anstream::eprintln!("there are more; narrow it with --sink or --state, or raise --limit");
    }
    Ok(ExitCode::SUCCESS)
}
