//! The audit for others: whoever has a shop, a node and a list of what was acknowledged can have the same rules applied.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::audit::audit;
use super::client::Client;
use super::drive::SentSignal;
use super::evidence::{Evidence, executions_of};
use crate::sandbox::{Service, Shop};

/// A signal that was answered 2xx.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// The order.
    pub order_id: String,
    /// The signal's name.
    pub name: String,
    /// Its id.
    pub signal_id: String,
    /// What the engine said: applied, buffered, late, duplicate.
    pub outcome: String,
}

/// Judges orders that have come to rest, and names everything that must not be: which order, which rule (D1 to D6), how.
/// The node listens at `url`.
///
/// # Errors
/// When the node or the shop's ledgers cannot be read.
pub async fn judge(url: &str, shop: &Shop, orders: &[String], signals: &[Acknowledged]) -> anyhow::Result<Vec<String>> {
    let client = Client::new(vec![watch::Sender::new(url.to_owned()).subscribe()])?;
    let mut executions = Vec::new();
    for order_id in orders {
        executions.extend(executions_of(&client, order_id).await?);
    }
    let mut ledgers = BTreeMap::new();
    for service in Service::ALL {
        ledgers.insert(service, shop.ledger(service)?);
    }
    let signals = signals.iter().map(sent).collect();
    let evidence = Evidence { orders: orders.to_vec(), ledgers, executions, signals, ..Evidence::default() };
    let judgement = audit(&evidence);
    let violations = judgement.violations.iter().map(|found| format!("{} {}: {}", found.order_id, found.rule, found.reason));
    Ok(violations.chain(judgement.duplicate_effects.iter().cloned()).collect())
}

fn sent(signal: &Acknowledged) -> SentSignal {
    SentSignal {
        order_id: signal.order_id.clone(),
        name: signal.name.clone(),
        signal_id: signal.signal_id.clone(),
        payload: Value::Null,
        repeat: false,
        status: 200,
        outcome: Some(signal.outcome.clone()),
        at: Timestamp::now(),
    }
}
