//! Listing workflows.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{RawQuery, State};

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::malformed;
use crate::client::{ListQuery, WorkflowPage};
use crate::time::{InvalidTimestamp, Timestamp};

/// How many rows a page has unless the caller says otherwise.
const PAGE_DEFAULT: usize = 100;

/// Lists workflows that meet all conditions, by type and id; with `due_after` or `due_before`, open ones by the time they are due.
#[utoipa::path(
    get, path = "/v1/workflows", tag = "workflows",
    params(
        ("type" = Option<String>, Query, description = "workflow type"),
        ("status" = Option<String>, Query, description = "running, completed, failed, cancelled, terminated or blocked"),
        ("needs_attention" = Option<bool>, Query, description = "with, or without, a step that waits for a person"),
        ("due_after" = Option<String>, Query, description = "open, and due at this time (RFC 3339) or later"),
        ("due_before" = Option<String>, Query, description = "open, and due before this time (RFC 3339)"),
        ("attr.NAME" = Option<String>, Query, description = "with this value of the search attribute NAME"),
        ("limit" = Option<usize>, Query, description = "1 to 1000, default 100"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before, with the same filter and limit"),
    ),
    responses((status = 200, body = WorkflowPage), (status = 400, body = Problem))
)]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<WorkflowPage>, Problem> {
    let list = parse(query.as_deref().unwrap_or_default())?;
    Ok(Json(page(&api, &caller, list).await?))
}

/// The page that this caller may see.
pub(super) async fn page(api: &Api, caller: &Caller, mut list: ListQuery) -> Result<WorkflowPage, Problem> {
    if let Some(workflow_type) = &list.workflow_type {
        caller.may_touch(workflow_type)?;
    }
    list.visible_types = caller.types().cloned();
    Ok(api.client.list(&list).await?)
}

pub(super) fn parse(query: &str) -> Result<ListQuery, Problem> {
    let mut list = ListQuery { limit: PAGE_DEFAULT, attributes: BTreeMap::new(), ..ListQuery::default() };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "type" => list.workflow_type = Some(value.into_owned()),
            "status" => {
                let known = "running, completed, failed, cancelled, terminated or blocked";
                list.status = Some(value.parse().map_err(|()| malformed("status", known))?);
            }
            "needs_attention" => {
                list.needs_attention = Some(value.parse().map_err(|_| malformed("needs_attention", "true or false"))?);
            }
            "due_after" => list.due_after = Some(instant("due_after", &value)?),
            "due_before" => list.due_before = Some(instant("due_before", &value)?),
            "limit" => list.limit = value.parse().map_err(|_| malformed("limit", "a number from 1 to 1000"))?,
            "cursor" => list.cursor = Some(value.into_owned()),
            other => match other.strip_prefix("attr.") {
                Some(attribute) => {
                    list.attributes.insert(attribute.to_owned(), value.into_owned());
                }
                None => return Err(malformed(other, "no such filter; see /docs")),
            },
        }
    }
    Ok(list)
}

/// A parameter that is a time.
pub(super) fn instant(name: &str, value: &str) -> Result<Timestamp, Problem> {
    value.parse().map_err(|error: InvalidTimestamp| malformed(name, &error.to_string()))
}
