//! Commands that change something: signal, cancel, terminate, retry, resolve, skip.

use std::process::ExitCode;

use reqwest::Method;
use serde::Serialize;

use super::args::{Connection, DecideArgs, EndArgs, SignalArgs};
use super::program::Failure;
use super::remote::{Remote, body, path, read_json, segment};
use crate::payload::Payload;

pub(super) async fn signal(connection: &Connection, args: SignalArgs) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Signal {
        #[serde(skip_serializing_if = "Option::is_none")]
        signal_id: Option<String>,
        payload: Payload,
    }
    let signal = Signal { payload: read_json(&args.payload, "--payload")?, signal_id: args.signal_id };
    let route = format!("{}/signals/{}", path(&args.target), segment(&args.name));
    act(connection, &route, &body(&signal)?).await
}

pub(super) async fn end(connection: &Connection, action: &str, args: EndArgs) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct End {
        reason: String,
    }
    act(connection, &format!("{}/{action}", path(&args.target)), &body(&End { reason: args.reason })?).await
}

pub(super) async fn decide(
    connection: &Connection,
    action: &str,
    args: DecideArgs,
    result: Option<String>,
) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct Decision {
        reason: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Payload>,
    }
    let result = result.map(|result| read_json(&result, "--result")).transpose()?;
    let route = format!("{}/activities/{}/{action}", path(&args.target), args.number);
    act(connection, &route, &body(&Decision { reason: args.reason, result })?).await
}

/// Asks, and shows the outcome.
pub(super) async fn act(connection: &Connection, route: &str, body: &str) -> Result<ExitCode, Failure> {
    let answer = Remote::new(connection)?.ask(Method::POST, route, Some(body)).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
    } else {
        let value = answer.value()?;
        anstream::println!("{}", value["outcome"].as_str().unwrap_or("done"));
    }
    Ok(ExitCode::SUCCESS)
}
