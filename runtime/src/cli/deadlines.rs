//! `deadlines list`, `forecast`, `set`.

use std::process::ExitCode;

use reqwest::Method;
use serde::Serialize;

use super::actions::act;
use super::args::{Connection, DeadlinesArgs, DeadlinesTask, ForecastArgs, SetArgs};
use super::program::Failure;
use super::remote::{Remote, body, path};
use super::show;

pub(super) async fn run(connection: &Connection, args: DeadlinesArgs) -> Result<ExitCode, Failure> {
    match args.task {
        DeadlinesTask::List(args) => show::list(connection, "/v1/deadlines", args).await,
        DeadlinesTask::Forecast(args) => forecast(connection, args).await,
        DeadlinesTask::Set(args) => set(connection, args).await,
    }
}

async fn set(connection: &Connection, args: SetArgs) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct Set {
        deadline: String,
        reason: String,
    }
    let set = Set { deadline: args.deadline, reason: args.reason };
    act(connection, &format!("{}/deadline", path(&args.target)), &body(&set)?).await
}

/// Shows the minutes in which something becomes due, and the sum.
async fn forecast(connection: &Connection, args: ForecastArgs) -> Result<ExitCode, Failure> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("minutes", &args.minutes.to_string());
    for (name, value) in [("from", &args.from), ("type", &args.workflow_type)] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let route = format!("/v1/deadlines/forecast?{}", query.finish());
    let answer = Remote::new(connection)?.ask(Method::GET, &route, None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let value = answer.value()?;
    let mut rows = show::table(&["minute", "due"]);
    let (mut sum, mut is_at_least) = (0, false);
    for minute in value["minutes"].as_array().into_iter().flatten() {
        let (due, is_cut) = (minute["due"].as_u64().unwrap_or_default(), minute["isAtLeast"] == true);
        sum += due;
        is_at_least |= is_cut;
        if due > 0 || is_cut {
            rows.add_row([show::text(minute, "at").to_owned(), counted(due, is_cut)]);
        }
    }
    anstream::println!("{rows}");
    let due = counted(sum, is_at_least);
    anstream::println!("{due} workflows become due in {} minutes from {}", args.minutes, show::text(&value, "from"));
    Ok(ExitCode::SUCCESS)
}

fn counted(due: u64, is_at_least: bool) -> String {
    if is_at_least { format!("at least {due}") } else { due.to_string() }
}
