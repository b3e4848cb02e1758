//! The whole story in one process: a shop, an engine, one order that nobody pays in time, and a payment that wins late.
//!
//! `cargo run --example story` prints:
//!
//! ```text
//! order 4711 waits for its payment
//! the deadline has passed: the order is CANCELLED, its stock released, its coupon returned, its payment closed
//! the buyer pays all the same: late
//! order 4711: cancelled (TIMEOUT), refunds: txn-1 19.99 USD refunded
//!  1 WorkflowStarted
//!  2 SideEffectRecorded
//!  3 TimerStarted payDeadline
//!  4 TimerFired
//!  5 ActivityScheduled cancel-order
//!  6 ActivityCompleted
//!  7 ActivityScheduled release-stock
//!  8 ActivityScheduled return-coupon
//!  9 ActivityScheduled close-payment
//! 10 ActivityCompleted
//! 11 ActivityCompleted
//! 12 ActivityCompleted
//! 13 TimerStarted latePaymentWatch
//! 14 SignalReceived payment-succeeded
//! 15 ActivityScheduled refund-payment
//! 16 ActivityCompleted
//! 17 TimerFired
//! 18 WorkflowCompleted
//! ```

#[path = "support/shop.rs"]
mod shop;

use std::time::Duration;

use overdue_runtime::Payload;
use overdue_runtime::client::SignalRequest;
use overdue_runtime::history::EventKind;
use overdue_workflows::order_timeout::Phase;
use overdue_workflows::sandbox::Capture;
use shop::{World, look, until};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let world = World::open(folder.path()).await?;
    world.place_order("4711", Duration::from_millis(500), "PT3S").await?;
    println!("order 4711 waits for its payment");

    until(&world.client, "4711", |order| order.is_in(Phase::Watching)).await?;
    println!("the deadline has passed: the order is CANCELLED, its stock released, its coupon returned, its payment closed");

    let now = world.now();
    world.shop.capture("4711-pay", &Capture::now("txn-1", "19.99", "USD")).await?;
    let payload = format!(r#"{{"transactionId":"txn-1","amount":"19.99","currency":"USD","paidAt":"{now}"}}"#);
    let signal = SignalRequest {
        workflow_type: "order-timeout".into(),
        id: "4711".into(),
        name: "payment-succeeded".into(),
        signal_id: None,
        payload: Payload::from_json(&payload)?,
    };
    let answer = world.client.signal(signal).await?;
    println!("the buyer pays all the same: {}", format!("{:?}", answer.outcome).to_lowercase());

    until(&world.client, "4711", shop::OrderView::is_closed).await?;
    println!("{}", look(&world.client, "4711").await?.summary());
    for event in world.client.history("order-timeout", "4711", 0, 1000).await?.events {
        let what = match &event.kind {
            EventKind::ActivityScheduled { name, .. } | EventKind::SignalReceived { name, .. } => name.as_str(),
            EventKind::TimerStarted { name, .. } => name.as_deref().unwrap_or_default(),
            _ => "",
        };
        println!("{}", format!("{:>2} {} {what}", event.number, event.kind.name()).trim_end());
    }
    world.close().await;
    Ok(())
}
