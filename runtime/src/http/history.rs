//! Reading a history, page by page or as it grows.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive, Sse as SseResponse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use serde::Deserialize;
use tokio::sync::broadcast;

use super::Api;
use super::access::Caller;
use super::problem::Problem;
use super::request::{Parameters, Target, header, malformed};
use crate::client::{Client, HistoryPage, PAGE_MAX};
use crate::history::Event;
use crate::id::WorkflowKey;

/// How many events a page has unless the caller says otherwise.
const PAGE_DEFAULT: usize = 100;
/// A follower looks again after this long even if it was told of no change.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub(super) struct HistoryQuery {
    after: Option<u64>,
    limit: Option<usize>,
    follow: Option<String>,
}

/// Reads the events behind number `after`; none when retention removed them (`retiredAt` of the description says when). With `follow=1` they come as server-sent events, as they happen, up to the end;
/// `Last-Event-ID` resumes.
#[utoipa::path(
    get, path = "/v1/workflows/{type}/{id}/history", tag = "workflows",
    params(
        ("type" = String, Path, description = "workflow type"), ("id" = String, Path, description = "workflow id"),
        ("after" = Option<u64>, Query, description = "number of the last event that is known"),
        ("limit" = Option<usize>, Query, description = "1 to 1000, default 100"),
        ("follow" = Option<String>, Query, description = "1 for server-sent events"),
    ),
    responses((status = 200, body = HistoryPage), (status = 400, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn history(
    State(api): State<Api>,
    caller: Caller,
    Target((workflow_type, id)): Target<(String, String)>,
    Parameters(query): Parameters<HistoryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may_touch(&workflow_type)?;
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if limit == 0 || limit > PAGE_MAX {
        return Err(malformed("limit", &format!("1 to {PAGE_MAX}")));
    }
    let resumed = header(&headers, "last-event-id").and_then(|id| id.parse().ok());
    let after = resumed.or(query.after).unwrap_or(0);
    if !matches!(query.follow.as_deref(), Some("1" | "true")) {
        return Ok(Json(api.client.history(&workflow_type, &id, after, limit).await?).into_response());
    }
    let changes = api.client.engine().changes();
    let first = api.client.history(&workflow_type, &id, after, PAGE_MAX).await?;
    let follower = Follower { client: api.client, workflow_type, id, after, changes, ended: false };
    let events = follower.events_from(first).flat_map(|events| stream::iter(events.into_iter().map(|event| Ok(as_sse(&event)))));
    Ok(SseResponse::new(events.map(|event: Result<Sse, Infallible>| event)).keep_alive(KeepAlive::default()).into_response())
}

struct Follower {
    client: Client,
    workflow_type: String,
    id: String,
    after: u64,
    changes: broadcast::Receiver<WorkflowKey>,
    ended: bool,
}

impl Follower {
    /// The events of `first`, then whatever comes, up to the one that ends the execution.
    fn events_from(mut self, first: HistoryPage) -> impl Stream<Item = Vec<Event>> {
        self.note(&first);
        let more = first.next.is_some();
        let rest = stream::unfold((self, more), |(mut follower, more)| async move {
            if follower.ended {
                return None;
            }
            if !more {
                follower.wait().await;
            }
            // A failed read ends the stream; the reader resumes with its last event.
            let page = follower.client.history(&follower.workflow_type, &follower.id, follower.after, PAGE_MAX).await.ok()?;
            follower.note(&page);
            Some((page.events, (follower, page.next.is_some())))
        });
        stream::iter([first.events]).chain(rest)
    }

    fn note(&mut self, page: &HistoryPage) {
        if let Some(last) = page.events.last() {
            self.after = last.number;
        }
        self.ended = page.is_last;
    }

    /// Until the execution may have changed.
    async fn wait(&mut self) {
        let clock = self.client.engine().environment().clock.clone();
        let key = WorkflowKey::new(self.workflow_type.as_str(), self.id.as_str());
        let changed = async {
            loop {
                match self.changes.recv().await {
                    Ok(changed) if changed != key => {}
                    // What was missed is read from the store.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            biased;
            () = changed => {}
            () = clock.sleep(LOOK_AGAIN) => {}
        }
    }
}

fn as_sse(event: &Event) -> Sse {
    let data = serde_json::to_string(event).unwrap_or_default();
    Sse::default().id(event.number.to_string()).event(event.kind.name()).data(data)
}
