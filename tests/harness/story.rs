//! A history as a person would retell it: one short line an event.

use std::collections::HashMap;

use serde_json::Value;

/// Retells a history. What an event refers to is called by its name.
pub(crate) fn retell(events: &[Value]) -> Vec<String> {
    let mut names: HashMap<u64, String> = HashMap::new();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for event in events {
        let kind = event["kind"].as_str().unwrap();
        let number = event["number"].as_u64().unwrap();
        // What others are told is a chapter of its own.
        if matches!(kind, "VersionMarked" | "EventEmitted") {
            continue;
        }
        if matches!(kind, "TimerStarted" | "ActivityScheduled") {
            names.insert(number, text(event, "name"));
        }
        let named = |key: &str| event[key].as_u64().and_then(|number| names.get(&number)).cloned().unwrap_or_default();
        let (timer, step) = (named("timer"), named("activity"));
        let acted = format!("by {}: {}", text(event, "actor"), text(event, "reason"));
        let failure = event["failure"]["errorType"].as_str().unwrap_or_default();
        lines.push(match kind {
            "WorkflowStarted" => "started".into(),
            "TimerStarted" => format!("wait for {}", text(event, "name")),
            "TimerFired" => format!("{timer} has come"),
            "TimerCancelled" => format!("no longer wait for {timer}"),
            "ActivityScheduled" if !event["byHand"].is_null() => format!("ask a person: {}", text(event, "name")),
            "ActivityScheduled" => format!("call {}", text(event, "name")),
            "ActivityCompleted" => format!("{step} answered {}", event["result"]["outcome"].as_str().unwrap_or("something")),
            "ActivityFailed" => format!("{step} failed with {failure}"),
            "ActivityCancelled" => format!("no longer wait for {step}"),
            "AttentionRequested" => format!("{step} needs a person, {failure}"),
            "ActivityRetried" => format!("{step} retried {acted}"),
            "ActivityResolved" => format!("{step} resolved {acted}"),
            "ActivitySkipped" => format!("{step} skipped {acted}"),
            "SignalReceived" => format!("received {} {}", text(event, "name"), text(event, "signalId")),
            "SideEffectRecorded" => "settings kept".into(),
            "WorkflowCompleted" => "completed".into(),
            "WorkflowTerminated" => format!("terminated {acted}"),
            other => other.into(),
        });
    }
    lines
}
