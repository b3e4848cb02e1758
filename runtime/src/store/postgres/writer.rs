//! The task that owns the one session that writes.
//!
//! Commands reach it over a channel, and it alone waits for the database: a caller that goes away cannot cancel a
//! statement half way. After any error the transaction is rolled back, or the session replaced, before the next command.
//! A transaction is begun and ended by plain statements: there is no guard whose drop would have to know where it stands.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tokio::sync::{mpsc, oneshot};

use super::commit::{self, Batch, Memory};
use super::connection::Target;
use super::error::{Fault, at_commit, is_definite, store_error};
use super::lane::{self, Join, Leave};
use super::tokens::{Create, Revoke};
use crate::store::{CommitError, Fence, Outcome, StoreError, Write};

/// Commands that wait for the writer; the callers of more wait for a place. One lane sends one batch at a time.
pub(super) const COMMANDS_MAX: usize = 64;

/// How often a transaction is tried that others are in the way of.
const TRIES_MAX: u32 = 6;
/// The longest pause before the second try; it doubles with every further one.
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(10);
/// The longest wait for the answers to a batch, or to its COMMIT. A server that says nothing for so long may be gone
/// without a word: the session is given up as a whole, as if its connection were lost.
const ANSWER_MAX: Duration = Duration::from_secs(60);

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer does for its callers.
pub(super) enum Command {
    Join(Join, Answer<Fence>),
    Leave(Leave, Answer<()>),
    Commit { fence: Fence, writes: Vec<Write>, answer: oneshot::Sender<Result<Vec<Outcome>, CommitError>> },
    CreateToken(Create, Answer<bool>),
    RevokeToken(Revoke, Answer<bool>),
    Close { answer: oneshot::Sender<()> },
}

/// A write that has a transaction of its own.
pub(super) trait SmallWrite: Sync {
    type Value: Send;

    /// Needs a transaction.
    fn write(&self, connection: &mut PgConnection) -> impl Future<Output = Result<Self::Value, Fault>> + Send;
}

pub(super) struct Writer {
    target: Target,
    shards: u16,
    /// `None` after a failure that cannot be rolled back; the next command opens another.
    connection: Option<PgConnection>,
    /// The lane that names the present session as its own.
    recorded: Option<Fence>,
    memory: Memory,
}

/// Why a transaction came to nothing.
enum Failed<E> {
    /// Others were in the way, and nothing was applied.
    Contended(Fault),
    For(E),
}

impl Writer {
    pub(super) fn new(target: Target, shards: u16, connection: PgConnection) -> Self {
        Self { target, shards, connection: Some(connection), recorded: None, memory: Memory::default() }
    }

    /// Serves until told to close, or until nobody is left to tell.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut closed = None;
        while let Some(command) = commands.recv().await {
            match command {
                Command::Close { answer } => {
                    closed = Some(answer);
                    break;
                }
                command => self.serve(command).await,
            }
        }
        // What was sent before the close still waits in the channel, and dropping it tells its callers.
        drop(commands);
        if let Some(connection) = self.connection.take() {
            // The server ends the session in any case when the connection is gone.
            let _ = connection.close().await;
        }
        if let Some(answer) = closed {
            let _ = answer.send(());
        }
    }

    // An answer that nobody waits for any more is dropped: what it tells is in the database.
    async fn serve(&mut self, command: Command) {
        match command {
            Command::Join(join, answer) => {
                let joined = self.transact(&join).await;
                self.recorded = joined.as_ref().ok().cloned();
                let _ = answer.send(joined);
            }
            Command::Leave(leave, answer) => drop(answer.send(self.transact(&leave).await)),
            Command::Commit { fence, writes, answer } => drop(answer.send(self.commit(&fence, &writes).await)),
            Command::CreateToken(create, answer) => drop(answer.send(self.transact(&create).await)),
            Command::RevokeToken(revoke, answer) => drop(answer.send(self.transact(&revoke).await)),
            Command::Close { .. } => {}
        }
    }

    async fn commit(&mut self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        let mut tries = 1;
        loop {
            match self.try_commit(fence, writes).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(Failed::Contended(_)) if tries < TRIES_MAX => pause(tries).await,
                Err(Failed::Contended(fault)) => return Err(fault.before_commit(fence.epoch)),
                Err(Failed::For(error)) => return Err(error),
            }
            tries += 1;
        }
    }

    async fn try_commit(&mut self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, Failed<CommitError>> {
        let failed = |fault: Fault| match fault.is_contention() {
            true => Failed::Contended(fault),
            false => Failed::For(fault.before_commit(fence.epoch)),
        };
        self.begin().await.map_err(|error| failed(error.into()))?;
        let recorded = self.recorded.as_ref() == Some(fence);
        let Some(connection) = &mut self.connection else { return Err(failed(lost().into())) };
        let mut batch = Batch { connection, memory: &mut self.memory, shards: self.shards };
        match within_reason(apply(&mut batch, fence, writes, recorded)).await {
            Ok(outcomes) => {
                self.end().await.map_err(|error| Failed::For(at_commit(error)))?;
                self.recorded = Some(fence.clone());
                Ok(outcomes)
            }
            Err(fault) => {
                self.roll_back(&fault).await;
                Err(failed(fault))
            }
        }
    }

    /// Runs one small write in a transaction of its own.
    async fn transact<W: SmallWrite>(&mut self, write: &W) -> Result<W::Value, StoreError> {
        let mut tries = 1;
        loop {
            match self.try_transact(write).await {
                Ok(value) => return Ok(value),
                Err(Failed::Contended(_)) if tries < TRIES_MAX => pause(tries).await,
                Err(Failed::Contended(fault)) => return Err(fault.of_small_write()),
                Err(Failed::For(error)) => return Err(error),
            }
            tries += 1;
        }
    }

    async fn try_transact<W: SmallWrite>(&mut self, write: &W) -> Result<W::Value, Failed<StoreError>> {
        self.begin().await.map_err(|error| Failed::For(store_error(error)))?;
        let Some(connection) = &mut self.connection else { return Err(Failed::For(store_error(lost()))) };
        match within_reason(write.write(connection)).await {
            Ok(value) => self.end().await.map(|()| value).map_err(|error| Failed::For(store_error(error))),
            Err(fault) => {
                self.roll_back(&fault).await;
                Err(if fault.is_contention() { Failed::Contended(fault) } else { Failed::For(fault.of_small_write()) })
            }
        }
    }

    /// Begins a transaction, in a new session when the present one is gone.
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.connection.is_some() && self.execute("BEGIN").await.is_ok() {
            return Ok(());
        }
        // Nothing was asked of the old session yet, so nothing is lost with it.
        self.forget_session();
        self.connection = Some(self.target.open_writer().await?);
        self.execute("BEGIN").await.inspect_err(|_| self.connection = None)
    }

    async fn end(&mut self) -> Result<(), sqlx::Error> {
        let ended = self.execute("COMMIT").await;
        if let Err(error) = &ended {
            self.memory = Memory::default();
            if !is_definite(error) {
                self.forget_session();
            }
        }
        ended
    }

    /// Leaves the session without a transaction, or leaves no session.
    async fn roll_back(&mut self, fault: &Fault) {
        self.memory = Memory::default();
        if !fault.leaves_the_session() || self.execute("ROLLBACK").await.is_err() {
            self.forget_session();
        }
    }

    fn forget_session(&mut self) {
        self.memory = Memory::default();
        self.connection = None;
        self.recorded = None;
    }

    async fn execute(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        let Some(connection) = &mut self.connection else { return Err(lost()) };
        match tokio::time::timeout(ANSWER_MAX, connection.execute(sqlx::raw_sql(sql))).await {
            Ok(done) => done.map(drop),
            Err(_) => Err(silent()),
        }
    }
}

/// The batch, and once in each session its name in the lane's row.
async fn apply(batch: &mut Batch<'_>, fence: &Fence, writes: &[Write], recorded: bool) -> Result<Vec<Outcome>, Fault> {
    let outcomes = commit::apply(batch, fence, writes).await?;
    if !recorded {
        lane::record_session(batch.connection, fence).await?;
    }
    Ok(outcomes)
}

/// Waits for the answers to a batch, but not for ever. Whoever is told that the server is silent gives the session up.
async fn within_reason<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(ANSWER_MAX, work).await.unwrap_or_else(|_| Err(silent().into()))
}

fn silent() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the server does not answer"))
}

fn lost() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, "the session was lost"))
}

/// Lets those who are in the way go on; by a random time, so that two who met do not meet again.
#[expect(clippy::disallowed_methods, reason = "other processes are waited for, in real time and unlike them")]
async fn pause(tries: u32) {
    let longest = FIRST_PAUSE_MAX * 2u32.pow(tries.min(TRIES_MAX) - 1);
    tokio::time::sleep(longest.mul_f64(rand::random::<f64>())).await;
}
