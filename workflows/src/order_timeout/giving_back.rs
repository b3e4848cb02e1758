//! After the order was given up: stock, coupon and payment side by side, then the watch for late payments.

use std::sync::Arc;

use overdue_activities::{ReleaseStockInput, ReleaseStockOutcome, ReturnCouponInput, ReturnCouponOutcome};
use overdue_runtime::activity::Exhausted;
use overdue_runtime::fault::{Bug, coin, planted};
use overdue_runtime::workflow::{ActivityError, WorkflowError};
use serde::de::DeserializeOwned;

use super::attend::{Attended, OrderRun, Side};
use super::closing::close;
use super::progress::Phase;

/// The steps that give something back.
const GIVE_BACK: [&str; 3] = ["release-stock", "return-coupon", "close-payment"];

impl OrderRun {
    /// Gives everything back, then refunds whatever still arrives until the window ends.
    pub(super) async fn give_back_and_watch(&mut self) -> Result<(), WorkflowError> {
        let watch_until = self.ctx.now().saturating_add(self.late_payment_window);
        self.account.set_phase(Phase::GivingBack);
        self.begin_giving_back();
        while self.is_running(&GIVE_BACK) {
            let mut never = std::future::pending::<()>();
            self.attend(&mut never).await?;
        }
        self.account.set_phase(Phase::Watching);
        if watch_until > self.ctx.now() {
            let mut watch = self.ctx.sleep_until(watch_until).named("latePaymentWatch");
            loop {
                if let Attended::Done(fired) = self.attend(&mut watch).await? {
                    fired?;
                    break;
                }
            }
        }
        self.settle_rest().await
    }

    fn begin_giving_back(&mut self) {
        // As a hash map would have it: another order in every process, and in every replay.
        if planted(Bug::HashOrder) && coin("order of a hash map") {
            self.begin_returning_coupon();
        }
        let order_id = self.order.order_id.clone();
        if let Some(stock_token) = self.order.stock_token.clone() {
            let input = ReleaseStockInput { stock_token, order_id };
            let call = self.ctx.activity_named::<ReleaseStockOutcome>("release-stock", &input).intent("release-stock");
            self.beside(GIVE_BACK[0].into(), give_back(call.exhausted(Exhausted::NeedsAttention)));
        }
        if !self.is_running(&GIVE_BACK[1..2]) {
            self.begin_returning_coupon();
        }
        if self.order.payment_id.is_some() && !self.is_closed {
            let closing = close(self.ctx.clone(), Arc::clone(&self.order), Arc::clone(&self.close_asks));
            self.beside(GIVE_BACK[2].into(), async move { closing.await.map(Side::Closed) });
        }
    }

    fn begin_returning_coupon(&mut self) {
        if let Some(coupon_id) = self.order.coupon_id.clone() {
            let input = ReturnCouponInput { coupon_id, order_id: self.order.order_id.clone() };
            let call = self.ctx.activity_named::<ReturnCouponOutcome>("return-coupon", &input).intent("return-coupon");
            self.beside(GIVE_BACK[1].into(), give_back(call.exhausted(Exhausted::NeedsAttention)));
        }
    }
}

/// A step that is done, was done before, has nothing to do, or was left by a person: whichever, the others go on.
async fn give_back<T: DeserializeOwned>(call: overdue_runtime::workflow::ActivityCall<T>) -> Result<Side, WorkflowError> {
    match call.await {
        Ok(_) | Err(ActivityError::Skipped { .. }) => Ok(Side::GaveBack),
        Err(error) => Err(error.into()),
    }
}
