//! What the store tells of itself to whoever checks it. Each read is of one shard, and so of one place.

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use uuid::Uuid;

use super::error::unreadable;
use super::values::{limit_of, or_empty, shard_of};
use crate::id::{RunId, WorkflowKey};
use crate::store::audit::shard_fault;
use crate::store::{Belonging, Fence, Roster, RunPlace, Stray, StrayPlace};
use crate::time::Timestamp;

/// A sequence shows what was taken from it before or after the snapshot: never less than a lane in it has.
pub(super) const ROSTER: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            (SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM overdue.epochs AS q),
            n.node_ids, n.alive, l.node_ids, l.lanes, l.epochs, s.shards, s.node_ids
     FROM (SELECT array_agg(n.node_id ORDER BY n.node_id) AS node_ids,
                  array_agg(n.expires_at > clock_timestamp() ORDER BY n.node_id) AS alive
           FROM overdue.nodes AS n) AS n
     CROSS JOIN (SELECT array_agg(l.node_id ORDER BY l.node_id, l.lane) AS node_ids,
                        array_agg(l.lane ORDER BY l.node_id, l.lane) AS lanes,
                        array_agg(l.epoch ORDER BY l.node_id, l.lane) AS epochs
                 FROM overdue.lanes AS l) AS l
     CROSS JOIN (SELECT array_agg(s.shard ORDER BY s.shard) AS shards, array_agg(s.node_id ORDER BY s.shard) AS node_ids
                 FROM overdue.shards AS s) AS s";

/// Nodes, lanes and owners.
pub(super) async fn roster(connection: &mut PgConnection) -> Result<Roster, sqlx::Error> {
    let row = sqlx::query(ROSTER).fetch_one(connection).await?;
    let nodes = or_empty::<String>(row.try_get(2)?).into_iter().zip(or_empty::<bool>(row.try_get(3)?));
    let (node_ids, lanes) = (or_empty::<String>(row.try_get(4)?), or_empty::<i16>(row.try_get(5)?));
    let lanes = node_ids.into_iter().zip(lanes).zip(or_empty::<i64>(row.try_get(6)?));
    let owners = or_empty::<i16>(row.try_get(7)?).into_iter().zip(or_empty::<Option<String>>(row.try_get(8)?));
    Ok(Roster {
        now: Some(Timestamp::from_micros(row.try_get(0)?)),
        last_epoch: row.try_get(1)?,
        nodes: nodes.collect(),
        lanes: lanes
            .map(|((node_id, lane), epoch)| Ok(Fence { node_id, lane: shard_of("lanes.lane", lane)?, epoch }))
            .collect::<Result<_, sqlx::Error>>()?,
        owners: owners.map(|(shard, owner)| Ok((shard_of("shards.shard", shard)?, owner))).collect::<Result<_, sqlx::Error>>()?,
    })
}

pub(super) const RUNS: &str = "SELECT DISTINCT h.run_id FROM overdue.history AS h
     WHERE h.shard = $1 AND h.run_id > $2 ORDER BY h.run_id LIMIT $3";

/// Runs of a shard that have history rows.
pub(super) async fn recorded_runs(
    connection: &mut PgConnection,
    place: RunPlace,
    limit: usize,
    shards: u16,
) -> Result<(Vec<RunId>, Option<RunPlace>), sqlx::Error> {
    let stored: Vec<Uuid> = sqlx::query_scalar(RUNS)
        .bind(stored(place.shard))
        .bind(place.after.map_or_else(Uuid::nil, |run_id| run_id.0))
        .bind(limit_of(limit))
        .fetch_all(connection)
        .await?;
    let runs: Vec<RunId> = stored.into_iter().map(RunId).collect();
    let next = match runs.last() {
        Some(last) => Some(RunPlace { after: Some(*last), ..place }),
        None => following(place.shard, shards).map(|shard| RunPlace { shard, after: None }),
    };
    Ok((runs, next))
}

/// Each number of a type that executions of a shard have: one step along the index a number.
pub(super) const UNNAMED: &str = "WITH RECURSIVE used (type) AS (
         (SELECT e.type FROM overdue.executions AS e WHERE e.shard = $1 ORDER BY e.type LIMIT 1)
         UNION ALL
         SELECT (SELECT e.type FROM overdue.executions AS e WHERE e.shard = $1 AND e.type > used.type ORDER BY e.type LIMIT 1)
         FROM used WHERE used.type IS NOT NULL)
     SELECT used.type FROM used
     WHERE used.type IS NOT NULL AND NOT EXISTS (SELECT FROM overdue.types AS t WHERE t.code = used.type)
     ORDER BY used.type LIMIT $2";

pub(super) const ATTRIBUTES: &str = "SELECT a.type, a.id, a.name, t.name, e.id IS NULL, e.tombstone IS NOT NULL
     FROM (SELECT a.type, a.id, a.name FROM overdue.attributes AS a
           WHERE a.shard = $1 AND (a.type, a.id, a.name) > ($2, $3, $4)
           ORDER BY a.type, a.id, a.name LIMIT $5) AS a
     LEFT JOIN overdue.types AS t ON t.code = a.type
     LEFT JOIN overdue.executions AS e ON e.shard = $1 AND e.type = a.type AND e.id = a.id
     ORDER BY a.type, a.id, a.name";

pub(super) const SIGNALS: &str = "SELECT x.type, x.id, x.signal_id, t.name
     FROM (SELECT x.type, x.id, x.signal_id FROM overdue.inbox AS x
           WHERE x.shard = $1 AND (x.type, x.id, x.signal_id) > ($2, $3, $4)
           ORDER BY x.type, x.id, x.signal_id LIMIT $5) AS x
     LEFT JOIN overdue.types AS t ON t.code = x.type
     ORDER BY x.type, x.id, x.signal_id";

pub(super) const STARTS: &str = "SELECT r.type, r.id, '', t.name
     FROM (SELECT r.type, r.id FROM overdue.starts AS r
           WHERE r.shard = $1 AND (r.type, r.id, '') > ($2, $3, $4)
           ORDER BY r.type, r.id LIMIT $5) AS r
     LEFT JOIN overdue.types AS t ON t.code = r.type
     ORDER BY r.type, r.id";

/// Rows of a shard that should not be there.
pub(super) async fn strays(
    connection: &mut PgConnection,
    place: &StrayPlace,
    limit: usize,
    shards: u16,
) -> Result<(Vec<Stray>, Option<StrayPlace>), sqlx::Error> {
    let next_kind = place.of.next().map(StrayPlace::of);
    let elsewhere = following(place.shard, shards).map(|shard| StrayPlace { shard, ..StrayPlace::of(place.of) }).or(next_kind);
    let sql = match place.of {
        Belonging::Types => {
            let unnamed = sqlx::query_scalar(UNNAMED).bind(stored(place.shard)).bind(limit_of(limit));
            let unnamed: Vec<i16> = unnamed.fetch_all(connection).await?;
            let what = |code| Stray { key: None, what: format!("there are executions of type number {code}, which has no name") };
            return Ok((unnamed.into_iter().map(what).collect(), elsewhere));
        }
        Belonging::Attributes => ATTRIBUTES,
        Belonging::Signals => SIGNALS,
        Belonging::Starts => STARTS,
    };
    let after = place.after.clone();
    let (code, id, name) = after.unwrap_or_else(|| (i16::MIN.to_string(), String::new(), String::new()));
    let code: i16 = code.parse().map_err(|_| unreadable("the place of a walk", code))?;
    let rows = sqlx::query(sql).bind(stored(place.shard)).bind(code).bind(id).bind(name).bind(limit_of(limit));
    let rows = rows.fetch_all(connection).await?;
    let mut found = Vec::new();
    for row in &rows {
        let (id, type_name): (String, Option<String>) = (row.try_get(1)?, row.try_get(3)?);
        let fault = fault_of(row, place, type_name.is_some(), shards)?;
        found.extend(fault.map(|what| Stray { key: type_name.map(|name| WorkflowKey::new(name, id)), what }));
    }
    let next = match rows.last() {
        Some(row) => {
            let last = (row.try_get::<i16, _>(0)?.to_string(), row.try_get(1)?, row.try_get(2)?);
            Some(StrayPlace { after: Some(last), ..place.clone() })
        }
        None => elsewhere,
    };
    Ok((found, next))
}

fn fault_of(row: &PgRow, place: &StrayPlace, has_type: bool, shards: u16) -> Result<Option<String>, sqlx::Error> {
    let (id, name): (String, String) = (row.try_get(1)?, row.try_get(2)?);
    let what = match place.of {
        Belonging::Types | Belonging::Attributes => {
            let (is_missing, is_retired): (bool, bool) = (row.try_get(4)?, row.try_get(5)?);
            return Ok(if is_missing || !has_type {
                Some(format!("attribute {name:?} is of no execution"))
            } else {
                is_retired.then(|| format!("attribute {name:?} is of a retired execution"))
            });
        }
        Belonging::Signals => format!("signal {name:?}"),
        Belonging::Starts => "the start that was asked for".to_owned(),
    };
    if !has_type {
        return Ok(Some(format!("{what} is for a type that has no name")));
    }
    Ok(shard_fault(&what, &id, place.shard, shards))
}

/// A shard as it is stored; a store has none that cannot be.
fn stored(shard: u16) -> i16 {
    i16::try_from(shard).unwrap_or(i16::MAX)
}

fn following(shard: u16, shards: u16) -> Option<u16> {
    shard.checked_add(1).filter(|next| *next < shards)
}
