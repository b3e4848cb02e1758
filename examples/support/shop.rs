//! What the examples share: a sandbox shop and an engine on a SQLite file, in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use overdue_activities::{DownstreamConfig, DownstreamsConfig};
use overdue_runtime::client::{Client, Description, StartRequest};
use overdue_runtime::engine::{Engine, EngineConfig, Environment, Registries};
use overdue_runtime::store::SqliteStore;
use overdue_runtime::{Payload, Timestamp};
use overdue_workflows::Settings;
use overdue_workflows::order_timeout::{Phase, Progress};
use overdue_workflows::sandbox::{FaultPlan, NewOrder, Shop};

/// Number of shards of the examples' stores.
const SHARDS: u16 = 64;

/// A shop and an engine.
pub(crate) struct World {
    pub(crate) shop: Shop,
    pub(crate) client: Client,
    environment: Environment,
}

impl World {
    /// Opens the shop and the store in `folder`; whatever is there already goes on.
    pub(crate) async fn open(folder: &Path) -> anyhow::Result<Self> {
        overdue_activities::init_crypto();
        std::fs::create_dir_all(folder.join("shop"))?;
        let shop = Shop::start(&folder.join("shop"), FaultPlan::none()).await?;
        let environment = Environment::system();
        let urls = shop.urls();
        let downstreams = DownstreamsConfig {
            orders: DownstreamConfig::at(&urls.orders),
            stock: DownstreamConfig::at(&urls.stock),
            coupons: DownstreamConfig::at(&urls.coupons),
            payments: DownstreamConfig::at(&urls.payments),
        };
        let mut code = Registries::default();
        overdue_activities::register(&mut code.activities, &downstreams, &environment)?;
        overdue_workflows::register(&mut code.workflows, Settings::default());
        let store = SqliteStore::open(folder.join("overdue.db"), SHARDS).await?;
        let engine = Engine::start(Arc::new(store), code, environment.clone(), EngineConfig::default()).await?;
        Ok(Self { shop, client: Client::new(engine), environment })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.environment.clock.now()
    }

    /// Places an order at the shop and starts its workflow.
    pub(crate) async fn place_order(&self, id: &str, pay_within: Duration, window: &str) -> anyhow::Result<()> {
        let deadline = self.now().saturating_add(pay_within);
        self.shop.place_order(&NewOrder::new(id, deadline.to_string().parse()?).with_everything()).await?;
        let input = format!(
            r#"{{"orderId":"{id}","payDeadline":"{deadline}","amount":"19.99","currency":"USD","paymentId":"{id}-pay",
                "stockToken":"{id}-stock","couponId":"{id}-coupon","latePaymentWindow":"{window}"}}"#
        );
        let request = StartRequest {
            workflow_type: "order-timeout".into(),
            id: id.into(),
            input: Payload::from_json(&input)?,
            start_at: None,
            attributes: Default::default(),
            traceparent: None,
        };
        self.client.start(request).await?;
        Ok(())
    }

    pub(crate) async fn close(self) {
        self.client.engine().drain().await;
    }
}

/// An order's workflow, as far as the examples look.
pub(crate) struct OrderView(Description);

impl OrderView {
    pub(crate) fn progress(&self) -> Option<Progress> {
        self.0.progress.as_ref()?.parse().ok()
    }

    pub(crate) fn is_in(&self, phase: Phase) -> bool {
        self.progress().is_some_and(|progress| progress.phase == phase)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed_at.is_some()
    }

    /// Who won, why, and what went back.
    pub(crate) fn summary(&self) -> String {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let progress: serde_json::Value = self.0.progress.as_ref().and_then(|progress| progress.parse().ok()).unwrap_or_default();
        let refunds: Vec<String> = progress["refunds"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|refund| ["transactionId", "amount", "currency", "status"].map(|key| text(&refund[key])).join(" "))
            .collect();
        let refunds = if refunds.is_empty() { "none".to_owned() } else { refunds.join(", ") };
        format!("order {}: {} ({}), refunds: {refunds}", self.0.id, text(&progress["decision"]), text(&progress["reason"]))
    }
}

pub(crate) async fn look(client: &Client, id: &str) -> anyhow::Result<OrderView> {
    Ok(OrderView(client.describe("order-timeout", id).await?))
}

/// Looks until `condition` holds.
pub(crate) async fn until(client: &Client, id: &str, condition: impl Fn(&OrderView) -> bool) -> anyhow::Result<OrderView> {
    let clock = Environment::system().clock;
    for _ in 0..3_000 {
        let view = look(client, id).await?;
        if condition(&view) {
            return Ok(view);
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("order {id} did not get there within 30 s")
}
