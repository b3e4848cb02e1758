//! `breaker list`, `open`, `close`, `force-close`.

use std::process::ExitCode;

use reqwest::Method;
use serde::Serialize;

use super::args::{BreakerArgs, BreakerTask, Connection};
use super::program::Failure;
use super::remote::{Remote, body, segment};
use super::show::printable;

pub(super) async fn run(connection: &Connection, args: BreakerArgs) -> Result<ExitCode, Failure> {
    match args.task {
        BreakerTask::List => list(connection).await,
        BreakerTask::Open { downstream, key, reason } => set(connection, "open", &downstream, key, reason).await,
        BreakerTask::Close { downstream, key, reason } => set(connection, "close", &downstream, key, reason).await,
        BreakerTask::ForceClose { downstream, key, reason } => set(connection, "force-close", &downstream, key, reason).await,
    }
}

async fn set(
    connection: &Connection,
    action: &str,
    downstream: &str,
    key: Option<String>,
    reason: String,
) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct Set {
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        reason: String,
    }
    let route = format!("/v1/breakers/{}/{action}", segment(downstream));
    Remote::new(connection)?.ask(Method::POST, &route, Some(&body(&Set { key, reason })?)).await?;
    if !connection.json {
        anstream::println!("done");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(connection: &Connection) -> Result<ExitCode, Failure> {
    let answer = Remote::new(connection)?.ask(Method::GET, "/v1/breakers", None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let value = answer.value()?;
    for breaker in value["breakers"].as_array().into_iter().flatten() {
        let text = |key: &str| breaker[key].as_str().unwrap_or_default();
        let mut line = text("downstream").to_owned();
        if !text("key").is_empty() {
            line.push_str(&format!(" {}", text("key")));
        }
        line.push_str(&format!(": {}", text("position")));
        if let Some(millis) = breaker["probeInMs"].as_u64() {
            line.push_str(&format!(", probes in {millis} ms"));
        }
        if !text("reason").is_empty() {
            line.push_str(&format!(" by {} ({})", text("actor"), text("reason")));
        }
        anstream::println!("{}", printable(&line));
    }
    Ok(ExitCode::SUCCESS)
}
