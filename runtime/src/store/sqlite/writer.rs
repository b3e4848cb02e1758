//! The task that owns the one connection that writes.
//!
//! Commands reach it over a channel, and it alone waits for the database: a caller that goes away cannot cancel a
//! statement half way. After any error the transaction is rolled back, or the connection replaced, before the next
//! command.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::commit::{self, Batch, Memory};
use super::error::{Fault, at_commit, is_definite, primary_code, store_error};
use super::readers::Gate;
use super::{connection, controls, lane, tokens, transfer};
use crate::fault::{Point, fails, is_armed, point};
use crate::store::{CommitError, Control, Fence, Imported, Outcome, Parcel, StoreError, StoreName, Token, Write};

/// Commands that wait for the writer; the callers of more wait for a place. One lane sends one batch at a time.
pub(super) const COMMANDS_MAX: usize = 64;

/// A log longer than this is copied back and cut, with all readers out of the way, so that recovery stays short.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// How much a log must have grown before a cut that did not succeed is tried again.
const LOG_BYTES_STEP: u64 = 16 << 20;
/// How long commits may wait for readers to make way for a cut.
const READERS_LEAVE_MAX: Duration = Duration::from_secs(1);

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer does for its callers.
pub(super) enum Command {
    Join {
        node_id: String,
        answer: Answer<Fence>,
    },
    Leave {
        fence: Fence,
        answer: Answer<()>,
    },
    Commit {
        fence: Fence,
        writes: Vec<Write>,
        answer: oneshot::Sender<Result<Vec<Outcome>, CommitError>>,
    },
    CreateToken {
        token: Token,
        answer: Answer<bool>,
    },
    RevokeToken {
        name: String,
        answer: Answer<bool>,
    },
    ReplaceControl {
        control: Control,
        answer: Answer<bool>,
    },
    Mark {
        copying_from: Option<StoreName>,
        moved_to: Option<StoreName>,
        answer: Answer<()>,
    },
    Import {
        parcel: Parcel,
        answer: Answer<Imported>,
    },
    Clear {
        answer: Answer<()>,
    },
    /// Limits the database's size, as a full disk does; `None` lifts the limit.
    #[cfg(test)]
    LimitPages {
        pages: Option<u32>,
        answer: Answer<()>,
    },
    Close {
        answer: oneshot::Sender<()>,
    },
}

pub(super) struct Writer {
    pub(super) database: PathBuf,
    /// `None` after a failure that cannot be rolled back; the next command opens another.
    pub(super) connection: Option<SqliteConnection>,
    pub(super) memory: Memory,
    pub(super) gate: Gate,
    pub(super) log_bytes_limit: u64,
    /// Held until the connection is closed.
    pub(super) lock: File,
}

impl Writer {
    pub(super) fn new(database: PathBuf, connection: SqliteConnection, gate: Gate, lock: File) -> Self {
        let log_bytes_limit = LOG_BYTES_MAX;
        Self { database, connection: Some(connection), memory: Memory::default(), gate, log_bytes_limit, lock }
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
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(error = %error, "the database could not be closed in order; it recovers when it is opened");
        }
        drop(self);
        if let Some(answer) = closed {
            let _ = answer.send(());
        }
    }

    // An answer that nobody waits for any more is dropped: what it tells is in the database.
    async fn serve(&mut self, command: Command) {
        match command {
            Command::Join { node_id, answer } => {
                let joined = self.transact(async |on| lane::join(on, &node_id).await).await;
                if joined.is_ok() {
                    connection::name_holder(&self.lock, &node_id);
                }
                let _ = answer.send(joined);
            }
            Command::Leave { fence, answer } => {
                let _ = answer.send(self.transact(async |on| lane::leave(on, &fence).await).await);
            }
            Command::Commit { fence, writes, answer } => {
                let outcomes = self.commit(&fence, &writes).await;
                let _ = answer.send(outcomes);
                self.cut_log().await;
            }
            Command::CreateToken { token, answer } => {
                let _ = answer.send(self.transact(async |on| tokens::create(on, &token).await).await);
            }
            Command::RevokeToken { name, answer } => {
                let _ = answer.send(self.transact(async |on| tokens::revoke(on, &name).await).await);
            }
            Command::ReplaceControl { control, answer } => {
                let _ = answer.send(self.transact(async |on| controls::replace(on, &control).await).await);
            }
            Command::Mark { copying_from, moved_to, answer } => {
                let marked = async |on: &mut _| transfer::mark(on, copying_from.as_ref(), moved_to.as_ref()).await;
                let _ = answer.send(self.transact(marked).await);
            }
            Command::Import { parcel, answer } => {
                let _ = answer.send(self.import(&parcel).await);
                self.cut_log().await;
            }
            Command::Clear { answer } => {
                self.memory = Memory::default();
                let _ = answer.send(self.transact(transfer::clear).await);
                self.cut_log().await;
            }
            #[cfg(test)]
            Command::LimitPages { pages, answer } => {
                let _ = answer.send(self.limit_pages(pages).await);
            }
            Command::Close { .. } => {}
        }
    }

    async fn commit(&mut self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        self.begin().await.map_err(|error| error.before_commit(fence.epoch))?;
        let Some(connection) = &mut self.connection else { return Err(lost()) };
        let mut batch = Batch { connection, memory: &mut self.memory };
        let outcomes = match commit::apply(&mut batch, fence, writes).await {
            Ok(outcomes) => outcomes,
            Err(fault) => {
                self.roll_back().await;
                return Err(fault.before_commit(fence.epoch));
            }
        };
        point(Point::CommitUnsent);
        self.end().await.map_err(at_commit)?;
        if fails(Point::CommitUnanswered) {
            return Err(CommitError::Unknown("the answer to a commit was lost".into()));
        }
        Ok(outcomes)
    }

    async fn import(&mut self, parcel: &Parcel) -> Result<Imported, StoreError> {
        self.begin().await.map_err(refused)?;
        let Some(connection) = &mut self.connection else { return Err(StoreError::Unavailable(LOST.into())) };
        let mut batch = Batch { connection, memory: &mut self.memory };
        match transfer::import(&mut batch, parcel).await {
            Ok(Imported::Whole) => self.end().await.map(|()| Imported::Whole).map_err(store_error),
            Ok(differs) => {
                self.roll_back().await;
                Ok(differs)
            }
            Err(fault) => {
                self.roll_back().await;
                Err(refused(fault))
            }
        }
    }

    /// Runs one small write in a transaction of its own.
    async fn transact<T>(
        &mut self,
        write: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.begin().await.map_err(refused)?;
        let Some(connection) = &mut self.connection else { return Err(StoreError::Unavailable(LOST.into())) };
        match write(connection).await {
            Ok(value) => self.end().await.map(|()| value).map_err(store_error),
            Err(error) => {
                self.roll_back().await;
                Err(store_error(error))
            }
        }
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        if self.connection.is_none() {
            match connection::open_writer(&self.database).await {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => return Err(sqlx::Error::Configuration(error.into()).into()),
            }
        }
        if let Err(error) = self.execute("BEGIN IMMEDIATE").await {
            self.roll_back().await;
            return Err(error.into());
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), sqlx::Error> {
        let ended = self.execute("COMMIT").await;
        if let Err(error) = &ended {
            self.roll_back().await;
            if !is_definite(error) {
                // Whatever this connection believes of the log is not to be built on.
                self.connection = None;
            }
        }
        ended
    }

    /// Leaves the connection without a transaction, or leaves no connection.
    async fn roll_back(&mut self) {
        self.memory = Memory::default();
        match self.execute("ROLLBACK").await {
            Ok(()) => {}
            // SQLite rolled back by itself: there is no transaction to end.
            Err(error) if primary_code(&error) == Some(libsqlite3_sys::SQLITE_ERROR) => {}
            Err(error) => {
                tracing::warn!(error = %error, "a transaction could not be rolled back; the connection is replaced");
                self.connection = None;
            }
        }
    }

    async fn execute(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        match &mut self.connection {
            Some(connection) => sqlx::query(sql).execute(connection).await.map(drop),
            None => Err(sqlx::Error::WorkerCrashed),
        }
    }

    /// SQLite copies the log back by itself while no reader is in the way. Where readers followed one another without
    /// a gap, it grows: then they are made to wait, and it is cut.
    async fn cut_log(&mut self) {
        let bytes = std::fs::metadata(connection::log_path(&self.database)).map_or(0, |file| file.len());
        let is_wanted = is_armed(Point::LogUncut) || is_armed(Point::LogCut);
        if bytes < self.log_bytes_limit && !is_wanted {
            self.log_bytes_limit = LOG_BYTES_MAX;
            return;
        }
        let Ok(_alone) = tokio::time::timeout(READERS_LEAVE_MAX, self.gate.clone().write_owned()).await else {
            self.log_bytes_limit = bytes + LOG_BYTES_STEP;
            return;
        };
        point(Point::LogUncut);
        match self.execute("PRAGMA wal_checkpoint(TRUNCATE)").await {
            Ok(()) => {
                point(Point::LogCut);
                self.log_bytes_limit = LOG_BYTES_MAX;
            }
            Err(error) => {
                tracing::warn!(error = %error, log_bytes = bytes, "the write-ahead log could not be cut");
                self.log_bytes_limit = bytes + LOG_BYTES_STEP;
            }
        }
    }
}

fn refused(fault: Fault) -> StoreError {
    match fault {
        Fault::Sql(error) => store_error(error),
        other => StoreError::Unavailable(other.to_string()),
    }
}

const LOST: &str = "the connection was lost and could not be opened again";

fn lost() -> CommitError {
    CommitError::Unavailable(LOST.into())
}

#[cfg(test)]
impl Writer {
    async fn limit_pages(&mut self, pages: Option<u32>) -> Result<(), StoreError> {
        let Some(connection) = &mut self.connection else { return Err(StoreError::Closed) };
        // SQLite never sets the limit below the present size.
        let sql = format!("PRAGMA max_page_count = {}", pages.unwrap_or(u32::MAX - 1));
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(store_error)
    }
}
