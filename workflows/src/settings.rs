//! `[workflows.order-timeout]` of the configuration.

use std::time::Duration;

use overdue_runtime::ConfigDuration;
use serde::Deserialize;

use crate::order_timeout::{ClosePayment, Settings};

/// The section as it is written. Durations carry their unit: `7d`, `1h`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsSection {
    close_payment: Option<ClosePayment>,
    late_payment_window: Option<ConfigDuration>,
    close_before_limit: Option<ConfigDuration>,
}

impl SettingsSection {
    /// The settings, with the defaults for what is not written.
    pub fn settings(self) -> Settings {
        let defaults = Settings::default();
        let duration = |written: Option<ConfigDuration>, default: Duration| written.map_or(default, |written| written.0);
        Settings {
            close_payment: self.close_payment.unwrap_or(defaults.close_payment),
            late_payment_window: duration(self.late_payment_window, defaults.late_payment_window),
            close_before_limit: duration(self.close_before_limit, defaults.close_before_limit),
        }
    }
}
