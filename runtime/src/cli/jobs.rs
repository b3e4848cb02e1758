//! `jobs start`, `list`, `show`, `items`, `cancel`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;

use super::actions::act;
use super::args::{Connection, JobListArgs, JobStartArgs, JobsArgs, JobsTask};
use super::attention::pairs;
use super::program::Failure;
use super::remote::{Answer, Remote, body, read_json, segment};
use super::show::{self, printable, text};
use crate::client::PAGE_MAX;
use crate::payload::Payload;

pub(super) async fn run(connection: &Connection, args: JobsArgs) -> Result<ExitCode, Failure> {
    match args.task {
        JobsTask::Start(args) => start(connection, *args).await,
        JobsTask::List(args) => list(connection, args).await,
        JobsTask::Show { id } => show(connection, &id).await,
        JobsTask::Items { id } => items(connection, &id).await,
        JobsTask::Cancel { id, reason } => cancel(connection, &id, reason).await,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    action: String,
    filter: Filter,
    reason: String,
    dry_run: bool,
    per_second: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    r#type: Option<String>,
    attributes: BTreeMap<String, String>,
    activity: Option<String>,
    failure: Option<String>,
    due_after: Option<String>,
    due_before: Option<String>,
}

async fn start(connection: &Connection, args: JobStartArgs) -> Result<ExitCode, Failure> {
    let JobStartArgs { action, steps, due_after, due_before, result, to, later, earlier, per_second, dry_run, id, reason } = args;
    let attributes = pairs(&steps.attributes)?.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (r#type, activity, failure) = (steps.workflow_type, steps.activity, steps.failure);
    let iso = |sign: &str, by: Duration| format!("{sign}PT{}.{:03}S", by.as_secs(), by.subsec_millis());
    let job = Job {
        action: action.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default(),
        filter: Filter { r#type, attributes, activity, failure, due_after, due_before },
        reason,
        dry_run,
        per_second,
        result: result.map(|result| read_json(&result, "--result")).transpose()?,
        deadline: to,
        by: later.map(|by| iso("", by)).or_else(|| earlier.map(|by| iso("-", by))),
    };
    let answer = Remote::new(connection)?.ask_keyed(Method::POST, "/v1/jobs", Some(&body(&job)?), id.as_deref()).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let value = answer.value()?;
    let id = printable(text(&value, "id"));
    anstream::println!(
        "job {id} started; how far it is: overdue jobs show {id}, what became of each item: overdue jobs items {id}"
    );
    Ok(ExitCode::SUCCESS)
}

async fn list(connection: &Connection, args: JobListArgs) -> Result<ExitCode, Failure> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &args.limit.clamp(1, PAGE_MAX).to_string());
    for (name, value) in [("type", &args.workflow_type), ("status", &args.status)] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let answer = Remote::new(connection)?.ask(Method::GET, &format!("/v1/jobs?{}", query.finish()), None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let page = answer.value()?;
    let mut rows = show::table(&["id", "action", "type", "status", "started", "closed"]);
    for job in page["workflows"].as_array().into_iter().flatten() {
        let attributes = &job["attributes"];
        rows.add_row([
            printable(text(job, "id")),
            text(attributes, "action").to_owned(),
            printable(text(attributes, "type")),
            text(job, "status").to_owned(),
            text(job, "startedAt").to_owned(),
            text(job, "closedAt").to_owned(),
        ]);
    }
    anstream::println!("{rows}");
    if page["next"].is_string() {
        anstream::eprintln!("there are more; narrow it with --type or --status, or raise --limit");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(connection: &Connection, id: &str) -> Result<ExitCode, Failure> {
    let answer = Remote::new(connection)?.ask(Method::GET, &format!("/v1/jobs/{}", segment(id)), None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let job = answer.value()?;
    let mut facts = show::table(&[]);
    for key in ["id", "status", "phase", "action", "filter", "by", "deadline", "reason", "actor", "startedAt", "closedAt"] {
        match &job[key] {
            Value::Null => {}
            Value::String(text) => drop(facts.add_row([key.to_owned(), printable(text)])),
            other => drop(facts.add_row([key.to_owned(), printable(&other.to_string())])),
        }
    }
    anstream::println!("{facts}");
    let dry = if job["dryRun"] == true { " (a dry run: nothing is changed)" } else { "" };
    let outcomes: Vec<String> =
        job["outcomes"].as_object().into_iter().flatten().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    anstream::println!("{} items selected{dry}, {} gone through: {}", job["selected"], job["done"], outcomes.join(", "));
    if job["isCut"] == true {
        anstream::println!("there are more items than one job may select: start another one when this has ended");
    }
    Ok(ExitCode::SUCCESS)
}

async fn items(connection: &Connection, id: &str) -> Result<ExitCode, Failure> {
    let remote = Remote::new(connection)?;
    let mut rows = show::table(&["item", "type", "id", "what", "outcome"]);
    let mut after = 0;
    loop {
        let route = format!("/v1/jobs/{}/items?after={after}&limit={PAGE_MAX}", segment(id));
        let page = Answer::value(&remote.ask(Method::GET, &route, None).await?)?;
        for item in page["items"].as_array().into_iter().flatten() {
            if connection.json {
                anstream::println!("{item}");
                continue;
            }
            let what = match item["number"].as_u64() {
                Some(number) => format!("step {number}, {} ({})", text(item, "name"), text(item, "failure")),
                None => format!("due {}, to be due {}", text(item, "from"), text(item, "to")),
            };
            let detail = item["detail"].as_str().map(|detail| format!(": {detail}")).unwrap_or_default();
            rows.add_row([
                item["item"].to_string(),
                printable(text(item, "type")),
                printable(text(item, "id")),
                printable(&what),
                printable(&format!("{}{detail}", text(item, "outcome"))),
            ]);
        }
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    if !connection.json {
        anstream::println!("{rows}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(connection: &Connection, id: &str, reason: String) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct Cancel {
        reason: String,
    }
    act(connection, &format!("/v1/jobs/{}/cancel", segment(id)), &body(&Cancel { reason })?).await
}
