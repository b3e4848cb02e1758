//! How the tables lie: in one server, or distributed by shard.
//!
//! Citus keeps the rows of several shards together, in one of its own shards at one of its workers: here that is a *place*.
//! A statement about rows of one place is sent there as it is written; one about rows of several is refused or taken apart.
//! So what the store is asked for is cut into parts of one place each. A place that moves to another worker stays one.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use sqlx::postgres::PgConnection;

/// How the tables lie.
#[derive(Clone)]
pub(super) enum Layout {
    /// All in one server.
    One,
    /// Distributed by Citus; the place of each shard.
    Citus(Arc<RwLock<Arc<[u32]>>>),
}

/// The place of each shard, numbered by the order of their names.
const PLACES: &str = "SELECT dense_rank() OVER (ORDER BY get_shard_id_for_distribution_column('overdue.executions', s.shard))
     FROM overdue.shards AS s
     ORDER BY s.shard";

impl Layout {
    pub(super) fn citus(places: Vec<u32>) -> Self {
        Self::Citus(Arc::new(RwLock::new(places.into())))
    }

    /// Reads the places of a distributed database.
    pub(super) async fn read(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        Ok(Self::citus(read_places(connection).await?))
    }

    /// Reads the places again: a place can be split.
    pub(super) async fn refresh(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let Self::Citus(places) = self else { return Ok(()) };
        let read = read_places(connection).await?;
        *places.write().unwrap_or_else(PoisonError::into_inner) = read.into();
        Ok(())
    }

    pub(super) fn is_distributed(&self) -> bool {
        matches!(self, Self::Citus(_))
    }

    /// The number of shards, where they are distributed.
    pub(super) fn shards(&self) -> Option<u16> {
        let Self::Citus(places) = self else { return None };
        u16::try_from(places.read().unwrap_or_else(PoisonError::into_inner).len()).ok()
    }

    /// The place of a shard.
    pub(super) fn place(&self, shard: u16) -> u32 {
        match self {
            Self::One => 0,
            Self::Citus(places) => {
                let places = places.read().unwrap_or_else(PoisonError::into_inner);
                places.get(usize::from(shard)).copied().unwrap_or(0)
            }
        }
    }

    /// Cuts items into parts of one place each; within a part they keep their order.
    pub(super) fn parts<T>(&self, items: Vec<T>, shard: impl Fn(&T) -> u16) -> Vec<Vec<T>> {
        if !self.is_distributed() {
            return vec![items];
        }
        let mut parts: BTreeMap<u32, Vec<T>> = BTreeMap::new();
        for item in items {
            parts.entry(self.place(shard(&item))).or_default().push(item);
        }
        parts.into_values().collect()
    }

    /// Cuts stored shards into parts of one place each.
    pub(super) fn parts_of(&self, shards: &[i16]) -> Vec<Vec<i16>> {
        self.parts(shards.to_vec(), |shard| shard.unsigned_abs())
    }
}

async fn read_places(connection: &mut PgConnection) -> Result<Vec<u32>, sqlx::Error> {
    let places: Vec<i64> = sqlx::query_scalar(PLACES).fetch_all(connection).await?;
    Ok(places.into_iter().map(|place| u32::try_from(place).unwrap_or(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_one_server_everything_is_one_part() {
        assert_eq!(Layout::One.parts_of(&[3, 1, 2]), [[3, 1, 2]]);
        assert_eq!(Layout::One.place(7), Layout::One.place(8));
    }

    #[test]
    fn each_part_is_of_one_place_and_keeps_its_order() {
        let layout = Layout::citus(vec![2, 1, 2, 1]);
        assert_eq!(layout.parts_of(&[3, 2, 1, 0]), [[3, 1], [2, 0]]);
    }
}
