//! Every kind of store, filled with what a world holds, and damaged by its own means.

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use super::world::{SHARDS, World};
use crate::store::{ModelStore, Parcel, Portable, PostgresStore, SqliteStore, Store};
use crate::testing::PostgresCluster;

/// A database that no node has open.
pub(super) enum Database {
    Sqlite(PathBuf, #[expect(dead_code, reason = "it is removed with this")] TempDir),
    Postgres(String),
}

impl Database {
    /// One of each kind, with all that the world holds.
    pub(super) async fn each(world: &World) -> [Self; 2] {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let file = folder.path().join("a.db");
        fill(&SqliteStore::open(&file, SHARDS).await.unwrap(), world).await;
        let cluster = PostgresCluster::shared();
        let url = cluster.url(&cluster.create_database().await);
        fill(&PostgresStore::open(&url, SHARDS).await.unwrap(), world).await;
        [Self::Sqlite(file, folder), Self::Postgres(url)]
    }

    /// Opens it to look at it.
    pub(super) async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(file, _) => Arc::new(SqliteStore::open_to_look(file).await.unwrap()),
            Self::Postgres(url) => Arc::new(PostgresStore::open_to_look(url).await.unwrap()),
        }
    }

    /// Runs statements in which `@` stands for the schema of the tables; how many rows they change.
    pub(super) async fn run(&self, sql: &str) -> u64 {
        match self {
            Self::Sqlite(file, _) => {
                let mut session = SqliteConnection::connect(file.to_str().unwrap()).await.unwrap();
                let done = sqlx::raw_sql(AssertSqlSafe(sql.replace('@', ""))).execute(&mut session).await.unwrap();
                session.close().await.unwrap();
                done.rows_affected()
            }
            Self::Postgres(url) => {
                let mut session = PgConnection::connect(url.split('?').next().unwrap()).await.unwrap();
                let done = sqlx::raw_sql(AssertSqlSafe(sql.replace('@', "overdue."))).execute(&mut session).await.unwrap();
                done.rows_affected()
            }
        }
    }
}

/// A model with all that the world holds, changed on the way.
pub(super) async fn model_of(world: &World, change: impl Fn(&mut Parcel)) -> ModelStore {
    let store = ModelStore::new(SHARDS);
    for mut parcel in world.parcels().await {
        change(&mut parcel);
        store.import(&parcel).await.unwrap();
    }
    store
}

async fn fill(store: &(impl Portable + Store), world: &World) {
    for parcel in world.parcels().await {
        store.import(&parcel).await.unwrap();
    }
    Store::close(store).await;
}
