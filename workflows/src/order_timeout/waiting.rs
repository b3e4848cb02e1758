//! Waiting for a payment, the deadline, or somebody who does not want the order any more.

use overdue_runtime::workflow::WorkflowError;

use super::Verdict;
use super::attend::{Attended, OrderRun};
use super::progress::{Phase, Reason};

/// What the timer is called that waits for the deadline.
pub(super) const PAY_DEADLINE: &str = "payDeadline";

/// What the wait led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A payment of the right amount is there.
    Confirm {
        /// Its transaction.
        transaction: String,
    },
    /// The order is to be given up.
    Cancel(Reason),
}

impl OrderRun {
    /// Waits until something has to be decided. A payment that is there precedes everything else.
    pub(super) async fn wait(&mut self) -> Result<Next, WorkflowError> {
        self.account.set_phase(Phase::WaitingForPayment);
        loop {
            let until = self.deadline;
            let mut timer = self.ctx.sleep_until(until).named(PAY_DEADLINE);
            while self.deadline == until {
                if let Some(transaction) = self.payments.next_to_confirm() {
                    return Ok(Next::Confirm { transaction });
                }
                if let Some(reason) = self.stop.take() {
                    return Ok(Next::Cancel(reason));
                }
                if let Attended::Done(fired) = self.attend(&mut timer).await? {
                    fired?;
                    return Ok(Next::Cancel(Reason::Timeout));
                }
            }
        }
    }

    /// Has the order service decide; `None` when it says that it is too early to.
    pub(super) async fn decide(&mut self, next: Next) -> Result<Option<Verdict>, WorkflowError> {
        match next {
            Next::Confirm { transaction } => self.confirm(&transaction).await,
            Next::Cancel(reason) => {
                self.account.set_phase(Phase::Cancelling);
                match self.close_first().await? {
                    Some(transaction) => self.confirm(&transaction).await,
                    None => self.cancel(reason).await,
                }
            }
        }
    }
}
