//! The workflows of a shop whose orders are not always paid, and what surrounds them.

pub mod demo;
mod late_payment;
pub mod order_timeout;
pub mod sandbox;
mod settings;

use overdue_runtime::workflow::WorkflowRegistry;

pub use late_payment::{LATE_PAYMENT, LatePayment, LatePaymentInput};
pub use order_timeout::{ORDER_TIMEOUT, OrderTimeout, Settings};
pub use settings::SettingsSection;

/// Adds the shop's workflows.
pub fn register(workflows: &mut WorkflowRegistry, settings: Settings) {
    workflows.register(OrderTimeout { settings });
    workflows.register(LatePayment);
}
