//! Who stands still: a node, a node in the middle of its COMMIT, a process of the database.

use overdue_runtime::testing::CommitFault;
use tokio::time::sleep;

use crate::faults::commit;
use crate::node::signal_process;
use crate::world::{LEASE, World};

/// A node that stands still has been succeeded after so many leases, whatever it held.
const SUCCEEDED_AFTER: u32 = 3;

/// Stops a node for so many leases.
pub(crate) async fn stop(world: &World, n: usize, leases: f64) -> bool {
    world.nodes[n].signal("STOP").await;
    sleep(LEASE.mul_f64(leases)).await;
    world.nodes[n].signal("CONT").await;
    true
}

/// Half of a COMMIT is with the server, which therefore holds the lane's lock, and the node stands still: nobody waits for it.
pub(crate) async fn stopped_in_commit(world: &World, n: usize, alone: bool) -> bool {
    let node = &world.nodes[n];
    let struck = commit(world, n, CommitFault::Freeze).await;
    node.signal("STOP").await;
    let before = shards(world, n).await;
    sleep(LEASE * SUCCEEDED_AFTER).await;
    let after = shards(world, n).await;
    if alone && struck && !matches!(after, Ok(0)) {
        let violation = format!("{} has stood still in a commit for {SUCCEEDED_AFTER} leases and owns {after:?}", node.name);
        world.log.violated(violation);
    }
    node.signal("CONT").await;
    world.proxy(n).thaw();
    // One that owned nothing shows nothing.
    struck && before.is_ok_and(|before| before > 0)
}

/// How many shards a node owns.
async fn shards(world: &World, n: usize) -> Result<i64, sqlx::Error> {
    const OWNED: &str = "SELECT count(*) FROM overdue.shards JOIN overdue.nodes USING (node_id) WHERE url = $1";
    let mut session = world.session().await?;
    sqlx::query_scalar(OWNED).bind(world.nodes[n].url()).fetch_one(&mut session).await
}

/// Half of a COMMIT is with the server, which therefore holds the lane's lock; then both sides of the session stand still, first
/// both and then the client alone.
pub(crate) async fn stopped_backend(world: &World, n: usize) -> bool {
    let struck = commit(world, n, CommitFault::Freeze).await;
    let idle = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'overdue%' AND state = 'idle in transaction'
                ORDER BY xact_start LIMIT 1";
    let mut pid = None;
    if let Ok(mut session) = world.session().await {
        pid = sqlx::query_scalar::<_, i32>(idle).fetch_optional(&mut session).await.ok().flatten();
    }
    if let Some(pid) = pid {
        signal_process("STOP", pid.unsigned_abs()).await;
    }
    world.nodes[n].signal("STOP").await;
    sleep(LEASE * 2).await;
    if let Some(pid) = pid {
        signal_process("CONT", pid.unsigned_abs()).await;
    }
    sleep(LEASE).await;
    world.nodes[n].signal("CONT").await;
    world.proxy(n).thaw();
    struck && pid.is_some()
}
