//! Sessions that are kept, and transactions that end.
//!
//! Each transaction runs in a task of its own, which no caller can cancel: when the caller has gone, it still ends, or it is
//! given up together with its session. So no session with an open transaction is ever used again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use overdue_runtime::activity::{ActivityContext, ActivityFailure};
use overdue_runtime::engine::Environment;
use overdue_runtime::fault::{Point, point};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::failure::Teller;
use super::session::{Driver, Session};

/// The longest wait for a session of ours; nothing was sent then.
const TURN_MAX: Duration = Duration::from_secs(1);
/// How much longer than its caller a transaction may take.
const GRACE: Duration = Duration::from_secs(1);

/// The sessions of one database; clones share them.
#[derive(Clone)]
pub(crate) struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    driver: Arc<dyn Driver>,
    environment: Environment,
    turns: Arc<Semaphore>,
    idle: Mutex<Vec<Box<dyn Session>>>,
    timeout: Duration,
}

impl Sessions {
    pub(crate) fn new(driver: Arc<dyn Driver>, connections: usize, timeout: Duration, environment: &Environment) -> Self {
        let turns = Arc::new(Semaphore::new(connections));
        let idle = Mutex::new(Vec::new());
        Self { shared: Arc::new(Shared { driver, environment: environment.clone(), turns, idle, timeout }) }
    }

    /// Runs `work` between `begin` and a COMMIT, or a ROLLBACK when it fails.
    pub(crate) async fn transaction<T: Send + 'static>(
        &self,
        ctx: Option<&ActivityContext>,
        teller: &Teller,
        begin: &'static str,
        work: impl for<'a> FnOnce(&'a mut dyn Session) -> BoxFuture<'a, Result<T, ActivityFailure>> + Send + 'static,
    ) -> Result<T, ActivityFailure> {
        let turn = self.turn().await?;
        if let Some(ctx) = ctx {
            ctx.record_send();
        }
        point(Point::RequestUnsent);
        let (answer, answered) = oneshot::channel();
        let (shared, teller_there) = (self.shared.clone(), teller.clone());
        self.shared.environment.spawner.spawn(Box::pin(async move {
            let result = shared.bounded(&teller_there, begin, work).await;
            drop(turn);
            // Whoever asked may have gone.
            let _ = answer.send(result);
        }));
        let result = answered.await;
        point(Point::RequestSent);
        result.unwrap_or_else(|_| Err(teller.transient("broken", "the transaction was given up")))
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, ActivityFailure> {
        let wait = TURN_MAX.min(self.shared.timeout / 2);
        tokio::select! {
            biased;
            turn = self.shared.turns.clone().acquire_owned() => Ok(turn.expect("the semaphore is never closed")),
            () = self.shared.environment.clock.sleep(wait) => Err(ActivityFailure::parked("connections of orders", wait)),
        }
    }
}

impl Shared {
    /// The transaction within its time; past it, it is dropped together with its session.
    async fn bounded<T>(
        &self,
        teller: &Teller,
        begin: &'static str,
        work: impl for<'a> FnOnce(&'a mut dyn Session) -> BoxFuture<'a, Result<T, ActivityFailure>>,
    ) -> Result<T, ActivityFailure> {
        let limit = self.timeout + GRACE;
        tokio::select! {
            biased;
            result = self.whole(teller, begin, work) => result,
            () = self.environment.clock.sleep(limit) => Err(teller.transient("timeout", "the transaction took too long")),
        }
    }

    async fn whole<T>(
        &self,
        teller: &Teller,
        begin: &'static str,
        work: impl for<'a> FnOnce(&'a mut dyn Session) -> BoxFuture<'a, Result<T, ActivityFailure>>,
    ) -> Result<T, ActivityFailure> {
        let mut session = self.begun(teller, begin).await?;
        let result = work(session.as_mut()).await;
        match &result {
            // Kept only when its transaction is known to have ended; else it goes, and its transaction with it.
            Ok(_) => session.run("COMMIT").await.map_err(|error| teller.failed(&error))?,
            Err(_) if session.run("ROLLBACK").await.is_err() => return result,
            Err(_) => {}
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        result
    }

    /// A session with a transaction. One that was idle may have died meanwhile: then a new one is opened.
    async fn begun(&self, teller: &Teller, begin: &'static str) -> Result<Box<dyn Session>, ActivityFailure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut session) = idle {
            match session.run(begin).await {
                Ok(()) => return Ok(session),
                Err(error @ sqlx::Error::Database(_))
                    if teller.failed(&error).failure.class != overdue_runtime::history::FailureClass::Transient =>
                {
                    return Err(teller.failed(&error));
                }
                Err(_) => {}
            }
        }
        let mut session = self.driver.open().await.map_err(|error| teller.not_connected(&error))?;
        session.run(begin).await.map_err(|error| teller.failed(&error))?;
        Ok(session)
    }
}
