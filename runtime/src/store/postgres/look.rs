//! Opening a database to look at it, beside the nodes that use it.

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::sync::mpsc;

use super::connection::Target;
use super::layout::Layout;
use super::readers::Readers;
use super::values::stored_shards;
use super::{PostgresStore, distribute, schema, settings};
use crate::store::{Sharing, StoreError, StoreFacts};

impl PostgresStore {
    /// Opens the database that `url` names to look at it, beside the nodes that use it, and changes nothing: whatever would
    /// write fails with [`StoreError::Closed`].
    ///
    /// # Errors
    /// [`StoreError::Refused`], with what to do about it: when the database cannot be reached, is empty, or was written by an
    /// older program or by a newer one that this one cannot live beside.
    pub async fn open_to_look(url: &str) -> Result<Self, StoreError> {
        let mut target = Target::parse(url)?;
        let mut connection = Self::session(&target).await?;
        let looked = Self::look(&mut connection, &target).await;
        let _ = connection.close().await;
        let (version, shards, layout) = looked?;
        if layout.is_distributed() {
            target = target.distributed();
        }
        // Nobody takes commands.
        let (commands, _) = mpsc::channel(1);
        Ok(Self {
            facts: StoreFacts { shards, database: format!("PostgreSQL {version}"), sharing: Sharing::Shared },
            all_shards: stored_shards(&(0..shards).collect::<Vec<_>>()),
            readers: Readers { engine: target.engine_readers(), people: target.people_readers() },
            renewer: target.renewer(),
            target,
            layout,
            commands,
        })
    }

    async fn look(connection: &mut PgConnection, target: &Target) -> Result<(String, u16, Layout), StoreError> {
        let version = settings::check_server(connection, target.durability).await?;
        schema::check(connection).await?;
        let shards = schema::shards(connection).await?;
        Ok((version, shards, distribute::layout(connection, target.durability).await?))
    }
}
