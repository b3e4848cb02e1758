//! What the store tells of itself to whoever checks it.

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::error::unreadable;
use super::values::limit_of;
use crate::id::{RunId, WorkflowKey};
use crate::store::audit::shard_fault;
use crate::store::{Belonging, Fence, Roster, RunPlace, Stray, StrayPlace};

/// Lanes and the last epoch. Needs a transaction. Whoever has a lane has every shard; `served_by` is alive.
pub(super) async fn roster(
    connection: &mut SqliteConnection,
    shards: u16,
    served_by: Option<&str>,
) -> Result<Roster, sqlx::Error> {
    let last_epoch = sqlx::query_scalar("SELECT epoch FROM meta WHERE one = 1").fetch_one(&mut *connection).await?;
    let rows = sqlx::query("SELECT node_id, lane, epoch FROM lanes ORDER BY node_id, lane").fetch_all(connection).await?;
    let lane_of = |row: &SqliteRow| {
        let lane: i64 = row.try_get(1)?;
        let lane = u16::try_from(lane).map_err(|_| unreadable("lanes.lane", lane))?;
        Ok(Fence { node_id: row.try_get(0)?, lane, epoch: row.try_get(2)? })
    };
    let lanes: Vec<Fence> = rows.iter().map(lane_of).collect::<Result<_, sqlx::Error>>()?;
    let mut nodes: Vec<String> = lanes.iter().map(|lane| lane.node_id.clone()).collect();
    nodes.dedup();
    let owner = nodes.first().cloned();
    let nodes = nodes.into_iter().map(|node_id| {
        let alive = served_by == Some(node_id.as_str());
        (node_id, alive)
    });
    let nodes = nodes.collect();
    Ok(Roster { now: None, last_epoch, nodes, lanes, owners: (0..shards).map(|shard| (shard, owner.clone())).collect() })
}

pub(super) const RUNS: &str = "SELECT DISTINCT run_id FROM history WHERE run_id > ?1 ORDER BY run_id LIMIT ?2";

/// Runs that have history rows.
pub(super) async fn recorded_runs(
    connection: &mut SqliteConnection,
    place: RunPlace,
    limit: usize,
) -> Result<(Vec<RunId>, Option<RunPlace>), sqlx::Error> {
    // The empty one is before all.
    let after = place.after.map_or_else(Vec::new, |run_id| run_id.as_bytes().to_vec());
    let stored: Vec<Vec<u8>> = sqlx::query_scalar(RUNS).bind(after).bind(limit_of(limit)).fetch_all(connection).await?;
    let run_of = |bytes: Vec<u8>| {
        let run = Uuid::from_slice(&bytes).map_err(|_| unreadable("history.run_id", "a value of another length"))?;
        Ok(RunId(run))
    };
    let runs: Vec<RunId> = stored.into_iter().map(run_of).collect::<Result<_, sqlx::Error>>()?;
    let next = runs.last().map(|last| RunPlace { shard: 0, after: Some(*last) });
    Ok((runs, next))
}

/// Each number of a type that executions have: one step along the index a number.
pub(super) const UNNAMED: &str = "WITH RECURSIVE used (type) AS (
         SELECT min(e.type) FROM executions AS e
         UNION ALL
         SELECT (SELECT min(e.type) FROM executions AS e WHERE e.type > used.type) FROM used WHERE used.type IS NOT NULL)
     SELECT used.type FROM used
     WHERE used.type IS NOT NULL AND NOT EXISTS (SELECT 1 FROM types AS t WHERE t.code = used.type)
     ORDER BY used.type LIMIT ?1";

pub(super) const ATTRIBUTES: &str = "SELECT w.type, w.id, w.name, t.name, e.id IS NULL, e.tombstone IS NOT NULL
     FROM (SELECT type, id, name FROM attributes WHERE (type, id, name) > (?1, ?2, ?3) ORDER BY type, id, name LIMIT ?4) AS w
     LEFT JOIN types AS t ON t.code = w.type
     LEFT JOIN executions AS e ON e.type = w.type AND e.id = w.id
     ORDER BY w.type, w.id, w.name";

pub(super) const SIGNALS: &str = "SELECT w.type, w.id, w.signal_id, t.name, w.shard
     FROM (SELECT type, id, signal_id, shard FROM inbox WHERE (type, id, signal_id) > (?1, ?2, ?3)
           ORDER BY type, id, signal_id LIMIT ?4) AS w
     LEFT JOIN types AS t ON t.code = w.type
     ORDER BY w.type, w.id, w.signal_id";

/// Rows that should not be there.
pub(super) async fn strays(
    connection: &mut SqliteConnection,
    place: &StrayPlace,
    limit: usize,
    shards: u16,
) -> Result<(Vec<Stray>, Option<StrayPlace>), sqlx::Error> {
    let next_kind = place.of.next().map(StrayPlace::of);
    let sql = match place.of {
        Belonging::Types => {
            let unnamed: Vec<i64> = sqlx::query_scalar(UNNAMED).bind(limit_of(limit)).fetch_all(connection).await?;
            let what = |code| Stray { key: None, what: format!("there are executions of type number {code}, which has no name") };
            return Ok((unnamed.into_iter().map(what).collect(), next_kind));
        }
        Belonging::Attributes => ATTRIBUTES,
        Belonging::Signals => SIGNALS,
        // Nobody asks for starts inside this store.
        Belonging::Starts => return Ok((Vec::new(), next_kind)),
    };
    let after = place.after.clone();
    let (code, id, name) = after.unwrap_or_else(|| (i64::MIN.to_string(), String::new(), String::new()));
    let code: i64 = code.parse().map_err(|_| unreadable("the place of a walk", code))?;
    let rows = sqlx::query(sql).bind(code).bind(id).bind(name).bind(limit_of(limit)).fetch_all(connection).await?;
    let mut found = Vec::new();
    for row in &rows {
        let fault = if place.of == Belonging::Attributes { attribute_fault(row)? } else { signal_fault(row, shards)? };
        let (type_name, id): (Option<String>, String) = (row.try_get(3)?, row.try_get(1)?);
        found.extend(fault.map(|what| Stray { key: type_name.map(|name| WorkflowKey::new(name, id)), what }));
    }
    let next = match rows.last() {
        Some(row) => {
            let last = (row.try_get::<i64, _>(0)?.to_string(), row.try_get(1)?, row.try_get(2)?);
            Some(StrayPlace { after: Some(last), ..place.clone() })
        }
        None => next_kind,
    };
    Ok((found, next))
}

fn attribute_fault(row: &SqliteRow) -> Result<Option<String>, sqlx::Error> {
    let (name, type_name): (String, Option<String>) = (row.try_get(2)?, row.try_get(3)?);
    let (is_missing, is_retired): (bool, bool) = (row.try_get(4)?, row.try_get(5)?);
    Ok(if is_missing || type_name.is_none() {
        Some(format!("attribute {name:?} is of no execution"))
    } else {
        is_retired.then(|| format!("attribute {name:?} is of a retired execution"))
    })
}

fn signal_fault(row: &SqliteRow, shards: u16) -> Result<Option<String>, sqlx::Error> {
    let (id, signal_id): (String, String) = (row.try_get(1)?, row.try_get(2)?);
    let (type_name, shard): (Option<String>, i64) = (row.try_get(3)?, row.try_get(4)?);
    if type_name.is_none() {
        return Ok(Some(format!("signal {signal_id:?} is for a type that has no name")));
    }
    let shard = u16::try_from(shard).map_err(|_| unreadable("inbox.shard", shard))?;
    Ok(shard_fault(&format!("signal {signal_id:?}"), &id, shard, shards))
}
