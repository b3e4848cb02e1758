//! One paragraph for the person on call: what an execution waits for, since when, and what can be done.

use serde::Serialize;
use utoipa::ToSchema;

use super::describe::{ActivityState, Description, PendingActivityView};
use super::{Client, ClientError};
use crate::store::Status;
use crate::time::Timestamp;

/// Why an execution stands where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// All of it in one paragraph.
    pub text: String,
    /// What it waits for first of all; `None` when it has ended.
    pub waiting_for: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// What a person can do now, as commands.
    pub actions: Vec<String>,
}

impl Client {
    /// Explains an execution.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn explain(&self, workflow_type: &str, id: &str) -> Result<Explanation, ClientError> {
        let description = self.describe(workflow_type, id).await?;
        let page = self.history(workflow_type, id, description.last_event.saturating_sub(1), 1).await?;
        let last_at = page.events.last().map(|event| event.at);
        Ok(explain(&description, last_at))
    }
}

/// Puts a description into words.
pub(super) fn explain(description: &Description, last_at: Option<Timestamp>) -> Explanation {
    let name = format!("{} {}", description.workflow_type, description.id);
    let quoted = format!("{} {}", shell_word(&description.workflow_type), shell_word(&description.id));
    if let Some(closed_at) = description.closed_at {
        return closed(description, &name, closed_at);
    }
    let mut sentences = Vec::new();
    let mut waits: Vec<(String, Timestamp)> = Vec::new();
    let mut actions = Vec::new();
    if description.status == Status::Blocked {
        let why = description.failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
        sentences.push(format!("{name} is blocked: {why}."));
        if let Some(wake_at) = description.wake_at {
            sentences.push(format!("It is tried again by itself at {wake_at}, and at once when another build starts."));
        }
        waits.push(("a program that can run it".into(), last_at.unwrap_or(description.started_at)));
        actions.push(format!("overdue terminate {quoted} --reason TEXT"));
    } else {
        sentences.push(format!("{name} is open since {}.", description.started_at));
    }
    if let Some(progress) = description.progress.as_ref().and_then(|progress| progress.parse().ok()) {
        sentences.push(format!("Its own account: {}.", in_words(&progress)));
    }
    let mut activities: Vec<&PendingActivityView> = description.pending_activities.iter().collect();
    activities.sort_by_key(|activity| activity.state != ActivityState::NeedsAttention);
    for activity in activities {
        sentences.push(activity_sentence(activity));
        waits.push((activity_wait(activity), activity.since));
        if activity.state == ActivityState::NeedsAttention {
            for action in ["retry", "resolve", "skip"] {
                let result = if action == "resolve" { " --result JSON" } else { "" };
                actions.push(format!("overdue {action} {quoted} {}{result} --reason TEXT", activity.number));
            }
        } else if matches!(activity.state, ActivityState::BackingOff | ActivityState::Parked) {
            actions.push(format!("overdue retry {quoted} {} --reason TEXT", activity.number));
        }
        if activity.state == ActivityState::Parked {
            actions.push("overdue breaker list".to_owned());
        }
    }
    for timer in &description.pending_timers {
        let called = timer.name.as_ref().map_or_else(|| "a timer".to_owned(), |name| format!("timer {name}"));
        sentences.push(format!("{} is due at {}.", capitalized(&called), timer.fire_at));
        waits.push((format!("{called}, due {}", timer.fire_at), last_at.unwrap_or(description.started_at)));
    }
    if waits.is_empty() {
        sentences.push("It waits for a signal.".into());
        waits.push(("a signal".into(), last_at.unwrap_or(description.started_at)));
    }
    if description.status == Status::Running {
        actions.push(format!("overdue cancel {quoted} --reason TEXT"));
    }
    let (waiting_for, since) = waits.swap_remove(0);
    Explanation { text: sentences.join(" "), waiting_for: Some(waiting_for), since: Some(since), actions }
}

fn closed(description: &Description, name: &str, closed_at: Timestamp) -> Explanation {
    let mut text = format!("{name} {} at {closed_at}", description.status.as_str());
    match (&description.result, &description.failure) {
        (Some(result), _) => {
            let words = result.parse().map_or_else(|_| result.as_str().to_owned(), |result| in_words(&result));
            text.push_str(&format!(", with the result: {words}."));
        }
        (None, Some(failure)) => text.push_str(&format!(": {}.", failure.message)),
        (None, None) => text.push('.'),
    }
    if let Some(retired_at) = description.retired_at {
        text.push_str(&format!(" Its history was removed by retention at {retired_at}; how it ended is all that is kept."));
    }
    if !description.linked.is_empty() {
        let links: Vec<_> = description.linked.iter().map(|link| format!("{} {}", link.workflow_type, link.id)).collect();
        text.push_str(&format!(" Linked: {}.", links.join(", ")));
    }
    Explanation { text, waiting_for: None, since: None, actions: Vec::new() }
}

fn activity_sentence(activity: &PendingActivityView) -> String {
    let PendingActivityView { name, number, attempt, since, .. } = activity;
    let failure = activity.last_failure.as_ref().map(ToString::to_string).unwrap_or_default();
    let next = activity.next_attempt_at.map(|at| at.to_string()).unwrap_or_default();
    match activity.state {
        ActivityState::NeedsAttention => format!("Step {number}, {name}, needs a person since {since}: {failure}."),
        ActivityState::Parked => {
            let by = activity.parked_by.as_deref().unwrap_or("a limit");
            let attempts = if *attempt == 0 { "before its first attempt".to_owned() } else { format!("after attempt {attempt}") };
            let again = if next.is_empty() { "until that lets it go".to_owned() } else { format!("and looks again at {next}") };
            format!("Step {number}, {name}, is parked by the {by} {attempts} {again}: {failure}.")
        }
        ActivityState::BackingOff => {
            format!("Step {number}, {name}, failed {attempt} times ({failure}) and is tried again at {next}.")
        }
        ActivityState::Running | ActivityState::Scheduled => format!("Step {number}, {name}, is in attempt {attempt}."),
    }
}

fn activity_wait(activity: &PendingActivityView) -> String {
    match activity.state {
        ActivityState::NeedsAttention => format!("a person, about step {} {}", activity.number, activity.name),
        ActivityState::Parked => format!("the {}", activity.parked_by.as_deref().unwrap_or("limit")),
        _ => format!("step {} {}", activity.number, activity.name),
    }
}

/// JSON in a few words: `phase watching, decision cancelled, refunds (transactionId txn-1, …)`. What is null is left out.
fn in_words(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(members) => {
            let told = members.iter().filter(|(_, value)| !value.is_null() && !value.as_array().is_some_and(Vec::is_empty));
            told.map(|(name, value)| format!("{name} {}", in_words(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(|item| format!("({})", in_words(item))).collect::<Vec<_>>().join(" and "),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
}

/// The text as one word of a POSIX shell.
fn shell_word(text: &str) -> String {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@%+=,".contains(c)) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
