//! Puts the calls into a program's registry, and keeps hold of their breakers.

use std::sync::Arc;

use async_trait::async_trait;
use overdue_runtime::activity::{
    ActivityRegistry, BreakerPanel, BreakerPosition, BreakerView, Exhausted, NoSuchBreaker, StartCheck,
};
use overdue_runtime::engine::Environment;

use crate::client::HttpClient;
use crate::config::DownstreamsConfig;
use crate::coupons::{self, ReturnCoupon};
use crate::endpoint::Downstream;
use crate::error::ConfigError;
use crate::layers::{BreakerState, Breakers, Next};
use crate::orders::{self, CancelOrder, ConfirmPaid};
use crate::payments::{self, ClosePayment, RefundPayment, RefundStatus, VoidPayment};
use crate::settings::{Keys, Settings};
use crate::sql::{OrdersTable, Table};
use crate::stock::{self, ReleaseStock};
use crate::wire::{Wire, WireClient};

/// Builds one stack per downstream and registers every call.
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
    // A refund that cannot go on is the workflow's to handle; any other step waits for a person.
    let (attention, fail) = (Exhausted::NeedsAttention, Exhausted::Fail);

    let calls = [&orders::CANCEL_ORDER, &orders::CONFIRM_PAID];
    let (orders, orders_table) = match &config.orders.sql {
        None => (Downstream::new("orders", &config.orders, &calls, client, environment)?, None),
        Some(sql) => {
            let settings = Settings::check("orders", &config.orders)?;
            let table = Table::check(&Keys("downstreams.orders.sql".to_owned()), sql, settings.timeout)?;
            let table = OrdersTable::new(table, &settings, environment);
            (Downstream::new("orders", &config.orders, &calls, &table, environment)?, Some(table))
        }
    };
    activities.register(CancelOrder(orders.endpoint(&orders::CANCEL_ORDER, attention)?));
    activities.register(ConfirmPaid(orders.endpoint(&orders::CONFIRM_PAID, attention)?));

    let stock = Downstream::new("stock", &config.stock, &[&stock::RELEASE_STOCK], client, environment)?;
    activities.register(ReleaseStock(stock.endpoint(&stock::RELEASE_STOCK, attention)?));

    let coupons = Downstream::new("coupons", &config.coupons, &[&coupons::RETURN_COUPON], client, environment)?;
    activities.register(ReturnCoupon(coupons.endpoint(&coupons::RETURN_COUPON, attention)?));

    let calls = [&payments::CLOSE_PAYMENT, &payments::VOID_PAYMENT, &payments::REFUND_PAYMENT, &payments::REFUND_STATUS];
    let payments = Downstream::new("payments", &config.payments, &calls, client, environment)?;
    activities.register(ClosePayment(payments.endpoint(&payments::CLOSE_PAYMENT, attention)?));
    activities.register(VoidPayment(payments.endpoint(&payments::VOID_PAYMENT, attention)?));
    activities.register(RefundPayment(payments.endpoint(&payments::REFUND_PAYMENT, fail)?));
    activities.register(RefundStatus(payments.endpoint(&payments::REFUND_STATUS, fail)?));

    Ok(Downstreams {
        breakers: vec![
            ("orders", orders.breakers),
            ("stock", stock.breakers),
            ("coupons", coupons.breakers),
            ("payments", payments.breakers),
        ],
        orders_table,
    })
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

/// The breakers of all downstreams, for a person to look at and to set.
#[derive(Clone)]
pub struct Downstreams {
    breakers: Vec<(&'static str, Breakers)>,
    orders_table: Option<OrdersTable>,
}

impl BreakerPanel for Downstreams {
    /// Every breaker; those of channels only while they are shut.
    fn breakers(&self) -> Vec<BreakerView> {
        let each = |(downstream, breakers): &(&'static str, Breakers)| {
            let downstream = *downstream;
            breakers.states().into_iter().map(move |(channel, state)| view(downstream, channel, state))
        };
        self.breakers.iter().flat_map(each).collect()
    }

    /// Opens a breaker until it is closed by [`Self::close`]: that of a payment channel, or of the whole downstream.
    /// It is not durable: a restart forgets it.
    fn force_open(&self, downstream: &str, channel: Option<&str>, reason: &str) -> Result<(), NoSuchBreaker> {
        self.of(downstream)?.force_open(channel, reason);
        Ok(())
    }

    fn close(&self, downstream: &str, channel: Option<&str>) -> Result<(), NoSuchBreaker> {
        self.of(downstream)?.close(channel);
        Ok(())
    }
}

fn view(downstream: &str, channel: Option<String>, state: BreakerState) -> BreakerView {
    let view = |position| BreakerView::new(downstream, channel, position);
    match state {
        BreakerState::Closed { failures } => BreakerView { failures, ..view(BreakerPosition::Closed) },
        BreakerState::Open { remaining } => view(BreakerPosition::Open).probing_in(remaining),
        BreakerState::HalfOpen => view(BreakerPosition::HalfOpen),
        BreakerState::Forced { reason } => BreakerView { reason: Some(reason), ..view(BreakerPosition::ForcedOpen) },
    }
}

impl Downstreams {
    /// The order table, where the order service is one.
    pub fn orders_table(&self) -> Option<&OrdersTable> {
        self.orders_table.as_ref()
    }

    fn of(&self, downstream: &str) -> Result<&Breakers, NoSuchBreaker> {
        let found = self.breakers.iter().find(|(name, _)| *name == downstream);
        found.map(|(_, breakers)| breakers).ok_or_else(|| {
            NoSuchBreaker(format!("there is no downstream {downstream:?}: they are orders, stock, coupons and payments"))
        })
    }
}
