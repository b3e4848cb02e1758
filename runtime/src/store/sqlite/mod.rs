//! The embedded store: one SQLite file, one process, one writing connection, a few reading ones.
//!
//! A commit is durable when it returns: the write-ahead log is synchronized in every one (`synchronous = FULL`).
//! The file must be on a local disk.

mod advances;
mod attributes;
mod audit;
mod commit;
mod connection;
mod controls;
mod deposits;
mod due;
mod error;
mod executions;
mod gates;
mod history;
mod inbox;
mod lane;
mod list;
mod load;
mod outbox;
mod readers;
mod retention;
mod schema;
mod starts;
mod tokens;
mod transfer;
mod types;
mod values;
mod writer;

#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Connection;
use tokio::sync::{RwLock, mpsc, oneshot};

use self::error::store_error;
use self::readers::Readers;
use self::schema::OlderSchema;
use self::writer::{Command, Writer};
use super::{
    AttributeValue, Closed, CommitError, Due, Execution, Fence, Filter, InboxRow, Loaded, Member, Membership, NewNode, Outcome,
    Owner, Page, Position, Roster, RunPlace, Sharing, Store, StoreError, StoreFacts, Stray, StrayPlace, Token, Write,
};
use crate::id::{RunId, WorkflowKey};
use crate::time::Timestamp;

/// What a database is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Serve,
    Copy,
}

/// A store in one SQLite file.
pub struct SqliteStore {
    facts: StoreFacts,
    url: String,
    /// The node that has the file to itself.
    owner: Mutex<Option<Member>>,
    /// The database, where this process only looks at it.
    looked_at: Option<PathBuf>,
    all_shards: String,
    readers: Readers,
    commands: mpsc::Sender<Command>,
}

impl SqliteStore {
    /// Opens the database at `path`, or creates it there with this number of shards, and keeps every other process off
    /// it until it is closed.
    ///
    /// # Errors
    /// [`StoreError::Refused`], with what to do about it: when another process has the database, when it has another
    /// number of shards or was written by an older or a newer program, when it is an unfinished copy or was moved away, or
    /// when it cannot be opened.
    pub async fn open(path: impl AsRef<Path>, shards: u16) -> Result<Self, StoreError> {
        Self::open_for(path.as_ref(), Some(shards), Use::Serve).await
    }

    /// Opens the database at `path` to copy from it or into it, whatever its marks are. With a number of shards it is
    /// created there if there is none; without, it has to be there.
    ///
    /// # Errors
    /// [`StoreError::Refused`], as [`open`](Self::open).
    pub async fn open_to_copy(path: impl AsRef<Path>, shards: Option<u16>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if shards.is_none() && !path.exists() {
            return Err(StoreError::Refused(format!("there is no database at {}", path.display())));
        }
        Self::open_for(path, shards, Use::Copy).await
    }

    /// Opens the database at `path` to look at it, also while another process has it, and changes nothing: whatever would
    /// write fails with [`StoreError::Closed`].
    ///
    /// # Errors
    /// [`StoreError::Refused`], with what to do about it: when there is no database, or an older or a newer program wrote it.
    pub async fn open_to_look(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(StoreError::Refused(format!("there is no database at {}", path.display())));
        }
        let path = connection::real_path(path)?;
        let people = connection::open_lookers(&path);
        let unreadable = |error| StoreError::Refused(format!("cannot open {}: {error}", path.display()));
        let mut connection = people.acquire().await.map_err(unreadable)?;
        schema::check(&mut connection).await?;
        let shards = schema::shards(&mut connection).await?;
        let version = connection::sqlite_version(&mut connection).await?;
        drop(connection);
        // Nobody takes commands.
        let (commands, _) = mpsc::channel(1);
        Ok(Self {
            facts: StoreFacts { shards, database: format!("SQLite {version}"), sharing: Sharing::Embedded },
            url: format!("sqlite:{}", path.display()),
            owner: Mutex::new(None),
            all_shards: shards_as_json(&(0..shards).collect::<Vec<_>>()),
            readers: Readers { engine: connection::open_lookers(&path), people, gate: Arc::default() },
            looked_at: Some(path),
            commands,
        })
    }

    async fn open_for(path: &Path, shards: Option<u16>, usage: Use) -> Result<Self, StoreError> {
        let path = &connection::real_path(path)?;
        let url = format!("sqlite:{}", path.display());
        let lock = connection::lock(path).await?;
        let mut connection = connection::open_writer(path).await?;
        let (version, shards) = match Self::prepare(&mut connection, shards, &url, usage).await {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = connection.close().await;
                return Err(error);
            }
        };
        let gate = Arc::new(RwLock::new(()));
        let readers =
            Readers { engine: connection::open_readers(path), people: connection::open_readers(path), gate: Arc::clone(&gate) };
        let (commands, queue) = mpsc::channel(writer::COMMANDS_MAX);
        #[expect(clippy::disallowed_methods, reason = "the writer is this store's own and ends with it")]
        tokio::spawn(Writer::new(path.to_owned(), connection, gate, lock).run(queue));
        Ok(Self {
            facts: StoreFacts { shards, database: format!("SQLite {version}"), sharing: Sharing::Embedded },
            url,
            owner: Mutex::new(None),
            looked_at: None,
            all_shards: shards_as_json(&(0..shards).collect::<Vec<_>>()),
            readers,
            commands,
        })
    }

    /// Brings a database that an older program wrote to this program's schema. One that is current is left as it is.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when there is no database at `path`, another process has it, or a newer program wrote it.
    pub async fn migrate(path: impl AsRef<Path>) -> Result<(), StoreError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(StoreError::Refused(format!("there is no database at {}", path.display())));
        }
        let path = &connection::real_path(path)?;
        let _lock = connection::lock(path).await?;
        let mut connection = connection::open_writer(path).await?;
        let migrated = schema::prepare(&mut connection, OlderSchema::Migrate).await;
        connection.close().await.map_err(store_error)?;
        migrated
    }

    async fn prepare(
        connection: &mut sqlx::SqliteConnection,
        shards: Option<u16>,
        url: &str,
        usage: Use,
    ) -> Result<(String, u16), StoreError> {
        schema::prepare(connection, OlderSchema::Refuse).await?;
        let shards = match shards {
            Some(shards) => schema::fix_shards(connection, shards).await.map(|()| shards)?,
            None => schema::shards(connection).await?,
        };
        if usage == Use::Serve {
            transfer::standing(connection, url).await.map_err(store_error)?.check_servable()?;
        }
        Ok((connection::sqlite_version(connection).await?, shards))
    }

    /// The node that has the file to itself now, in this process or another one.
    fn served_by(&self) -> Option<String> {
        match &self.looked_at {
            Some(path) => connection::holder(path),
            None => self.owner().as_ref().map(|member| member.node_id.clone()),
        }
    }

    fn owner(&self) -> MutexGuard<'_, Option<Member>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a command to the writer and waits for its answer. Whoever stops waiting does not stop the command.
    async fn ask<T>(&self, command: impl FnOnce(writer::Answer<T>) -> Command) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }
}

fn shards_as_json(shards: &[u16]) -> String {
    serde_json::to_string(shards).expect("numbers can be written as JSON")
}

#[async_trait]
impl Store for SqliteStore {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    async fn join(&self, node: &NewNode) -> Result<Fence, StoreError> {
        let fence = self.ask(|answer| Command::Join { node_id: node.node_id.clone(), answer }).await?;
        let NewNode { node_id, url, secret, .. } = node.clone();
        *self.owner() = Some(Member { node_id, url, secret, alive: true });
        Ok(fence)
    }

    async fn renew(&self, fence: &Fence, _: Duration) -> Result<Option<Membership>, StoreError> {
        let Some(member) = self.owner().clone().filter(|member| member.node_id == fence.node_id) else { return Ok(None) };
        let owners = vec![Owner::Node(member.node_id.clone()); self.facts.shards.into()];
        Ok(Some(Membership { now: None, up: Duration::MAX, members: vec![member], owners }))
    }

    async fn claim(&self, _: &Fence, _: usize) -> Result<Vec<u16>, CommitError> {
        Ok(Vec::new())
    }

    async fn hand_over(&self, _: &Fence, _: &[u16], _: Option<&str>) -> Result<(), CommitError> {
        Ok(())
    }

    async fn take_over(&self, _: &str, _: Duration) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// A file whose commit failed in a way that leaves its outcome open is not to be trusted until it was opened anew.
    async fn raise(&self, _: &Fence) -> Result<Option<Fence>, StoreError> {
        Err(StoreError::Refused("the database file failed in a commit; it recovers when it is opened again".into()))
    }

    async fn leave(&self, fence: &Fence) -> Result<(), StoreError> {
        self.ask(|answer| Command::Leave { fence: fence.clone(), answer }).await
    }

    async fn commit(&self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Commit { fence: fence.clone(), writes: writes.to_vec(), answer };
        self.commands.send(command).await.map_err(|_| CommitError::Unavailable(StoreError::Closed.to_string()))?;
        // The writer dropped the command unanswered: it was closed before its turn, or it was lost in the middle of it.
        answered.await.map_err(|_| CommitError::Unknown("the store's writer ended".into()))?
    }

    async fn load(&self, keys: &[WorkflowKey]) -> Result<Vec<Option<Loaded>>, StoreError> {
        load::load(&mut *self.readers.snapshot().await?, keys).await.map_err(store_error)
    }

    async fn find(&self, key: &WorkflowKey) -> Result<Option<Execution>, StoreError> {
        executions::find(&mut *self.readers.connection().await?, key).await.map_err(store_error)
    }

    async fn due(&self, shards: &[u16], until: Timestamp, limit_per_shard: usize) -> Result<Vec<Due>, StoreError> {
        let shards = shards_as_json(shards);
        due::due(&mut *self.readers.connection().await?, &shards, until, limit_per_shard).await.map_err(store_error)
    }

    async fn upcoming(
        &self,
        shards: &[u16],
        after: Timestamp,
        until: Timestamp,
        limit_per_shard: usize,
    ) -> Result<Vec<Due>, StoreError> {
        let shards = shards_as_json(shards);
        let mut connection = self.readers.connection().await?;
        due::upcoming(&mut connection, &shards, after, until, limit_per_shard).await.map_err(store_error)
    }

    async fn unread(&self, shards: &[u16], limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        let shards = shards_as_json(shards);
        inbox::unread_keys(&mut *self.readers.connection().await?, &shards, limit).await.map_err(store_error)
    }

    async fn unclaimed(&self, shards: &[u16], before: Timestamp, limit: usize) -> Result<Vec<InboxRow>, StoreError> {
        let shards = shards_as_json(shards);
        inbox::unclaimed(&mut *self.readers.connection().await?, &shards, before, limit).await.map_err(store_error)
    }

    async fn retirable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        let mut connection = self.readers.connection().await?;
        retention::retirable(&mut connection, shard, before, after, limit).await.map_err(store_error)
    }

    async fn forgettable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        let mut connection = self.readers.connection().await?;
        retention::forgettable(&mut connection, shard, before, after, limit).await.map_err(store_error)
    }

    async fn list(&self, filter: &Filter, after: Option<&Position>, limit: usize) -> Result<Page, StoreError> {
        let mut snapshot = self.readers.page().await?;
        list::page(&mut snapshot, filter, after, limit, &self.all_shards).await.map_err(store_error)
    }

    async fn attributes(&self, key: &WorkflowKey) -> Result<Vec<(String, AttributeValue)>, StoreError> {
        attributes::of_one(&mut *self.readers.connection().await?, key).await.map_err(store_error)
    }

    async fn derived(&self, root_id: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        list::derived(&mut *self.readers.connection().await?, root_id, limit).await.map_err(store_error)
    }

    async fn roster(&self) -> Result<Roster, StoreError> {
        let served_by = self.served_by();
        audit::roster(&mut *self.readers.page().await?, self.facts.shards, served_by.as_deref()).await.map_err(store_error)
    }

    async fn recorded_runs(&self, place: RunPlace, limit: usize) -> Result<(Vec<RunId>, Option<RunPlace>), StoreError> {
        audit::recorded_runs(&mut *self.readers.connection().await?, place, limit).await.map_err(store_error)
    }

    async fn strays(&self, place: &StrayPlace, limit: usize) -> Result<(Vec<Stray>, Option<StrayPlace>), StoreError> {
        audit::strays(&mut *self.readers.connection().await?, place, limit, self.facts.shards).await.map_err(store_error)
    }

    async fn create_token(&self, token: &Token) -> Result<bool, StoreError> {
        self.ask(|answer| Command::CreateToken { token: token.clone(), answer }).await
    }

    async fn find_token(&self, secret_hash: &[u8; 32]) -> Result<Option<Token>, StoreError> {
        tokens::find(&mut *self.readers.connection().await?, secret_hash).await.map_err(store_error)
    }

    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        tokens::all(&mut *self.readers.connection().await?).await.map_err(store_error)
    }

    async fn revoke_token(&self, name: &str) -> Result<bool, StoreError> {
        self.ask(|answer| Command::RevokeToken { name: name.to_owned(), answer }).await
    }

    async fn close(&self) {
        // Readers first: the last connection to close copies the log back.
        self.readers.close().await;
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Close { answer }).await.is_ok() {
            let _ = answered.await;
        }
    }
}
