//! The task that owns the one session that writes.
//!
//! Commands reach it over a channel, and it alone waits for the database: a caller that goes away cannot cancel a
//! statement half way. After any error the transaction is rolled back, or the session replaced, before the next command.
//! A transaction is begun and ended by plain statements: there is no guard whose drop would have to know where it stands.

use std::task::Poll;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tokio::sync::{mpsc, oneshot};

use super::Use;
use super::commit::{Batch, Memory, Transaction};
use super::connection::Target;
use super::error::{Failure, Fault, is_definite, silent};
use super::lane::Raise;
use super::layout::Layout;
use super::nodes::{Join, Leave};
use super::requests::Declare;

use super::controls::Replace;
use super::shards::{Claim, HandOver};
use super::tokens::{Create, Revoke};
use super::transfer::{Clear, Import, Mark};
use crate::fault::{Point, fails, point};
use crate::store::{CommitError, Fence, Imported, Outcome, StoreError};

/// Commands that wait for the writer; the callers of more wait for a place. One lane sends one batch at a time.
pub(super) const COMMANDS_MAX: usize = 64;

/// How often a transaction is tried that others are in the way of.
const TRIES_MAX: u32 = 6;
/// The longest pause before the second try; it doubles with every further one.
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(10);
/// The longest wait for the answers to a batch, or to its COMMIT. A server that says nothing for so long may be gone
/// without a word: the session is given up as a whole, as if its connection were lost.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What is done in a transaction of its own. May be applied again, in another transaction, when the first came to nothing.
pub(super) trait Work: Sync {
    type Value: Send;

    /// Whether it is writes of executions, whose COMMIT is a commit point.
    const IS_BATCH: bool = false;

    fn apply(&self, within: &mut Transaction<'_>) -> impl Future<Output = Result<Self::Value, Fault>> + Send;
}

/// Where the answer goes. One that nobody waits for any more is dropped: what it tells is in the database.
pub(super) type Answer<T, E = StoreError> = oneshot::Sender<Result<T, E>>;

/// What the writer does for its callers.
pub(super) enum Command {
    Join(Join, Answer<Fence>),
    Leave(Leave, Answer<()>),
    Raise(Raise, Answer<Option<Fence>>),
    Claim(Claim, Answer<Vec<u16>, CommitError>),
    HandOver(HandOver, Answer<(), CommitError>),
    Commit(Batch, Answer<Vec<Outcome>, CommitError>),
    Declare(Declare, Answer<()>),
    CreateToken(Create, Answer<bool>),
    RevokeToken(Revoke, Answer<bool>),
    ReplaceControl(Replace, Answer<bool>),
    Mark(Mark, Answer<()>),
    Import(Import, Answer<Imported>),
    Clear(Clear, Answer<()>),
    Close { answer: oneshot::Sender<()> },
}

pub(super) struct Writer {
    target: Target,
    shards: u16,
    layout: Layout,
    usage: Use,
    /// `None` after a failure that cannot be rolled back; the next command opens another.
    connection: Option<PgConnection>,
    memory: Memory,
}

impl Writer {
    pub(super) fn new(target: Target, shards: u16, layout: Layout, usage: Use, connection: PgConnection) -> Self {
        Self { target, shards, layout, usage, connection: Some(connection), memory: Memory::default() }
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
        if self.usage == Use::Copy && self.connection.is_some() {
            // The server ends a session a moment after its client: whoever comes next is not to meet its lock.
            let _ = self.execute("SELECT pg_advisory_unlock_all()").await;
        }
        if let Some(connection) = self.connection.take() {
            // The server ends the session in any case when the connection is gone.
            let _ = connection.close().await;
        }
        if let Some(answer) = closed {
            let _ = answer.send(());
        }
    }

    async fn serve(&mut self, command: Command) {
        match command {
            Command::Join(join, answer) => self.small(&join, answer).await,
            Command::Leave(leave, answer) => self.small(&leave, answer).await,
            Command::Raise(raise, answer) => self.small(&raise, answer).await,
            Command::Claim(claim, answer) => self.fenced(&claim, claim.fence.epoch, answer).await,
            Command::HandOver(hand_over, answer) => self.fenced(&hand_over, hand_over.fence.epoch, answer).await,
            Command::Commit(batch, answer) => self.fenced(&batch, batch.fence.epoch, answer).await,
            Command::Declare(declare, answer) => self.small(&declare, answer).await,
            Command::CreateToken(create, answer) => self.small(&create, answer).await,
            Command::RevokeToken(revoke, answer) => self.small(&revoke, answer).await,
            Command::ReplaceControl(replace, answer) => self.small(&replace, answer).await,
            Command::Mark(mark, answer) => self.small(&mark, answer).await,
            Command::Import(import, answer) => self.small(&import, answer).await,
            Command::Clear(clear, answer) => self.small(&clear, answer).await,
            Command::Close { .. } => {}
        }
    }

    async fn small<W: Work>(&mut self, work: &W, answer: Answer<W::Value>) {
        let _ = answer.send(self.transact(work).await.map_err(Failure::of_small_write));
    }

    async fn fenced<W: Work>(&mut self, work: &W, epoch: i64, answer: Answer<W::Value, CommitError>) {
        let _ = answer.send(self.transact(work).await.map_err(|failure| failure.of_batch(epoch)));
    }

    /// Runs a transaction, again while others are in its way.
    async fn transact<W: Work>(&mut self, work: &W) -> Result<W::Value, Failure> {
        let mut tries = 1;
        loop {
            match self.try_transact(work).await {
                Err(failure) if failure.is_contention() && tries < TRIES_MAX => pause(tries).await,
                done => return done,
            }
            tries += 1;
        }
    }

    async fn try_transact<W: Work>(&mut self, work: &W) -> Result<W::Value, Failure> {
        self.begin().await.map_err(|error| Failure::Before(error.into()))?;
        let Some(connection) = &mut self.connection else { return Err(Failure::Before(lost().into())) };
        let (shards, layout, url) = (self.shards, self.layout.clone(), self.target.url());
        let mut transaction = Transaction { connection, memory: &mut self.memory, shards, layout, url };
        let applied = tokio::time::timeout(ANSWER_MAX, work.apply(&mut transaction)).await;
        match applied.unwrap_or_else(|_| Err(silent().into())) {
            Ok(value) => {
                let ended = if W::IS_BATCH { self.end_batch().await } else { self.end().await };
                ended.map(|()| value).map_err(|error| Failure::of_commit(error, &self.layout))
            }
            Err(fault) => {
                self.roll_back(&fault).await;
                Err(Failure::Before(self.looked_up(fault).await))
            }
        }
    }

    /// A statement that Citus cannot take concerns more than one place: one was split. With the places as they are now the
    /// transaction is tried again.
    async fn looked_up(&mut self, fault: Fault) -> Fault {
        let Some(connection) = self.connection.as_mut().filter(|_| self.layout.is_distributed() && fault.is_unsupported()) else {
            return fault;
        };
        match self.layout.refresh(connection).await {
            Ok(()) => Fault::Overtaken("the place of a shard"),
            Err(error) => error.into(),
        }
    }

    /// Begins a transaction, in a new session when the present one is gone.
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.execute("BEGIN").await.is_ok() {
            return Ok(());
        }
        // Nothing was asked of the old session yet, so nothing is lost with it.
        self.forget_session();
        if self.usage == Use::Copy {
            // What kept others off was lost with it.
            return Err(lost());
        }
        self.connection = Some(self.target.open_writer().await?);
        self.execute("BEGIN").await.inspect_err(|_| self.connection = None)
    }

    async fn end(&mut self) -> Result<(), sqlx::Error> {
        let ended = self.execute("COMMIT").await;
        self.ended(ended)
    }

    /// Ends the transaction of a batch, whose COMMIT passes two points.
    async fn end_batch(&mut self) -> Result<(), sqlx::Error> {
        point(Point::CommitUnsent);
        let ended = {
            let mut commit = std::pin::pin!(self.execute("COMMIT"));
            // The first poll sends it; whoever waits then waits for the reply.
            match futures::poll!(&mut commit) {
                Poll::Ready(ended) => ended,
                Poll::Pending if fails(Point::CommitUnanswered) => Err(lost()),
                Poll::Pending => commit.await,
            }
        };
        self.ended(ended)
    }

    fn ended(&mut self, ended: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
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
    }

    async fn execute(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        let Some(connection) = &mut self.connection else { return Err(lost()) };
        match tokio::time::timeout(ANSWER_MAX, connection.execute(sqlx::raw_sql(sql))).await {
            Ok(done) => done.map(drop),
            Err(_) => Err(silent()),
        }
    }
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
