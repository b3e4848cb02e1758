//! Waits until nothing moves by itself any more: every execution is closed, or waits for a person.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use super::POLL;
use super::client::Client;
use super::plan::Settling;

/// The types of execution that an order can have.
pub(super) const TYPES: [&str; 2] = ["order-timeout", "late-payment"];
/// Looks in a row at which the same executions must have waited for a person before that is believed.
const STILL_LOOKS: u32 = 6;

/// The executions that neither closed nor wait for a person when patience ended, as (type, id).
pub(super) type Unsettled = BTreeSet<(String, String)>;

/// Waits, and returns what did not settle.
pub(super) async fn wait(client: &Client, prefix: &str, settling: Settling) -> anyhow::Result<Unsettled> {
    let begun = Instant::now();
    let mut still = 0;
    loop {
        let open = open_executions(client, prefix).await?;
        if open.is_empty() {
            return Ok(Unsettled::new());
        }
        if begun.elapsed() >= settling.quiet {
            let moving = moving(client, &open).await?;
            still = if moving.is_empty() { still + 1 } else { 0 };
            if still >= STILL_LOOKS || begun.elapsed() >= settling.limit {
                return Ok(moving);
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn open_executions(client: &Client, prefix: &str) -> anyhow::Result<Unsettled> {
    let mut open = Unsettled::new();
    for kind in TYPES {
        for execution in client.running(kind).await? {
            let id = execution["id"].as_str().unwrap_or_default();
            // A store may hold what others started.
            if id.starts_with(prefix) {
                open.insert((kind.to_owned(), id.to_owned()));
            }
        }
    }
    Ok(open)
}

async fn moving(client: &Client, open: &Unsettled) -> anyhow::Result<Unsettled> {
    let looks = open.iter().map(|(kind, id)| async move {
        let described = client.describe(kind, id).await?;
        let moves = described["status"] == "running" && !waits_for_a_person(&described);
        anyhow::Ok(moves.then(|| (kind.clone(), id.clone())))
    });
    Ok(futures::future::try_join_all(looks).await?.into_iter().flatten().collect())
}

/// Whether all that is left to do is a person's.
pub(super) fn waits_for_a_person(described: &Value) -> bool {
    let pending = described["pendingActivities"].as_array().map_or(&[][..], Vec::as_slice);
    !pending.is_empty() && pending.iter().all(|activity| activity["state"] == "needs-attention")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_execution_waits_for_a_person_only_if_all_its_pending_steps_do() {
        let with = |states: &[&str]| {
            let pending: Vec<_> = states.iter().map(|state| json!({ "state": state })).collect();
            waits_for_a_person(&json!({ "pendingActivities": pending }))
        };
        assert!(with(&["needs-attention", "needs-attention"]));
        assert!(!with(&["needs-attention", "backing-off"]));
        assert!(!with(&[]));
    }
}
