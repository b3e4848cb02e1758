//! `attention`: the steps that wait for a person.

use std::process::ExitCode;

use reqwest::Method;

use super::args::{AttentionArgs, Connection, StepFilter};
use super::program::Failure;
use super::remote::Remote;
use super::show::{self, printable, text};
use crate::client::PAGE_MAX;

pub(super) async fn run(connection: &Connection, args: AttentionArgs) -> Result<ExitCode, Failure> {
    let remote = Remote::new(connection)?;
    let mut rows = show::table(&["type", "id", "number", "step", "since", "failure"]);
    let (mut cursor, mut shown): (Option<String>, usize) = (None, 0);
    // A cursor belongs to one limit, so every page is asked for with the same.
    let limit = args.limit.clamp(1, PAGE_MAX);
    let is_cut = loop {
        let answer =
            remote.ask(Method::GET, &format!("/v1/attention?{}", query(&args.steps, limit, cursor.as_deref())?), None).await?;
        let page = answer.value()?;
        for step in page["steps"].as_array().into_iter().flatten() {
            if shown == args.limit {
                break;
            }
            shown += 1;
            if connection.json {
                anstream::println!("{step}");
                continue;
            }
            rows.add_row([
                printable(text(step, "type")),
                printable(text(step, "id")),
                step["number"].to_string(),
                printable(text(step, "name")),
                text(step, "since").to_owned(),
                printable(&format!("{}: {}", text(step, "failure"), text(step, "message"))),
            ]);
        }
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() || shown == args.limit {
            break cursor.is_some();
        }
    };
    if !connection.json {
        anstream::println!("{rows}");
        anstream::println!("{shown} steps{}", if is_cut { "; there are more (--limit)" } else { "" });
    }
    Ok(ExitCode::SUCCESS)
}

fn query(steps: &StepFilter, limit: usize, cursor: Option<&str>) -> Result<String, Failure> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &limit.to_string());
    for (name, value) in [("type", &steps.workflow_type), ("activity", &steps.activity), ("failure", &steps.failure)] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    for (name, value) in pairs(&steps.attributes)? {
        query.append_pair(&format!("attr.{name}"), value);
    }
    if let Some(cursor) = cursor {
        query.append_pair("cursor", cursor);
    }
    Ok(query.finish())
}

/// Search attributes as they are written on the command line.
pub(super) fn pairs(attributes: &[String]) -> Result<Vec<(&str, &str)>, Failure> {
    let pair = |pair: &'_ String| -> Failure { format!("--attribute {pair:?}: write NAME=VALUE").into() };
    attributes.iter().map(|text| text.split_once('=').ok_or_else(|| pair(text))).collect()
}
