//! The work list: steps that wait for a person.

use axum::Json;
use axum::extract::{RawQuery, State};

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::malformed;
use crate::client::{AttentionPage, AttentionQuery};

/// How many workflows a page looks at unless the caller says otherwise.
const PAGE_DEFAULT: usize = 100;

/// Lists steps that wait for a person, with what is wrong with each. A page may be short, or empty, and have a `next`.
#[utoipa::path(
    get, path = "/v1/attention", tag = "operate",
    params(
        ("type" = Option<String>, Query, description = "workflow type"),
        ("activity" = Option<String>, Query, description = "steps of this name"),
        ("failure" = Option<String>, Query, description = "steps with a last failure of this kind, such as http-422 or by-hand"),
        ("attr.NAME" = Option<String>, Query, description = "of workflows with this value of the search attribute NAME"),
        ("limit" = Option<usize>, Query, description = "how many workflows to look at, 1 to 1000, default 100"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before, with the same filter and limit"),
    ),
    responses((status = 200, body = AttentionPage), (status = 400, body = Problem))
)]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<AttentionPage>, Problem> {
    let mut list = AttentionQuery { limit: PAGE_DEFAULT, ..AttentionQuery::default() };
    for (name, value) in url::form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()) {
        let value = value.into_owned();
        match name.as_ref() {
            "type" => list.filter.workflow_type = Some(value),
            "activity" => list.filter.activity = Some(value),
            "failure" => list.filter.failure = Some(value),
            "limit" => list.limit = value.parse().map_err(|_| malformed("limit", "a number from 1 to 1000"))?,
            "cursor" => list.cursor = Some(value),
            other => match other.strip_prefix("attr.") {
                Some(attribute) => {
                    list.filter.attributes.insert(attribute.to_owned(), value);
                }
                None => return Err(malformed(other, "no such filter; see /docs")),
            },
        }
    }
    if let Some(workflow_type) = &list.filter.workflow_type {
        caller.may_touch(workflow_type)?;
    }
    list.visible_types = caller.types().cloned();
    Ok(Json(api.client.attention(&list).await?))
}
