//! Puts the calls into a program's registry.

use std::sync::Arc;

use async_trait::async_trait;
use overdue_runtime::activity::{ActivityRegistry, Exhausted, StartCheck};
use overdue_runtime::engine::Environment;
use overdue_runtime::engine::breaker::Breakers;

use crate::client::HttpClient;
use crate::config::DownstreamsConfig;
use crate::coupons::{self, ReturnCoupon};
use crate::endpoint::Downstream;
use crate::error::ConfigError;
use crate::layers::Next;
use crate::orders::{self, CancelOrder, ConfirmPaid};
use crate::payments::{self, ClosePayment, RefundPayment, RefundStatus, VoidPayment};
use crate::settings::{Keys, Settings};
use crate::sql::{OrdersTable, Table};
use crate::stock::{self, ReleaseStock};
use crate::wire::{Wire, WireClient};

/// Builds one stack per downstream and registers every call. Its circuit breakers are the engine's to keep.
///
/// # Errors
/// [`ConfigError`], which names the key and says what to write; also when [`crate::init_crypto`] was not called.
pub fn register(
    activities: &mut ActivityRegistry,
    config: &DownstreamsConfig,
    environment: &Environment,
) -> Result<Downstreams, ConfigError> {
    register_calls(activities, config, environment, &HttpClient::new(environment)?)
}

/// The same over another wire than HTTP; no crypto is needed.
///
/// # Errors
/// [`ConfigError`], which names the key and says what to write.
pub fn register_over(
    activities: &mut ActivityRegistry,
    config: &DownstreamsConfig,
    environment: &Environment,
    wire: Arc<dyn Wire>,
) -> Result<Downstreams, ConfigError> {
    register_calls(activities, config, environment, &WireClient { wire, environment: environment.clone() })
}

fn register_calls(
    activities: &mut ActivityRegistry,
    config: &DownstreamsConfig,
    environment: &Environment,
    client: &impl Next,
) -> Result<Downstreams, ConfigError> {
    let breakers = Breakers::new(environment.clock.clone());
    // A refund that cannot go on is the workflow's to handle; any other step waits for a person.
    let (attention, fail) = (Exhausted::NeedsAttention, Exhausted::Fail);

    let calls = [&orders::CANCEL_ORDER, &orders::CONFIRM_PAID];
    let (orders, orders_table) = match &config.orders.sql {
        None => (Downstream::new("orders", &config.orders, &calls, client, environment, &breakers)?, None),
        Some(sql) => {
            let settings = Settings::check("orders", &config.orders)?;
            let table = Table::check(&Keys("downstreams.orders.sql".to_owned()), sql, settings.timeout)?;
            let table = OrdersTable::new(table, &settings, environment);
            (Downstream::new("orders", &config.orders, &calls, &table, environment, &breakers)?, Some(table))
        }
    };
    activities.register(CancelOrder(orders.endpoint(&orders::CANCEL_ORDER, attention)?));
    activities.register(ConfirmPaid(orders.endpoint(&orders::CONFIRM_PAID, attention)?));

    let stock = Downstream::new("stock", &config.stock, &[&stock::RELEASE_STOCK], client, environment, &breakers)?;
    activities.register(ReleaseStock(stock.endpoint(&stock::RELEASE_STOCK, attention)?));

    let coupons = Downstream::new("coupons", &config.coupons, &[&coupons::RETURN_COUPON], client, environment, &breakers)?;
    activities.register(ReturnCoupon(coupons.endpoint(&coupons::RETURN_COUPON, attention)?));

    let calls = [&payments::CLOSE_PAYMENT, &payments::VOID_PAYMENT, &payments::REFUND_PAYMENT, &payments::REFUND_STATUS];
    let payments = Downstream::new("payments", &config.payments, &calls, client, environment, &breakers)?;
    activities.register(ClosePayment(payments.endpoint(&payments::CLOSE_PAYMENT, attention)?));
    activities.register(VoidPayment(payments.endpoint(&payments::VOID_PAYMENT, attention)?));
    activities.register(RefundPayment(payments.endpoint(&payments::REFUND_PAYMENT, fail)?));
    activities.register(RefundStatus(payments.endpoint(&payments::REFUND_STATUS, fail)?));

    Ok(Downstreams { breakers, orders_table })
}

/// What stands behind the calls that were registered.
#[derive(Clone)]
pub struct Downstreams {
    /// The circuit breakers of all of them: the engine's to keep.
    pub breakers: Breakers,
    /// The order table, where the order service is one.
    pub orders_table: Option<OrdersTable>,
}

#[async_trait]
impl StartCheck for Downstreams {
    /// That the order table is as its statements say, where there is one. A service over HTTP may come up later.
    async fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match &self.orders_table {
            Some(table) => Ok(table.check().await?),
            None => Ok(()),
        }
    }
}
