//! What the audit judges: the shop's ledgers, the engine's histories, and the signals that were acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::Value;

use super::client::Client;
use super::drive::{Acts, SentSignal};
use super::plan::Plan;
use super::settle::Unsettled;
use super::story::Story;
use crate::sandbox::{EffectRecord, Record, RequestRecord, Service, Shop};

/// Orders whose histories are fetched side by side.
const FETCHING_MAX: usize = 32;

/// Everything there is to judge.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// The orders that were placed.
    pub(super) orders: Vec<String>,
    /// What was meant to happen to them; no part of the judgement.
    pub(super) stories: BTreeMap<String, Story>,
    /// The four ledgers, each in its own order.
    pub(super) ledgers: BTreeMap<Service, Vec<Record>>,
    /// Every execution of every order.
    pub(super) executions: Vec<Execution>,
    /// Every signal that got a definite answer.
    pub(super) signals: Vec<SentSignal>,
    /// Starts that the engine refused, by order.
    pub(super) refused_starts: Vec<(String, String)>,
    /// Executions that were still moving when patience ended.
    pub(super) unsettled: Unsettled,
    /// Payments that an operator decided on.
    pub(super) reviewed: u64,
}

/// One execution as the engine describes it, with its whole history.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Execution {
    pub(super) order_id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) run_id: String,
    pub(super) status: String,
    /// The names of the steps that wait for a person.
    pub(super) needs_attention: Vec<String>,
    #[serde(skip)]
    pub(super) events: Vec<Value>,
}

impl Evidence {
    /// Collects it all; nothing may move any more.
    pub(super) async fn gather(
        client: &Client,
        shop: &Shop,
        plan: &Plan,
        acts: Acts,
        unsettled: Unsettled,
    ) -> anyhow::Result<Evidence> {
        let orders: Vec<_> = plan.orders.iter().map(|planned| planned.order.order_id.clone()).collect();
        let refused: BTreeSet<_> = acts.refused_starts.iter().map(|(order_id, _)| order_id.as_str()).collect();
        let started = orders.iter().filter(|order_id| !refused.contains(order_id.as_str()));
        let executions: Vec<Vec<Execution>> =
            stream::iter(started.map(|order_id| executions_of(client, order_id))).buffered(FETCHING_MAX).try_collect().await?;
        let mut ledgers = BTreeMap::new();
        for service in Service::ALL {
            ledgers.insert(service, shop.ledger(service)?);
        }
        Ok(Evidence {
            orders,
            stories: plan.orders.iter().map(|planned| (planned.order.order_id.clone(), planned.story)).collect(),
            ledgers,
            executions: executions.into_iter().flatten().collect(),
            signals: acts.signals,
            refused_starts: acts.refused_starts,
            unsettled,
            reviewed: acts.reviewed,
        })
    }

    /// All requests that the shop got.
    pub(super) fn requests(&self) -> impl Iterator<Item = &RequestRecord> {
        self.ledgers.values().flatten().filter_map(|record| match record {
            Record::Request(request) => Some(request),
            Record::Effect(_) => None,
        })
    }

    /// All effects that the shop applied.
    pub(super) fn effects(&self) -> impl Iterator<Item = &EffectRecord> {
        self.ledgers.values().flatten().filter_map(|record| match record {
            Record::Effect(effect) => Some(effect),
            Record::Request(_) => None,
        })
    }
}

/// The order's own execution and everything linked to it, near or far.
pub(super) async fn executions_of(client: &Client, order_id: &str) -> anyhow::Result<Vec<Execution>> {
    let mut seen = BTreeSet::new();
    let mut next = vec![("order-timeout".to_owned(), order_id.to_owned())];
    let mut found = Vec::new();
    while let Some((kind, id)) = next.pop() {
        if !seen.insert((kind.clone(), id.clone())) {
            continue;
        }
        let described = client.describe(&kind, &id).await?;
        let events = client.history(&kind, &id).await?;
        let linked = described["linked"].as_array().map_or(&[][..], Vec::as_slice);
        next.extend(linked.iter().map(|link| (text(&link["type"]), text(&link["id"]))));
        found.push(Execution {
            order_id: order_id.to_owned(),
            run_id: text(&described["runId"]),
            status: text(&described["status"]),
            needs_attention: attention(&described),
            kind,
            id,
            events,
        });
    }
    Ok(found)
}

fn attention(described: &Value) -> Vec<String> {
    let pending = described["pendingActivities"].as_array().map_or(&[][..], Vec::as_slice);
    pending.iter().filter(|step| step["state"] == "needs-attention").map(|step| text(&step["name"])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
