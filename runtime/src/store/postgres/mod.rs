//! The shared store: one PostgreSQL, 15 or later, one or many nodes.
//!
//! A commit is durable when it returns: a server that would not keep it is refused. Each node writes through one session,
//! and every commit begins with the fence of the node's lane. Nothing here listens for notifications: what is to be done is
//! found by reading state.

mod advances;
mod anchors;
mod attributes;
mod audit;
mod callers;
mod commit;
mod connection;
mod controls;
mod deposits;
mod distribute;
mod due;
mod error;
mod executions;
mod gates;
mod history;
mod inbox;
mod lane;
mod layout;
mod list;
mod load;
mod look;
mod maintain;
mod migrate;
mod nodes;
mod outbox;
mod readers;
mod reads;
mod requests;
mod retention;
mod schema;
mod settings;
mod shards;
mod starts;
mod statement;
mod takeover;
mod tokens;
mod transfer;
mod types;
mod values;
mod writer;

#[cfg(test)]
mod measure;
#[cfg(test)]
pub(in crate::store) mod tests;

pub(crate) use self::callers::{Raised, signal_workflow, start_workflow};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};

use self::connection::Target;
use self::error::store_error;
use self::layout::Layout;
use self::readers::{Readers, answer};
use self::schema::OlderSchema;
use self::values::stored_shards;
use self::writer::{Answer, Command, Writer};
use super::{
    AttributeValue, Closed, CommitError, DeclaredType, Due, Execution, Fence, Filter, InboxRow, Loaded, Membership, NewNode,
    Outcome, Page, Position, RequestedStart, Roster, RunPlace, Sharing, Store, StoreError, StoreFacts, Stray, StrayPlace, Token,
    Write,
};
use crate::id::{RunId, WorkflowKey};
use crate::time::Timestamp;

/// The most shards of a database: they are stored in two bytes, signed.
const SHARDS_MAX: u16 = i16::MAX.unsigned_abs();

/// What a database is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Serve,
    Copy,
}

/// A store in one PostgreSQL database.
pub struct PostgresStore {
    facts: StoreFacts,
    all_shards: Vec<i16>,
    target: Target,
    layout: Layout,
    readers: Readers,
    renewer: PgPool,
    commands: mpsc::Sender<Command>,
}

impl PostgresStore {
    /// Opens the database that `url` names (`postgres://user:password@host:port/database`). An empty one gets the schema
    /// `overdue`, with this number of shards.
    ///
    /// # Errors
    /// [`StoreError::Refused`], with what to do about it: when the database cannot be reached, has another number of
    /// shards, was written by an older program or by a newer one that this one cannot live beside, when its server would
    /// lose acknowledged commits or is a standby, or when a pooler shares backends between sessions.
    pub async fn open(url: &str, shards: u16) -> Result<Self, StoreError> {
        Self::open_for(url, Some(shards), Use::Serve).await
    }

    /// Opens the database that `url` names to copy from it or into it, whatever its marks are, and keeps every node and every
    /// caller off until it is closed. With a number of shards a store is created in an empty one; without, it has to be there.
    ///
    /// # Errors
    /// [`StoreError::Refused`], as [`open`](Self::open), and when a copy or a caller's transaction holds it: it is named.
    pub async fn open_to_copy(url: &str, shards: Option<u16>) -> Result<Self, StoreError> {
        if shards.is_none() && !Self::exists(url).await? {
            return Err(StoreError::Refused("the database is empty: no overdue has used it yet".into()));
        }
        Self::open_for(url, shards, Use::Copy).await
    }

    async fn open_for(url: &str, shards: Option<u16>, usage: Use) -> Result<Self, StoreError> {
        if let Some(shards) = shards.filter(|shards| *shards > SHARDS_MAX) {
            return Err(StoreError::Refused(format!("{shards} shards are too many: PostgreSQL stores up to {SHARDS_MAX}")));
        }
        let mut target = Target::parse(url)?;
        if target.is_exposed() {
            tracing::warn!(
                database = target.name(),
                "the connection may be read on its way: add ?sslmode=verify-full to the URL"
            );
        }
        let mut connection = Self::session(&target).await?;
        let (version, shards, layout) = match Self::prepare(&mut connection, &target, shards, usage).await {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = connection.close().await;
                return Err(error);
            }
        };
        if layout.is_distributed() {
            let _ = connection.close().await;
            target = target.distributed();
            connection = Self::session(&target).await?;
        }
        let engine = if usage == Use::Copy { target.copying_readers() } else { target.engine_readers() };
        let readers = Readers { engine, people: target.people_readers() };
        let (commands, queue) = mpsc::channel(writer::COMMANDS_MAX);
        #[expect(clippy::disallowed_methods, reason = "the writer is this store's own and ends with it")]
        tokio::spawn(Writer::new(target.clone(), shards, layout.clone(), usage, connection).run(queue));
        Ok(Self {
            facts: StoreFacts { shards, database: format!("PostgreSQL {version}"), sharing: Sharing::Shared },
            all_shards: stored_shards(&(0..shards).collect::<Vec<_>>()),
            readers,
            renewer: target.renewer(),
            target,
            layout,
            commands,
        })
    }

    /// A session for writing, which nothing shares with others.
    async fn session(target: &Target) -> Result<PgConnection, StoreError> {
        settings::check_no_pooler(target).await?;
        target.open_writer().await.map_err(|error| target.unreachable(&error))
    }

    async fn prepare(
        connection: &mut PgConnection,
        target: &Target,
        shards: Option<u16>,
        usage: Use,
    ) -> Result<(String, u16, Layout), StoreError> {
        let version = settings::check_server(connection, target.durability).await?;
        schema::prepare(connection, target, OlderSchema::Refuse).await?;
        let shards = match shards {
            Some(shards) => schema::fix_shards(connection, shards).await.map(|()| shards)?,
            None => schema::shards(connection).await?,
        };
        match usage {
            Use::Serve => transfer::standing(connection, target.url()).await.map_err(store_error)?.check_servable()?,
            Use::Copy => transfer::keep_others_off(connection, target).await?,
        }
        let layout = distribute::layout(connection, target.durability).await?;
        if usage == Use::Copy && layout.is_distributed() {
            return Err(StoreError::Refused(format!(
                "{} is distributed and cannot be copied: copy into a database of one server, then run `overdue migrate --distribute`",
                target.url()
            )));
        }
        Ok((version, shards, layout))
    }

    /// The shard of an execution.
    fn shard(&self, key: &WorkflowKey) -> u16 {
        key.shard(self.facts.shards)
    }

    /// Hands a command to the writer and waits for its answer. Whoever stops waiting does not stop the command.
    async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// The same for what is written under a fence.
    async fn ask_fenced<T>(&self, command: impl FnOnce(Answer<T, CommitError>) -> Command) -> Result<T, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| CommitError::Unavailable(StoreError::Closed.to_string()))?;
        // The writer dropped the command unanswered: it was closed before its turn, or it was lost in the middle of it.
        answered.await.map_err(|_| CommitError::Unknown("the store's writer ended".into()))?
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn placement(&self, shard: u16) -> u32 {
        self.layout.place(shard)
    }

    async fn join(&self, node: &NewNode) -> Result<Fence, StoreError> {
        self.ask(|answer| Command::Join(nodes::Join(node.clone()), answer)).await
    }

    async fn renew(&self, fence: &Fence, lease: Duration) -> Result<Option<Membership>, StoreError> {
        let mut connection = self.renewer.acquire().await.map_err(store_error)?;
        let renewed = answer(nodes::renew(&mut connection, &fence.node_id, lease)).await?;
        if self.layout.is_distributed() {
            answer(self.layout.refresh(&mut connection)).await?;
        }
        Ok(renewed)
    }

    async fn claim(&self, fence: &Fence, most: usize) -> Result<Vec<u16>, CommitError> {
        self.ask_fenced(|answer| Command::Claim(shards::Claim { fence: fence.clone(), most }, answer)).await
    }

    async fn hand_over(&self, fence: &Fence, shards: &[u16], to: Option<&str>) -> Result<(), CommitError> {
        let work = shards::HandOver { fence: fence.clone(), shards: shards.to_vec(), to: to.map(str::to_owned) };
        self.ask_fenced(|answer| Command::HandOver(work, answer)).await
    }

    async fn take_over(&self, node_id: &str, lease: Duration) -> Result<bool, StoreError> {
        if self.commands.is_closed() {
            return Err(StoreError::Closed);
        }
        // A caller that goes away leaves no transaction half way: the task goes on.
        #[expect(clippy::disallowed_methods, reason = "the task is this store's own and ends by itself")]
        let taking = tokio::spawn(takeover::take_over(self.target.clone(), self.layout.clone(), node_id.to_owned(), lease));
        taking.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    async fn raise(&self, fence: &Fence) -> Result<Option<Fence>, StoreError> {
        self.ask(|answer| Command::Raise(lane::Raise(fence.clone()), answer)).await
    }

    async fn leave(&self, fence: &Fence) -> Result<(), StoreError> {
        self.ask(|answer| Command::Leave(nodes::Leave(fence.clone()), answer)).await
    }

    async fn commit(&self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        let batch = commit::Batch { fence: fence.clone(), writes: writes.to_vec() };
        self.ask_fenced(|answer| Command::Commit(batch, answer)).await
    }

    async fn load(&self, keys: &[WorkflowKey]) -> Result<Vec<Option<Loaded>>, StoreError> {
        let shards = stored_shards(&keys.iter().map(|key| self.shard(key)).collect::<Vec<_>>());
        answer(reads::load(&mut *self.readers.connection().await?, &self.layout, keys, &shards)).await
    }

    async fn find(&self, key: &WorkflowKey) -> Result<Option<Execution>, StoreError> {
        answer(executions::find(&mut *self.readers.connection().await?, self.shard(key), key)).await
    }

    async fn due(&self, shards: &[u16], until: Timestamp, limit_per_shard: usize) -> Result<Vec<Due>, StoreError> {
        let shards = stored_shards(shards);
        answer(reads::due(&mut *self.readers.connection().await?, &self.layout, &shards, until, limit_per_shard)).await
    }

    async fn upcoming(
        &self,
        shards: &[u16],
        after: Timestamp,
        until: Timestamp,
        limit_per_shard: usize,
    ) -> Result<Vec<Due>, StoreError> {
        let shards = stored_shards(shards);
        let mut connection = self.readers.connection().await?;
        answer(reads::upcoming(&mut connection, &self.layout, &shards, after, until, limit_per_shard)).await
    }

    async fn unread(&self, shards: &[u16], limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        let shards = stored_shards(shards);
        answer(reads::unread_keys(&mut *self.readers.connection().await?, &self.layout, &shards, limit)).await
    }

    async fn unclaimed(&self, shards: &[u16], before: Timestamp, limit: usize) -> Result<Vec<InboxRow>, StoreError> {
        let shards = stored_shards(shards);
        answer(reads::unclaimed(&mut *self.readers.connection().await?, &self.layout, &shards, before, limit)).await
    }

    async fn retirable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(retention::retirable(&mut connection, shard, before, after, limit)).await
    }

    async fn forgettable(
        &self,
        shard: u16,
        before: Timestamp,
        after: Option<&Closed>,
        limit: usize,
    ) -> Result<Vec<Closed>, StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(retention::forgettable(&mut connection, shard, before, after, limit)).await
    }

    async fn declare(&self, types: &[DeclaredType]) -> Result<(), StoreError> {
        self.ask(|answer| Command::Declare(requests::Declare(types.to_vec()), answer)).await
    }

    async fn requested_starts(&self, shards: &[u16], types: &[String], limit: usize) -> Result<Vec<RequestedStart>, StoreError> {
        let mut connection = self.readers.connection().await?;
        answer(reads::requested(&mut connection, &self.layout, &stored_shards(shards), types, limit)).await
    }

    async fn requested_start(&self, key: &WorkflowKey) -> Result<Option<RequestedStart>, StoreError> {
        let mut connection = self.readers.connection().await?;
        let shard = i16::try_from(self.shard(key)).unwrap_or(i16::MAX);
        requests::find(&mut connection, shard, key).await.map_err(store_error)
    }

    async fn list(&self, filter: &Filter, after: Option<&Position>, limit: usize) -> Result<Page, StoreError> {
        let mut connection = self.readers.page().await?;
        answer(list::page(&mut connection, &self.layout, filter, after, limit, &self.all_shards)).await
    }

    async fn attributes(&self, key: &WorkflowKey) -> Result<Vec<(String, AttributeValue)>, StoreError> {
        answer(attributes::of_one(&mut *self.readers.connection().await?, self.shard(key), key)).await
    }

    async fn derived(&self, root_id: &str, limit: usize) -> Result<Vec<WorkflowKey>, StoreError> {
        let mut connection = self.readers.page().await?;
        answer(list::derived(&mut connection, root_id, self.facts.shards, limit)).await
    }

    async fn roster(&self) -> Result<Roster, StoreError> {
        answer(audit::roster(&mut *self.readers.page().await?)).await
    }

    async fn recorded_runs(&self, place: RunPlace, limit: usize) -> Result<(Vec<RunId>, Option<RunPlace>), StoreError> {
        answer(audit::recorded_runs(&mut *self.readers.connection().await?, place, limit, self.facts.shards)).await
    }

    async fn strays(&self, place: &StrayPlace, limit: usize) -> Result<(Vec<Stray>, Option<StrayPlace>), StoreError> {
        answer(audit::strays(&mut *self.readers.connection().await?, place, limit, self.facts.shards)).await
    }

    async fn create_token(&self, token: &Token) -> Result<bool, StoreError> {
        self.ask(|answer| Command::CreateToken(tokens::Create(token.clone()), answer)).await
    }

    async fn find_token(&self, secret_hash: &[u8; 32]) -> Result<Option<Token>, StoreError> {
        answer(tokens::find(&mut *self.readers.connection().await?, secret_hash)).await
    }

    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        answer(tokens::all(&mut *self.readers.connection().await?)).await
    }

    async fn revoke_token(&self, name: &str) -> Result<bool, StoreError> {
        self.ask(|answer| Command::RevokeToken(tokens::Revoke(name.to_owned()), answer)).await
    }

    async fn close(&self) {
        self.renewer.close().await;
        self.readers.close().await;
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Close { answer }).await.is_ok() {
            let _ = answered.await;
        }
    }
}
